package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// describingMiddleware is middleware that has these facts, and does nothing.
func describingMiddleware(facts ...core.MiddlewareFacts) core.Middleware {
	return describedMiddleware{func(core.MiddlewareScope) ([]core.MiddlewareFacts, error) { return facts, nil }}
}

// describedMiddleware is middleware with a function that describes it.
type describedMiddleware struct {
	describe func(core.MiddlewareScope) ([]core.MiddlewareFacts, error)
}

func (d describedMiddleware) Describe(s core.MiddlewareScope) ([]core.MiddlewareFacts, error) {
	return d.describe(s)
}

func (d describedMiddleware) Wrap(_ core.MiddlewareScope, next core.HandlerFunc) core.HandlerFunc {
	return next
}

func TestMiddlewareFacts_StatesAreInHealth(t *testing.T) {
	bubble(t, func(fx *fixture) {
		state := "closed"
		var ep *core.Endpoint
		breaker := core.MiddlewareFacts{Kind: "circuit breaker", Name: "bank", Refusals: []error{core.Refuse(core.ErrCircuitOpen, 0)}, State: func() string {
			ep.Resume() // it may use the endpoint
			return state
		}}
		one, two := breaker, breaker
		one.MessageTypes, two.MessageTypes = []string{"a"}, []string{"b"}
		ep = fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{
			describingMiddleware(one), describingMiddleware(core.MiddlewareFacts{Kind: "retry", Name: "bank"}), describingMiddleware(two), describingMiddleware(core.MiddlewareFacts{Kind: "switch", State: func() string { return "on" }}),
		}})
		for _, state = range []string{"closed", "open"} {
			equal(fx, "states", fmt.Sprint(ep.Health().Middleware), "[{circuit breaker bank "+state+" [a b] [] true} {switch  on [] [] false}]")
		}
		equal(fx, "states without middleware", len(fx.newEndpoint("shipping", core.Config{}).Health().Middleware), 0)
	})
}

// Health names the circuits of single handlers, too, each policy once for each state.
func TestMiddlewareFacts_StatesOfHandlersAreInHealth(t *testing.T) {
	bubble(t, func(fx *fixture) {
		breaker := func(name string, state *string) core.HandleOptions {
			return core.HandleOptions{Middleware: []core.Middleware{describingMiddleware(core.MiddlewareFacts{Kind: "circuit breaker", Name: name, State: func() string { return *state }})}}
		}
		bank, post, whole := "closed", "closed", "closed"
		ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{describingMiddleware(core.MiddlewareFacts{Kind: "circuit breaker", Name: "all", State: func() string { return whole }})}})
		core.Handle(ep, bType, charge, breaker("bank", &bank))
		core.Handle(ep, aType, refund, breaker("bank", &bank))
		core.Handle(ep, aType, charge, breaker("post", &post))
		core.Handle(ep, cType, charge)
		core.HandleDefault(ep, other, breaker("", &post))
		fx.run(ep)
		shown := func() string {
			var all []string
			for _, s := range ep.Health().Middleware {
				for i, name := range s.Handlers {
					s.Handlers[i] = name[strings.LastIndexAny(name, ".")+1:]
				}
				all = append(all, fmt.Sprint(s))
			}
			return strings.Join(all, " ")
		}
		equal(fx, "states", shown(), "{circuit breaker all closed [] [] false} {circuit breaker  closed [(others)] [other] false} {circuit breaker bank closed [a b] [refund charge] false} {circuit breaker post closed [a] [charge] false}")
		bank = "open"
		equal(fx, "states", shown(), "{circuit breaker all closed [] [] false} {circuit breaker  closed [(others)] [other] false} {circuit breaker bank open [a b] [refund charge] false} {circuit breaker post closed [a] [charge] false}")
	})
}

func charge(context.Context, *core.Message, []byte) error { return nil }
func refund(context.Context, *core.Message, []byte) error { return nil }
func other(context.Context, *core.Message) error          { return nil }

// Two policies with one name are one while they agree: an open one is not hidden.
func TestMiddlewareFacts_StatesThatDifferAreShown(t *testing.T) {
	bubble(t, func(fx *fixture) {
		breaker := func(state, messageType string) core.Middleware {
			return describingMiddleware(core.MiddlewareFacts{Kind: "circuit breaker", Name: "bank", MessageTypes: []string{messageType}, State: func() string { return state }})
		}
		ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{breaker("closed", "a"), breaker("open", "b"), breaker("closed", "c")}})
		equal(fx, "states", fmt.Sprint(ep.Health().Middleware), "[{circuit breaker bank closed [a c] [] false} {circuit breaker bank open [b] [] false}]")
	})
}

