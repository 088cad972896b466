package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// describingMiddleware is middleware that says what it is and runs the handlers as often.
func describingMiddleware(steps ...core.Step) core.Middleware {
	return func(next core.HandlerFunc) core.HandlerFunc {
		core.StartUpOf(next).Describe(steps...)
		return func(ctx context.Context, m *core.Message) error {
			total := 1
			for _, s := range steps {
				if s.MessageTypes == nil || slices.Contains(s.MessageTypes, m.Type) {
					total *= max(s.Tries, 1)
				}
			}
			return retryMiddleware(total)(next)(ctx, m)
		}
	}
}

// attemptsReportLines returns what start-up said about tries.
func (fx *fixture) attemptsReportLines() []logLine {
	return fx.logs.find("how often a message that always fails is tried")
}

func TestStartUp_LogsTheNestAndItsProduct(t *testing.T) {
	bubble(t, func(fx *fixture) {
		runs := 0
		fx.runOrders(core.Config{
			HandlerTimeout: time.Minute,
			Middleware: []core.Middleware{
				describingMiddleware(core.Step{Kind: "circuit breaker", Name: "bank", Refuses: true}),
				retryMiddleware(1), // says nothing
				describingMiddleware(core.Step{Kind: "retry", Name: "bank", Tries: 4, Wait: 3 * time.Second}, core.Step{Kind: "time-out", Limit: 2 * time.Second}),
				describingMiddleware(core.Step{Kind: "retry", Name: "other", Tries: 7, MessageTypes: []string{"invoice"}}),
			},
			Recoverability: core.Recoverability{
				Immediate: core.Immediate{Retries: 1}, Delayed: core.Delayed{Retries: 2, Increase: 10 * time.Second, Jitter: 0.5},
			},
		}, func(context.Context, *core.Message) error { runs++; return errBoom })
		lines := fx.attemptsReportLines()
		if len(lines) != 1 {
			fx.Fatalf("logged %+v", lines)
		}
		equal(fx, "level", lines[0].level, slog.LevelInfo)
		for key, want := range map[string]any{
			"message_types": "order", "nest": `circuit breaker "bank" > retry "bank" (4 tries) > time-out (2s) > handlers`,
			"tries_per_attempt": int64(4), "attempts_per_round": int64(2), "rounds": int64(3), "tries": int64(24),
			"longest_attempt": "11s", "longest_message": (6*11*time.Second + 45*time.Second).String(),
		} {
			equal(fx, key, lines[0].attrs[key], want)
		}
		fx.enqueue("m1")
		fx.advance(time.Hour)
		equal(fx, "runs", runs, 24)
	})
}

func TestStartUp_LogsTypesThatDifferApart(t *testing.T) {
	bubble(t, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{
			Middleware: []core.Middleware{describingMiddleware(core.Step{Kind: "retry", Tries: 2, MessageTypes: []string{"a", "b"}})},
			Recoverability: core.Recoverability{
				Immediate: core.Immediate{Off: true}, Delayed: core.Delayed{Off: true},
				MessageTypes: map[string]core.TypeRecoverability{"b": {Immediate: core.Immediate{Retries: 4}}},
			},
			HandlerTimeout: 10 * time.Second,
		})
		for _, messageType := range []string{"a", "b", "c", "d"} {
			fx.handle(ep, messageType, func(context.Context, *core.Message) error { return nil })
		}
		fx.run(ep)
		var got []string
		for _, l := range fx.attemptsReportLines() {
			got = append(got, strings.Join([]string{l.attrs["message_types"].(string), l.attrs["nest"].(string), l.attrs["longest_message"].(string)}, ": "))
		}
		want := "a: retry (2 tries) > handlers: 10s\nb: retry (2 tries) > handlers: 50s\nc, d: handlers: 10s"
		if text := strings.Join(got, "\n"); text != want {
			fx.Errorf("logged\n%s\nwant\n%s", text, want)
		}
	})
}

