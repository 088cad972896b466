// Package sqlexec runs statements through a client library: pgx, in as few round trips as
// possible, or database/sql. It knows neither tables nor messages.
package sqlexec
