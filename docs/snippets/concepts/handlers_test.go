package concepts_test

import (
	"context"
	"errors"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

type Order struct {
	ID    string
	Items []string
}

func bill(context.Context, *core.Message, Order) error  { return nil }
func audit(context.Context, *core.Message, Order) error { return nil }

// snippet: independent
func register(ep *core.Endpoint) {
	core.HandleEvent(ep, orderPlaced, bill, core.HandleOptions{Independent: true})
	core.HandleEvent(ep, orderPlaced, audit, core.HandleOptions{
		Independent: true,
		Middleware:  []core.Middleware{core.TypedMiddleware(complete)},
	})
}

// complete is a typed middleware: it gets the decoded body.
func complete(ctx context.Context, m *core.Message, order Order, next func(context.Context, *core.Message, Order) error) error {
	if len(order.Items) == 0 {
		return core.GiveUp(errors.New("an order without items"))
	}
	return next(ctx, m, order)
}

// end

func TestIndependentHandlers(t *testing.T) {
	transport, err := inmemory.New(inmemory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer transport.Close(t.Context())
	ep, err := core.New("billing", transport, core.Config{})
	if err != nil {
		t.Fatal(err)
	}
	register(ep)
	if err := ep.Invoke(t.Context(), orderPlaced.MessageType.Of(Order{Items: []string{"book"}})); err != nil {
		t.Error(err)
	}
	if err := ep.Invoke(t.Context(), orderPlaced.MessageType.Of(Order{})); core.VerdictOf(err) == nil {
		t.Errorf("an order without items: %v", err)
	}
}
