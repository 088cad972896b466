package postgres_test

import (
	"context"
	"errors"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/inbox"
	"github.com/reprise-go/reprise/inbox/postgres"
)

type OrderPlaced struct{ ID string }

var written = core.NewEvent[OrderPlaced]("invoices.written")

// transport is that of any broker, such as one that rabbitmq.Open returns.
var transport core.Transport

// An endpoint whose handler writes to PostgreSQL once for each message.
func Example() {
	placed := core.NewEvent[OrderPlaced]("orders.placed")
	ctx := context.Background()
	// snippet: open
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	store, err := postgres.New(pool, postgres.Config{})
	if err != nil {
		log.Fatal(err)
	}
	if err := store.Provision(ctx); err != nil { // creates its table if it is missing
		log.Fatal(err)
	}
	box, err := inbox.New(inbox.Config{Store: store})
	if err != nil {
		log.Fatal(err)
	}
	defer box.Close(ctx) // after the endpoints have ended

	billing, err := core.New("billing", transport, core.Config{
		Middleware: []core.Middleware{box.Middleware()},
	})
	if err != nil {
		log.Fatal(err)
	}
	core.HandleEvent(billing, placed, writeInvoice)
	// end
	if err := billing.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

// snippet: wait
// provision creates the table as soon as PostgreSQL can be reached, or ctx ends.
func provision(ctx context.Context, store *postgres.Store) error {
	for {
		err := store.Provision(ctx)
		if _, isConnectError := errors.AsType[*pgconn.ConnectError](err); !isConnectError {
			return err // nil, or another reason: no right to create a table, for example
		}
		slog.Warn("waiting for PostgreSQL", "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(5 * time.Second):
		}
	}
}

// end

// snippet: handler
func writeInvoice(ctx context.Context, m *core.Message, body OrderPlaced) error {
	tx, err := postgres.Tx(ctx) // of the message, with its entry in the inbox
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "insert into invoices (order_id) values ($1)", body.ID); err != nil {
		return err
	}
	return m.Publish(written.Of(body)) // stored with the row, and sent after the commit
}

// end

func noteAudit(context.Context, *core.Message, OrderPlaced) error { return nil }

// Handlers that fail apart from each other.
func ExampleNew_independentHandlers() {
	placed := core.NewEvent[OrderPlaced]("orders.placed")
	register := func(billing *core.Endpoint, box *inbox.Inbox) {
		// snippet: independent
		once := func(name string) core.HandleOptions {
			return core.HandleOptions{Independent: true, Middleware: []core.Middleware{box.Handler(name)}}
		}
		core.HandleEvent(billing, placed, writeInvoice, once("invoice"))
		core.HandleEvent(billing, placed, noteAudit, once("audit"))
		// end
	}
	_ = register
}
