// Package sqlservertest is for tests of handlers that use the transaction of their
// message (sqlserver.Tx, sqlserver.SQLTx): it puts a transaction into the context with
// which the test calls the handler. That is a transaction of a real server, which is
// rolled back when the test ends, or a fake.
//
//	ctx := sqlservertest.Begin(t, pool)
//	m, body, rec := coretest.Message(placed, OrderPlaced{ID: "42"})
//	err := handler(ctx, m, body)
//	// look at err, at rec.Sent(), and with sqlserver.Tx(ctx) at the rows
//
// In the test of a whole endpoint, on package inmemory for example, coretest.RunContext
// gets such a context.
package sqlservertest

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/testtx"
)

// rollbackPatience limits a rollback at the end of a test.
const rollbackPatience = 10 * time.Second

// Begin begins a transaction in which a handler's test runs, and rolls it back when the
// test ends. It returns t.Context() with the transaction, which the handler, and the
// test, get with sqlserver.Tx. If the transaction cannot be begun, the test fails at
// once. Other tests do not see the test's changes, but its locks are held until the end:
// tests that run in parallel should not change the same rows.
func Begin(t testing.TB, pool *pgxpool.Pool) context.Context {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatalf("sqlservertest: begin a transaction: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), rollbackPatience)
		defer cancel()
		if err := tx.Rollback(ctx); err != nil {
			t.Errorf("sqlservertest: roll the transaction back: %v", err)
		}
	})
	return WithTx(t.Context(), tx)
}

// BeginSQL is [Begin] for a transaction of database/sql, on PostgreSQL or Microsoft SQL
// Server. The handler gets it with sqlserver.SQLTx. A handler that commits it or rolls it
// back, which fails in production, makes the test fail.
func BeginSQL(t testing.TB, db *sql.DB) context.Context {
	t.Helper()
	tx, err := db.BeginTx(context.WithoutCancel(t.Context()), nil) // the end of that context would roll back, in the background
	if err != nil {
		t.Fatalf("sqlservertest: begin a transaction: %v", err)
	}
	t.Cleanup(func() {
		if err := tx.Rollback(); err != nil {
			t.Errorf("sqlservertest: roll the transaction back: %v", err)
		}
	})
	return WithSQLTx(t.Context(), tx)
}

// WithTx returns a context in which sqlserver.Tx finds tx, a real transaction or a fake.
// Commit and Rollback of the handler return an error and do nothing, as in production;
// those of nested transactions are tx's.
func WithTx(ctx context.Context, tx pgx.Tx) context.Context {
	return testtx.With(ctx, handlerTx{tx})
}

// WithSQLTx returns a context in which sqlserver.SQLTx finds tx.
func WithSQLTx(ctx context.Context, tx *sql.Tx) context.Context { return testtx.With(ctx, tx) }

// handlerTx is the handler's view of the transaction.
type handlerTx struct{ pgx.Tx }

var errNotYours = errors.New("sqlservertest: the transaction belongs to the message: return nil from the handler to commit it, an error to roll it back")

// Commit implements pgx.Tx.
func (handlerTx) Commit(context.Context) error { return errNotYours }

// Rollback implements pgx.Tx.
func (handlerTx) Rollback(context.Context) error { return errNotYours }