func TestMiddlewareFacts_RefusesAWrongOrder(t *testing.T) {
	breaker := core.MiddlewareFacts{Kind: "circuit breaker", Name: "bank", Refusals: []error{core.Refuse(core.ErrCircuitOpen, 0)}}
	failing := core.MiddlewareFacts{Kind: "circuit breaker", Name: "bank", Refusals: []error{core.ErrCircuitOpen}}
	retry := core.MiddlewareFacts{Kind: "retry", Name: "bank", Runs: 3}
	withTypes := func(f core.MiddlewareFacts, types ...string) core.MiddlewareFacts { f.MessageTypes = types; return f }
	for _, test := range []struct {
		name  string
		order []core.MiddlewareFacts
		says  string // "" if it is right
	}{
		{"breaker around retry", []core.MiddlewareFacts{breaker, retry}, ""},
		{"retry around breaker", []core.MiddlewareFacts{retry, breaker}, `Middleware[1] (circuit breaker "bank") stands inside of Middleware[0] (retry "bank"), which would try 3 times`},
		{"retry around breaker that returns a plain error", []core.MiddlewareFacts{retry, failing}, ""},
		{"a retry that tries once", []core.MiddlewareFacts{{Kind: "retry", Runs: 1}, breaker}, ""},
		{"for other types", []core.MiddlewareFacts{withTypes(retry, "a"), withTypes(breaker, "b", "c")}, ""},
		{"for the same type among others", []core.MiddlewareFacts{withTypes(retry, "a", "c"), withTypes(breaker, "b", "c")}, "stands inside of"},
		{"for a type and all", []core.MiddlewareFacts{withTypes(retry, "a"), breaker}, "stands inside of"},
		{"the same twice", []core.MiddlewareFacts{retry, {Kind: "log"}, retry}, `Middleware[2] (retry "bank") is nested in Middleware[0] (retry "bank"), which is the same`},
		{"the same for two types", []core.MiddlewareFacts{withTypes(retry, "a"), withTypes(retry, "b")}, ""},
		{"two without a name", []core.MiddlewareFacts{{Kind: "log"}, {Kind: "log"}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				var c core.Config
				for _, facts := range test.order {
					c.Middleware = append(c.Middleware, describingMiddleware(facts))
				}
				_, err := core.New("orders", fx.broker, c)
				switch {
				case test.says == "" && err != nil:
					fx.Error(err)
				case test.says != "" && (err == nil || !strings.Contains(err.Error(), test.says)):
					fx.Errorf("%v, want %q in it", err, test.says)
				}
			})
		})
	}
}

// Check is asked about the middleware around the same messages, for the endpoint and again
// for each handler with its own middleware.
func TestMiddlewareFacts_CheckSeesTheNeighbours(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var asked []string
		refuse := ""
		named := func(name string, types ...string) core.MiddlewareFacts {
			return core.MiddlewareFacts{Kind: name, MessageTypes: types, Check: func(outer, inner []core.MiddlewareFacts) error {
				asked = append(asked, fmt.Sprint(outer, " ", name, " ", inner))
				if name == refuse {
					return fmt.Errorf("stands badly: %w", errBoom)
				}
				return nil
			}}
		}
		wantAsked := func(subject string, want ...string) {
			fx.Helper()
			if slices.Sort(asked); !slices.Equal(asked, want) {
				fx.Errorf("%s: asked %q, want %q", subject, asked, want)
			}
			asked = nil
		}
		config := core.Config{Middleware: []core.Middleware{describingMiddleware(named("all"), named("a", "A")), describingMiddleware(named("b", "B"))}}
		ep := fx.newEndpoint("orders", config)
		wantAsked("New", "[Middleware[0] (all)] a []", "[Middleware[0] (all)] b []", "[] all [Middleware[0] (a) Middleware[1] (b)]")
		core.Handle(ep, bByteType, charge)
		wantAsked("a handler without middleware")
		core.Handle(ep, bByteType, charge, core.HandleOptions{Middleware: []core.Middleware{describingMiddleware(named("own"))}})
		wantAsked("a handler with middleware",
			"[Middleware[0] (all) Middleware[1] (b)] own []", "[Middleware[0] (all)] b [HandleOptions.Middleware[0] (own)]", "[] all [Middleware[1] (b) HandleOptions.Middleware[0] (own)]")

		refuse = "all"
		core.Handle(ep, aByteType, charge, core.HandleOptions{Middleware: []core.Middleware{describingMiddleware(named("own"))}})
		if err := ep.Err(); !errors.Is(err, errBoom) || !strings.Contains(err.Error(), `Handle "A": Middleware[0] (all) stands badly`) {
			fx.Errorf("Handle: %v", err)
		}
		refuse = "b"
		if _, err := core.New("orders", fx.broker, config); !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "Middleware[1] (b) stands badly") {
			fx.Errorf("New: %v", err)
		}
	})
}

