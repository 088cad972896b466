package resilience_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/middleware/resilience"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var errUnavailable = errors.New("the payment service is unavailable")

// newShop is the code of docs/resilience.md.
func newShop(transport core.Transport, onState func(resilience.State)) (*core.Endpoint, error) {
	// snippet: policy
	payments, err := resilience.New(resilience.Config{
		Name: "payments",
		Breaker: resilience.Breaker{
			Failures: 5,                       // in a row
			OpenFor:  30 * time.Second,        // then one message tries
			On:       []error{errUnavailable}, // other errors say nothing about the service
		},
		RateLimit: resilience.RateLimit{Messages: 50, MaxWait: time.Second},
		Bulkhead:  resilience.Bulkhead{Concurrency: 8, MaxWait: 5 * time.Second},
		Timeout:   15 * time.Second, // of all tries
		Retry: resilience.Retry{
			Tries: 3,
			Delay: 200 * time.Millisecond, // 0.2, 0.4 s, each up to a fifth longer or shorter
			On:    []error{errUnavailable},
		},
		TryTimeout: 4 * time.Second, // of each

		OnStateChange: func(c resilience.StateChange) { onState(c.To) }, // a metric, for example
	})
	if err != nil {
		return nil, err
	}
	ep, err := core.New("shop", transport, core.Config{
		Transactions: core.TransactionReceiveOnly,
		Middleware:   []core.Middleware{payments.For("orders.charge", "orders.refund")},
	})
	// end
	return ep, err
}

// single composes strategies one by one.
func single() ([]core.Middleware, error) {
	// snippet: single
	breaker, err := resilience.New(resilience.Config{Name: "bank", Breaker: resilience.Breaker{Failures: 5}})
	if err != nil {
		return nil, err
	}
	retry, err := resilience.New(resilience.Config{Name: "rows", Retry: resilience.Retry{Tries: 3}})
	if err != nil {
		return nil, err
	}
	middleware := []core.Middleware{
		breaker.Middleware(), // outermost
		retry.Middleware(),
		core.MiddlewareFunc(inTransaction), // your own: a transaction for each try
	}
	// end
	return middleware, nil
}

func inTransaction(next core.HandlerFunc) core.HandlerFunc { return next }

// perType makes a policy for each type.
func perType() (core.Middleware, error) {
	// snippet: pertype
	policies, err := resilience.PerType(func(messageType string) resilience.Config {
		return resilience.Config{Bulkhead: resilience.Bulkhead{Concurrency: 4}} // each has four places
	}, "orders.charge", "orders.refund")
	if err != nil {
		return nil, err
	}
	middleware := policies.Middleware()
	// end
	return middleware, nil
}

// snippet: ready
// ready answers a readiness probe: not ready while the endpoint is down. An open circuit is no
// reason to take the instance away, so it is only shown.
func ready(ep *core.Endpoint) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		h := ep.Health()
		if !h.Running || !h.Connected {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		for _, m := range h.Middleware {
			fmt.Fprintf(w, "%s %s: %s\n", m.Kind, m.Name, m.State)
		}
	}
}

// end

func Example() {
	charge := core.NewMessageType[string]("orders.charge")
	slog.SetDefault(slog.New(slog.DiscardHandler))
	policy, err := resilience.New(resilience.Config{
		Name:    "payments",
		Breaker: resilience.Breaker{Failures: 3},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	ep, err := core.New("shop", inmemory.Open(), core.Config{Middleware: []core.Middleware{policy.For("orders.charge")}})
	if err != nil {
		fmt.Println(err)
		return
	}
	core.Handle(ep, charge, func(context.Context, *core.Message, string) error { return errUnavailable })
	for range 4 {
		failure := ep.Invoke(context.Background(), charge.Of("order 42"))
		fmt.Println("refused:", errors.Is(failure, core.ErrCircuitOpen), "- the circuit is", policy.State())
	}
	// Output:
	// refused: false - the circuit is closed
	// refused: false - the circuit is closed
	// refused: false - the circuit is open
	// refused: true - the circuit is open
}
