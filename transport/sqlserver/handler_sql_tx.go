package sqlserver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"

	"github.com/jackc/pgx/v5/stdlib"
)

// sqlTxHandle is the handler's view of a message's transaction: a *sql.Tx of a database that
// has a single connection, which is that of the message, and in which transactions
// neither begin nor end. So a handler cannot commit the receive without its sends. After
// the handler has returned, database/sql closes rows that it left open: they would keep
// the connection busy until they are read.
type sqlTxHandle struct {
	db  *sql.DB
	tx  *sql.Tx
	end context.CancelFunc

	part int // the savepoint to which it belongs
}

// lendSQL lends the connection, with the transaction on it.
func lendSQL(conn *sql.Conn) *sqlTxHandle {
	life, end := context.WithCancel(context.Background())
	l := &sqlTxHandle{end: end, db: sql.OpenDB(handlerConn{conn, life})}
	l.tx, _ = l.db.BeginTx(life, nil) // it calls no method that could fail
	return l
}

// close waits for a statement in progress until ctx ends, and then cancels it.
func (l *sqlTxHandle) close(ctx context.Context) {
	stop := context.AfterFunc(ctx, l.end)
	_ = l.tx.Rollback() // rolls back nothing, but closes rows
	stop()
	l.end()
	_ = l.db.Close()
}

// handlerConn is the database, its single connection, and the transaction on it.
type handlerConn struct {
	conn *sql.Conn
	life context.Context // ends when a statement in progress has to be cancelled
}

var _ interface {
	driver.Connector
	driver.Conn
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Tx
} = handlerConn{}

func (c handlerConn) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (c handlerConn) Driver() driver.Driver                        { return handlerDriver{} }
func (c handlerConn) Close() error                                 { return nil }
func (c handlerConn) Commit() error                                { return errNotYours }
func (c handlerConn) Rollback() error                              { return errNotYours }

func (c handlerConn) Begin() (driver.Tx, error) { return c, nil }

func (c handlerConn) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return c, nil }

// handlerDriver has no connections to open.
type handlerDriver struct{}

// Open implements driver.Driver.
func (handlerDriver) Open(string) (driver.Conn, error) { return nil, errNotYours }

// clientConn has the methods that connections of go-mssqldb and pgx share.
type clientConn interface {
	driver.ConnPrepareContext
	driver.NamedValueChecker
}

// use calls f while no other goroutine uses the connection. Its error says that the
// connection is gone.
func (c handlerConn) use(f func(conn clientConn)) error {
	return c.conn.Raw(func(native any) error {
		conn, ok := native.(clientConn)
		if !ok {
			return fmt.Errorf("sqlserver: a connection of the type %T is not known", native)
		}
		f(conn)
		return nil
	})
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c handlerConn) CheckNamedValue(value *driver.NamedValue) (err error) {
	gone := c.use(func(conn clientConn) { err = conn.CheckNamedValue(value) })
	return firstError(gone, err)
}

// ExecContext implements driver.ExecerContext if the client library does; otherwise
// database/sql prepares the statement.
func (c handlerConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (result driver.Result, err error) {
	ctx, done := c.limited(ctx)
	defer done()
	gone := c.use(func(conn clientConn) {
		if direct, ok := conn.(*stdlib.Conn); ok {
			result, err = direct.ExecContext(ctx, query, args)
			return
		}
		err = driver.ErrSkip
	})
	return result, firstError(gone, err)
}

// QueryContext implements driver.QueryerContext, as ExecContext does
// driver.ExecerContext.
func (c handlerConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	ctx, done := c.limited(ctx)
	var rows driver.Rows
	var err error
	gone := c.use(func(conn clientConn) {
		if direct, ok := conn.(*stdlib.Conn); ok {
			rows, err = direct.QueryContext(ctx, query, args)
			return
		}
		err = driver.ErrSkip
	})
	return c.lent(rows, firstError(gone, err), done)
}

// lent returns rows whose reader uses the connection.
func (c handlerConn) lent(rows driver.Rows, err error, done func()) (driver.Rows, error) {
	if err != nil {
		done()
		return nil, err
	}
	base := handlerRows{rows, c, done}
	switch native := rows.(type) {
	case rowsOfMicrosoft:
		return &handlerMicrosoftRows{rowsOfMicrosoft: native, handlerRows: base}, nil
	case rowsOfPostgres:
		return &handlerPostgresRows{rowsOfPostgres: native, handlerRows: base}, nil
	default:
		return &base, nil
	}
}

// limited returns a context that also ends when a statement in progress has to be
// cancelled.
func (c handlerConn) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(c.life, cancel)
	return ctx, func() {
		stop()
		cancel()
	}
}

