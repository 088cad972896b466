package rabbitmq_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// WriteInvoice is a command.
type WriteInvoice struct{ OrderID int }

// Refresh is a command whose loss does not matter.
type Refresh struct{}

// An endpoint that sends itself a message, and handles it.
func Example() {
	// snippet: first
	ctx, stop := context.WithCancel(context.Background())
	transport, err := rabbitmq.Open(os.Getenv("AMQP_URL")) // amqps://user:password@host/vhost
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
		fmt.Println("an invoice for order", body.OrderID)
		stop() // Run drains and returns; a service runs until it gets a signal
		return nil
	})
	if err := errors.Join(
		billing.Provision(ctx), // creates what is missing: its queues, and the delays of the virtual host
		billing.Send(ctx, "billing", writeInvoice.Of(WriteInvoice{OrderID: 42})),
		billing.Run(ctx),
	); err != nil {
		log.Fatal(err)
	}
	// end
}

// A cluster with TLS, whose queues may have been made by somebody else.
func ExampleNew() {
	ctx := context.Background()
	// snippet: cluster
	transport, err := rabbitmq.New(rabbitmq.Config{
		URLs: []string{ // of one cluster, in any order
			os.Getenv("AMQP_URL_1"), // amqps://user:password@rabbit-1/shop
			os.Getenv("AMQP_URL_2"),
			os.Getenv("AMQP_URL_3"),
		},
		TLS:           &tls.Config{ServerName: "rabbit.example.com", MinVersion: tls.VersionTLS13},
		ManagementURL: os.Getenv("RABBITMQ_MANAGEMENT_URL"), // https://limits:password@rabbit.example.com:15671
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

// Credentials that another system changes while the program runs.
func ExampleConfig_credentials() {
	ctx := context.Background()
	// snippet: credentials
	transport, err := rabbitmq.New(rabbitmq.Config{
		URLs: []string{"amqps://rabbit.example.com/shop"}, // without a user
		Credentials: func(context.Context) (user, password string, expires time.Time, err error) {
			text, err := os.ReadFile("/run/secrets/rabbitmq-password") // a file that is replaced
			return "app", strings.TrimSpace(string(text)), time.Time{}, err
		},
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

// Messages of a publisher that knows nothing of Reprise.
func ExampleConfig_messageType() {
	ctx := context.Background()
	// snippet: foreign
	transport, err := rabbitmq.New(rabbitmq.Config{
		URLs: []string{os.Getenv("AMQP_URL")},
		MessageType: func(queue string, d *amqp.Delivery) string {
			if strings.HasPrefix(d.RoutingKey, "order.") { // as its publisher has always done
				return d.RoutingKey
			}
			return ""
		},
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

// A message that need not survive the broker, before others.
func ExampleTransport_Send() {
	ctx := context.Background()
	transport, err := rabbitmq.Open(os.Getenv("AMQP_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer transport.Close(ctx)
	dashboard, err := core.New("dashboard", transport, core.Config{SendOnly: true})
	if err != nil {
		log.Fatal(err)
	}
	// snippet: properties
	err = dashboard.Send(ctx, "screens", refreshType.Of(Refresh{}).With(core.SendOptions{
		TimeToBeReceived: 5 * time.Second,
		Properties: map[string]string{
			"rabbitmq.delivery-mode": "transient", // or "persistent", the default
			"rabbitmq.priority":      "9",         // 0 to 255, for queues that have priorities
		},
	}))
	// end
	if send, ok := errors.AsType[*core.SendError](err); ok {
		for _, result := range send.Results {
			fmt.Println(result.State, result.Err)
		}
	}
}
