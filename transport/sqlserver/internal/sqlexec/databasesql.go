package sqlexec

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/handlertx"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/serverurl"
)

// SQLDatabase is a server through database/sql: Microsoft SQL Server, and also PostgreSQL
// for programs that use database/sql. Each statement is a round trip.
type SQLDatabase struct {
	DB      *sql.DB
	owned   bool
	checked atomic.Bool // by checkSessions

	// transactionEnded reports whether an error means that the server's transaction is
	// gone, though the connection is not; nil: no error does.
	transactionEnded func(err error) bool
}

// idleConnections is how many idle connections our pool keeps.
const idleConnections = 16

// NewSQL returns the database of an existing pool, which is not closed.
func NewSQL(db *sql.DB, transactionEnded func(err error) bool) *SQLDatabase {
	return &SQLDatabase{DB: db, transactionEnded: transactionEnded}
}

// OpenSQL opens a pool without a limit.
func OpenSQL(connector driver.Connector, transactionEnded func(err error) bool) *SQLDatabase {
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(idleConnections)
	return &SQLDatabase{DB: db, owned: true, transactionEnded: transactionEnded}
}

// runner is a *sql.Conn or a *sql.Tx.
type runner interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Exec runs several statements in a transaction. database/sql itself repeats statements
// that failed because of a dead connection before they were sent.
func (d *SQLDatabase) Exec(ctx context.Context, statements ...*Statement) error {
	if len(statements) == 1 {
		if err := d.checkSessions(ctx); err != nil {
			return err
		}
		return serverurl.WithoutHostOfPassword(RunSQL(ctx, d.DB, statements))
	}
	tx, err := d.Begin(ctx, statements...)
	if err != nil {
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		tx.Rollback(ctx)
		return err
	}
	return nil
}

// Begin implements Database.
func (d *SQLDatabase) Begin(ctx context.Context, statements ...*Statement) (Transaction, error) {
	conn, err := d.DB.Conn(ctx)
	if err != nil {
		return nil, &UnreachedError{serverurl.WithoutHostOfPassword(err)}
	}
	if err := checkEncodingOf(conn); err != nil {
		_ = conn.Close() // back to the pool
		return nil, &UnreachedError{err}
	}
	// database/sql rolls back when the context of BeginTx ends; here we decide when. It
	// is also the only way to cancel a commit.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	tx, err := conn.BeginTx(life, &sql.TxOptions{Isolation: sql.LevelReadCommitted}) // regardless of the default
	stop()
	if err != nil {
		end()
		_ = conn.Close() // back to the pool
		return nil, &UnreachedError{err}
	}
	t := &sqlTransaction{db: d, conn: conn, tx: tx, end: end, lent: handlertx.NewSQL(conn)}
	if err := t.Run(ctx, statements...); err != nil {
		t.Rollback(ctx)
		return nil, err
	}
	return t, nil
}

// Reset closes the idle connections: database/sql offers only the limit for that.
func (d *SQLDatabase) Reset() {
	if d.owned {
		d.DB.SetMaxIdleConns(0)
		d.DB.SetMaxIdleConns(idleConnections)
	}
}

// Pool implements Database.
func (d *SQLDatabase) Pool() any { return d.DB }

// Limit implements Database.
func (d *SQLDatabase) Limit() int { return d.DB.Stats().MaxOpenConnections }

// Close implements Database.
func (d *SQLDatabase) Close() {
	if d.owned {
		_ = d.DB.Close()
	}
}

// RunSQL runs statements one after the other, on a *sql.DB, a *sql.Conn or a *sql.Tx.
func RunSQL(ctx context.Context, on runner, statements []*Statement) error {
	for _, s := range statements {
		if err := runOneSQL(ctx, on, s); err != nil {
			return err
		}
	}
	return nil
}

func runOneSQL(ctx context.Context, on runner, s *Statement) (err error) {
	if s.Row == nil {
		result, err := on.ExecContext(ctx, s.SQL, s.Args...)
		if err == nil {
			s.Affected, err = result.RowsAffected()
			s.Done = err == nil
		}
		return err
	}
	rows, err := on.QueryContext(ctx, s.SQL, s.Args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for more := true; more; more = rows.NextResultSet() { // an error may follow the first result
		for rows.Next() {
			if err := s.Row(rows.Scan); err != nil {
				if ctx.Err() == nil {
					err = transport.Permanent(fmt.Errorf("read a row: %w", err))
				}
				return err
			}
		}
	}
	s.Done = rows.Err() == nil
	return rows.Err()
}

// sqlTransaction is a *sql.Tx on its own connection.
type sqlTransaction struct {
	db   *SQLDatabase
	conn *sql.Conn
	tx   *sql.Tx
	end  context.CancelFunc // ends the context of the transaction
	lent *handlertx.SQL     // to the handler
	gone bool
}

// Run implements Transaction.
func (t *sqlTransaction) Run(ctx context.Context, statements ...*Statement) error {
	return t.noticed(RunSQL(ctx, t.tx, statements))
}

// Commit implements Transaction.
func (t *sqlTransaction) Commit(ctx context.Context, statements ...*Statement) error {
	if err := t.Run(ctx, statements...); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, t.end)
	err := t.tx.Commit()
	stop()
	if err != nil {
		t.gone = true
		return err
	}
	t.end()
	_ = t.conn.Close()
	return nil
}

// noticed detects that the transaction has ended: the handler may have called Commit or
// Rollback of the *sql.Tx, which we cannot prevent, and Microsoft SQL Server may end a
// transaction itself.
func (t *sqlTransaction) noticed(err error) error {
	if errors.Is(err, sql.ErrTxDone) || errors.Is(err, sql.ErrConnDone) || errors.Is(err, driver.ErrBadConn) ||
		err != nil && t.db.transactionEnded != nil && t.db.transactionEnded(err) {
		t.gone = true
	}
	return err
}

// Rollback implements Transaction.
func (t *sqlTransaction) Rollback(ctx context.Context) { _ = t.Undo(ctx) }

// Undo implements Transaction.
func (t *sqlTransaction) Undo(ctx context.Context) error {
	stop := context.AfterFunc(ctx, t.end)
	err := t.tx.Rollback()
	if err != nil {
		// The connection may still have an open transaction with locks.
		_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	stop()
	t.end()
	_ = t.conn.Close()
	return err
}

// Lost implements Transaction.
func (t *sqlTransaction) Lost() bool {
	if t.gone {
		return true
	}
	err := t.conn.Raw(func(native any) error {
		if pg, ok := native.(*stdlib.Conn); ok && (pg.Conn().IsClosed() || pg.Conn().PgConn().TxStatus() == 'I') {
			t.gone = true
		}
		return nil
	})
	return t.gone || err != nil
}

// Aborted is always false, because statements are not sent together.
func (t *sqlTransaction) Aborted() bool { return false }

// Lend implements Transaction.
func (t *sqlTransaction) Lend() any { return t.lent.Tx() }

// BeginPart implements Transaction.
func (t *sqlTransaction) BeginPart(_ context.Context, savepoint int) { t.lent.BeginPart(savepoint) }

// EndParts implements Transaction.
func (t *sqlTransaction) EndParts(ctx context.Context, savepoint int) {
	t.lent.EndParts(ctx, savepoint)
	t.lent.BeginPart(savepoint)
}

// Reclaim implements Transaction.
func (t *sqlTransaction) Reclaim(ctx context.Context) { t.lent.End(ctx) }
