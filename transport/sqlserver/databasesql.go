package sqlserver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/handlertx"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/serverurl"
)

// sqlDatabase is a server through database/sql: Microsoft SQL Server, and also PostgreSQL
// for programs that use database/sql. Each statement is a round trip.
type sqlDatabase struct {
	db    *sql.DB
	owned bool

	// transactionEnded reports whether an error means that the server's transaction is
	// gone, though the connection is not; nil: no error does.
	transactionEnded func(err error) bool
}

// idleConnections is how many idle connections our pool keeps.
const idleConnections = 16

// newSQLDatabase returns the database of an existing pool, which is not closed.
func newSQLDatabase(db *sql.DB, transactionEnded func(err error) bool) *sqlDatabase {
	return &sqlDatabase{db: db, transactionEnded: transactionEnded}
}

// openSQLDatabase opens a pool without a limit.
func openSQLDatabase(connector driver.Connector, transactionEnded func(err error) bool) *sqlDatabase {
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(idleConnections)
	return &sqlDatabase{db: db, owned: true, transactionEnded: transactionEnded}
}

// runner is a *sql.Conn or a *sql.Tx.
type runner interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// exec runs several statements in a transaction. database/sql itself repeats statements
// that failed because of a dead connection before they were sent.
func (d *sqlDatabase) exec(ctx context.Context, statements ...*statement) error {
	if len(statements) == 1 {
		return serverurl.WithoutHostOfPassword(runSQL(ctx, d.db, statements))
	}
	tx, err := d.begin(ctx, statements...)
	if err != nil {
		return err
	}
	if err := tx.commit(ctx); err != nil {
		tx.rollback(ctx)
		return err
	}
	return nil
}

func (d *sqlDatabase) begin(ctx context.Context, statements ...*statement) (transaction, error) {
	conn, err := d.db.Conn(ctx)
	if err != nil {
		return nil, &unreachedError{serverurl.WithoutHostOfPassword(err)}
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
		return nil, &unreachedError{err}
	}
	t := &sqlTransaction{db: d, conn: conn, tx: tx, end: end, lent: handlertx.NewSQL(conn)}
	if err := t.run(ctx, statements...); err != nil {
		t.rollback(ctx)
		return nil, err
	}
	return t, nil
}

// reset closes the idle connections: database/sql offers only the limit for that.
func (d *sqlDatabase) reset() {
	if d.owned {
		d.db.SetMaxIdleConns(0)
		d.db.SetMaxIdleConns(idleConnections)
	}
}

func (d *sqlDatabase) pool() any { return d.db }

func (d *sqlDatabase) limit() int { return d.db.Stats().MaxOpenConnections }

func (d *sqlDatabase) close() {
	if d.owned {
		_ = d.db.Close()
	}
}

func runSQL(ctx context.Context, on runner, statements []*statement) error {
	for _, s := range statements {
		if err := runOneSQL(ctx, on, s); err != nil {
			return err
		}
	}
	return nil
}

func runOneSQL(ctx context.Context, on runner, s *statement) (err error) {
	if s.row == nil {
		result, err := on.ExecContext(ctx, s.sql, s.args...)
		if err == nil {
			s.affected, err = result.RowsAffected()
			s.done = err == nil
		}
		return err
	}
	rows, err := on.QueryContext(ctx, s.sql, s.args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for more := true; more; more = rows.NextResultSet() { // an error may follow the first result
		for rows.Next() {
			if err := s.row(rows.Scan); err != nil {
				if ctx.Err() == nil {
					err = transport.Permanent(fmt.Errorf("read a row: %w", err))
				}
				return err
			}
		}
	}
	s.done = rows.Err() == nil
	return rows.Err()
}

// sqlTransaction is a *sql.Tx on its own connection.
type sqlTransaction struct {
	db   *sqlDatabase
	conn *sql.Conn
	tx   *sql.Tx
	end  context.CancelFunc // ends the context of the transaction
	lent *handlertx.SQL     // to the handler
	gone bool
}

func (t *sqlTransaction) run(ctx context.Context, statements ...*statement) error {
	return t.noticed(runSQL(ctx, t.tx, statements))
}

func (t *sqlTransaction) commit(ctx context.Context, statements ...*statement) error {
	if err := t.run(ctx, statements...); err != nil {
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

func (t *sqlTransaction) rollback(ctx context.Context) { _ = t.undo(ctx) }

func (t *sqlTransaction) undo(ctx context.Context) error {
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

func (t *sqlTransaction) lost() bool {
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

// aborted is always false, because statements are not sent together.
func (t *sqlTransaction) aborted() bool { return false }

func (t *sqlTransaction) lend() any { return t.lent.Tx() }

func (t *sqlTransaction) beginPart(_ context.Context, savepoint int) { t.lent.BeginPart(savepoint) }

func (t *sqlTransaction) endParts(ctx context.Context, savepoint int) {
	t.lent.EndParts(ctx, savepoint)
	t.lent.BeginPart(savepoint)
}

func (t *sqlTransaction) reclaim(ctx context.Context) { t.lent.End(ctx) }
