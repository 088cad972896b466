package sqlexec

import "context"

// Statement is one SQL statement with its arguments and the function that reads its
// result.
type Statement struct {
	SQL  string
	Args []any

	// Row is called for each row, with the function that reads its columns. nil: the
	// statement returns no rows, or they are ignored.
	Row func(scan Scanner) error

	// Savepoint marks a statement that sets a savepoint: it is executed even if the server
	// refuses the text of a later statement of the same call.
	Savepoint bool
	// Affected is the number of changed rows, once the statement is done.
	Affected int64
	Done     bool
}

// Scanner copies the columns of one row to the given pointers.
type Scanner func(columns ...any) error

// Query is a statement whose rows are read.
func Query(row func(scan Scanner) error, sql string, args ...any) *Statement {
	return &Statement{SQL: sql, Args: args, Row: row}
}

// Command is a statement without rows.
func Command(sql string, args ...any) *Statement {
	return &Statement{SQL: sql, Args: args}
}

// Database runs statements through a client library. It is safe for concurrent use. Its
// errors are those of the client library.
//
// A context that ends during a statement costs the connection, and leaves the outcome of
// the statement unknown.
type Database interface {
	// Exec runs statements in one new transaction, in as few round trips as the client
	// library allows.
	Exec(ctx context.Context, statements ...*Statement) error

	// Begin starts a transaction with these statements.
	Begin(ctx context.Context, statements ...*Statement) (Transaction, error)

	// Reset closes all idle connections: they lead to a server that can no longer be
	// written to.
	Reset()

	// Pool identifies the pool of connections, which others may use too.
	Pool() any

	// Limit is the maximum number of connections at a time; 0 is without limit.
	Limit() int

	// Close closes connections that the database itself opened. No statement is in
	// progress.
	Close()
}

// Transaction is an open transaction on its own connection. One goroutine at a time uses
// it.
type Transaction interface {
	// Run runs statements in the transaction. After an error of the server, only a
	// rollback is possible, to a savepoint or of the whole transaction.
	Run(ctx context.Context, statements ...*Statement) error

	// Commit runs statements and commits. If a statement fails the transaction is still
	// open, unless it is lost.
	Commit(ctx context.Context, statements ...*Statement) error

	// Rollback undoes the transaction and never fails: if the server cannot be told, the
	// end of the connection tells it. It does nothing after the transaction has ended.
	Rollback(ctx context.Context)

	// Undo is a rollback that returns an error if the server did not confirm it: the
	// connection broke, perhaps long ago.
	Undo(ctx context.Context) error

	// Lost reports whether the transaction has ended: it was rolled back, the connection
	// broke, or a handler ended it.
	Lost() bool

	// Aborted reports whether a statement has failed, so that every statement fails
	// except a rollback to a savepoint.
	Aborted() bool

	// Lend makes the transaction usable by a handler until reclaim. It returns the client
	// library's transaction, a pgx.Tx or a *sql.Tx.
	Lend() any

	// BeginPart follows a savepoint: transactions that lend returns from now on belong to
	// that savepoint. It waits for a statement in progress, as reclaim does. EndParts is
	// called before that savepoint is rolled back: transactions lent since then become
	// unusable, and the next part begins.
	BeginPart(ctx context.Context, savepoint int)
	EndParts(ctx context.Context, savepoint int)

	// Reclaim closes statements and rows that the handler left open, and waits for a
	// statement in progress. If ctx has ended it cancels both, so that the transaction is
	// lost. The lent transaction cannot be used afterwards.
	Reclaim(ctx context.Context)
}

// RowFound records that a statement returned a row.
func RowFound(ok *bool) func(scan Scanner) error {
	return func(scan Scanner) error {
		var seq int64
		*ok = true
		return scan(&seq)
	}
}
