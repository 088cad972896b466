// Package testing_test holds the code of docs/testing-handlers.md.
package testing_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/core"
)

// snippet: handler
type OrderPlaced struct {
	ID    string
	Total int
}

type Ship struct{ OrderID string }

// Billing handles orders. The bank is a function, so that a test can be one.
type Billing struct {
	Charge func(ctx context.Context, orderID string, amount int) error
}

var errNegativeTotal = errors.New("negative total")

func (b *Billing) OrderPlaced(ctx context.Context, m *core.Message, body OrderPlaced) error {
	if body.Total < 0 {
		return core.GiveUp(errNegativeTotal)
	}
	if err := b.Charge(ctx, body.ID, body.Total); err != nil {
		return fmt.Errorf("charge order %s: %w", body.ID, err)
	}
	return m.Send("shipping", shipType.Of(Ship{OrderID: body.ID}))
}

// end

var errBankDown = errors.New("the bank does not answer")

func bankIsUp(context.Context, string, int) error   { return nil }
func bankIsDown(context.Context, string, int) error { return errBankDown }
