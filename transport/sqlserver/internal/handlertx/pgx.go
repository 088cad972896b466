// Package handlertx lends the transaction of a message to its handler: as a pgx.Tx or a
// *sql.Tx that the handler can neither commit nor roll back, and that ends with the
// handler.
package handlertx

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Pgx lends a message's transaction to its handler. After the handler has returned,
// results that it left open are closed, and its transaction cannot be used any more: by
// then the connection may belong to another message.
type Pgx struct {
	tx    pgx.Tx
	ended atomic.Bool
	parts []*part // one for each savepoint

	mu   sync.Mutex // held while a statement is being sent; guards open
	open func()     // closes the newest result, which the handler may be reading, or have left open; or nil
}

// NewPgx returns a transaction to lend. tx never commits or rolls back by itself.
func NewPgx(tx pgx.Tx) *Pgx { return &Pgx{tx: tx} }

// Tx returns the transaction for the handler. It is usable until End, or until EndParts
// ends the part that it belongs to.
func (l *Pgx) Tx() pgx.Tx {
	tx := &handlerTx{lent: l, Tx: l.tx, root: true}
	if last := len(l.parts) - 1; last >= 0 {
		tx.part = l.parts[last]
	}
	return tx
}

// BeginPart begins a part after a savepoint.
func (l *Pgx) BeginPart(savepoint int) {
	l.parts = append(l.parts, &part{savepoint: savepoint})
}

// EndParts ends the parts since a savepoint, which is rolled back.
func (l *Pgx) EndParts(savepoint int) {
	l.parts = slices.DeleteFunc(l.parts, func(p *part) bool {
		if p.savepoint < savepoint {
			return false
		}
		p.ended.Store(true)
		return true
	})
}

// End takes the transaction back, and reports whether the connection is free. Until ctx
// ends it waits for a statement in progress, and reads the rest of a result that the
// handler has not closed. Then it closes the network connection: the handler, or one of
// its goroutines, may still be using it, so no other user may have it.
func (l *Pgx) End(ctx context.Context) (free bool) {
	l.ended.Store(true) // later users of mu do nothing
	return l.Quiet(ctx)
}

// Quiet waits until the connection is free, as End does.
func (l *Pgx) Quiet(ctx context.Context) (free bool) {
	if !l.mu.TryLock() {
		if !l.await(ctx) {
			return false
		}
		l.mu.Lock()
	}
	defer l.mu.Unlock()
	switch {
	case l.open == nil:
		return true
	case ctx.Err() != nil: // the handler may still be running
		l.cut()
		return false
	case !l.tx.Conn().PgConn().IsBusy():
		return true
	}
	stop := context.AfterFunc(ctx, l.cut)
	l.open()
	l.open = nil
	return stop()
}

// await waits for the end of a statement in progress. If ctx ends first, it cuts the
// connection.
func (l *Pgx) await(ctx context.Context) bool {
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.mu.Lock()
		defer l.mu.Unlock()
	}()
	select {
	case <-over:
		return true
	case <-ctx.Done():
		l.cut()
		return false
	}
}

// cut closes the network connection, which is allowed at any time.
func (l *Pgx) cut() { _ = l.tx.Conn().PgConn().Conn().Close() }

// part is the part of a transaction since a savepoint. It ends when that savepoint is
// rolled back.
type part struct {
	savepoint int
	ended     atomic.Bool
}

// use calls f while the transaction is the handler's.
func (tx *handlerTx) use(f func() error) error {
	tx.lent.mu.Lock()
	defer tx.lent.mu.Unlock()
	switch {
	case tx.lent.ended.Load():
		return fmt.Errorf("sqlserver: the message that this transaction belongs to is settled: %w", pgx.ErrTxClosed)
	case tx.part != nil && tx.part.ended.Load():
		return fmt.Errorf("sqlserver: the part of the attempt that got this transaction was rolled back to a savepoint; get it again with Tx: %w", pgx.ErrTxClosed)
	}
	return f()
}

// handlerTx is the handler's view of the transaction, or a transaction nested in it. One
// goroutine at a time uses it, as every pgx.Tx.
type handlerTx struct {
	pgx.Tx // pgx's own
	lent   *Pgx
	part   *part // nil before the first savepoint
	root   bool  // the message's own
}

// errNotYours is the error of Commit and Rollback.
var errNotYours = errors.New("sqlserver: the transaction belongs to the message: return nil from the handler to commit it, an error to roll it back")

// endsTransaction reports whether a statement begins, commits or rolls back the whole
// transaction. It finds mistakes, not disguised statements.
func endsTransaction(sql string) bool {
	words := strings.FieldsFunc(sql[:min(len(sql), 80)], func(c rune) bool { return unicode.IsSpace(c) || c == ';' })
	if len(words) == 0 {
		return false
	}
	switch strings.ToLower(words[0]) {
	case "begin", "start", "commit", "end", "abort":
		return true
	case "rollback":
		return !slices.ContainsFunc(words[1:], func(word string) bool { return strings.EqualFold(word, "to") })
	case "prepare":
		return len(words) > 1 && strings.EqualFold(words[1], "transaction")
	}
	return false
}

