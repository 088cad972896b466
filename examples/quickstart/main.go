// Quickstart is a shop in one process: an endpoint each for orders, payments and
// shipping, and a morning with many failures.
//
//	go run ./examples/quickstart       # ends by itself after some 4 seconds
//	go run ./examples/quickstart -v    # with the log lines of the endpoints
//
// The shop places eight orders, one every quarter of a second. The orders endpoint
// reserves the ordered items and sends a command to payments; payments charges the
// customer and publishes an event; shipping has subscribed to it and books a carrier.
// Each order has another failure, and the output shows the decisions of recoverability as
// they are made. Points to note:
//
//   - No handler has a retry loop or knows an error queue. They return errors; the
//     configuration below, the same for all three endpoints, sets the reaction: one retry
//     at once, two more rounds of attempts after 1 s and 2 s, then the error queue.
//   - Where a handler knows better it returns a verdict: core.GiveUp, core.Discard
//     and core.Defer in orders.go.
//   - The sends of a failed handler are dropped. order-1002 fails and is retried, and is
//     charged once.
//   - The error queue has a message as it was received, with headers that say where, why
//     and after how many attempts it failed.
//   - Ctrl-C drains: messages being handled are finished, the others stay in
//     their queues.
//
// The output comes from account.go, an observer, as tracing and metrics are; the handlers
// do not know it. The transport is chosen in one line of run.
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
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func main() {
	verbose := flag.Bool("v", false, "show the log lines of the endpoints, on stderr")
	flag.Parse()
	o := options{colour: isColourTerminal(os.Stdout), logger: slog.New(slog.DiscardHandler)}
	if *verbose {
		o.logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the drain
	if err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// options are the settings from the command line and the terminal.
type options struct {
	colour bool
	logger *slog.Logger
}

// isColourTerminal reports whether f is a terminal whose user has not asked for
// plain text (https://no-color.org).
func isColourTerminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("NO_COLOR") == ""
}

// run runs the whole example. It returns when every order has ended or, after ctx has
// ended, when the endpoints have drained.
func run(ctx context.Context, out io.Writer, o options) (err error) {
	transport := inmemory.Open() // the only line that another messaging system changes
	defer func() {
		// ctx may have ended, and closing must still be possible.
		err = errors.Join(err, transport.Close(context.WithoutCancel(ctx)))
	}()

	account := newAccount(out, o.colour, len(placedOrders))
	config := core.Config{
		Recoverability: core.Recoverability{
			Immediate: core.Immediate{NumberOfRetries: 1},
			Delayed:   core.Delayed{NumberOfRetries: 2, TimeIncrease: time.Second}, // after 1 s, then after 2 s
		},
		Observers: []core.Observer{account.observer()},
		Logger:    o.logger,
	}
	orders, err1 := newOrders(transport, config)
	payments, err2 := newPayments(transport, config)
	shipping, err3 := newShipping(transport, config)
	shop, err4 := core.New("shop", transport, core.Config{SendOnly: true, Logger: o.logger})
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return err
	}

	account.begin()
	ctx, account.settled = context.WithCancel(ctx) // the endpoints drain when all is settled, as at Ctrl-C
	defer account.settled()
	err = runShop(ctx, shop, orders, payments, shipping)
	return errors.Join(err, account.report(context.WithoutCancel(ctx), transport))
}

// runShop places the orders and runs the endpoints until ctx ends.
func runShop(ctx context.Context, shop *core.Endpoint, endpoints ...*core.Endpoint) error {
	if ctx.Err() != nil {
		return nil //nolint:nilerr // Ctrl-C is not an error
	}
	for _, ep := range endpoints {
		// RunAll would create the queues too, but the orders need theirs before.
		if err := ep.Provision(ctx); err != nil {
			return err
		}
	}
	if err := placeOrders(ctx, shop); err != nil {
		return err
	}
	return core.RunAll(ctx, endpoints...)
}
