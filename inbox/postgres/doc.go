// Package postgres is a store of package inbox in PostgreSQL 13 and later. It uses pgx
// ([New]), where the entry needs no round trip in addition to those of the handler's
// transaction, or database/sql ([NewSQL]).
//
//	store, err := postgres.New(pool, postgres.Config{})
//	...
//	box, err := inbox.New(inbox.Config{Store: store})
//
// A handler gets its transaction with [Tx] or [SQLTx]. Each message being handled uses a
// connection of the pool: the pool needs as many as the endpoints handle messages at the
// same time (core.Config.Concurrency), and a few for other uses.
package postgres
