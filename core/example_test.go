package core_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

type OrderPlaced struct {
	ID    string
	Total int
}

type Ship struct{ OrderID string }

// A complete program: an endpoint that bills orders and tells another to ship
// them. The first attempt fails and is retried; an order that can never be
// billed goes to the error queue at once.
func Example() {
	placed := core.NewEvent[OrderPlaced]("orders.placed")
	ship := core.NewMessageType[Ship]("orders.ship")
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	transport := inmemory.Open() // the transport is the only line that changes
	defer transport.Close(context.Background())

	billing, err := core.New("billing", transport, core.Config{
		Concurrency: 1,
		Logger:      slog.New(slog.DiscardHandler),
		Recoverability: core.Recoverability{
			Delayed: core.Delayed{NumberOfRetries: 3, TimeIncrease: 2 * time.Second},
		},
	})
	if err != nil {
		log.Fatal(err) // says everything that is wrong, at once
	}
	shipping, err := core.New("shipping", transport, core.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}

	core.Handle(billing, placed.MessageType, func(ctx context.Context, m *core.Message, body OrderPlaced) error {
		if body.Total < 0 {
			return core.GiveUp(errors.New("negative total"))
		}
		if m.Attempt == 1 {
			return errors.New("the bank does not answer")
		}
		return m.Send("shipping", ship.Of(Ship{OrderID: body.ID})) // leaves only if the handler succeeds
	})
	shipped := make(chan string)
	core.Handle(shipping, ship, func(ctx context.Context, _ *core.Message, body Ship) error {
		shipped <- body.OrderID
		return nil
	})

	running := make(chan error)
	go func() { running <- core.RunAll(ctx, billing, shipping) }() // until the context ends
	<-billing.Ready()

	for _, order := range []OrderPlaced{{ID: "o-1", Total: -1}, {ID: "o-2", Total: 42}} {
		if err := billing.Send(ctx, "billing", placed.MessageType.Of(order)); err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println("shipped", <-shipped)

	stop() // as an interrupt would
	if err := <-running; err != nil {
		log.Fatal(err)
	}
	failed, err := transport.Browse(context.Background(), queues.Request{Queue: "error", Limit: 10})
	if err != nil {
		log.Fatal(err)
	}
	for _, m := range failed.Messages {
		fmt.Println("in the error queue:", m.Headers.Get(headers.ExceptionMessage))
	}
	// Output:
	// shipped o-2
	// in the error queue: negative total
}
