// Package serverurl reads the URLs of servers as the client libraries do, and says what is
// wrong with a URL, or insecure about its connections, without quoting a secret.
package serverurl
