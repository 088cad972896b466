package sqlexec

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/serverurl"
)

// checkEncoding refuses a session in which text would not be stored and read as it is. pgx
// always writes UTF-8, and a database in another encoding cannot store every header. The server
// has told both encodings when the session began, and tells each change, so the check costs no
// round trip. One that is not known counts as UTF-8.
func checkEncoding(session *pgconn.PgConn) error {
	if has := session.ParameterStatus("server_encoding"); has != "" && has != "UTF8" {
		return transport.Permanent(fmt.Errorf("the database has the encoding %s, which cannot store every text; to fix: use a database in UTF8 (create database NAME encoding 'UTF8' template template0)", has))
	}
	return CheckClientEncoding(session.ParameterStatus("client_encoding"))
}

// CheckClientEncoding is the part of that check for which the server may have to be asked: a
// *sql.Tx does not show its connection.
func CheckClientEncoding(has string) error {
	if has == "" || has == "UTF8" {
		return nil
	}
	return transport.Permanent(fmt.Errorf("the session has the client_encoding %s, in which text that pgx writes in UTF-8 is garbled; to fix: set client_encoding=UTF8 in the URL of its pool (RuntimeParams in pgx's configuration)", has))
}

// checkEncodingOf checks the session of a connection of database/sql, if pgx is its driver.
func checkEncodingOf(conn *sql.Conn) (err error) {
	rawErr := conn.Raw(func(native any) error {
		if pg, ok := native.(*stdlib.Conn); ok {
			err = checkEncoding(pg.Conn().PgConn())
		}
		return nil
	})
	if err == nil {
		err = rawErr
	}
	return err
}

// checkSessions checks a session of the pool before its first statement.
func (d *SQLDatabase) checkSessions(ctx context.Context) error {
	if d.checked.Load() {
		return nil
	}
	conn, err := d.DB.Conn(ctx)
	if err != nil {
		return &UnreachedError{serverurl.WithoutHostOfPassword(err)}
	}
	err = checkEncodingOf(conn)
	_ = conn.Close() // back to the pool
	if err != nil {
		return &UnreachedError{err}
	}
	d.checked.Store(true)
	return nil
}

// CheckTransaction checks the session of a caller's transaction.
func CheckTransaction(tx pgx.Tx) error {
	if conn := tx.Conn(); conn != nil {
		return checkEncoding(conn.PgConn())
	}
	return nil
}
