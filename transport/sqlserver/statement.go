package sqlserver

import "context"

// statement is one SQL statement with its arguments and the function that reads its
// result.
type statement struct {
	sql  string
	args []any

	// row is called for each row, with the function that reads its columns. nil: the
	// statement returns no rows, or they are ignored.
	row func(scan scanner) error

	// affected is the number of changed rows, once the statement is done.
	affected int64
	done     bool
}

// scanner copies the columns of one row to the given pointers.
type scanner func(columns ...any) error

// query is a statement whose rows are read.
func query(row func(scan scanner) error, sql string, args ...any) *statement {
	return &statement{sql: sql, args: args, row: row}
}

// command is a statement without rows.
func command(sql string, args ...any) *statement {
	return &statement{sql: sql, args: args}
}

// database runs statements through a client library. It is safe for concurrent use. Its
// errors are those of the client library.
//
// A context that ends during a statement costs the connection, and leaves the outcome of
// the statement unknown.
type database interface {
	// exec runs statements in one new transaction, in as few round trips as the client
	// library allows.
	exec(ctx context.Context, statements ...*statement) error

	// begin starts a transaction with these statements.
	begin(ctx context.Context, statements ...*statement) (transaction, error)

	// reset closes all idle connections: they lead to a server that can no longer be
	// written to.
	reset()

	// pool identifies the pool of connections, which others may use too.
	pool() any

	// limit is the maximum number of connections at a time; 0 is without limit.
	limit() int

	// close closes connections that the database itself opened. No statement is in
	// progress.
	close()
}

// transaction is an open transaction on its own connection. One goroutine at a time uses
// it.
type transaction interface {
	// run runs statements in the transaction. After an error of the server, only a
	// rollback is possible, to a savepoint or of the whole transaction.
	run(ctx context.Context, statements ...*statement) error

	// commit runs statements and commits. If a statement fails the transaction is still
	// open, unless it is lost.
	commit(ctx context.Context, statements ...*statement) error

	// rollback undoes the transaction and never fails: if the server cannot be told, the
	// end of the connection tells it. It does nothing after the transaction has ended.
	rollback(ctx context.Context)

	// undo is a rollback that returns an error if the server did not confirm it: the
	// connection broke, perhaps long ago.
	undo(ctx context.Context) error

	// lost reports whether the transaction has ended: it was rolled back, the connection
	// broke, or a handler ended it.
	lost() bool

	// aborted reports whether a statement has failed, so that every statement fails
	// except a rollback to a savepoint.
	aborted() bool

	// lend makes the transaction usable by a handler until reclaim. It returns the client
	// library's transaction, a pgx.Tx or a *sql.Tx.
	lend() any

	// beginPart follows a savepoint: transactions that lend returns from now on belong to
	// that savepoint. It waits for a statement in progress, as reclaim does. endParts is
	// called before that savepoint is rolled back: transactions lent since then become
	// unusable, and the next part begins.
	beginPart(ctx context.Context, savepoint int)
	endParts(ctx context.Context, savepoint int)

	// reclaim closes statements and rows that the handler left open, and waits for a
	// statement in progress. If ctx has ended it cancels both, so that the transaction is
	// lost. The lent transaction cannot be used afterwards.
	reclaim(ctx context.Context)
}
