package postgres

import (
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// checkEncoding refuses a session in which an id is not stored as it is: pgx always writes
// UTF-8, and a database in another encoding cannot store every id. The server has told both
// encodings when the session began, and tells each change.
func checkEncoding(conn *pgx.Conn) error {
	if has := conn.PgConn().ParameterStatus("server_encoding"); has != "" && has != "UTF8" {
		return fmt.Errorf("the database has the encoding %s, which cannot store every message id; to fix: use a database in UTF8 (create database NAME encoding 'UTF8' template template0)", has)
	}
	if has := conn.PgConn().ParameterStatus("client_encoding"); has != "" && has != "UTF8" {
		return fmt.Errorf("the session has the client_encoding %s, in which text that pgx writes in UTF-8 is garbled; to fix: set client_encoding=UTF8 in the URL of the pool (RuntimeParams in pgx's configuration)", has)
	}
	return nil
}

// checkSQLEncoding checks the session of a connection of database/sql. lib/pq accepts no other
// client_encoding.
func checkSQLEncoding(conn *sql.Conn) (err error) {
	rawErr := conn.Raw(func(native any) error {
		if pg, ok := native.(interface{ Conn() *pgx.Conn }); ok { // without importing the driver
			err = checkEncoding(pg.Conn())
		}
		return nil
	})
	if err == nil {
		err = rawErr
	}
	return err
}
