package main

import (
	"context"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Order is an order of a customer.
type Order struct {
	Number   int
	Item     string
	Quantity int
	ShipTo   string
}

// placedOrders are the orders that the shop places, each with its story.
var placedOrders = []struct {
	id    string
	story string
	draft core.Draft
}{
	{"order-1001", "meets nothing unusual", placeOrder.Of(PlaceOrder{Order{1001, "lamp", 1, "Oslo"}})},
	{"order-1002", "meets a deadlock in the stock database", placeOrder.Of(PlaceOrder{Order{1002, "kettle", 2, "Lisbon"}})},
	{"order-1003", "is to be shipped where no carrier goes", placeOrder.Of(PlaceOrder{Order{1003, "lamp", 1, "Atlantis"}})},
	{"order-1004", "finds the payment provider down", placeOrder.Of(PlaceOrder{Order{1004, "lamp", 1, "Vienna"}})},
	{"order-1005", "is not even JSON", core.NewMessageType[[]byte](placeOrder.Name()).Of([]byte("two teapots, please"))},
	{"order-1006", "orders nothing, and no retry will change that", placeOrder.Of(PlaceOrder{Order{1006, "lamp", 0, "Athens"}})},
	{"order-1007", "was cancelled by the customer in the meantime", placeOrder.Of(PlaceOrder{Order{1007, "lamp", 1, "Dublin"}})},
	{"order-1008", "has to wait until teapots are in stock again", placeOrder.Of(PlaceOrder{Order{1008, "teapot", 1, "Prague"}})},
}

// placeOrders sends all orders at once, each to become available a little later
// than the one before.
func placeOrders(ctx context.Context, shop *core.Endpoint) error {
	for i, order := range placedOrders {
		err := shop.Send(ctx, "orders", order.draft.With(core.SendOptions{
			ID:          order.id, // to be readable here; without it the message gets a new unique one
			Delay:       time.Duration(i) * 250 * time.Millisecond,
			ContentType: core.JSON.ContentType(), // declares the format of the []byte; other bodies have it in any case
		}))
		if err != nil {
			return err
		}
	}
	return nil
}

// roundTrip takes the time of a call to another machine.
func roundTrip(ctx context.Context) error {
	select {
	case <-time.After(20 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
