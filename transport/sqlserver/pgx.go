package sqlserver

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/transport"
)

// pgxDatabase is PostgreSQL through pgx. Statements that belong together travel
// together: one round trip, whatever their number.
type pgxDatabase struct {
	connections *pgxpool.Pool
	owned       bool // opened by us, without a limit unless the URL names one
	most        int
}

// unreachedError is the error of statements that were never sent.
type unreachedError struct{ err error }

func (e *unreachedError) Error() string { return e.err.Error() }
func (e *unreachedError) Unwrap() error { return e.err }

// staleConnections is how many connections of the pool may turn out to be dead, one
// after the other, before a statement gives up: those that were idle when the
// server was restarted. After the second the idle ones are closed.
const staleConnections = 5

func (d *pgxDatabase) exec(ctx context.Context, statements ...*statement) error {
	return d.retried(func() error {
		conn, err := d.connections.Acquire(ctx)
		if err != nil {
			return &unreachedError{err}
		}
		defer conn.Release()
		return runPgx(ctx, conn.Conn(), statements)
	})
}

// retried repeats what failed because of a dead connection before anything was
// sent.
func (d *pgxDatabase) retried(do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		var unreached *unreachedError
		if err == nil || errors.As(err, &unreached) || !pgconn.SafeToRetry(err) || attempt == staleConnections {
			return err
		}
		if attempt > 1 {
			d.reset() // the others have died too, it seems
		}
	}
}

func (d *pgxDatabase) begin(ctx context.Context, statements ...*statement) (transaction, error) {
	var tx *pgxTransaction
	err := d.retried(func() error {
		conn, err := d.connections.Acquire(ctx)
		if err != nil {
			return &unreachedError{err}
		}
		batch := &pgx.Batch{QueuedQueries: make([]*pgx.QueuedQuery, 0, 1+len(statements))}
		batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted}) // whatever the database's default is
		native, err := runBatch(ctx, conn.Conn(), batch, statements)
		if err != nil {
			conn.Release() // which closes it if it is in a transaction
			return err
		}
		tx = &pgxTransaction{pooled: conn, conn: conn.Conn(), native: native}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return tx, nil
}

func (d *pgxDatabase) reset() { d.connections.Reset() }

func (d *pgxDatabase) pool() any { return d.connections }

func (d *pgxDatabase) limit() int { return d.most }

func (d *pgxDatabase) close() {
	if d.owned {
		d.connections.Close()
	}
}

// batchSender is a connection, or a transaction of a user's.
type batchSender interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// runPgx runs statements in one round trip. Outside a transaction they are one of
// their own.
func runPgx(ctx context.Context, on batchSender, statements []*statement) error {
	if len(statements) == 1 {
		s := statements[0]
		rows, err := on.Query(ctx, s.sql, s.args...)
		if err != nil {
			return err
		}
		return s.read(rows)
	}
	batch := &pgx.Batch{QueuedQueries: make([]*pgx.QueuedQuery, 0, len(statements))}
	_, err := runBatch(ctx, on, batch, statements)
	return err
}

// runBatch runs a batch with statements, and returns the transaction that it begins.
func runBatch(ctx context.Context, on batchSender, batch *pgx.Batch, statements []*statement) (pgx.Tx, error) {
	for _, s := range statements {
		batch.Queue(s.sql, s.args...)
	}
	results := on.SendBatch(ctx, batch)
	tx := results.Tx()
	if tx != nil {
		if _, err := results.Exec(); err != nil { // the BEGIN
			_ = results.Close()
			return nil, err
		}
	}
	for _, s := range statements {
		rows, err := results.Query()
		if err == nil {
			err = s.read(rows)
		}
		if err != nil {
			_ = results.Close() // it repeats the error
			return nil, err
		}
	}
	return tx, results.Close()
}

// read hands the rows to the statement.
func (s *statement) read(rows pgx.Rows) error {
	defer rows.Close()
	if s.row != nil {
		scan := scanner(rows.Scan) // once, not for each row
		for rows.Next() {
			if err := s.row(scan); err != nil {
				return transport.Permanent(fmt.Errorf("read a row (with the option default_query_exec_mode, sessions need DateStyle ISO and bytea_output hex): %w", err))
			}
		}
	}
	rows.Close()
	s.affected, s.done = rows.CommandTag().RowsAffected(), rows.Err() == nil
	return rows.Err()
}

