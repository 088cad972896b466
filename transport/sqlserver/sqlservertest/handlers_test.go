package sqlservertest_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	server "github.com/reprise-go/reprise/internal/testserver/postgres"
	"github.com/reprise-go/reprise/transport/inmemory"
	"github.com/reprise-go/reprise/transport/sqlserver"
	"github.com/reprise-go/reprise/transport/sqlserver/sqlservertest"
)

// cluster is the server of all tests.
var cluster *server.Server

func TestMain(m *testing.M) {
	var err error
	if cluster, err = server.Start(server.Config{Settings: map[string]string{"synchronous_commit": "off"}}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := cluster.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// testPool is a pool on an empty database with the table of invoices.
func testPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), cluster.PasswordURL(cluster.NewDatabase(t)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), "create table invoices (order_id text primary key)"); err != nil {
		t.Fatal(err)
	}
	return pool
}

// snippet: handler
type OrderPlaced struct{ ID string }

// WriteInvoice writes a row in the transaction of its message.
func WriteInvoice(ctx context.Context, m *core.Message, body OrderPlaced) error {
	tx, err := sqlserver.Tx(ctx)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "insert into invoices (order_id) values ($1)", body.ID); err != nil {
		return fmt.Errorf("invoice of order %s: %w", body.ID, err)
	}
	return m.Publish(written.Of(body))
}

// end

// snippet: real
func TestWriteInvoice(t *testing.T) {
	pool := testPool(t)
	ctx := sqlservertest.Begin(t, pool) // rolled back when the test ends
	in, body, rec := coretest.Message(placed, OrderPlaced{ID: "42"})
	if err := WriteInvoice(ctx, in, body); err != nil {
		t.Fatal(err)
	}
	tx, err := sqlserver.Tx(ctx) // the test sees the handler's rows
	if err != nil {
		t.Fatal(err)
	}
	var invoices int
	if err := tx.QueryRow(ctx, "select count(*) from invoices where order_id = '42'").Scan(&invoices); err != nil {
		t.Fatal(err)
	}
	if invoices != 1 || len(rec.Sent()) != 1 {
		t.Errorf("%d invoices, sent %v", invoices, rec.Sent())
	}
}

// end

// snippet: endpoint
func TestWriteInvoice_OfAnEndpoint(t *testing.T) {
	ctx := sqlservertest.Begin(t, testPool(t))
	billing, err := core.New("billing", inmemory.Open(), core.Config{Concurrency: 1})
	if err != nil {
		t.Fatal(err)
	}
	orders := make(chan string)
	core.Handle(billing, placed, WriteInvoice)
	core.HandleEvent(billing, written, func(_ context.Context, _ *core.Message, body OrderPlaced) error {
		orders <- body.ID
		return nil
	})
	coretest.RunContext(ctx, t, billing)
	if err := billing.Send(t.Context(), "billing", placed.Of(OrderPlaced{ID: "42"})); err != nil {
		t.Fatal(err)
	}
	if id := <-orders; id != "42" {
		t.Errorf("wrote the invoice of order %s", id)
	}
}

// end

// snippet: fake
// readOnly is a transaction in which each statement fails. A test overrides the methods that
// its handler calls.
type readOnly struct{ pgx.Tx }

func (readOnly) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, errors.New("the server is read-only")
}

func TestWriteInvoice_ReportsItsFailure(t *testing.T) {
	in, body, rec := coretest.Message(placed, OrderPlaced{ID: "42"})
	err := WriteInvoice(sqlservertest.WithTx(t.Context(), readOnly{}), in, body)
	if err == nil || !strings.Contains(err.Error(), "order 42: the server is read-only") || len(rec.Sent()) > 0 {
		t.Errorf("error %v, sent %v", err, rec.Sent())
	}
}

// end

