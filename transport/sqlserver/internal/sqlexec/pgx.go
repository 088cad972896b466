package sqlexec

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/handlertx"
)

// PgxDatabase is PostgreSQL through pgx. Statements that belong together are sent
// together: one round trip for any number of them.
type PgxDatabase struct {
	Connections *pgxpool.Pool
	owned       bool // opened by us
	max         int
	idleWait    time.Duration // how long to wait for an idle connection where the server refuses another one
}

// NewPgx returns the database of an existing pool, with the limit of its
// connections. It is not closed.
func NewPgx(pool *pgxpool.Pool, limit int) *PgxDatabase {
	return &PgxDatabase{Connections: pool, max: limit, idleWait: idleWait}
}

// OpenPgx opens a pool, with the limit of its connections or 0 for none.
func OpenPgx(cfg *pgxpool.Config, limit int) (*PgxDatabase, error) {
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, err
	}
	return &PgxDatabase{Connections: pool, owned: true, max: limit, idleWait: idleWait}, nil
}

// UnreachedError is the error of statements that were never sent.
type UnreachedError struct{ Err error }

func (e *UnreachedError) Error() string { return e.Err.Error() }

func (e *UnreachedError) Unwrap() error { return e.Err }

// IsConnecting reports whether an error is that of a connection that could not be opened.
func IsConnecting(err error) bool {
	return errors.As(err, new(*UnreachedError)) || errors.As(err, new(*pgconn.ConnectError))
}

// StaleConnections is how many dead connections of the pool a statement tries before it
// gives up: connections that were idle when the server was restarted. After the second
// one the idle connections are closed.
const StaleConnections = 5

// Exec implements Database.
func (d *PgxDatabase) Exec(ctx context.Context, statements ...*Statement) error {
	return d.retried(func() error {
		conn, err := d.acquire(ctx)
		if err != nil {
			return &UnreachedError{err}
		}
		defer conn.Release()
		return RunPgx(ctx, conn.Conn(), statements)
	})
}

// idleWait is longer than most statements take. Handlers that hold all connections of the pool
// may themselves wait for another one, so it is no longer than a failure may take.
const idleWait = time.Second

// idleCheck is how often a statement looks for an idle connection. That asks nothing of the
// server.
const idleCheck = 5 * time.Millisecond

// acquire takes a connection whose session has text in UTF-8.
func (d *PgxDatabase) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := d.takeConnection(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkEncoding(conn.Conn().PgConn()); err != nil {
		conn.Release()
		return nil, err
	}
	return conn, nil
}

// takeConnection takes a connection of the pool, or opens one. If the server has too many to accept
// another one, it waits until one of the pool's own is idle: pgxpool would return the error,
// although the next statement may end at once.
func (d *PgxDatabase) takeConnection(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := d.Connections.Acquire(ctx)
	if !isTooManyConnections(err) {
		return conn, err
	}
	ended := time.NewTimer(d.idleWait)
	defer ended.Stop()
	checks := time.NewTicker(idleCheck)
	defer checks.Stop()
	for {
		if conn := d.idle(ctx); conn != nil {
			return conn, nil
		}
		if s := d.Connections.Stat(); s.AcquiredConns()+s.IdleConns() == 0 {
			return nil, err // there is none that could become idle
		}
		select {
		case <-checks.C:
		case <-ended.C:
			return nil, err
		case <-ctx.Done():
			return nil, fmt.Errorf("%w while waiting for an idle connection, since another one was refused: %w", ctx.Err(), err)
		}
	}
}

// idle takes an idle connection of the pool, or returns nil.
func (d *PgxDatabase) idle(ctx context.Context) *pgxpool.Conn {
	all := d.Connections.AcquireAllIdle(ctx)
	if len(all) == 0 {
		return nil
	}
	for _, other := range all[1:] {
		other.Release()
	}
	return all[0]
}

// isTooManyConnections reports whether the server, a database or a role has all the
// connections that it may have.
func isTooManyConnections(err error) bool {
	server, ok := errors.AsType[*pgconn.PgError](err)
	return ok && server.Code == "53300"
}

