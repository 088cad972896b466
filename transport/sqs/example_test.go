//go:build darwin || linux

package sqs_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqs"
)

// WriteInvoice is a command.
type WriteInvoice struct{ OrderID int }

// An endpoint that sends itself a message, and handles it.
func Example() {
	// snippet: first
	ctx, stop := context.WithCancel(context.Background())
	transport, err := sqs.Open(ctx) // region and credentials as the AWS SDK finds them
	if err != nil {
		log.Fatal(err)
	}
	defer transport.Close(context.Background())

	billing, err := core.New("billing", transport, core.Config{})
	if err != nil {
		log.Fatal(err)
	}
	core.Handle(billing, "billing.WriteInvoice", func(ctx context.Context, m *core.Inbound[WriteInvoice]) error {
		fmt.Println("an invoice for order", m.Body.OrderID)
		stop() // Run drains and returns; a service runs until it gets a signal
		return nil
	})
	if err := errors.Join(
		billing.Provision(ctx), // creates billing, billing-delay.fifo and error if they are missing
		billing.Send(ctx, "billing", "billing.WriteInvoice", WriteInvoice{OrderID: 42}),
		billing.Run(ctx),
	); err != nil {
		log.Fatal(err)
	}
	// end
}

// Several environments in one account.
func ExampleNew() {
	ctx := context.Background()
	// snippet: new
	shared, err := config.LoadDefaultConfig(ctx, config.WithRegion("eu-central-1"), config.WithSharedConfigProfile("shop"))
	if err != nil {
		log.Fatal(err)
	}
	transport, err := sqs.New(ctx, sqs.Config{
		AWS:         &shared,
		QueuePrefix: "staging-",
		TopicPrefix: "staging-",
		KMSKey:      "alias/messages", // of the queues that Provision creates
	})
	// end
	if err != nil {
		log.Fatal(err)
	}
	_ = transport.Close(ctx)
}

// The messages of one customer are handled in their order.
func ExampleTransport_KeepsGroups() {
	transport, err := sqs.New(context.Background(), sqs.Config{AWS: &aws.Config{Region: "eu-central-1"}})
	if err != nil {
		log.Fatal(err)
	}
	// snippet: fifo
	ledger, err := core.New("ledger.fifo", transport, core.Config{
		Recoverability: core.Recoverability{ErrorQueue: "error"},
	})
	if err != nil {
		log.Fatal(err)
	}
	post := func(ctx context.Context, customer string, amount int) error {
		return ledger.Send(ctx, "ledger.fifo", "ledger.Post", amount, core.SendOptions{GroupKey: customer})
	}
	// end
	_ = post
	fmt.Println(transport.KeepsGroups("ledger.fifo"), transport.KeepsGroups("ledger"))
	// Output: true false
}

// The least rights of an endpoint.
func ExamplePolicy() {
	// snippet: policy
	policy, err := sqs.Policy(sqs.Config{NoLongDelays: true}, sqs.PolicyFor{
		Region: "eu-central-1", Account: "123456789012",
		Receives:  []string{"billing"},
		Sends:     []string{"shipping", "error"},
		Publishes: []string{"billing.Invoiced"},
	})
	// end
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(policy) > 0)
	// Output: true
}