// snippet: own
// beginner is a *pgxpool.Pool, or a fake.
type beginner interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// PlaceOrder writes a row and sends the message about it in one transaction.
func PlaceOrder(ctx context.Context, db beginner, shop *core.Endpoint, o OrderPlaced) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into orders (id) values ($1)", o.ID); err != nil {
			return err
		}
		return shop.Send(sqlserver.WithTx(ctx, tx), "billing", placed.Of(o))
	})
}

// end

// snippet: own-test
// fakeDB begins transactions that are itself, and notes their ends.
type fakeDB struct {
	pgx.Tx
	fails     error // of each statement
	committed bool
}

func (db *fakeDB) Begin(context.Context) (pgx.Tx, error) { return db, nil }
func (db *fakeDB) Exec(context.Context, string, ...any) (pgconn.CommandTag, error) {
	return pgconn.CommandTag{}, db.fails
}
func (db *fakeDB) Commit(context.Context) error   { db.committed = true; return nil }
func (db *fakeDB) Rollback(context.Context) error { return nil } // BeginFunc calls it in any case

func TestPlaceOrder(t *testing.T) {
	for _, fails := range []error{nil, errors.New("the server is read-only")} {
		transport := inmemory.Open()
		if err := transport.Provision(t.Context(), core.Topology{InputQueue: "billing", Queues: []string{"billing"}}); err != nil {
			t.Fatal(err)
		}
		shop, err := core.New("shop", transport, core.Config{SendOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		db := &fakeDB{fails: fails}
		if err := PlaceOrder(t.Context(), db, shop, OrderPlaced{ID: "42"}); !errors.Is(err, fails) {
			t.Errorf("error %v, want %v", err, fails)
		}
		sent, err := transport.Depth(t.Context(), "billing")
		if err != nil || sent.Ready == 1 != (fails == nil) || db.committed != (fails == nil) {
			t.Errorf("sent %d messages, %v; committed: %v", sent.Ready, err, db.committed)
		}
	}
}

// end

func TestBegin_RollsBackAndKeepsTheTransaction(t *testing.T) {
	pool := testPool(t)
	t.Run("handler", func(t *testing.T) {
		ctx := sqlservertest.Begin(t, pool)
		in, body, _ := coretest.Message(placed, OrderPlaced{ID: "42"})
		if err := WriteInvoice(ctx, in, body); err != nil {
			t.Fatal(err)
		}
		tx, err := sqlserver.Tx(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if tx.Commit(ctx) == nil || tx.Rollback(ctx) == nil {
			t.Error("a handler ends the transaction of its message")
		}
		nested, err := tx.Begin(ctx)
		if err != nil || nested.Rollback(ctx) != nil {
			t.Error(err)
		}
		if _, err := sqlserver.SQLTx(ctx); err == nil || !strings.Contains(err.Error(), "with Tx") {
			t.Errorf("SQLTx of a transaction of pgx: %v", err)
		}
	})
	isEmpty(t, pool)
}

func isEmpty(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	var rows int
	if err := pool.QueryRow(t.Context(), "select count(*) from invoices").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("%d rows after the rollback, %v", rows, err)
	}
}

func TestBeginSQL_RollsBack(t *testing.T) {
	pool := testPool(t)
	db := stdlib.OpenDBFromPool(pool)
	defer db.Close()
	t.Run("handler", func(t *testing.T) {
		ctx := sqlservertest.BeginSQL(t, db)
		tx, err := sqlserver.SQLTx(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(ctx, "insert into invoices (order_id) values ('42')"); err != nil {
			t.Fatal(err)
		}
		if _, err := sqlserver.Tx(ctx); err == nil || !strings.Contains(err.Error(), "with SQLTx") {
			t.Errorf("Tx of a transaction of database/sql: %v", err)
		}
	})
	isEmpty(t, pool)
}

func TestTx_WithoutTransaction(t *testing.T) {
	if _, err := sqlserver.Tx(t.Context()); err == nil || !strings.Contains(err.Error(), "sqlservertest") {
		t.Errorf("Tx without a transaction: %v", err)
	}
}
