package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// placeOrder is the command that the orders endpoint handles.
var placeOrder = core.NewMessageType[PlaceOrder]("orders.PlaceOrder")

// PlaceOrder is its body.
type PlaceOrder struct {
	Order Order
}

// orderHandlers are the handlers of the orders endpoint, with their dependencies.
type orderHandlers struct {
	stock     *stock
	cancelled map[int]bool
}

func newOrders(t core.Transport, c core.Config) (*core.Endpoint, error) {
	ep, err := core.New("orders", t, c)
	if err != nil {
		return nil, err
	}
	h := &orderHandlers{
		stock:     &stock{contended: true, teapotsAt: time.Now().Add(2500 * time.Millisecond)},
		cancelled: map[int]bool{1007: true},
	}
	core.Handle(ep, placeOrder, h.place)
	return ep, nil
}

// place reserves the ordered items and has the customer charged.
func (h *orderHandlers) place(ctx context.Context, m *core.Message, body PlaceOrder) error {
	order := body.Order
	if order.Quantity < 1 {
		return core.GiveUp(fmt.Errorf("order %d has the quantity %d", order.Number, order.Quantity))
	}
	if h.cancelled[order.Number] {
		return core.Discard(errors.New("the customer has cancelled the order"))
	}

	// Collected, and sent only if this handler succeeds.
	err := m.Send("payments", chargeCustomer.Of(ChargeCustomer{order}).With(core.SendOptions{ID: fmt.Sprintf("charge-%d", order.Number)}))
	if err != nil {
		return err
	}
	err = h.stock.reserve(ctx, order.Item)
	if errors.Is(err, errOutOfStock) {
		return core.Defer(err, time.Second) // not a failure: it is only too early
	}
	return err
}

var errOutOfStock = errors.New("stock: out of teapots")

// stock stands for a database.
type stock struct {
	teapotsAt time.Time

	mu        sync.Mutex
	contended bool
}

func (s *stock) reserve(ctx context.Context, item string) error {
	if err := roundTrip(ctx); err != nil {
		return fmt.Errorf("stock: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case item == "kettle" && s.contended:
		s.contended = false
		return errors.New("stock: the transaction lost a deadlock")
	case item == "teapot" && time.Now().Before(s.teapotsAt):
		return errOutOfStock
	}
	return nil
}