// retried repeats statements that failed because of a dead connection before they were
// sent. It does not repeat those that the server answered with the end of the session: they
// may have been executed. Server.Read repeats reads then.
func (d *PgxDatabase) retried(do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		var unreached *UnreachedError
		if err == nil || errors.As(err, &unreached) || !pgconn.SafeToRetry(err) || attempt == StaleConnections {
			return err
		}
		if attempt > 1 {
			d.Reset() // the others have probably died too
		}
	}
}

// Begin implements Database.
func (d *PgxDatabase) Begin(ctx context.Context, statements ...*Statement) (Transaction, error) {
	var tx *pgxTransaction
	err := d.retried(func() error {
		conn, err := d.acquire(ctx)
		if err != nil {
			return &UnreachedError{err}
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

// Reset implements Database.
func (d *PgxDatabase) Reset() { d.Connections.Reset() }

// Pool implements Database.
func (d *PgxDatabase) Pool() any { return d.Connections }

// Limit implements Database.
func (d *PgxDatabase) Limit() int { return d.max }

// Close implements Database.
func (d *PgxDatabase) Close() {
	if d.owned {
		d.Connections.Close()
	}
}

// batchSender is a connection, or a user's transaction.
type batchSender interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// RunPgx runs statements in one round trip. Outside a transaction they are a transaction
// themselves.
func RunPgx(ctx context.Context, on batchSender, statements []*Statement) error {
	if len(statements) == 1 {
		s := statements[0]
		rows, err := on.Query(ctx, s.SQL, s.Args...)
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
func runBatch(ctx context.Context, on batchSender, batch *pgx.Batch, statements []*Statement) (pgx.Tx, error) {
	for _, s := range statements {
		batch.Queue(s.SQL, s.Args...)
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
func (s *Statement) read(rows pgx.Rows) error {
	defer rows.Close()
	if s.Row != nil {
		scan := Scanner(rows.Scan) // once, not for each row
		for rows.Next() {
			if err := s.Row(scan); err != nil {
				return transport.Permanent(fmt.Errorf("read a row (with the option default_query_exec_mode, sessions need DateStyle ISO and bytea_output hex): %w", err))
			}
		}
	}
	rows.Close()
	s.Affected, s.Done = rows.CommandTag().RowsAffected(), rows.Err() == nil
	return rows.Err()
}

// IsAboutText reports whether an error is about the text of a statement. If statements
// are sent together, the server may parse all texts before it executes the first.
func IsAboutText(err error) bool {
	server, ok := errors.AsType[*pgconn.PgError](err)
	return ok && server.Position > 0
}

// ErrEnded is the error of a transaction that has ended without another error.
var ErrEnded = errors.New("the transaction has ended: its connection broke, or the handler ended it")

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

// Run implements Transaction.
func (tx *pgxTransaction) Run(ctx context.Context, statements ...*Statement) error {
	if tx.conn == nil {
		return ErrEnded
	}
	if tx.Aborted() { // only a rollback is possible, to a savepoint or of the whole transaction
		return tx.runUnprepared(ctx, statements)
	}
	i := slices.IndexFunc(statements, func(s *Statement) bool { return s.Savepoint }) + 1
	if i == 0 {
		return RunPgx(ctx, tx.conn, statements)
	}
	texts := textsOf(tx.conn)
	if !texts.include(statements[i:]) {
		if err := RunPgx(ctx, tx.conn, statements[:i]); err != nil || i == len(statements) {
			return err
		}
		statements = statements[i:]
	}
	err := RunPgx(ctx, tx.conn, statements)
	texts.ran(statements, err)
	return err
}

// preparedTexts has texts of statements after savepoints that pgx has prepared on one
// connection. pgx lets the server parse all others before it executes the first statement of a
// call: if the server refuses one, for its table does not exist, the savepoint is not set. So the
// savepoint takes a round trip the first time that such a text is used on a connection, and none
// later.
type preparedTexts struct {
	always bool // pgx prepares all texts each time
	texts  map[string]struct{}
}

// maxPreparedTexts is half of the statements that pgx remembers by default. Texts name queues of
// reply addresses, which come from outside.
const maxPreparedTexts = 256

// textsKey is the key of preparedTexts in the custom data of a connection.
const textsKey = "reprise prepared texts"

func textsOf(conn *pgx.Conn) *preparedTexts {
	data := conn.PgConn().CustomData()
	texts, ok := data[textsKey].(*preparedTexts)
	if !ok {
		texts = &preparedTexts{always: conn.Config().DefaultQueryExecMode == pgx.QueryExecModeDescribeExec, texts: map[string]struct{}{}}
		data[textsKey] = texts
	}
	return texts
}

// include reports whether all texts are prepared.
func (p *preparedTexts) include(statements []*Statement) bool {
	for _, s := range statements {
		if _, ok := p.texts[s.SQL]; !ok {
			return false
		}
	}
	return true
}

// ran records that statements were run. pgx forgets texts that failed.
func (p *preparedTexts) ran(statements []*Statement, err error) {
	if p.always {
		return
	}
	if err != nil || len(p.texts)+len(statements) > maxPreparedTexts {
		clear(p.texts)
	}
	if err != nil {
		return
	}
	for _, s := range statements {
		p.texts[s.SQL] = struct{}{}
	}
}

// runUnprepared runs statements without arguments. pgx forgets prepared statements of a
// failed batch, but the server keeps them while the transaction is aborted: to prepare
// them again would fail.
func (tx *pgxTransaction) runUnprepared(ctx context.Context, statements []*Statement) error {
	for _, s := range statements {
		tag, err := tx.conn.Exec(ctx, s.SQL)
		s.Affected, s.Done = tag.RowsAffected(), err == nil
		if err != nil {
			return err
		}
	}
	return nil
}

// Commit implements Transaction.
func (tx *pgxTransaction) Commit(ctx context.Context, statements ...*Statement) error {
	if tx.Aborted() {
		return errAborted // a COMMIT would roll back without an error
	}
	err := tx.Run(ctx, append(slices.Clip(statements), Command("commit"))...)
	if err == nil {
		tx.release()
	}
	return err
}

// Rollback implements Transaction.
func (tx *pgxTransaction) Rollback(ctx context.Context) { _ = tx.Undo(ctx) }

// Undo implements Transaction.
func (tx *pgxTransaction) Undo(ctx context.Context) error {
	if tx.conn == nil {
		return ErrEnded
	}
	err := ErrEnded
	if !tx.Lost() {
		// The result does not matter: the pool closes a connection that is still in a
		// transaction.
		err = tx.Run(ctx, Command("rollback"))
	}
	tx.release()
	return err
}

// release returns the connection to the pool.
func (tx *pgxTransaction) release() {
	tx.pooled.Release()
	tx.pooled, tx.conn = nil, nil
}

// Lost implements Transaction.
func (tx *pgxTransaction) Lost() bool {
	return tx.conn == nil || tx.conn.IsClosed() || tx.conn.PgConn().TxStatus() == 'I'
}

// Aborted implements Transaction.
func (tx *pgxTransaction) Aborted() bool {
	return tx.conn != nil && tx.conn.PgConn().TxStatus() == 'E'
}

// Lend implements Transaction.
func (tx *pgxTransaction) Lend() any { return tx.handler().Tx() }

// handler returns what lends the transaction to the handler.
func (tx *pgxTransaction) handler() *handlertx.Pgx {
	if tx.lent == nil {
		tx.lent = handlertx.NewPgx(tx.native)
	}
	return tx.lent
}

// BeginPart implements Transaction.
func (tx *pgxTransaction) BeginPart(ctx context.Context, savepoint int) {
	tx.quiet(ctx)
	tx.handler().BeginPart(savepoint)
}

// EndParts implements Transaction.
func (tx *pgxTransaction) EndParts(ctx context.Context, savepoint int) {
	tx.handler().EndParts(savepoint)
	tx.BeginPart(ctx, savepoint)
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

// Reclaim implements Transaction.
func (tx *pgxTransaction) Reclaim(ctx context.Context) {
	if tx.lent == nil {
		return
	}
	if !tx.lent.End(ctx) && tx.conn != nil {
		tx.giveUpConnection()
	}
	tx.lent = nil
}
