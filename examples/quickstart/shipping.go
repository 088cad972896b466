package main

import (
	"context"
	"fmt"

	"github.com/reprise-go/reprise/core"
)

func newShipping(t core.Transport, c core.Config) (*core.Endpoint, error) {
	ep, err := core.New("shipping", t, c)
	if err != nil {
		return nil, err
	}
	core.HandleEvent(ep, orderPaid, ship) // also subscribes
	return ep, nil
}

// ship has the order collected by a carrier.
func ship(ctx context.Context, m *core.TypedMessage[OrderPaid]) error {
	return bookCarrier(ctx, m.Body.Order.ShipTo)
}

// bookCarrier stands for a call to carriers. To its callers a place where none
// of them goes is an error like any other, so it is retried to the end.
func bookCarrier(ctx context.Context, to string) error {
	if err := roundTrip(ctx); err != nil {
		return fmt.Errorf("carrier: %w", err)
	}
	if to == "Atlantis" {
		return fmt.Errorf("carrier: no route to %s", to)
	}
	return nil
}
