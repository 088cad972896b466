// Package rowlog remembers facts about rows that their tables cannot store: failures that
// could not be counted, and messages that a rollback has given back.
package rowlog
