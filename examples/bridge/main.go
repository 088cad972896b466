// Bridge is a service that keeps its data and its messages in PostgreSQL, and whose events
// reach subscribers on RabbitMQ.
//
//	export DATABASE_URL=postgres://user:password@localhost/database
//	export AMQP_URL=amqp://user:password@localhost/vhost
//	go run .               # places three orders, and ends when their mails are written
//	go run . -orders 1000
//	go run . -v            # with the log lines of the endpoints
//
// Stop RabbitMQ while it runs, and start it again: orders are still placed, and the mails are
// written after the restart. Points to note:
//
//   - shop.place writes an order and publishes an event in one transaction. RabbitMQ has no
//     part in it, and need not run.
//   - newCarrier is the bridge: it receives the event from PostgreSQL and publishes it on
//     RabbitMQ, with the same id at each repetition.
//   - mails is an endpoint on RabbitMQ with an inbox: a message that arrives twice is handled
//     once. So each order has exactly one mail, even after crashes; main_test.go kills RabbitMQ.
//
// All tables are in the schema reprise_bridge, which is removed with
//
//	drop schema reprise_bridge cascade
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
)

func main() {
	o := options{database: os.Getenv("DATABASE_URL"), broker: os.Getenv("AMQP_URL"), logger: slog.New(slog.DiscardHandler)}
	flag.IntVar(&o.orders, "orders", 3, "how many orders are placed")
	verbose := flag.Bool("v", false, "show the log lines of the endpoints, on stderr")
	flag.Parse()
	if *verbose {
		o.logger = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the drain
	if err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "bridge:", err)
		os.Exit(1)
	}
}

// options are the settings from the command line and the environment.
type options struct {
	database, broker string // URLs
	orders           int
	logger           *slog.Logger
}

// run places orders and returns when each has a mail or, after ctx has ended, when the
// endpoints have drained.
func run(ctx context.Context, out io.Writer, o options) (err error) {
	s, err := open(ctx, o)
	if err != nil {
		return err
	}
	defer func() {
		// ctx may have ended, and closing must still be possible.
		err = errors.Join(err, s.close(context.WithoutCancel(ctx)))
	}()
	ctx, end := context.WithCancel(ctx)
	told := make(chan error, 1)
	go func() {
		defer end()
		told <- s.tell(ctx, out, o.orders)
	}()
	err = s.run(ctx)
	end()
	return errors.Join(err, <-told)
}

// tell places the orders.
func (s *service) tell(ctx context.Context, out io.Writer, orders int) error {
	if !s.isReady(ctx) {
		return nil
	}
	before, err := s.shop.count(ctx)
	for i := 0; i < orders && err == nil; i++ {
		err = s.shop.place(ctx, "lamps")
	}
	if err == nil {
		fmt.Fprintf(out, "%d orders are placed.\n", orders)
		err = s.shop.awaitMails(ctx, before+orders)
	}
	if ctx.Err() != nil {
		return nil //nolint:nilerr // Ctrl-C is not an error
	}
	if err == nil {
		fmt.Fprintf(out, "%d mails are written.\n", orders)
	}
	return err
}
