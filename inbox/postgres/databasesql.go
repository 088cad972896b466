package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"time"

	"github.com/reprise-go/reprise/inbox"
)

// SQLStore keeps entries in PostgreSQL through database/sql.
type SQLStore struct {
	db    *sql.DB
	table *table
}

// NewSQL returns a store that uses a database of the application, and does not close it.
// The driver must be one for PostgreSQL whose errors have a method SQLState: pgx
// (github.com/jackc/pgx/v5/stdlib) and lib/pq do. NewSQL makes no connection: see
// [SQLStore.Provision].
//
// A message costs one round trip more than the handler's own transaction, and two if it
// sends: database/sql makes one for each statement.
func NewSQL(db *sql.DB, c Config) (*SQLStore, error) {
	if db == nil {
		return nil, errors.New("inbox/postgres: the database is nil; make one with sql.Open")
	}
	t, err := newTable(c)
	if err != nil {
		return nil, err
	}
	return &SQLStore{db, t}, nil
}

// Provision creates the table if it is missing, as [Store.Provision] does.
func (s *SQLStore) Provision(ctx context.Context) error {
	return s.table.provision(ctx, func(ctx context.Context, statements ...string) error {
		tx, err := s.db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		for _, each := range statements {
			if _, err := tx.ExecContext(ctx, each); err != nil {
				return errors.Join(err, tx.Rollback())
			}
		}
		return tx.Commit()
	}, s.columns)
}

// Check verifies that the table exists and has its columns.
func (s *SQLStore) Check(ctx context.Context) error { return s.table.check(ctx, s.columns) }

func (s *SQLStore) columns(ctx context.Context) (columns []string, err error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	rows, err := conn.QueryContext(ctx, s.table.describe, s.table.quoted)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var column string
		if err := rows.Scan(&column); err != nil {
			return nil, err
		}
		columns = append(columns, column)
	}
	return columns, rows.Err()
}

