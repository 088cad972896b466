package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/inbox"
)

// Store keeps entries in PostgreSQL through pgx.
type Store struct {
	pool  *pgxpool.Pool
	table *table
}

// New returns a store that uses a pool of the application, and does not close it. It
// makes no connection: see [Store.Provision].
//
// The transaction of a message takes the same number of round trips as any transaction:
// the first one begins it and claims the key, the last one stores the outgoing messages
// and commits.
func New(pool *pgxpool.Pool, c Config) (*Store, error) {
	if pool == nil {
		return nil, errors.New("inbox/postgres: the pool is nil; make one with pgxpool.New")
	}
	t, err := newTable(c)
	if err != nil {
		return nil, err
	}
	return &Store{pool, t}, nil
}

// Provision creates the table if it is missing. Many processes may call it at the same
// time. It does not change an existing table: one with other columns is an error. It does
// not wait for a server that cannot be reached.
func (s *Store) Provision(ctx context.Context) error {
	return s.table.provision(ctx, func(ctx context.Context, statements ...string) error {
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			for _, each := range statements {
				if _, err := tx.Exec(ctx, each); err != nil {
					return err
				}
			}
			return nil
		})
	}, s.columns)
}

// Check verifies that the table exists and has its columns.
func (s *Store) Check(ctx context.Context) error { return s.table.check(ctx, s.columns) }

func (s *Store) columns(ctx context.Context) ([]string, error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, s.table.describe, s.table.quoted)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// acquire takes a connection whose session has text in UTF-8.
func (s *Store) acquire(ctx context.Context) (*pgxpool.Conn, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	if err := checkEncoding(conn.Conn()); err != nil {
		conn.Release()
		return nil, err
	}
	return conn, nil
}

// Begin implements inbox.Store.
func (s *Store) Begin(ctx context.Context, key inbox.Key, wait time.Duration) (inbox.Transaction, *inbox.Entry, error) {
	for {
		conn, err := s.acquire(ctx)
		if err != nil {
			return nil, nil, err
		}
		claimed, err := s.claim(ctx, conn, key, wait)
		switch {
		case err == nil && claimed:
			return &transaction{store: s, key: key, tx: newHandlerTx(conn)}, nil, nil
		case err == nil:
			entry, err := s.read(ctx, conn, key)
			s.abort(ctx, conn)
			if err == nil && entry == nil { // it has been removed since the claim
				continue
			}
			return nil, entry, err
		}
		s.abort(ctx, conn)
		if codeOf(err) == serializationFailure { // the other transaction was committed after this one began
			continue
		}
		return nil, nil, inProgress(err)
	}
}

// claim begins a transaction and claims the key, in one round trip.
func (s *Store) claim(ctx context.Context, conn *pgxpool.Conn, key inbox.Key, wait time.Duration) (claimed bool, err error) {
	b := &pgx.Batch{}
	b.Queue("begin")
	if wait > 0 {
		b.Queue(s.table.claimFor, key.Scope, key.ID, milliseconds(wait))
	} else {
		b.Queue(s.table.claim, key.Scope, key.ID)
	}
	results := conn.SendBatch(ctx, b)
	_, err = results.Exec()
	if err == nil {
		var tag pgconn.CommandTag
		tag, err = results.Exec()
		claimed = tag.RowsAffected() == 1
	}
	return claimed, errors.Join(err, results.Close())
}

// milliseconds returns a duration for lock_timeout. It is at least 1, because 0 means no
// limit.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10)
}

// read returns the entry of a key, or nil.
func (s *Store) read(ctx context.Context, conn *pgxpool.Conn, key inbox.Key) (*inbox.Entry, error) {
	var entry inbox.Entry
	err := conn.QueryRow(ctx, s.table.entry, key.Scope, key.ID).Scan(&entry.HandledAt, &entry.Outgoing)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return &entry, err
}

// abortPatience limits a rollback in abort.
const abortPatience = 5 * time.Second

// abort rolls back and returns the connection to the pool, which closes it if the
// rollback failed.
func (s *Store) abort(ctx context.Context, conn *pgxpool.Conn) {
	defer conn.Release()
	if pg := conn.Conn().PgConn(); pg.IsClosed() || pg.TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortPatience)
	defer cancel()
	_, _ = conn.Exec(ctx, "rollback")
}

