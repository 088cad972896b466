package coretest_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
)

type OrderPlaced struct {
	ID    string
	Total int
}

type Ship struct{ OrderID string }

// ship is the handler under test.
func ship(_ context.Context, m *core.Message, body OrderPlaced) error {
	if body.Total < 0 {
		return core.GiveUp(errors.New("negative total"))
	}
	if err := m.Send("shipping", shipType.Of(Ship{OrderID: body.ID})); err != nil {
		return err
	}
	return m.Send("billing", remindType.Of(body).With(core.SendOptions{Delay: 24 * time.Hour}))
}

func ExampleMessage() {
	placed := core.NewMessageType[OrderPlaced]("orders.placed")
	in, body, rec := coretest.Message(placed, OrderPlaced{ID: "42", Total: 7})
	fmt.Println("error:", ship(context.Background(), in, body))
	for _, sent := range rec.Sent() {
		fmt.Println(sent)
	}
	fmt.Println("to be shipped:", coretest.Body[Ship](rec.Sent()[0]).OrderID)

	in, body, rec = coretest.Message(placed, OrderPlaced{ID: "43", Total: -1}, coretest.Options{Attempt: 3, DelayedRetries: 1})
	fmt.Println("error:", ship(context.Background(), in, body))
	fmt.Println("sent:", len(rec.Sent()))

	// Output:
	// error: <nil>
	// Send orders.ship to shipping: {"OrderID":"42"}
	// Send orders.remind to billing after 24h0m0s: {"ID":"42","Total":7}
	// to be shipped: 42
	// error: negative total
	// sent: 0
}
