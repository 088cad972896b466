package sqlserver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	mssql "github.com/microsoft/go-mssqldb"
)

// sqlLoan is the transaction of a message as its handler sees it: a *sql.Tx of a
// database that has one connection, which is that of the message, and in which
// transactions neither begin nor end. So a handler cannot commit the receive without
// what it sends. And when the handler has returned, database/sql closes the rows that
// it has left open: go-mssqldb would wait for ever until somebody reads them.
type sqlLoan struct {
	db  *sql.DB
	tx  *sql.Tx
	end context.CancelFunc
}

// errNotTheHandlers is the answer to Commit and Rollback.
var errNotTheHandlers = errors.New("sqlserver: the transaction belongs to the message: return nil from the handler to commit it, an error to roll it back")

// lendSQL returns nil where the connection is not one of go-mssqldb's.
func lendSQL(conn *sql.Conn) *sqlLoan {
	if (lentConn{conn: conn}).use(func(*mssql.Conn) {}) != nil {
		return nil
	}
	life, end := context.WithCancel(context.Background())
	l := &sqlLoan{end: end, db: sql.OpenDB(lentConn{conn, life})}
	l.tx, _ = l.db.BeginTx(life, nil) // for which nothing is done that could fail
	return l
}

// close waits for a statement under way, or cuts it off.
func (l *sqlLoan) close(cut bool) {
	if cut {
		l.end()
	}
	_ = l.tx.Rollback() // which rolls back nothing, but closes rows
	l.end()
	_ = l.db.Close()
}

// lentConn is the database, the one connection that it has, and the transaction on
// it.
type lentConn struct {
	conn *sql.Conn
	life context.Context // ends when what is under way is to be cut off
}

var _ interface {
	driver.Connector
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.NamedValueChecker
	driver.Tx
} = lentConn{}

func (c lentConn) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (c lentConn) Driver() driver.Driver                        { return &mssql.Driver{} }
func (c lentConn) Close() error                                 { return nil }
func (c lentConn) Commit() error                                { return errNotTheHandlers }
func (c lentConn) Rollback() error                              { return errNotTheHandlers }

func (c lentConn) Begin() (driver.Tx, error) { return c, nil }

func (c lentConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return c, nil }

// use calls f while nobody else uses the connection. Its error is that there is no
// connection any more.
func (c lentConn) use(f func(conn *mssql.Conn)) error {
	return c.conn.Raw(func(native any) error {
		conn, ok := native.(*mssql.Conn)
		if !ok {
			return errors.New("the connection is not one of go-mssqldb's")
		}
		f(conn)
		return nil
	})
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c lentConn) CheckNamedValue(value *driver.NamedValue) (err error) {
	gone := c.use(func(conn *mssql.Conn) { err = conn.CheckNamedValue(value) })
	return firstError(gone, err)
}

// Prepare implements driver.Conn.
func (c lentConn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// PrepareContext implements driver.ConnPrepareContext. For go-mssqldb that is nothing
// that the server hears of.
func (c lentConn) PrepareContext(ctx context.Context, query string) (s driver.Stmt, err error) {
	gone := c.use(func(conn *mssql.Conn) { s, err = conn.PrepareContext(ctx, query) })
	if err := firstError(gone, err); err != nil {
		return nil, err
	}
	return lentStmt{s, c}, nil
}

// lentStmt is a statement of go-mssqldb's.
type lentStmt struct {
	driver.Stmt
	on lentConn
}

// limited returns a context that also ends when what is under way is to be cut off.
func (s lentStmt) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.on.life, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// ExecContext implements driver.StmtExecContext.
func (s lentStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (result driver.Result, err error) {
	ctx, done := s.limited(ctx)
	defer done()
	gone := s.on.use(func(*mssql.Conn) { result, err = s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args) })
	return result, firstError(gone, err)
}

// QueryContext implements driver.StmtQueryContext.
func (s lentStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	ctx, done := s.limited(ctx)
	var rows driver.Rows
	var err error
	gone := s.on.use(func(*mssql.Conn) { rows, err = s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args) })
	if err := firstError(gone, err); err != nil {
		done()
		return nil, err
	}
	return &lentRows{rows.(microsoftRowsOf), s.on, done}, nil
}

// microsoftRowsOf is what the rows of go-mssqldb can do.
type microsoftRowsOf interface {
	driver.RowsNextResultSet
	driver.RowsColumnTypeScanType
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeLength
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
}

// lentRows reads with the connection in its hands.
type lentRows struct {
	microsoftRowsOf
	on   lentConn
	done func()
}

// Next implements driver.Rows.
func (r *lentRows) Next(dest []driver.Value) (err error) {
	gone := r.on.use(func(*mssql.Conn) { err = r.microsoftRowsOf.Next(dest) })
	return firstError(gone, err)
}

// NextResultSet implements driver.RowsNextResultSet.
func (r *lentRows) NextResultSet() (err error) {
	gone := r.on.use(func(*mssql.Conn) { err = r.microsoftRowsOf.NextResultSet() })
	return firstError(gone, err)
}

// Close implements driver.Rows.
func (r *lentRows) Close() (err error) {
	defer r.done()
	gone := r.on.use(func(*mssql.Conn) { err = r.microsoftRowsOf.Close() })
	return firstError(gone, err)
}

// firstError keeps errors as they are: io.EOF is compared with ==.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
