// Outbox is a service that keeps its data and its messages in one PostgreSQL
// database, so that a row and the message about it are written together or not at
// all: a transactional outbox without an outbox table, a relay or a second copy.
//
//	export DATABASE_URL=postgres://user:password@localhost/database
//	go run .                           # a story, which ends by itself
//	go run . -listen localhost:8080    # the service, until Ctrl-C
//	go run . -v                        # with the log lines of the endpoints
//
// All its tables are in a separate schema, which is removed with
//
//	drop schema reprise_outbox cascade
//
// The shop takes orders over HTTP. It writes each into the table orders and, in the same
// transaction, sends billing a command. Billing writes an invoice in the transaction in
// which it receives the command, and publishes an event; the shop has subscribed to it
// and notes it in its order. Points to note:
//
//   - shop.place is code outside a handler: it begins an ordinary transaction, and
//     sqlserver.WithTx lets Endpoint.Send take part in it. There is no moment at which
//     the order exists and its message does not, for any crash.
//   - billing.write is a handler in the mode SendsAtomicWithReceive: sqlserver.Tx
//     is the transaction of the message being handled. The invoice, the event and
//     the end of the command are committed together. A failed attempt leaves
//     nothing behind, though its invoice was written and its event sent.
//   - The table of invoices has no key that forbids a second invoice for an order, and no
//     handler asks whether there is one. The database has no duplicates; crash_test.go
//     kills the process at the worst moments, and counts.
//
// Effects outside the database may be repeated: billing calls the tax office again after
// a failure or a crash.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

func main() {
	o := options{logger: slog.New(slog.DiscardHandler)}
	flag.StringVar(&o.database, "database", "", "URL of a PostgreSQL database (default $DATABASE_URL)")
	flag.StringVar(&o.listen, "listen", "", "serve orders over HTTP at this address, instead of telling the story")
	verbose := flag.Bool("v", false, "show the log lines of the endpoints, on stderr")
	flag.Parse()
	if o.database == "" { // not the flag's default, which -help would show with its password
		o.database = os.Getenv("DATABASE_URL")
	}
	if *verbose {
		o.logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the drain
	if err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "outbox:", err)
		os.Exit(1)
	}
}

// options are the settings from the command line.
type options struct {
	database string // URL
	listen   string // address; "": tell the story
	logger   *slog.Logger
}

// run returns when the story has ended or, after ctx has ended, when the endpoints have
// drained.
func run(ctx context.Context, out io.Writer, o options) (err error) {
	pool, err := openDatabase(ctx, o.database)
	if err != nil {
		return err
	}
	defer pool.Close()

	// One pool for the service's own statements and for its queues: then they can
	// share transactions.
	transport, err := sqlserver.New(sqlserver.Config{Pool: pool, Schema: schema})
	if err != nil {
		return err
	}
	defer func() {
		// ctx may have ended, and closing must still be possible.
		err = errors.Join(err, transport.Close(context.WithoutCancel(ctx)))
	}()

	account := &account{out: out, pool: pool}
	config := core.Config{
		Concurrency:  concurrency,
		Transactions: core.TransactionSendsAtomicWithReceive,
		Recoverability: core.Recoverability{
			Immediate: core.Immediate{NumberOfRetries: 2},
			Delayed:   core.Delayed{NumberOfRetries: core.Off},
		},
		Observers: []core.Observer{account.observer()},
		Logger:    o.logger,
	}
	shop, err1 := newShop(pool, transport, config)
	billing, err2 := newBilling(transport, config)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	// The tables of the queues must exist before the first order.
	if err := errors.Join(shop.endpoint.Provision(ctx), billing.Provision(ctx)); err != nil {
		return err
	}
	if o.listen != "" {
		return serve(ctx, out, o.listen, shop, billing)
	}
	return tell(ctx, account, shop, billing)
}