func TestStartUp_WithoutLimits(t *testing.T) {
	for name, c := range map[string]core.Config{
		"no time-out":  {},
		"many retries": {HandlerTimeout: time.Second, Recoverability: core.Recoverability{Delayed: core.Delayed{Retries: 1 << 40, Delays: nil, Increase: time.Nanosecond, MaxDelay: time.Nanosecond}}},
		"a policy":     {HandlerTimeout: time.Second, Recoverability: core.Recoverability{Policy: core.DefaultPolicy}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				c.Middleware = []core.Middleware{describingMiddleware(core.Step{Kind: "retry", Tries: 2, Wait: time.Second})}
				fx.runOrders(c, func(context.Context, *core.Message) error { return nil })
				equal(fx, "longest_message", fx.attemptsReportLines()[0].attrs["longest_message"], any("no limit"))
			})
		})
	}
}

func TestStartUp_StatesAreInHealth(t *testing.T) {
	bubble(t, func(fx *fixture) {
		state := "closed"
		var ep *core.Endpoint
		breaker := core.Step{Kind: "circuit breaker", Name: "bank", State: func() string {
			ep.Resume() // it may use the endpoint
			return state
		}}
		one, two := breaker, breaker
		one.MessageTypes, two.MessageTypes = []string{"a"}, []string{"b"}
		ep = fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{
			describingMiddleware(one), describingMiddleware(core.Step{Kind: "retry", Name: "bank"}), describingMiddleware(two), describingMiddleware(core.Step{Kind: "switch", State: func() string { return "on" }}),
		}})
		for _, state = range []string{"closed", "open"} {
			equal(fx, "states", fmt.Sprint(ep.Health().Middleware), "[{circuit breaker bank "+state+" [a b] [] false} {switch  on [] [] false}]")
		}
		equal(fx, "states without middleware", len(fx.newEndpoint("shipping", core.Config{}).Health().Middleware), 0)
	})
}

// Health names the circuits of single handlers, too, each policy once for each state.
func TestStartUp_StatesOfHandlersAreInHealth(t *testing.T) {
	bubble(t, func(fx *fixture) {
		breaker := func(name string, state *string) core.HandleOptions {
			return core.HandleOptions{Middleware: []core.Middleware{describingMiddleware(core.Step{Kind: "circuit breaker", Name: name, State: func() string { return *state }})}}
		}
		bank, post, whole := "closed", "closed", "closed"
		ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{describingMiddleware(core.Step{Kind: "circuit breaker", Name: "all", State: func() string { return whole }})}})
		core.Handle(ep, "b", charge, breaker("bank", &bank))
		core.Handle(ep, "a", refund, breaker("bank", &bank))
		core.Handle(ep, "a", charge, breaker("post", &post))
		core.Handle(ep, "c", charge)
		core.HandleDefault(ep, refund, breaker("", &post))
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
		equal(fx, "states", shown(), "{circuit breaker all closed [] [] false} {circuit breaker  closed [(others)] [refund] false} {circuit breaker bank closed [a b] [refund charge] false} {circuit breaker post closed [a] [charge] false}")
		bank = "open"
		equal(fx, "states", shown(), "{circuit breaker all closed [] [] false} {circuit breaker  closed [(others)] [refund] false} {circuit breaker bank open [a b] [refund charge] false} {circuit breaker post closed [a] [charge] false}")
	})
}

func charge(context.Context, *core.TypedMessage[[]byte]) error { return nil }
func refund(context.Context, *core.TypedMessage[[]byte]) error { return nil }

// Two policies with one name are one while they agree: an open one is not hidden.
func TestStartUp_StatesThatDifferAreShown(t *testing.T) {
	bubble(t, func(fx *fixture) {
		breaker := func(state, messageType string) core.Middleware {
			return describingMiddleware(core.Step{Kind: "circuit breaker", Name: "bank", MessageTypes: []string{messageType}, State: func() string { return state }})
		}
		ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{breaker("closed", "a"), breaker("open", "b"), breaker("closed", "c")}})
		equal(fx, "states", fmt.Sprint(ep.Health().Middleware), "[{circuit breaker bank closed [a c] [] false} {circuit breaker bank open [b] [] false}]")
	})
}