// conn takes a connection whose session has text in UTF-8.
func (s *SQLStore) conn(ctx context.Context) (*sql.Conn, error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkSQLEncoding(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// Begin implements inbox.Store.
func (s *SQLStore) Begin(ctx context.Context, key inbox.Key, wait time.Duration) (inbox.Transaction, *inbox.Entry, error) {
	for {
		t, err := s.begin(ctx, key)
		if err != nil {
			return nil, nil, err
		}
		claimed, err := s.claim(ctx, t.tx, key, wait)
		switch {
		case err == nil && claimed:
			return t, nil, nil
		case err == nil:
			entry, err := s.read(ctx, t.tx, key)
			t.abort(ctx)
			if err == nil && entry == nil { // it has been removed since the claim
				continue
			}
			return nil, entry, err
		}
		t.abort(ctx)
		if codeOf(err) == serializationFailure {
			continue
		}
		return nil, nil, inProgress(err)
	}
}

// begin begins a transaction, and fails if ctx ends first.
func (s *SQLStore) begin(ctx context.Context, key inbox.Key) (*sqlTransaction, error) {
	conn, err := s.conn(ctx)
	if err != nil {
		return nil, err
	}
	// database/sql rolls back, in the background, when the context of BeginTx ends. Here
	// the inbox decides when to roll back, so the transaction has a separate context.
	// Ending that is also the only way to cancel a commit or a rollback.
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	tx, err := conn.BeginTx(life, nil)
	stop()
	if err != nil {
		end()
		return nil, errors.Join(err, conn.Close())
	}
	return &sqlTransaction{store: s, key: key, conn: conn, tx: tx, end: end}, nil
}

func (s *SQLStore) claim(ctx context.Context, tx *sql.Tx, key inbox.Key, wait time.Duration) (bool, error) {
	if wait <= 0 {
		result, err := tx.ExecContext(ctx, s.table.claim, key.Scope, key.ID)
		return affectsOne(result, err)
	}
	var restored string
	err := tx.QueryRowContext(ctx, s.table.claimFor, key.Scope, key.ID, milliseconds(wait)).Scan(&restored)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func affectsOne(result sql.Result, err error) (bool, error) {
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n == 1, err
}

func (s *SQLStore) read(ctx context.Context, tx *sql.Tx, key inbox.Key) (*inbox.Entry, error) {
	var entry inbox.Entry
	err := tx.QueryRowContext(ctx, s.table.entry, key.Scope, key.ID).Scan(&entry.HandledAt, &entry.Outgoing)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return &entry, err
}

// MarkSent implements inbox.Store.
func (s *SQLStore) MarkSent(ctx context.Context, keys []inbox.Key) error {
	if len(keys) == 0 {
		return nil
	}
	scopes, ids := split(keys)
	_, err := s.db.ExecContext(ctx, s.table.mark, array(scopes), array(ids))
	return err
}

// array returns texts in PostgreSQL's array format, which every driver accepts.
func array(texts []string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	elements := make([]string, len(texts))
	for i, text := range texts {
		elements[i] = `"` + escape.Replace(text) + `"`
	}
	return "{" + strings.Join(elements, ",") + "}"
}

// Remove implements inbox.Store, by the clock of the server. It skips rows that another process
// is removing.
func (s *SQLStore) Remove(ctx context.Context, age time.Duration, limit int) (int, error) {
	return removed(ctx, func() (int64, error) {
		result, err := s.db.ExecContext(ctx, s.table.remove, age.Microseconds(), limit)
		if err != nil {
			return 0, err
		}
		return result.RowsAffected()
	})
}

// sqlTransaction is the transaction of one message, on a separate connection.
type sqlTransaction struct {
	store *SQLStore
	key   inbox.Key
	conn  *sql.Conn
	tx    *sql.Tx
	end   context.CancelFunc // ends the context of the transaction
}

// Context implements inbox.Transaction.
func (t *sqlTransaction) Context(ctx context.Context) context.Context {
	return WithSQLTx(ctx, sqlHandlerTx{t.tx})
}

// Commit implements inbox.Transaction.
func (t *sqlTransaction) Commit(ctx context.Context, outgoing []byte) (err error) {
	if err = context.Cause(ctx); err == nil && outgoing != nil {
		err = t.note(ctx, outgoing)
	}
	if err != nil {
		t.abort(ctx)
		return err
	}
	return t.close(ctx, t.tx.Commit)
}

// note stores outgoing in the entry.
func (t *sqlTransaction) note(ctx context.Context, outgoing []byte) error {
	one, err := affectsOne(t.tx.ExecContext(ctx, t.store.table.note, t.key.Scope, t.key.ID, outgoing))
	if err == nil && !one {
		err = errors.New("the entry of the message is gone; nothing else may delete it")
	}
	return err
}

// Rollback implements inbox.Transaction.
func (t *sqlTransaction) Rollback(ctx context.Context) error { return t.close(ctx, t.tx.Rollback) }

// abort rolls back, even if ctx has ended.
func (t *sqlTransaction) abort(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortPatience)
	defer cancel()
	_ = t.Rollback(ctx)
}

// close ends the transaction, within the time of ctx, and returns the connection to the
// pool. If that fails, it closes the connection, because a transaction with locks may
// still be open on it.
func (t *sqlTransaction) close(ctx context.Context, how func() error) error {
	stop := context.AfterFunc(ctx, t.end)
	err := how()
	if err != nil {
		_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	stop()
	t.end()
	_ = t.conn.Close()
	return err
}

// sqlHandlerTx is the transaction as the handler sees it.
type sqlHandlerTx struct{ tx *sql.Tx }

// ExecContext implements Querier.
func (q sqlHandlerTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if endsTransaction(query) {
		return nil, errNotYours
	}
	return q.tx.ExecContext(ctx, query, args...)
}

// QueryContext implements Querier.
func (q sqlHandlerTx) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return q.tx.QueryContext(ctx, query, args...)
}

// QueryRowContext implements Querier.
func (q sqlHandlerTx) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	return q.tx.QueryRowContext(ctx, query, args...)
}

// PrepareContext implements Querier.
func (q sqlHandlerTx) PrepareContext(ctx context.Context, query string) (*sql.Stmt, error) {
	if endsTransaction(query) {
		return nil, errNotYours
	}
	return q.tx.PrepareContext(ctx, query)
}
