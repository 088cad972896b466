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
	"github.com/reprise-go/reprise/transport/sqlserver/internal/handlertx"
)

// pgxDatabase is PostgreSQL through pgx. Statements that belong together are sent
// together: one round trip for any number of them.
type pgxDatabase struct {
	connections *pgxpool.Pool
	owned       bool // opened by us
	most        int
}

// newPgxDatabase returns the database of an existing pool, with the limit of its
// connections. It is not closed.
func newPgxDatabase(pool *pgxpool.Pool, limit int) *pgxDatabase {
	return &pgxDatabase{connections: pool, most: limit}
}

// openPgxDatabase opens a pool, with the limit of its connections or 0 for none.
func openPgxDatabase(cfg *pgxpool.Config, limit int) (*pgxDatabase, error) {
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	return &pgxDatabase{connections: pool, owned: true, most: limit}, nil
}

// unreachedError is the error of statements that were never sent.
type unreachedError struct{ err error }

func (e *unreachedError) Error() string { return e.err.Error() }
func (e *unreachedError) Unwrap() error { return e.err }

// staleConnections is how many dead connections of the pool a statement tries before it
// gives up: connections that were idle when the server was restarted. After the second
// one the idle connections are closed.
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

// retried repeats statements that failed because of a dead connection before they were
// sent.
func (d *pgxDatabase) retried(do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		var unreached *unreachedError
		if err == nil || errors.As(err, &unreached) || !pgconn.SafeToRetry(err) || attempt == staleConnections {
			return err
		}
		if attempt > 1 {
			d.reset() // the others have probably died too
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
		batch.BeginTx(pgx.TxOptions{IsoLevel: pgx.ReadCommitted}) // regardless of the database's default
		native, err := runBatch(ctx, conn.Conn(), batch, statements)
		if err != nil {
			conn.Release() // closes the connection if it is in a transaction
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

// batchSender is a connection, or a user's transaction.
type batchSender interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// runPgx runs statements in one round trip. Outside a transaction they are a transaction
// themselves.
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

// read passes the rows to the statement.
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

// isAboutText reports whether an error is about the text of a statement. If statements
// are sent together, the server may parse all texts before it executes the first.
func isAboutText(err error) bool {
	server, ok := errors.AsType[*pgconn.PgError](err)
	return ok && server.Position > 0
}

// errEnded is the error of a transaction that has ended without another error.
var errEnded = errors.New("the transaction has ended: its connection broke, or the handler ended it")

var errAborted = errors.New("a statement in the transaction has failed, so that it cannot be committed")

// pgxTransaction is a transaction that was begun together with its first statements.
// After it has released its connection it has none: by then another user may have a
// transaction on it.
type pgxTransaction struct {
	pooled *pgxpool.Conn
	conn   *pgx.Conn      // nil: the transaction has ended
	native pgx.Tx         // for the handler; it never commits or rolls back by itself
	lent   *handlertx.Pgx // nil: the handler has not asked for it
}

func (tx *pgxTransaction) run(ctx context.Context, statements ...*statement) error {
	if tx.conn == nil {
		return errEnded
	}
	if tx.aborted() { // only a rollback is possible, to a savepoint or of the whole transaction
		return tx.runUnprepared(ctx, statements)
	}
	return runPgx(ctx, tx.conn, statements)
}

// runUnprepared runs statements without arguments. pgx forgets prepared statements of a
// failed batch, but the server keeps them while the transaction is aborted: to prepare
// them again would fail.
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
		// The result does not matter: the pool closes a connection that is still in a
		// transaction.
		err = tx.run(ctx, command("rollback"))
	}
	tx.release()
	return err
}

// release returns the connection to the pool.
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

func (tx *pgxTransaction) lend() any { return tx.handler().Tx() }

// handler returns what lends the transaction to the handler.
func (tx *pgxTransaction) handler() *handlertx.Pgx {
	if tx.lent == nil {
		tx.lent = handlertx.NewPgx(tx.native)
	}
	return tx.lent
}

func (tx *pgxTransaction) beginPart(ctx context.Context, savepoint int) {
	tx.quiet(ctx)
	tx.handler().BeginPart(savepoint)
}

func (tx *pgxTransaction) endParts(ctx context.Context, savepoint int) {
	tx.handler().EndParts(savepoint)
	tx.beginPart(ctx, savepoint)
}

// quiet waits until the handler no longer uses the connection. If the connection is cut,
// the transaction is lost.
func (tx *pgxTransaction) quiet(ctx context.Context) {
	if tx.lent != nil && tx.conn != nil && !tx.lent.Quiet(ctx) {
		tx.giveUpConnection()
	}
}

// giveUpConnection removes the connection from the pool, which would otherwise check it.
func (tx *pgxTransaction) giveUpConnection() {
	tx.pooled.Hijack()
	tx.pooled, tx.conn = nil, nil
}

func (tx *pgxTransaction) reclaim(ctx context.Context) {
	if tx.lent == nil {
		return
	}
	if !tx.lent.End(ctx) && tx.conn != nil {
		tx.giveUpConnection()
	}
	tx.lent = nil
}