func TestMiddleware_DescribeGetsTheScopeAndCanFail(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		check := func(s core.MiddlewareScope) {
			fx.Helper()
			if s.Endpoint != "orders" || s.Transactions != fx.mode || !s.Capabilities.DelayedDelivery || s.CanDefer() != (fx.mode != core.TransactionNone) ||
				s.Recoverability("order").Failed.ErrorQueue != "shipping" || s.HasPolicy {
				fx.Errorf("the middleware was told %+v", s)
			}
		}
		fails := func(err error) core.Middleware {
			return describedMiddleware{func(s core.MiddlewareScope) ([]core.MiddlewareFacts, error) { check(s); return nil, err }}
		}
		panics := describedMiddleware{func(core.MiddlewareScope) ([]core.MiddlewareFacts, error) { panic("no database") }}
		config := core.Config{
			Transactions: fx.mode, Recoverability: core.Recoverability{ErrorQueue: "shipping"},
			Middleware: []core.Middleware{fails(errBoom), fails(nil), fails(errors.New("nor me")), panics, core.MiddlewareFunc(nil), core.TypedMiddleware[string](nil)},
		}
		_, err := core.New("orders", fx.broker, config)
		if !errors.Is(err, errBoom) {
			fx.Errorf("New returned %v", err)
		}
		for _, text := range []string{"Middleware[0]: boom", "Middleware[2]: nor me", "Middleware[3]: panicked when it was asked for its facts: panic: no database",
			"Middleware[4]: the MiddlewareFunc is nil", "Middleware[5]: the MiddlewareFunc is nil"} {
			if !strings.Contains(fmt.Sprint(err), text) {
				fx.Errorf("%v, want %q in it", err, text)
			}
		}
		config.Recoverability.Policy, config.Middleware = core.DefaultPolicy, []core.Middleware{describedMiddleware{func(s core.MiddlewareScope) ([]core.MiddlewareFacts, error) {
			equal(fx, "has a policy", s.HasPolicy, true)
			return nil, nil
		}}}
		_, err = core.New("orders", fx.broker, config)
		fx.noError(err)
	})
}

func TestMiddlewareFacts_ExclusiveNameBesideAnotherHandler(t *testing.T) {
	bubble(t, func(fx *fixture) {
		describes := func(name string, exclusive bool) core.HandleOptions {
			return core.HandleOptions{Middleware: []core.Middleware{describedMiddleware{func(s core.MiddlewareScope) ([]core.MiddlewareFacts, error) {
				equal(fx, "retry span", s.RetrySpan, 3*time.Hour)
				return []core.MiddlewareFacts{{Kind: "inbox", Name: name, Exclusive: exclusive}}, nil
			}}}}
		}
		handler := func(context.Context, *core.Message, []byte) error { return nil }
		register := func(exclusive bool, first, second string) error {
			ep := fx.newEndpoint("orders", core.Config{Recoverability: core.Recoverability{
				Delayed:      core.Delayed{NumberOfRetries: 2, Delays: []time.Duration{time.Minute, time.Minute}},
				MessageTypes: map[string]core.TypeRecoverability{"slow": {Delayed: core.Delayed{NumberOfRetries: 1, Delays: []time.Duration{3 * time.Hour}}}},
			}})
			core.Handle(ep, orderType, handler, describes(first, exclusive))
			core.Handle(ep, otherType, handler, describes(first, exclusive))
			core.Handle(ep, orderType, handler, describes(second, exclusive))
			return ep.Err()
		}
		fx.noError(register(true, "a", "b"))
		fx.noError(register(false, "a", "a"))
		if err := register(true, "a", "a"); err == nil || !strings.Contains(err.Error(), `(inbox "a") has the name of the one of handler 1`) {
			fx.Errorf("two of one name: %v", err)
		}
	})
}

// Outside an endpoint the scope is empty.
func TestMiddlewareScope_Zero(t *testing.T) {
	var s core.MiddlewareScope
	if s.CanDefer() || s.Recoverability("order").Failed.ErrorQueue != "" || s.Recoverability("order").IsUnrecoverable(errBoom) {
		t.Error("a scope that knows something")
	}
}

func TestMiddleware_CallsNextWithoutAMessage(t *testing.T) {
	bubble(t, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: noRetries, Middleware: []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, _ *core.Message) error { return next(ctx, nil) }
		})}}, func(context.Context, *core.Message) error { return nil })
		fx.enqueue("m1")
		equal(fx, "error text", fx.onlyMessage("error").Headers.Get(headers.ExceptionMessage), "middleware called next without a message (nil)")
	})
}
