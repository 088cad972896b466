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

// ship books a carrier for the order.
func ship(ctx context.Context, _ *core.Message, body OrderPaid) error {
	return bookCarrier(ctx, body.Order.ShipTo)
}

// bookCarrier stands for a call to carriers. Its callers treat a place that no carrier
// serves as an ordinary error, so the message is retried until its retries are used up.
func bookCarrier(ctx context.Context, to string) error {
	if err := roundTrip(ctx); err != nil {
		return fmt.Errorf("carrier: %w", err)
	}
	if to == "Atlantis" {
		return fmt.Errorf("carrier: no route to %s", to)
	}
	return nil
}
