package sqlserver

import "context"

// statement is one SQL statement with its arguments, and what to do with its
// result.
type statement struct {
	sql  string
	args []any

	// row is called for each row, with the function that reads its columns. nil:
	// the statement returns none that matter.
	row func(scan scanner) error

	// affected is how many rows it changed, once it is done.
	affected int64
	done     bool
}

// scanner copies the columns of one row to where the pointers show.
type scanner func(columns ...any) error

// query is a statement whose rows matter.
func query(row func(scan scanner) error, sql string, args ...any) *statement {
	return &statement{sql: sql, args: args, row: row}
}

// command is a statement without rows.
func command(sql string, args ...any) *statement {
	return &statement{sql: sql, args: args}
}

// database runs statements through a client library. It is safe for concurrent
// use. Its errors are those of the client library.
//
// A context that ends while a statement is under way costs the connection, and
// nobody knows whether the statement was carried out.
type database interface {
	// exec runs statements in one transaction of their own, in as few round trips
	// as the client library allows.
	exec(ctx context.Context, statements ...*statement) error

	// begin starts a transaction with these statements.
	begin(ctx context.Context, statements ...*statement) (transaction, error)

	// reset gives up all connections that are idle: they lead to a server that can
	// no longer be written to.
	reset()

	// pool identifies the pool of connections, which may be used by others too.
	pool() any

	// limit is how many connections there can be at a time; 0 is without limit.
	limit() int

	// close gives up what the database itself opened. Nothing runs any more.
	close()
}

// transaction is one under way, on a connection of its own. It is used by one
// goroutine at a time.
type transaction interface {
	// run runs statements in it. After an error of the server's, only a rollback to
	// a savepoint, or of all of it, is possible.
	run(ctx context.Context, statements ...*statement) error

	// commit runs statements and commits. Where a statement failed the transaction
	// is still under way, unless lost.
	commit(ctx context.Context, statements ...*statement) error

	// rollback ends it without a trace, and never fails: where the server cannot be
	// told, the end of the connection tells it. Of one that has ended it does nothing.
	rollback(ctx context.Context)

	// undo is a rollback that returns an error if the server did not confirm it: the
	// connection broke, perhaps long ago.
	undo(ctx context.Context) error

	// lost reports whether it has ended: it was rolled back, the connection broke, or
	// a handler ended it.
	lost() bool

	// aborted reports whether a statement has failed, so that all but a rollback to
	// a savepoint fails too.
	aborted() bool

	// lend makes the transaction usable for a handler until reclaim. It returns the
	// client library's own, a pgx.Tx or a *sql.Tx.
	lend() any

	// beginPart follows a savepoint: what lend returns from now on belongs to it. It waits
	// for a statement that is in progress, as reclaim does. endParts is called before that
	// savepoint is rolled back: what was lent since can be used no more, and the
	// next part begins.
	beginPart(ctx context.Context, savepoint int)
	endParts(ctx context.Context, savepoint int)

	// reclaim closes what the handler left open, and waits for a statement that is
	// under way. When ctx has ended it cuts both off, so that the transaction is lost.
	// The lent transaction cannot be used afterwards.
	reclaim(ctx context.Context)
}
