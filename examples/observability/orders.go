package main

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/middleware/resilience"
	otelreprise "github.com/reprise-go/reprise/otel"
)

// Order is a command to billing, and Invoiced the event that follows.
type (
	Order    struct{ Number int }
	Invoiced struct{ Number int }
)

var (
	order    = core.NewMessageType[Order]("billing.order")
	invoiced = core.NewEvent[Invoiced]("billing.invoiced")
)

var (
	errTaxOffice = errors.New("tax office: no answer")
	errNoAddress = errors.New("the order has no address")
)

// endpoints makes the shop, which learns of invoices, and billing, which writes them. Of ten
// orders one fails at its first attempt and one in its first round; one of a hundred never
// succeeds. If the tax office fails ten times in a row, a circuit breaker stops the calls for a
// while.
func endpoints(transport core.Transport, observer *otelreprise.Observer, log *slog.Logger, delay time.Duration) (shop, billing *core.Endpoint, err error) {
	config := core.Config{
		Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 2, TimeIncrease: delay}},
		Provision:      core.ProvisionAlways,
		Observers:      []core.Observer{observer.Observer},
		Logger:         log,
	}
	if shop, err = core.New("shop", transport, config); err != nil {
		return nil, nil, err
	}
	taxOffice, err := resilience.New(resilience.Config{
		Name:          "tax-office",
		Breaker:       resilience.Breaker{Failures: 10},
		OnStateChange: func(c resilience.StateChange) { observer.CircuitChanged(c.Policy, c.To) },
	})
	if err != nil {
		return nil, nil, err
	}
	config.Middleware = []core.Middleware{taxOffice.For(order.Name())}
	if billing, err = core.New("billing", transport, config); err != nil {
		return nil, nil, err
	}
	core.HandleEvent(shop, invoiced, func(context.Context, *core.Message, Invoiced) error { return nil })
	core.Handle(billing, order, func(_ context.Context, m *core.Message, body Order) error {
		switch n := body.Number; {
		case n%100 == 7:
			return errNoAddress
		case n%10 == 3 && m.Attempt == 1 && m.DelayedRetries == 0, n%10 == 5 && m.DelayedRetries == 0:
			return errTaxOffice
		default:
			return m.Publish(invoiced.Of(Invoiced{n}))
		}
	})
	return shop, billing, nil
}

// placeOrders sends orders at an interval, until ctx ends.
func placeOrders(ctx context.Context, shop *core.Endpoint, every time.Duration, log *slog.Logger) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for n := 1; ; n++ {
		if err := shop.Send(ctx, "billing", order.Of(Order{n})); err != nil && ctx.Err() == nil {
			log.ErrorContext(ctx, "an order was not placed", "order", n, "error", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
