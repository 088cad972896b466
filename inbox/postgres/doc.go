// Package postgres is a store of package inbox in PostgreSQL 13 and later: through pgx
// ([New]), where the entry costs no round trip beside the handler's transaction, or through
// database/sql ([NewSQL]).
//
//	store, err := postgres.New(pool, postgres.Config{})
//	...
//	box, err := inbox.New(inbox.Config{Store: store})
//
// A handler gets its transaction with [Tx] or [SQLTx]. Each message that is being handled
// holds a connection of the pool: it needs as many as the endpoints handle messages at a
// time (core.Config.Concurrency), and a few for others.
package postgres
