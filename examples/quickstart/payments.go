package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// chargeCustomer is the command that the payments endpoint handles, orderPaid
// the event that it publishes.
var (
	chargeCustomer = core.NewMessageType[ChargeCustomer]("payments.ChargeCustomer")
	orderPaid      = core.NewEvent[OrderPaid]("payments.OrderPaid")
)

// ChargeCustomer is the command's body.
type ChargeCustomer struct {
	Order Order
}

// OrderPaid is the event's body.
type OrderPaid struct {
	Order Order
}

// paymentHandlers are the handlers of the payments endpoint, with their dependencies.
type paymentHandlers struct {
	provider *provider
}

func newPayments(t core.Transport, c core.Config) (*core.Endpoint, error) {
	ep, err := core.New("payments", t, c)
	if err != nil {
		return nil, err
	}
	h := &paymentHandlers{&provider{accepts: 3, downtime: 2 * time.Second}}
	core.Handle(ep, chargeCustomer, h.charge)
	return ep, nil
}

// charge takes the customer's money and publishes an event.
func (h *paymentHandlers) charge(ctx context.Context, m *core.Message, body ChargeCustomer) error {
	order := body.Order
	// The message id is the same at every attempt. A provider that takes it as the key of
	// the payment charges once, for any number of requests.
	if err := h.provider.pay(ctx, m.ID); err != nil {
		return err
	}
	return m.Publish(orderPaid.Of(OrderPaid{order}).With(core.SendOptions{ID: fmt.Sprintf("paid-%d", order.Number)}))
}

// provider stands for a payment provider, which goes down for a while after it
// has accepted some payments.
type provider struct {
	downtime time.Duration

	mu      sync.Mutex
	accepts int // until it goes down
	upAgain time.Time
	paid    map[string]bool
}

func (p *provider) pay(ctx context.Context, key string) error {
	if err := roundTrip(ctx); err != nil {
		return fmt.Errorf("payment provider: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Now().Before(p.upAgain) {
		return errors.New("payment provider: 503 Service Unavailable")
	}
	if p.paid[key] {
		return nil
	}
	if p.paid == nil {
		p.paid = map[string]bool{}
	}
	p.paid[key] = true
	if p.accepts--; p.accepts == 0 {
		p.upAgain = time.Now().Add(p.downtime)
	}
	return nil
}