// These are the codes of errors that a claim expects.
const (
	lockNotAvailable     = "55P03"
	serializationFailure = "40001"
	undefinedTable       = "42P01"
)

func codeOf(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok { // errors of pgx and of lib/pq have it
		return e.SQLState()
	}
	return ""
}

// inProgress explains the error of a claim.
func inProgress(err error) error {
	switch codeOf(err) {
	case lockNotAvailable:
		return fmt.Errorf("%w: %w", inbox.ErrInProgress, err)
	case undefinedTable:
		return fmt.Errorf("%w: create it with Provision or DDL: %w", errNoTable, err)
	}
	return err
}

// split returns the scopes and the ids of keys.
func split(keys []inbox.Key) (scopes, ids []string) {
	for _, key := range keys {
		scopes, ids = append(scopes, key.Scope), append(ids, key.ID)
	}
	return scopes, ids
}

// MarkSent implements inbox.Store.
func (s *Store) MarkSent(ctx context.Context, keys []inbox.Key) error {
	if len(keys) == 0 {
		return nil
	}
	scopes, ids := split(keys)
	_, err := s.pool.Exec(ctx, s.table.mark, scopes, ids)
	return err
}

// Remove implements inbox.Store, by the clock of the server. It skips rows that another process
// is removing.
func (s *Store) Remove(ctx context.Context, age time.Duration, limit int) (int, error) {
	return removed(ctx, func() (int64, error) {
		tag, err := s.pool.Exec(ctx, s.table.remove, age.Microseconds(), limit)
		return tag.RowsAffected(), err
	})
}

// removed removes entries, and tries again while the isolation of the session refuses that:
// where serializable is the default, a concurrent call has removed the same ones.
func removed(ctx context.Context, remove func() (int64, error)) (int, error) {
	for {
		n, err := remove()
		if codeOf(err) != serializationFailure || ctx.Err() != nil {
			return int(n), err
		}
	}
}

// transaction is the transaction of one message.
type transaction struct {
	store *Store
	key   inbox.Key
	tx    *handlerTx
}

// Context implements inbox.Transaction.
func (t *transaction) Context(ctx context.Context) context.Context {
	return context.WithValue(ctx, txKey{}, pgx.Tx(t.tx))
}

// end ends the handler's use of the transaction.
func (t *transaction) end() *pgxpool.Conn {
	t.tx.ended.Store(true)
	if open := t.tx.open; open != nil && t.tx.conn.Conn().PgConn().IsBusy() {
		open()
	}
	return t.tx.conn
}

// Commit implements inbox.Transaction, in one round trip.
func (t *transaction) Commit(ctx context.Context, outgoing []byte) (err error) {
	conn := t.end()
	defer func() { t.store.abort(ctx, conn) }()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if conn.Conn().PgConn().TxStatus() == 'E' {
		return errors.New("a statement of the handler has failed, so that nothing can be committed; return its error, or use a nested transaction (Begin) where it is expected")
	}
	var tag pgconn.CommandTag
	if outgoing == nil {
		tag, err = conn.Exec(ctx, "commit")
	} else {
		b := &pgx.Batch{}
		b.Queue(t.store.table.note, t.key.Scope, t.key.ID, outgoing)
		b.Queue("commit")
		results := conn.SendBatch(ctx, b)
		if tag, err = results.Exec(); err == nil && tag.RowsAffected() != 1 {
			err = errors.Join(errors.New("the entry of the message is gone; nothing else may delete it"), results.Close())
			return err
		}
		if err == nil {
			tag, err = results.Exec()
		}
		err = errors.Join(err, results.Close())
	}
	if err == nil && tag.String() != "COMMIT" {
		err = fmt.Errorf("the server answered %q to commit", tag)
	}
	return err
}

// Rollback implements inbox.Transaction.
func (t *transaction) Rollback(ctx context.Context) error {
	conn := t.end()
	defer conn.Release()
	_, err := conn.Exec(ctx, "rollback")
	return err
}
