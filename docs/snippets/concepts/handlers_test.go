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

func bill(context.Context, *core.TypedMessage[Order]) error  { return nil }
func audit(context.Context, *core.TypedMessage[Order]) error { return nil }

// snippet: independent
func register(ep *core.Endpoint) {
	core.HandleEvent(ep, "OrderPlaced", bill, core.HandleOptions{Independent: true})
	core.HandleEvent(ep, "OrderPlaced", audit, core.HandleOptions{
		Independent: true,
		Middleware:  []core.Middleware{core.TypedMiddleware(complete)},
	})
}

// complete is a typed middleware: it gets the decoded body.
func complete(next core.TypedHandlerFunc[Order]) core.TypedHandlerFunc[Order] {
	return func(ctx context.Context, m *core.TypedMessage[Order]) error {
		if len(m.Body.Items) == 0 {
			return core.Reject(errors.New("an order without items"))
		}
		return next(ctx, m)
	}
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
	if err := ep.Invoke(t.Context(), "OrderPlaced", Order{Items: []string{"book"}}); err != nil {
		t.Error(err)
	}
	if err := ep.Invoke(t.Context(), "OrderPlaced", Order{}); !core.IsVerdict(err) {
		t.Errorf("an order without items: %v", err)
	}
}
