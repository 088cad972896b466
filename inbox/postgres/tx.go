package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

type txKey struct{}

// errNotYours is the error of Commit and Rollback.
var errNotYours = errors.New("inbox/postgres: the transaction belongs to the inbox: return nil from the handler to commit it, an error to roll it back")

// Tx returns the transaction of the message being handled, for a store of [New]: a
// handler's writes in it happen once. ctx is the handler's. One goroutine at a time may
// use the transaction, until the handler returns. Commit and Rollback return an error and
// do nothing; Begin begins a nested transaction (a savepoint). A statement that fails
// aborts the transaction, as always in PostgreSQL: use a nested one for a statement that
// may fail.
func Tx(ctx context.Context) (pgx.Tx, error) {
	tx, ok := ctx.Value(txKey{}).(pgx.Tx)
	if !ok {
		return nil, noTx(ctx, "SQLTx")
	}
	return tx, nil
}

// SQLTx is Tx for a store of [NewSQL].
func SQLTx(ctx context.Context) (Querier, error) {
	tx, ok := ctx.Value(txKey{}).(Querier)
	if !ok {
		return nil, noTx(ctx, "Tx")
	}
	return tx, nil
}

func noTx(ctx context.Context, other string) error {
	if ctx.Value(txKey{}) != nil {
		return fmt.Errorf("inbox/postgres: the transaction in this context is another store's: get it with %s", other)
	}
	return errors.New("inbox/postgres: there is no transaction in this context: pass that of a handler whose endpoint has an inbox with this store")
}

// WithTx returns a context in which Tx finds tx. It is for the test of a handler, in a
// transaction that the test rolls back.
func WithTx(ctx context.Context, tx pgx.Tx) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}

// WithSQLTx is WithTx for [SQLTx].
func WithSQLTx(ctx context.Context, tx Querier) context.Context {
	return context.WithValue(ctx, txKey{}, tx)
}

// Querier has the operations on a database/sql transaction that a handler may use. Most
// code that takes a *sql.Tx needs no others. It has no Commit.
type Querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
}

// endsTransaction reports whether a statement ends the transaction. It detects mistakes,
// not attempts to hide the statement.
func endsTransaction(statement string) bool {
	words := strings.FieldsFunc(strings.ToLower(statement[:min(len(statement), 80)]), func(c rune) bool { return unicode.IsSpace(c) || c == ';' })
	if len(words) == 0 {
		return false
	}
	switch words[0] {
	case "begin", "start", "commit", "end", "abort":
		return true
	case "rollback":
		return !slices.Contains(words, "to")
	case "prepare":
		return len(words) > 1 && words[1] == "transaction"
	}
	return false
}

// handlerTx is the transaction on a connection as the handler sees it. It is not one of
// pgx's own, whose Begin would take a separate round trip.
type handlerTx struct {
	conn   *pgxpool.Conn
	level  int    // 0 for the message's own transaction; others are nested
	nested *int   // number of savepoints created
	open   func() // closes the newest rows, which a handler may have left open; or nil
	ended  *atomic.Bool
	done   bool // a nested transaction that has ended
	outer  *handlerTx
}

func newHandlerTx(conn *pgxpool.Conn) *handlerTx {
	tx := &handlerTx{conn: conn, nested: new(int), ended: new(atomic.Bool)}
	tx.outer = tx
	return tx
}

// usable returns an error if the transaction cannot be used.
func (tx *handlerTx) usable(statement string) error {
	switch {
	case tx.ended.Load():
		return fmt.Errorf("inbox/postgres: the transaction of this message has ended: %w", pgx.ErrTxClosed)
	case tx.done:
		return pgx.ErrTxClosed
	case endsTransaction(statement):
		return errNotYours
	}
	return nil
}

// Begin implements pgx.Tx.
func (tx *handlerTx) Begin(ctx context.Context) (pgx.Tx, error) {
	*tx.nested++
	inner := &handlerTx{conn: tx.conn, level: *tx.nested, nested: tx.nested, ended: tx.ended, outer: tx.outer}
	if err := tx.savepoint(ctx, "savepoint", inner.level); err != nil {
		return nil, err
	}
	return inner, nil
}

func (tx *handlerTx) savepoint(ctx context.Context, operation string, level int) error {
	_, err := tx.Exec(ctx, fmt.Sprintf("%s reprise_%d", operation, level))
	return err
}

// Commit implements pgx.Tx.
func (tx *handlerTx) Commit(ctx context.Context) error { return tx.end(ctx, "release savepoint") }

// Rollback implements pgx.Tx.
func (tx *handlerTx) Rollback(ctx context.Context) error { return tx.end(ctx, "rollback to savepoint") }

func (tx *handlerTx) end(ctx context.Context, how string) error {
	if tx.level == 0 {
		return errNotYours
	}
	err := tx.savepoint(ctx, how, tx.level)
	tx.done = true
	return err
}

// Exec implements pgx.Tx.
func (tx *handlerTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := tx.usable(sql); err != nil {
		return pgconn.CommandTag{}, err
	}
	return tx.conn.Exec(ctx, sql, args...)
}

// Query implements pgx.Tx.
func (tx *handlerTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := tx.usable(sql); err != nil {
		return failedRows{err: err}, err
	}
	rows, err := tx.conn.Query(ctx, sql, args...)
	if err == nil {
		tx.outer.open = rows.Close
	}
	return rows, err
}

// QueryRow implements pgx.Tx.
func (tx *handlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := tx.usable(sql); err != nil {
		return failedRows{err: err}
	}
	return tx.conn.QueryRow(ctx, sql, args...)
}

// SendBatch implements pgx.Tx.
func (tx *handlerTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, queued := range b.QueuedQueries {
		if err := tx.usable(queued.SQL); err != nil {
			return failedBatch{err}
		}
	}
	results := tx.conn.SendBatch(ctx, b)
	tx.outer.open = func() { _ = results.Close() }
	return results
}

// CopyFrom implements pgx.Tx.
func (tx *handlerTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	if err := tx.usable(""); err != nil {
		return 0, err
	}
	return tx.conn.CopyFrom(ctx, table, columns, source)
}

// Prepare implements pgx.Tx.
func (tx *handlerTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := tx.usable(sql); err != nil {
		return nil, err
	}
	return tx.conn.Conn().Prepare(ctx, name, sql)
}

// LargeObjects implements pgx.Tx. It costs a round trip, because only a transaction of
// pgx has large objects.
func (tx *handlerTx) LargeObjects() pgx.LargeObjects {
	own, err := tx.conn.Conn().BeginTx(context.Background(), pgx.TxOptions{BeginQuery: "select 1"})
	if err != nil {
		panic(fmt.Errorf("inbox/postgres: large objects: %w", err)) // the method returns no error; a panic fails the attempt
	}
	return own.LargeObjects()
}

// Conn implements pgx.Tx.
func (tx *handlerTx) Conn() *pgx.Conn { return tx.conn.Conn() }

// failedRows is the result of a statement that was not executed.
type failedRows struct {
	pgx.Rows
	err error
}

func (r failedRows) Close()            {}
func (r failedRows) Err() error        { return r.err }
func (r failedRows) Next() bool        { return false }
func (r failedRows) Scan(...any) error { return r.err }

// failedBatch is the result of a batch that was not sent.
type failedBatch struct{ err error }

func (b failedBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b failedBatch) Query() (pgx.Rows, error)         { return failedRows{err: b.err}, b.err }
func (b failedBatch) QueryRow() pgx.Row                { return failedRows{err: b.err} }
func (b failedBatch) Close() error                     { return b.err }
func (b failedBatch) Tx() pgx.Tx                       { return nil }
