package filetransport_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/examples/filetransport"
)

func Example() {
	dir, err := os.MkdirTemp("", "messages") // a service has a directory that stays
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	transport, err := filetransport.New(filetransport.Config{Dir: dir})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer transport.Close(context.Background())

	type Order struct{ Item string }
	shop, err := core.New("shop", transport, core.Config{})
	if err != nil {
		log.Fatal(err)
	}
	core.Handle(shop, core.NewMessageType[Order]("shop.order"), func(_ context.Context, m *core.Message, body Order) error {
		if m.Attempt < 3 {
			return errors.New("out of stock") // the message is tried again, here or in another process
		}
		fmt.Println("attempt", m.Attempt, "delivered a", body.Item)
		stop() // Run drains and returns
		return nil
	})
	if err := errors.Join(
		shop.Provision(ctx), // makes the directories of the queues
		shop.Send(ctx, "shop", core.NewMessageType[Order]("shop.order").Of(Order{Item: "lamp"})),
		shop.Run(ctx),
	); err != nil {
		log.Fatal(err)
	}
	// Output: attempt 3 delivered a lamp
}
