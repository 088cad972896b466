// Foreign is a service, billing, whose messages come from programs in other languages and go to them.
//
//	export AMQP_URL=amqp://user:password@localhost/vhost
//	go run .                         # on RabbitMQ
//	export DATABASE_URL=postgres://user:password@localhost/database
//	go run . -transport postgres
//	go run . -transport sqs          # with the region and the credentials of the environment
//
// It prints one line of JSON for each attempt at a message. The programs are in python, node and java;
// scripts/foreign installs their libraries, and main_test.go runs all of them:
//
//	PYTHONPATH=~/.cache/reprise/foreign/python/lib python3 python/rabbitmq.py $AMQP_URL place 1 ada
//	NODE_PATH=~/.cache/reprise/foreign/node/node_modules node node/rabbitmq.js $AMQP_URL place 2 ada
//	java -cp ~/.cache/reprise/foreign/java/lib/'*' java/Shop.java $AMQP_URL place 3 ada
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
	"strings"
	"syscall"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
	"github.com/reprise-go/reprise/transport/sqlserver"
	"github.com/reprise-go/reprise/transport/sqs"
)

func main() {
	o := options{broker: os.Getenv("AMQP_URL"), database: os.Getenv("DATABASE_URL"), logger: slog.Default()}
	flag.StringVar(&o.transport, "transport", "rabbitmq", "rabbitmq, postgres or sqs")
	customers := flag.String("customers", "ada,grace", "the customers whose orders can be billed; others fail")
	flag.Parse()
	o.customers = strings.Split(*customers, ",")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C does not wait for the drain
	if err := run(ctx, os.Stdout, o); err != nil {
		fmt.Fprintln(os.Stderr, "foreign:", err)
		os.Exit(1)
	}
}

// options are the settings from the command line and the environment.
type options struct {
	transport        string
	broker, database string // URLs
	customers        []string
	logger           *slog.Logger
}

// run runs billing until ctx ends.
func run(ctx context.Context, out io.Writer, o options) (err error) {
	t, err := open(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close(context.WithoutCancel(ctx))) }()
	ep, err := newBilling(t, out, o)
	if err != nil {
		return err
	}
	return ep.Run(ctx)
}

// open opens the transport.
func open(o options) (core.Transport, error) {
	switch {
	case o.transport == "rabbitmq" && o.broker != "":
		return openRabbitMQ(o.broker)
	case o.transport == "postgres" && o.database != "":
		return sqlserver.Open(o.database)
	case o.transport == "sqs":
		return sqs.Open()
	case o.transport == "rabbitmq", o.transport == "postgres":
		return nil, fmt.Errorf("no URL for -transport %s: set AMQP_URL or DATABASE_URL, for example amqp://user:password@localhost/vhost", o.transport)
	default:
		return nil, fmt.Errorf("-transport is %q; set it to rabbitmq, postgres or sqs", o.transport)
	}
}

// snippet: routing-key
func openRabbitMQ(url string) (core.Transport, error) {
	return rabbitmq.New(rabbitmq.Config{
		URLs: []string{url},
		MessageType: func(_ string, d *amqp.Delivery) string { // of a message without the property type
			if d.Exchange == "shop" {
				return d.RoutingKey // the shop's publishers name the type there
			}
			return ""
		},
	})
}

// end
