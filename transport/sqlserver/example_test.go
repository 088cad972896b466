package sqlserver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// WriteInvoice is a command.
type WriteInvoice struct{ OrderID int }

// An endpoint whose handler writes to the database in which its queue is.
func Example() {
	// snippet: first
	ctx, stop := context.WithCancel(context.Background())
	transport, err := sqlserver.Open(os.Getenv("DATABASE_URL")) // postgres://user:password@host/database?sslmode=verify-full
	if err != nil {
		log.Fatal(err)
	}
	defer transport.Close(context.Background())

	writeInvoice := core.NewMessageType[WriteInvoice]("billing.WriteInvoice") // its name on the wire
	billing, err := core.New("billing", transport, core.Config{})
	if err != nil {
		log.Fatal(err)
	}
	core.Handle(billing, writeInvoice, func(ctx context.Context, _ *core.Message, body WriteInvoice) error {
		tx, err := sqlserver.Tx(ctx) // of the message: committed with it, or not at all
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "insert into invoices (order_id) values ($1)", body.OrderID); err != nil {
			return err
		}
		stop() // Run drains and returns; a service runs until it gets a signal
		return nil
	})
	if err := errors.Join(
		billing.Provision(ctx), // creates the tables of its queues that are missing
		billing.Send(ctx, "billing", writeInvoice.Of(WriteInvoice{OrderID: 42})),
		billing.Run(ctx),
	); err != nil {
		log.Fatal(err)
	}
	// end
}

// A password that another system changes while the program runs.
func ExampleNew_passwordThatChanges() {
	ctx := context.Background()
	// snippet: password
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL")) // without a password
	if err != nil {
		log.Fatal(err)
	}
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		text, err := os.ReadFile("/run/secrets/postgres-password") // a file that is replaced
		c.Password = strings.TrimSpace(string(text))
		return err
	}
	// end
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	transport, err := sqlserver.New(sqlserver.Config{Pool: pool})
	if err != nil {
		log.Fatal(err)
	}
	defer transport.Close(ctx)
	if err := transport.Check(ctx, core.Topology{}); err != nil {
		log.Fatal(err)
	}
}

// A pool that the rest of the program uses as well.
func ExampleNew() {
	ctx := context.Background()
	// snippet: pool
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	config.MaxConns = 16 + 2 + 8 // for the handlers, for their sends outside of transactions, for the rest of the service
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()

	transport, err := sqlserver.New(sqlserver.Config{
		Pool:   pool,
		Schema: "messaging", // where the queues are; it must exist
	})
	// end
	if err != nil {
		log.Fatal(err)
	}
	defer transport.Close(ctx)
	if err := transport.Check(ctx, core.Topology{}); err != nil {
		log.Fatal(err)
	}
}

// An order and the message about it are written together.
func ExampleWithTx() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	transport, err := sqlserver.New(sqlserver.Config{Pool: pool})
	if err != nil {
		log.Fatal(err)
	}
	defer transport.Close(ctx)
	shop, err := core.New("shop", transport, core.Config{SendOnly: true})
	if err != nil {
		log.Fatal(err)
	}

	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into orders (id) values ($1)", 42); err != nil {
			return err
		}
		return shop.Send(sqlserver.WithTx(ctx, tx), "billing", writeInvoice.Of(WriteInvoice{OrderID: 42}))
	})
	if err != nil { // then there is neither an order nor a message
		log.Fatal(err)
	}
}

// The same for a program that is built on database/sql.
func ExampleWithSQLTx() {
	ctx := context.Background()
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	transport, err := sqlserver.New(sqlserver.Config{DB: db})
	if err != nil {
		log.Fatal(err)
	}
	defer transport.Close(ctx)
	shop, err := core.New("shop", transport, core.Config{SendOnly: true})
	if err != nil {
		log.Fatal(err)
	}

	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }() // without effect after the commit
	if _, err := tx.ExecContext(ctx, "insert into orders (id) values ($1)", 43); err != nil {
		log.Fatal(err)
	}
	if err := shop.Send(sqlserver.WithSQLTx(ctx, tx), "billing", writeInvoice.Of(WriteInvoice{OrderID: 43})); err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
}

// What somebody with the right to create tables has to carry out. No server is needed
// for that.
func ExampleDDL() {
	// snippet: ddl
	ddl, err := sqlserver.DDL(sqlserver.Config{URL: "postgres://"}, "billing", "error")
	if err != nil {
		log.Fatal(err)
	}
	// end
	for line := range strings.Lines(ddl) {
		if strings.HasPrefix(line, "create") {
			fmt.Print(line)
		}
	}
	// Output:
	// create table if not exists "public"."billing" (
	// create table if not exists "public"."error" (
	// create table if not exists "public"."SubscriptionRouting" (
	// create table if not exists "public"."reprise_delayed" (
}

// TestExamples runs the examples that need a database, and looks at what they leave in
// it.
func TestExamples(t *testing.T) {
	for name, example := range map[string]struct {
		run        func()
		left, want string
	}{
		"Example":   {Example, `select string_agg(order_id::text, ',') from invoices`, "42"},
		"New":       {ExampleNew, `select count(*)::text from pg_tables where schemaname = 'messaging'`, "0"},
		"WithTx":    {ExampleWithTx, `select (select string_agg(id::text, ',') from orders) || ' ' || convert_from(body, 'UTF8') from billing`, `42 {"OrderID":42}`},
		"WithSQLTx": {ExampleWithSQLTx, `select (select string_agg(id::text, ',') from orders) || ' ' || convert_from(body, 'UTF8') from billing`, `43 {"OrderID":43}`},
	} {
		t.Run(name, func(t *testing.T) {
			db := newDatabase(t)
			t.Setenv("DATABASE_URL", db.url)
			provision(t, db.open(t, sqlserver.Config{}), "billing")
			db.exec(t, `create table orders (id int); create table invoices (order_id int); create schema messaging`)
			example.run()
			if left := strings.Join(db.column(t, example.left), "\n"); left != example.want {
				t.Errorf("it left %q, want %q", left, example.want)
			}
		})
	}
}