func TestStartUp_SaysNothingWithoutSteps(t *testing.T) {
	bubble(t, func(fx *fixture) {
		fx.runOrders(core.Config{Middleware: []core.Middleware{retryMiddleware(2)}}, func(context.Context, *core.Message) error { return nil })
		equal(fx, "lines", len(fx.attemptsReportLines()), 0)
	})
}

func TestStartUp_RefusesAWrongOrder(t *testing.T) {
	breaker := core.Step{Kind: "circuit breaker", Name: "bank", Refuses: true}
	retry := core.Step{Kind: "retry", Name: "bank", Tries: 3}
	open := core.Step{Kind: "circuit breaker", Name: "bank", OpensCircuit: true}
	open2 := core.Step{Kind: "circuit breaker", Name: "post", OpensCircuit: true}
	answer := core.Step{Kind: "fallback", Name: "later", TakesOpenCircuit: true}
	inbox := core.Step{Kind: "inbox", Name: "orders", BeginsTransaction: true}
	of := func(s core.Step, types ...string) core.Step { s.MessageTypes = types; return s }
	for _, test := range []struct {
		name  string
		order []core.Step
		says  string // "" if it is right
	}{
		{"breaker around retry", []core.Step{breaker, retry}, ""},
		{"retry around breaker", []core.Step{retry, breaker}, `Middleware[1] (circuit breaker "bank") stands inside of Middleware[0] (retry "bank"), which would try 3 times`},
		{"a retry that tries once", []core.Step{{Kind: "retry", Tries: 1}, breaker}, ""},
		{"for other types", []core.Step{of(retry, "a"), of(breaker, "b", "c")}, ""},
		{"for the same type among others", []core.Step{of(retry, "a", "c"), of(breaker, "b", "c")}, "stands inside of"},
		{"for a type and all", []core.Step{of(retry, "a"), breaker}, "stands inside of"},
		{"the same twice", []core.Step{retry, {Kind: "log"}, retry}, `Middleware[2] (retry "bank") is nested in Middleware[0] (retry "bank"), which is the same`},
		{"the same for two types", []core.Step{of(retry, "a"), of(retry, "b")}, ""},
		{"fallback around breaker", []core.Step{answer, open}, ""},
		{"fallback in breaker", []core.Step{open, retry, answer}, `Middleware[2] (fallback "later") stands inside of Middleware[0] (circuit breaker "bank"), which refuses messages before they reach it`},
		{"fallback between two breakers", []core.Step{open, answer, {Kind: "circuit breaker", Name: "post", OpensCircuit: true}}, ""},
		{"fallback in two breakers", []core.Step{{Kind: "circuit breaker", Name: "post", OpensCircuit: true}, open, answer}, `inside of Middleware[1] (circuit breaker "bank")`},
		{"fallback for another type", []core.Step{of(open, "a"), of(answer, "b")}, ""},
		{"fallback for a type in breaker for all", []core.Step{open, of(answer, "b")}, "stands inside of"},
		{"fallback in a breaker, and around one for another type", []core.Step{open, of(answer, "a"), of(open2, "b")}, "stands inside of"},
		{"retry in a transaction", []core.Step{inbox, retry}, `Middleware[1] (retry "bank") stands inside of Middleware[0] (inbox "orders"), whose transaction would commit the work of failed handlers, too; list it before`},
		{"a single try in a transaction", []core.Step{inbox, {Kind: "time-out", Tries: 1}, open}, ""},
		{"retry around a transaction", []core.Step{retry, inbox}, ""},
		{"retry for another type in a transaction", []core.Step{of(inbox, "a"), of(retry, "b")}, ""},
		{"two without a name", []core.Step{{Kind: "log"}, {Kind: "log"}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				var c core.Config
				for _, step := range test.order {
					c.Middleware = append(c.Middleware, describingMiddleware(step))
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

// A fallback inside of a transaction would let it commit the work of the handlers that
// failed, for an endpoint and for one handler.
func TestStartUp_RefusesAFallbackInATransaction(t *testing.T) {
	bubble(t, func(fx *fixture) {
		inbox := describingMiddleware(core.Step{Kind: "inbox", Name: "orders", BeginsTransaction: true})
		for _, on := range []core.FallbackOn{{Any: true}, {OpenCircuit: true}} {
			fallback := core.Fallback{On: on, Handle: func(context.Context, *core.Message, error) error { return nil }}.Middleware()
			const says = "Middleware[1] (fallback) stands inside of Middleware[0] (inbox"
			if _, err := core.New("orders", fx.broker, core.Config{Middleware: []core.Middleware{inbox, fallback}}); err == nil || !strings.Contains(err.Error(), says) {
				fx.Errorf("%v, want %q in it", err, says)
			}
			fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{fallback, inbox}})

			ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{inbox}})
			const ways = "move it to Middleware before that, or move both to HandleOptions.Middleware"
			core.Handle(ep, "order", charge, core.HandleOptions{Middleware: []core.Middleware{fallback}})
			if err := ep.Err(); err == nil || !strings.Contains(err.Error(), ways) {
				fx.Errorf("%v, want %q in it", err, ways)
			}
			ep = fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{inbox}})
			core.Handle(ep, "order", charge)
			fx.noError(ep.Err())
		}
	})
}

