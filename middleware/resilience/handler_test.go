package resilience_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/middleware/fallback"
	"github.com/reprise-go/reprise/middleware/resilience"
)

// A policy around one handler concerns no other one of the type.
func TestPolicy_OfOneHandler(t *testing.T) {
	bubble(t, func(b *bed) {
		p := b.policy(resilience.Config{Retry: resilience.Retry{Tries: 3}})
		var runs record[string]
		ep := b.endpoint("orders", core.Config{Recoverability: none}, nil)
		handler := func(name string, err error) func(context.Context, *core.Message, []byte) error {
			return func(context.Context, *core.Message, []byte) error { runs.add(name); return err }
		}
		core.Handle(ep, orderType, handler("audit", nil))
		core.Handle(ep, orderType, handler("charge", errUnreachable), core.HandleOptions{Middleware: []core.Middleware{p.Middleware()}})
		b.run(ep)
		b.put("orders", "order", "m1")
		b.pass(time.Minute)
		equal(b, "runs", fmt.Sprint(runs.all()), "[audit charge charge charge]")
	})
}

// A fallback outside of the breaker answers at once while the circuit is open.
func TestPolicy_FallbackForAnOpenCircuit(t *testing.T) {
	bubble(t, func(b *bed) {
		p := b.policy(resilience.Config{Breaker: resilience.Breaker{Failures: 1, OpenFor: time.Hour}})
		var answered record[string]
		// snippet: fallback
		later := fallback.Middleware{
			On: fallback.On{OpenCircuit: true},
			Handle: func(_ context.Context, m *core.Message, _ error) error {
				return m.Send("shipping", chargeLaterType.Of(m.ID))
			},
		}
		config := core.Config{Middleware: []core.Middleware{later, p.Middleware()}} // the fallback outermost
		// end
		config.Recoverability = none
		b.orders(config, func(_ context.Context, m *core.Message) error { answered.add(m.ID); return errUnreachable })
		b.put("orders", "order", "m1")
		b.put("orders", "order", "m2", "m3")
		equal(b, "runs", fmt.Sprint(answered.all()), "[m1]")
		b.holds("error", 1)
		b.holds("shipping", 2)
		b.holds("orders", 0)
	})
}