// Begin begins a nested transaction (a savepoint).
func (tx *handlerTx) Begin(ctx context.Context) (nested pgx.Tx, err error) {
	err = tx.use(func() error {
		inner, err := tx.Tx.Begin(ctx)
		if err == nil {
			nested = &handlerTx{Tx: inner, lent: tx.lent, part: tx.part}
		}
		return err
	})
	return nested, err
}

// Commit commits a nested transaction.
func (tx *handlerTx) Commit(ctx context.Context) error {
	if tx.root {
		return errNotYours
	}
	return tx.use(func() error { return tx.Tx.Commit(ctx) })
}

// Rollback rolls back a nested transaction. On the message's own transaction it only
// returns an error: the call may well be deferred.
func (tx *handlerTx) Rollback(ctx context.Context) error {
	if tx.root {
		return errNotYours
	}
	return tx.use(func() error { return tx.Tx.Rollback(ctx) })
}

// Exec implements pgx.Tx. It refuses statements that end the transaction.
func (tx *handlerTx) Exec(ctx context.Context, sql string, args ...any) (tag pgconn.CommandTag, err error) {
	if endsTransaction(sql) {
		return tag, errNotYours
	}
	err = tx.use(func() error {
		tag, err = tx.Tx.Exec(ctx, sql, args...)
		if err == nil {
			tx.lent.open = nil // otherwise the connection would have been busy
		}
		return err
	})
	return tag, err
}

// Query implements pgx.Tx.
func (tx *handlerTx) Query(ctx context.Context, sql string, args ...any) (rows pgx.Rows, err error) {
	err = tx.use(func() error {
		rows, err = tx.Tx.Query(ctx, sql, args...)
		if err == nil {
			tx.lent.open = rows.Close
		}
		return err
	})
	if rows == nil {
		rows = noRows{err: err}
	}
	return rows, err
}

// QueryRow implements pgx.Tx.
func (tx *handlerTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	rows, err := tx.Query(ctx, sql, args...)
	if err != nil { // Scan returns the error
		return firstRow{rows: rows}
	}
	return firstRow{rows, tx.lent}
}

// SendBatch implements pgx.Tx.
func (tx *handlerTx) SendBatch(ctx context.Context, b *pgx.Batch) (results pgx.BatchResults) {
	err := tx.use(func() error {
		busy := tx.Conn().PgConn().IsBusy() // with a result that is still open, so that this fails
		results = tx.Tx.SendBatch(ctx, b)
		if !busy {
			tx.lent.open = func() { _ = results.Close() }
		}
		return nil
	})
	if err != nil {
		return noResults{err}
	}
	return results
}

// CopyFrom implements pgx.Tx.
func (tx *handlerTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (n int64, err error) {
	err = tx.use(func() error {
		n, err = tx.Tx.CopyFrom(ctx, table, columns, source)
		return err
	})
	return n, err
}

// Prepare implements pgx.Tx.
func (tx *handlerTx) Prepare(ctx context.Context, name, sql string) (description *pgconn.StatementDescription, err error) {
	err = tx.use(func() error {
		description, err = tx.Tx.Prepare(ctx, name, sql)
		return err
	})
	return description, err
}

// firstRow is the result of QueryRow.
type firstRow struct {
	rows pgx.Rows
	lent *Pgx // nil: there is no result
}

// Scan implements pgx.Row.
func (r firstRow) Scan(dest ...any) error {
	defer r.close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return pgx.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	r.rows.Close()
	return r.rows.Err()
}

// close closes the rows.
func (r firstRow) close() {
	r.rows.Close()
	if r.lent != nil {
		r.lent.mu.Lock()
		defer r.lent.mu.Unlock()
		r.lent.open = nil
	}
}

// noRows is the result of a query that was not sent.
type noRows struct {
	pgx.Rows
	err error
}

func (r noRows) Close()                                       {}
func (r noRows) Err() error                                   { return r.err }
func (r noRows) Next() bool                                   { return false }
func (r noRows) Scan(...any) error                            { return r.err }
func (r noRows) CommandTag() pgconn.CommandTag                { return pgconn.CommandTag{} }
func (r noRows) FieldDescriptions() []pgconn.FieldDescription { return nil }
func (r noRows) Values() ([]any, error)                       { return nil, r.err }
func (r noRows) RawValues() [][]byte                          { return nil }
func (r noRows) Conn() *pgx.Conn                              { return nil }

// noResults is the result of a batch that was not sent.
type noResults struct{ err error }

func (r noResults) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, r.err }
func (r noResults) Query() (pgx.Rows, error)         { return noRows{err: r.err}, r.err }
func (r noResults) QueryRow() pgx.Row                { return firstRow{rows: noRows{err: r.err}} }
func (r noResults) Close() error                     { return r.err }
func (r noResults) Tx() pgx.Tx                       { return nil }