func TestStartUp_TellsAboutTheEndpointAndCanFail(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		told := false
		_, err := core.New("orders", fx.broker, core.Config{
			Transactions:   fx.mode,
			Recoverability: core.Recoverability{ErrorQueue: "shipping"},
			Middleware: []core.Middleware{func(next core.HandlerFunc) core.HandlerFunc {
				s := core.StartUpOf(next)
				told = s.Transactions() == fx.mode && s.Capabilities().DelayedDelivery && s.CanDefer() == (fx.mode != core.TransactionNone) &&
					s.Recoverability("order").Failed.ErrorQueue == "shipping"
				s.Fail(errBoom)
				s.Fail(nil)
				return next
			}, func(next core.HandlerFunc) core.HandlerFunc {
				core.StartUpOf(next).Fail(errors.New("nor me"))
				return next
			}},
		})
		if !told {
			fx.Error("the middleware was told something else")
		}
		if !errors.Is(err, errBoom) || !strings.Contains(err.Error(), "Middleware[0]: boom") || !strings.Contains(err.Error(), "Middleware[1]: nor me") {
			fx.Errorf("New returned %v", err)
		}
	})
}

// Outside an endpoint there is no start, and users' code is not called to find that out.
func TestStartUpOf_OtherCode(t *testing.T) {
	for name, next := range map[string]core.HandlerFunc{
		"nil":       nil,
		"a handler": func(context.Context, *core.Message) error { t.Error("called"); return nil },
		"a handler in middleware": retryMiddleware(2)(func(context.Context, *core.Message) error {
			t.Error("called")
			return nil
		}),
	} {
		s := core.StartUpOf(next)
		if s != nil {
			t.Errorf("%s: a start", name)
		}
		s.Describe(core.Step{Kind: "x"})
		s.Fail(errBoom)
		if s.CanDefer() || s.Transactions() != core.TransactionDefault || s.Capabilities().DelayedDelivery || s.Recoverability("x").Failed.ErrorQueue != "" {
			t.Errorf("%s: a start that knows something", name)
		}
	}
}

func TestMiddleware_CallsNextWithoutAMessage(t *testing.T) {
	bubble(t, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: noRetries, Middleware: []core.Middleware{func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, _ *core.Message) error { return next(ctx, nil) }
		}}}, func(context.Context, *core.Message) error { return nil })
		fx.enqueue("m1")
		equal(fx, "error text", fx.onlyMessage("error").Headers.Get(core.HeaderExceptionMessage), "middleware called next without a message (nil)")
	})
}
