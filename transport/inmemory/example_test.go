package inmemory_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// The calls of an endpoint to a transport, by hand.
func Example() {
	ctx := context.Background()
	transport := inmemory.Open()
	defer transport.Close(ctx)
	if err := transport.Provision(ctx, core.Topology{Queues: []string{"billing"}}); err != nil {
		log.Fatal(err)
	}
	if err := transport.Send(ctx, core.Outgoing{ID: "1", Queue: "billing", Body: []byte("an invoice")}); err != nil {
		log.Fatal(err)
	}
	receiver, err := transport.OpenReceiver(ctx, core.ReceiverConfig{
		Queue: "billing", Mode: core.TransactionReceiveOnly, MaxInFlight: 16,
	})
	if err != nil {
		log.Fatal(err)
	}
	deliveries := make([]core.Delivery, 16)
	for range 2 {
		n, err := receiver.Receive(ctx, deliveries)
		if err != nil {
			log.Fatal(err)
		}
		for _, d := range deliveries[:n] {
			in := d.Incoming()
			fmt.Printf("delivery %d of %q, last error %q\n", in.DeliveryCount, in.Body, in.LastError)
			if in.DeliveryCount == 1 {
				err = d.Abandon(ctx, errors.New("no database"))
			} else {
				err = d.Complete(ctx)
			}
			if err != nil {
				log.Fatal(err)
			}
		}
	}
	// Output:
	// delivery 1 of "an invoice", last error ""
	// delivery 2 of "an invoice", last error "no database"
}

// A transport with the capabilities of Amazon SQS refuses messages that SQS would refuse.
func ExampleNew() {
	transport, err := inmemory.New(inmemory.LikeSQS())
	if err != nil {
		log.Fatal(err)
	}
	_, err = transport.OpenReceiver(context.Background(), core.ReceiverConfig{
		Queue: "billing", Mode: core.TransactionSendsAtomicWithReceive, MaxInFlight: 16,
	})
	fmt.Println(errors.Is(err, errors.ErrUnsupported), transport.Capabilities().MaxLockTime)
	// Output: true 12h0m0s
}

// One capability less than everything.
func ExampleEverything() {
	able := inmemory.Everything()
	able.DelayedDelivery = false
	transport, err := inmemory.New(inmemory.Config{Capabilities: &able})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(transport.Capabilities().DelayedDelivery)
	// Output: false
}

// Two transports on one broker are as two processes. Closing one and opening
// another is a restart: the messages stay.
func ExampleBroker() {
	ctx := context.Background()
	broker := inmemory.NewBroker()
	before, err := inmemory.New(inmemory.Config{Broker: broker})
	if err != nil {
		log.Fatal(err)
	}
	if err := before.Provision(ctx, core.Topology{Queues: []string{"billing"}}); err != nil {
		log.Fatal(err)
	}
	if err := before.Send(ctx, core.Outgoing{ID: "1", Queue: "billing", Body: []byte("kept")}); err != nil {
		log.Fatal(err)
	}
	if err := before.Close(ctx); err != nil {
		log.Fatal(err)
	}

	after, err := inmemory.New(inmemory.Config{Broker: broker})
	if err != nil {
		log.Fatal(err)
	}
	page, err := after.Browse(ctx, queues.Request{Queue: "billing", Limit: 10})
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range page.Messages {
		fmt.Printf("%v: %s\n", m.State, m.Body)
	}
	// Output: ready: kept
}
