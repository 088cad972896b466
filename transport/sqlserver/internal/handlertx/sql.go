package handlertx

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5/stdlib"
)

// SQL lends a message's transaction to its handler, as a *sql.Tx for each part of it that a
// savepoint begins.
type SQL struct {
	conn  *sql.Conn
	views []*view // the handler has the last one
	part  int     // the savepoint to which the next view belongs; 0: none
}

// NewSQL returns a transaction to lend, which is open on conn.
func NewSQL(conn *sql.Conn) *SQL { return &SQL{conn: conn} }

// Tx returns the transaction for the handler. It is usable until End, or until EndParts
// ends the part that it belongs to.
func (l *SQL) Tx() *sql.Tx {
	if last := len(l.views) - 1; last >= 0 && l.views[last].part == l.part {
		return l.views[last].tx
	}
	v := newView(l.conn)
	v.part = l.part
	l.views = append(l.views, v)
	return v.tx
}

// BeginPart begins a part after a savepoint.
func (l *SQL) BeginPart(savepoint int) { l.part = savepoint }

// EndParts ends the parts since a savepoint, which is rolled back. It waits for a
// statement in progress until ctx ends, and then cancels it.
func (l *SQL) EndParts(ctx context.Context, savepoint int) {
	l.views = slices.DeleteFunc(l.views, func(v *view) bool {
		if v.part < savepoint {
			return false
		}
		v.close(ctx)
		return true
	})
}

// End takes the transaction back. It waits for a statement in progress until ctx ends,
// and then cancels it.
func (l *SQL) End(ctx context.Context) {
	for _, v := range l.views {
		v.close(ctx)
	}
	l.views, l.part = nil, 0
}

// view is the handler's view of the transaction: a *sql.Tx of a database that has a single
// connection, which is that of the message, and in which transactions neither begin nor
// end. So a handler cannot commit the receive without its sends. After the handler has
// returned, database/sql closes rows that it left open: they would keep the connection
// busy until they are read.
type view struct {
	db  *sql.DB
	tx  *sql.Tx
	end context.CancelFunc

	part int // the savepoint to which it belongs
}

func newView(conn *sql.Conn) *view {
	life, end := context.WithCancel(context.Background())
	v := &view{end: end, db: sql.OpenDB(handlerConn{conn, life})}
	v.tx, _ = v.db.BeginTx(life, nil) // it calls no method that could fail
	return v
}

// close waits for a statement in progress until ctx ends, and then cancels it.
func (v *view) close(ctx context.Context) {
	stop := context.AfterFunc(ctx, v.end)
	_ = v.tx.Rollback() // rolls back nothing, but closes rows
	stop()
	v.end()
	_ = v.db.Close()
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
