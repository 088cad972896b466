package core_test

import (
	"context"
	"fmt"
	"log"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// A program without an endpoint, such as a bridge, sends, receives and settles messages by
// itself, on any transport. Retries, the error queue and the renewal of locks are its own
// task then: https://github.com/reprise-go/reprise/blob/main/docs/using-a-transport-directly.md.
func ExampleTransport() {
	ctx := context.Background()
	var transport core.Transport = inmemory.Open()
	defer transport.Close(ctx)
	if p, ok := transport.(core.Provisioner); ok {
		if err := p.Provision(ctx, core.Topology{InputQueue: "parcels", Queues: []string{"parcels"}}); err != nil {
			log.Fatal(err)
		}
	}
	if err := transport.Send(ctx, core.Outgoing{ID: "p-1", Queue: "parcels", Body: []byte("a book")}); err != nil {
		log.Fatal(err)
	}

	receiver, err := transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: "parcels", Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
	if err != nil {
		log.Fatal(err)
	}
	defer receiver.Close(ctx)
	deliveries := make([]core.Delivery, 1)
	for range 2 {
		if _, err := receiver.Receive(ctx, deliveries); err != nil { // waits for a message
			log.Fatal(err)
		}
		delivery := deliveries[0]
		in := delivery.Incoming()
		fmt.Printf("%s: %s, delivery %d\n", in.ID, in.Body, in.DeliveryCount)
		if in.DeliveryCount == 1 {
			err = delivery.Abandon(ctx, nil) // it is delivered again
		} else {
			err = delivery.Complete(ctx)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	// Output:
	// p-1: a book, delivery 1
	// p-1: a book, delivery 2
}