// isAboutText reports whether an error is about the text of a statement. Of those that
// are sent together, the server may read all texts before it carries out the first.
func isAboutText(err error) bool {
	server, ok := errors.AsType[*pgconn.PgError](err)
	return ok && server.Position > 0
}

var errAborted = errors.New("a statement in the transaction has failed, so that it cannot be committed")

// pgxTransaction is one that was begun together with its first statements. Once it has
// let go of its connection it has none: that is somebody else's by then, who may have
// a transaction under way on it.
type pgxTransaction struct {
	pooled *pgxpool.Conn
	conn   *pgx.Conn // nil: it has ended
	native pgx.Tx    // for the handler; it never commits or rolls back by itself
	lent   *loan
	parts  []*loanPart // of what is lent, one for each savepoint
}

func (tx *pgxTransaction) run(ctx context.Context, statements ...*statement) error {
	if tx.conn == nil {
		return errEnded
	}
	if tx.aborted() { // only a rollback is possible, to a savepoint or of all
		return tx.runUnprepared(ctx, statements)
	}
	return runPgx(ctx, tx.conn, statements)
}

// runUnprepared runs statements without arguments. pgx forgets prepared statements that
// were in a batch that failed, but the server does not as long as the transaction is
// aborted: to prepare them again would fail.
func (tx *pgxTransaction) runUnprepared(ctx context.Context, statements []*statement) error {
	for _, s := range statements {
		tag, err := tx.conn.Exec(ctx, s.sql)
		s.affected, s.done = tag.RowsAffected(), err == nil
		if err != nil {
			return err
		}
	}
	return nil
}

func (tx *pgxTransaction) commit(ctx context.Context, statements ...*statement) error {
	if tx.aborted() {
		return errAborted // a COMMIT would roll back without an error
	}
	err := tx.run(ctx, append(slices.Clip(statements), command("commit"))...)
	if err == nil {
		tx.release()
	}
	return err
}

func (tx *pgxTransaction) rollback(ctx context.Context) { _ = tx.undo(ctx) }

func (tx *pgxTransaction) undo(ctx context.Context) error {
	if tx.conn == nil {
		return errEnded
	}
	err := errEnded
	if !tx.lost() {
		// Whether it succeeds or not: the pool closes what is still in a transaction.
		err = tx.run(ctx, command("rollback"))
	}
	tx.release()
	return err
}

// release gives the connection back to the pool.
func (tx *pgxTransaction) release() {
	tx.pooled.Release()
	tx.pooled, tx.conn = nil, nil
}

func (tx *pgxTransaction) lost() bool {
	return tx.conn == nil || tx.conn.IsClosed() || tx.conn.PgConn().TxStatus() == 'I'
}

func (tx *pgxTransaction) aborted() bool {
	return tx.conn != nil && tx.conn.PgConn().TxStatus() == 'E'
}

func (tx *pgxTransaction) lend() any {
	if tx.lent == nil {
		tx.lent = &loan{tx: tx.native}
	}
	lent := &lentTx{loan: tx.lent, Tx: tx.native, outermost: true}
	if last := len(tx.parts) - 1; last >= 0 {
		lent.part = tx.parts[last]
	}
	return lent
}

func (tx *pgxTransaction) beginPart(ctx context.Context, savepoint int) {
	tx.quiet(ctx)
	tx.parts = append(tx.parts, &loanPart{savepoint: savepoint})
}

func (tx *pgxTransaction) endParts(ctx context.Context, savepoint int) {
	for i, part := range tx.parts {
		if part.savepoint >= savepoint {
			part.ended.Store(true)
			tx.parts[i] = nil
		}
	}
	tx.parts = slices.DeleteFunc(tx.parts, func(part *loanPart) bool { return part == nil })
	tx.beginPart(ctx, savepoint)
}

// quiet waits until the connection is free of what the handler does. Where it is cut off,
// the transaction is lost.
func (tx *pgxTransaction) quiet(ctx context.Context) {
	if tx.lent != nil && tx.conn != nil && !tx.lent.quiet(ctx) {
		tx.giveUpConnection()
	}
}

// giveUpConnection takes the connection from the pool, which would look at it.
func (tx *pgxTransaction) giveUpConnection() {
	tx.pooled.Hijack()
	tx.pooled, tx.conn = nil, nil
}

func (tx *pgxTransaction) reclaim(ctx context.Context) {
	if tx.lent == nil {
		return
	}
	if !tx.lent.end(ctx) && tx.conn != nil {
		tx.giveUpConnection()
	}
	tx.lent, tx.parts = nil, nil
}