// Prepare implements driver.Conn.
func (c handlerConn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// PrepareContext implements driver.ConnPrepareContext. go-mssqldb sends nothing to the
// server for it.
func (c handlerConn) PrepareContext(ctx context.Context, query string) (s driver.Stmt, err error) {
	gone := c.use(func(conn clientConn) { s, err = conn.PrepareContext(ctx, query) })
	if err := firstError(gone, err); err != nil {
		return nil, err
	}
	return handlerStmt{s, c}, nil
}

// handlerStmt is a statement of the client library.
type handlerStmt struct {
	driver.Stmt
	on handlerConn
}

// CheckNamedValue implements driver.NamedValueChecker.
func (s handlerStmt) CheckNamedValue(value *driver.NamedValue) error {
	return s.on.CheckNamedValue(value)
}

// Close implements driver.Stmt.
func (s handlerStmt) Close() (err error) {
	gone := s.on.use(func(clientConn) { err = s.Stmt.Close() })
	return firstError(gone, err)
}

// ExecContext implements driver.StmtExecContext.
func (s handlerStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (result driver.Result, err error) {
	ctx, done := s.on.limited(ctx)
	defer done()
	gone := s.on.use(func(clientConn) { result, err = s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args) })
	return result, firstError(gone, err)
}

// QueryContext implements driver.StmtQueryContext.
func (s handlerStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	ctx, done := s.on.limited(ctx)
	var rows driver.Rows
	var err error
	gone := s.on.use(func(clientConn) { rows, err = s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args) })
	return s.on.lent(rows, firstError(gone, err), done)
}

// handlerRows are rows whose reader uses the connection.
type handlerRows struct {
	rows driver.Rows
	on   handlerConn
	done func()
}

// Columns implements driver.Rows.
func (r *handlerRows) Columns() []string { return r.rows.Columns() }

// Next implements driver.Rows.
func (r *handlerRows) Next(dest []driver.Value) (err error) {
	gone := r.on.use(func(clientConn) { err = r.rows.Next(dest) })
	return firstError(gone, err)
}

// Close implements driver.Rows.
func (r *handlerRows) Close() (err error) {
	defer r.done()
	gone := r.on.use(func(clientConn) { err = r.rows.Close() })
	return firstError(gone, err)
}

// rowsOfPostgres and rowsOfMicrosoft are the methods of the client libraries' rows beside
// those for values.
type (
	rowsOfPostgres interface {
		driver.RowsColumnTypeDatabaseTypeName
		driver.RowsColumnTypeLength
		driver.RowsColumnTypePrecisionScale
	}
	rowsOfMicrosoft interface {
		rowsOfPostgres
		driver.RowsNextResultSet
		driver.RowsColumnTypeScanType
		driver.RowsColumnTypeNullable
	}
)

type handlerPostgresRows struct {
	rowsOfPostgres
	handlerRows
}

// Columns, Next and Close are those of handlerRows.
func (r *handlerPostgresRows) Columns() []string              { return r.handlerRows.Columns() }
func (r *handlerPostgresRows) Next(dest []driver.Value) error { return r.handlerRows.Next(dest) }
func (r *handlerPostgresRows) Close() error                   { return r.handlerRows.Close() }

type handlerMicrosoftRows struct {
	rowsOfMicrosoft
	handlerRows
}

// Columns, Next and Close are those of handlerRows.
func (r *handlerMicrosoftRows) Columns() []string              { return r.handlerRows.Columns() }
func (r *handlerMicrosoftRows) Next(dest []driver.Value) error { return r.handlerRows.Next(dest) }
func (r *handlerMicrosoftRows) Close() error                   { return r.handlerRows.Close() }

// NextResultSet implements driver.RowsNextResultSet.
func (r *handlerMicrosoftRows) NextResultSet() (err error) {
	gone := r.on.use(func(clientConn) { err = r.rowsOfMicrosoft.NextResultSet() })
	return firstError(gone, err)
}

// firstError does not wrap errors: io.EOF is compared with ==.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
