package resilience_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/middleware/fallback"
	"github.com/reprise-go/reprise/middleware/resilience"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// snippet: fallback
// postponed is a fallback: where the service is away, the customer is told at once.
func postponed(payments *resilience.Policy) []core.Middleware {
	tell := fallback.Middleware{
		Name: "postponed",
		On:   fallback.On{OpenCircuit: true, Errors: []error{errUnavailable}},
		Handle: func(_ context.Context, m *core.Message, _ error) error {
			return m.Send("customers", paymentPostponedType.Of(m.ID))
		},
	}
	return []core.Middleware{tell, payments.Middleware()}
}

// end

// TestFallback_ForAnOpenCircuit lets the circuit open by Invoke, then answers for it.
func TestFallback_ForAnOpenCircuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		transport, err := inmemory.New(inmemory.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer transport.Close(t.Context())
		if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"customers"}}); err != nil {
			t.Fatal(err)
		}
		payments, err := resilience.New(resilience.Config{Name: "payments", Breaker: resilience.Breaker{Failures: 2, OpenFor: time.Minute}})
		if err != nil {
			t.Fatal(err)
		}
		ep, err := core.New("shop", transport, core.Config{Middleware: postponed(payments)})
		if err != nil {
			t.Fatal(err)
		}
		runs := 0
		core.Handle(ep, chargeType, func(context.Context, *core.Message, string) error { runs++; return errUnavailable })
		for range 4 {
			if err := ep.Invoke(t.Context(), chargeType.Of("o1")); err != nil {
				t.Error(err)
			}
		}
		if runs != 2 {
			t.Errorf("the handler ran %d times, want 2: then the circuit is open", runs)
		}
		if told, err := transport.Depth(t.Context(), "customers"); err != nil || told.Ready != 4 {
			t.Errorf("told %+v, %v; want 4", told, err)
		}
	})
}
