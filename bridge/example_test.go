package bridge_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/reprise-go/reprise/bridge"
	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func Example() {
	ctx, stop := context.WithCancel(context.Background())
	postgres, rabbit := inmemory.Open(), inmemory.Open() // in reality sqlserver.New and rabbitmq.New
	quiet := core.Config{Logger: slog.New(slog.DiscardHandler)}

	// snippet: bridge
	carrier, err := bridge.New("shop-bridge", bridge.Config{
		Near: bridge.Side{
			Transport: postgres,
			Queues:    []string{"shop"},             // the far side may send, and reply, to it
			Topics:    []string{"shop.OrderPlaced"}, // published here, and so on the far side too
		},
		Far: bridge.Side{
			Transport: rabbit,
			Queues:    []string{"billing"}, // the near side may send to it
		},
		Endpoint: quiet, // a core.Config for the endpoints of the bridge
	})
	if err != nil {
		panic(err) // says everything that is wrong, at once
	}
	// end

	shop, err1 := core.New("shop", postgres, quiet)
	billing, err2 := core.New("billing", rabbit, quiet)
	if err := errors.Join(err1, err2); err != nil {
		panic(err)
	}
	type Invoice struct{ Order int }
	core.HandleEvent(billing, core.NewEvent[Invoice]("shop.OrderPlaced"), func(_ context.Context, m *core.Message, body Invoice) error {
		fmt.Println("billing: order", body.Order, "is placed")
		return m.Reply(core.NewMessageType[Invoice]("billing.InvoiceWritten").Of(body)) // to the queue shop of the other side
	})
	core.Handle(shop, core.NewMessageType[Invoice]("billing.InvoiceWritten"), func(_ context.Context, _ *core.Message, body Invoice) error {
		fmt.Println("shop: the invoice of order", body.Order, "is written")
		stop()
		return nil
	})
	go func() {
		<-billing.Ready()
		if err := shop.Publish(ctx, core.NewEvent[Invoice]("shop.OrderPlaced").Of(Invoice{Order: 7})); err != nil {
			panic(err)
		}
	}()
	// snippet: run
	err = core.RunAll(ctx, append(carrier.Endpoints(), shop, billing)...)
	// end
	if err != nil {
		panic(err)
	}
	// Output:
	// billing: order 7 is placed
	// shop: the invoice of order 7 is written
}
