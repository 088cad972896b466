package fallback_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	"github.com/reprise-go/reprise/middleware/fallback"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// answeringFallback is a fallback that says so in the queue "shipping".
func answeringFallback(fx *fixture, on fallback.On) fallback.Middleware {
	return fallback.Middleware{On: on, Name: "answer", Handle: func(ctx context.Context, m *core.Message, _ error) error {
		doWork(ctx, "answer")
		return m.Send("shipping", answerType.Of(nil))
	}}
}

// failingHandler is a handler that does half of its work.
func failingHandler(fx *fixture, err func() error) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		doWork(ctx, "half")
		fx.noError(m.Send("shipping", halfType.Of(nil)))
		return err()
	}
}

func TestRunsInTheLastAttempt(t *testing.T) {
	for name, each := range map[string]bool{"last": false, "each": true} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				attempts := 0
				f := answeringFallback(fx, fallback.On{Any: true})
				f.EachAttempt = each
				var successes, ends recorder[error] // the causes
				observer := core.Observer{
					Succeeded: func(_ context.Context, e core.Handling) { successes.add(fallback.Cause(e.Message)) },
					HandleEnd: func(_ context.Context, e core.Handling) {
						if e.Err == nil {
							ends.add(fallback.Cause(e.Message))
						}
					},
				}
				retries := core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second}}
				ep := fx.newEndpoint(core.Config{
					Observers:  []core.Observer{observer},
					Middleware: []core.Middleware{f}, Recoverability: retries,
				})
				fx.handle(ep, failingHandler(fx, func() error { attempts++; return errServiceUnavailable }))
				core.HandleFailed(ep, orderType, func(context.Context, *core.Message, []byte, *core.Failed) error {
					fx.Error("HandleFailed runs")
					return nil
				})
				fx.run(ep)
				fx.enqueue("m1")
				fx.advance(time.Minute)
				want := 4
				if each || fx.mode == core.TransactionNone {
					want = 1
				}
				equal(fx, "attempts", attempts, want)
				equal(fx, "sent", fx.shippedTypes(), "answer")
				fx.wantDepth("error", 0)
				fx.wantDepth("orders", 0)
				if fx.mode == core.TransactionSendsAtomicWithReceive {
					equal(fx, "committed", fmt.Sprint(fx.broker.committed.all()), "[answer]")
				}
				for name, causes := range map[string][]error{"successes": successes.all(), "ends": ends.all()} {
					if len(causes) != 1 || !errors.Is(causes[0], errServiceUnavailable) {
						fx.Errorf("causes of %s: %v, want one", name, causes)
					}
				}
				equal(fx, "log lines", fx.logs.count("a fallback handled the message"), 1)
			})
		})
	}
}

// TestFilter compares the messages that fallbacks take, by Invoke, which has one attempt.
func TestFilter(t *testing.T) {
	failures := map[string]func() error{
		"error":        func() error { return errBoom },
		"away":         func() error { return fmt.Errorf("wrapped: %w", errServiceUnavailable) },
		"open circuit": func() error { return core.ErrCircuitOpen },
		"refused":      func() error { return core.Refuse(core.ErrCircuitOpen, time.Second) },
		"rejected":     func() error { return core.GiveUp(errServiceUnavailable) },
		"undecodable":  func() error { return fmt.Errorf("%w: %w", core.ErrUndecodable, errServiceUnavailable) },
		"panic":        func() error { panic(errServiceUnavailable) },
		"panic told":   func() error { return fmt.Errorf("wrapped: %w", &core.PanicError{Value: errServiceUnavailable}) },
		"no handler":   func() error { return core.ErrNoHandler },
	}
	for name, c := range map[string]struct {
		on    fallback.On
		takes []string
	}{
		"any":               {fallback.On{Any: true}, []string{"error", "away", "open circuit"}},
		"open circuit":      {fallback.On{OpenCircuit: true}, []string{"open circuit", "refused"}},
		"errors":            {fallback.On{Errors: []error{errServiceUnavailable}}, []string{"away"}},
		"the circuit named": {fallback.On{Errors: []error{core.ErrCircuitOpen}}, []string{"open circuit", "refused"}},
		"a function":        {fallback.On{Func: func(err error) bool { return errors.Is(err, errServiceUnavailable) }}, []string{"away"}},
		"panics":            {fallback.On{Panics: true}, []string{"panic", "panic told"}},
		"any and panics":    {fallback.On{Any: true, Panics: true}, []string{"error", "away", "open circuit", "panic", "panic told"}},
		"verdicts":          {fallback.On{Verdicts: true}, []string{"refused", "rejected"}},
		"undecodable named": {fallback.On{Errors: []error{core.ErrUndecodable}}, []string{"undecodable"}},
		"no handler named":  {fallback.On{Errors: []error{core.ErrNoHandler}}, []string{"no handler"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				for failure, err := range failures {
					taken := false
					f := fallback.Middleware{On: c.on, Handle: func(context.Context, *core.Message, error) error { taken = true; return nil }}
					ep := fx.newEndpoint(core.Config{Middleware: []core.Middleware{f}})
					fx.handle(ep, func(context.Context, *core.Message) error { return err() })
					got := ep.Invoke(fx.Context(), orderType.Of([]byte("x")))
					if want := slices.Contains(c.takes, failure); taken != want || (got == nil) != want {
						fx.Errorf("%s: taken %t, Invoke returned %v; want it to be taken: %t", failure, taken, got, want)
					}
				}
			})
		})
	}
}

func TestAnOpenCircuitIsAnsweredAtOnce(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var recovered recoveries
		ep := fx.newEndpoint(core.Config{
			Observers: []core.Observer{recovered.observer()},
			Middleware: []core.Middleware{answeringFallback(fx, fallback.On{OpenCircuit: true, Any: true}), refusing(func(m *core.Message) bool {
				return m.ID == "m1"
			})},
			Recoverability: immediateRetries(3),
		})
		fx.handle(ep, failingHandler(fx, func() error { return errBoom }))
		fx.run(ep)
		fx.enqueue("m1")
		equal(fx, "sent", fx.shippedTypes(), "answer")
		equal(fx, "failed attempts", len(recovered.all()), 0)
		fx.enqueue("m2") // which waits for the last attempt
		equal(fx, "sent", fx.shippedTypes(), "answer answer")
		equal(fx, "failed attempts", len(recovered.all()), 3)
	})
}

func TestTheInnermostThatTakesTheFailureAnswers(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var ran recorder[string]
		level := func(name string, on fallback.On, types ...string) core.Middleware {
			return fallback.Middleware{On: on, MessageTypes: types, Handle: func(context.Context, *core.Message, error) error { ran.add(name); return nil }}
		}
		ep := fx.newEndpoint(core.Config{Middleware: []core.Middleware{
			level("endpoint", fallback.On{Any: true}),
			level("type", fallback.On{Any: true}, "order"),
			level("other type", fallback.On{Any: true}, "other"),
		}})
		var err error
		handler := func(context.Context, *core.Message, []byte) error { return err }
		failing := core.HandleOptions{Middleware: []core.Middleware{level("handler", fallback.On{Errors: []error{errServiceUnavailable}})}}
		core.Handle(ep, orderType, handler, failing)
		core.Handle(ep, thirdType, handler)
		invoke := func(messageType string, fails error) {
			err = fails
			fx.noError(ep.Invoke(fx.Context(), core.NewMessageType[[]byte](messageType).Of([]byte("x"))))
		}
		invoke("order", errServiceUnavailable)
		invoke("order", errBoom)
		invoke("third", errBoom)
		equal(fx, "ran", fmt.Sprint(ran.all()), "[handler type endpoint]")
	})
}

func TestOfOneOfSeveralHandlers(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		for _, independent := range []bool{false, true} {
			ep := fx.newEndpoint(core.Config{Recoverability: immediateRetries(0)})
			h := func(name string, err error) func(context.Context, *core.Message, []byte) error {
				return func(ctx context.Context, m *core.Message, _ []byte) error {
					doWork(ctx, name)
					fx.noError(m.Send("shipping", core.NewMessageType[[]byte](name).Of(nil)))
					return err
				}
			}
			plain := core.HandleOptions{Independent: independent}
			helped := core.HandleOptions{Independent: independent, Middleware: []core.Middleware{answeringFallback(fx, fallback.On{Any: true})}}
			core.Handle(ep, orderType, h("first", nil), plain)
			core.Handle(ep, orderType, h("second", errBoom), helped)
			core.Handle(ep, orderType, h("third", nil), plain)
			stop := fx.run(ep)
			fx.enqueue("m1")
			equal(fx, "sent", fx.shippedTypes(), "first answer third")
			if fx.mode == core.TransactionSendsAtomicWithReceive {
				equal(fx, "committed", fmt.Sprint(fx.broker.committed.all()), "[first answer third]")
			}
			stop()
			fx.broker.committed = recorder[string]{}
			_, err := fx.broker.Purge(fx.Context(), "shipping")
			fx.noError(err)
		}
	})
}

// A fallback that takes the failure of one independent handler does not hide that of another,
// whichever of them decides.
func TestTakesAllFailuresOfIndependentHandlersOrNone(t *testing.T) {
	refused := core.Refuse(core.ErrCircuitOpen, time.Second)
	fail, panics := func(*core.Message) error { return errServiceUnavailable }, func(*core.Message) error { panic("nil map") }
	fails := func(err error) func(*core.Message) error { return func(*core.Message) error { return err } }
	for name, c := range map[string]struct {
		on    fallback.On
		a, b  func(*core.Message) error
		takes bool
	}{
		"one that is not chosen, last":  {fallback.On{Errors: []error{errServiceUnavailable}}, fail, fails(errBoom), false},
		"one that is not chosen, first": {fallback.On{Errors: []error{errServiceUnavailable}}, fails(errBoom), fail, false},
		"a panic":                       {fallback.On{Any: true}, fail, panics, false},
		"a panic that is chosen":        {fallback.On{Any: true, Panics: true}, fail, panics, true},
		"a verdict":                     {fallback.On{Any: true}, fail, fails(core.GiveUp(errBoom)), false},
		"a verdict beside a circuit":    {fallback.On{OpenCircuit: true}, fails(refused), fails(core.GiveUp(errBoom)), false},
		"an error beside a circuit":     {fallback.On{OpenCircuit: true, Any: true}, fails(refused), fail, true},
		"two circuits":                  {fallback.On{OpenCircuit: true}, fails(refused), fails(core.ErrCircuitOpen), true},
		"two that are chosen":           {fallback.On{Errors: []error{errServiceUnavailable, errBoom}}, fail, fails(errBoom), true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				ep := fx.newEndpoint(core.Config{Middleware: []core.Middleware{answeringFallback(fx, c.on)}})
				for _, fails := range []func(*core.Message) error{c.a, c.b} {
					fx.handle(ep, func(_ context.Context, m *core.Message) error { return fails(m) }, core.HandleOptions{Independent: true})
				}
				err := ep.Invoke(fx.Context(), orderType.Of([]byte("x")))
				if (err == nil) != c.takes {
					fx.Errorf("Invoke returned %v; want it to be taken: %t", err, c.takes)
				}
			})
		})
	}
}

func TestFailureIsTheErrorOfTheAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		answer func() error
		moved  bool
	}{
		"an error":  {func() error { return errors.New("no answer") }, true},
		"a panic":   {func() error { panic("no answer") }, true},
		"a verdict": {func() error { return core.Discard(errors.New("no answer")) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				f := fallback.Middleware{On: fallback.On{Any: true}, Handle: func(ctx context.Context, m *core.Message, cause error) error {
					doWork(ctx, "answer")
					fx.noError(m.Send("shipping", answerType.Of(nil)))
					return c.answer()
				}}
				ep := fx.newEndpoint(core.Config{Middleware: []core.Middleware{f}, Recoverability: immediateRetries(0)})
				fx.handle(ep, failingHandler(fx, func() error { return errServiceUnavailable }))
				last := 0
				core.HandleFailed(ep, orderType, func(_ context.Context, _ *core.Message, _ []byte, f *core.Failed) error {
					last++
					both, ok := errors.AsType[*fallback.Error](f.Err)
					if !ok || !errors.Is(both, errServiceUnavailable) || !strings.Contains(both.Error(), "no answer") {
						fx.Errorf("HandleFailed is told %v", f.Err)
					}
					return nil
				})
				fx.run(ep)
				fx.enqueue("m1")
				fx.wantDepth("shipping", 0)
				equal(fx, "committed", len(fx.broker.committed.all()), 0)
				want := 0
				if c.moved {
					want = 1
				}
				fx.wantDepth("error", want)
				equal(fx, "HandleFailed ran", last, want)
			})
		})
	}
}

// refusedError is the cause of a refusal.
type refusedError struct{ error }

// A fallback that fails after it took a verdict has failed: the verdict decides no more.
func TestFailureAfterAVerdictCounts(t *testing.T) {
	for name, verdict := range map[string]func() error{
		"refused":   func() error { return core.Refuse(&refusedError{core.ErrCircuitOpen}, time.Second) },
		"deferred":  func() error { return core.Defer(&refusedError{errServiceUnavailable}, time.Second) },
		"discarded": func() error { return core.Discard(&refusedError{errServiceUnavailable}) },
		"put back":  func() error { return core.PutBack(&refusedError{errServiceUnavailable}, 0) },
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				var recovered recoveries
				f := fallback.Middleware{On: fallback.On{OpenCircuit: true, Verdicts: true}, EachAttempt: true, Handle: func(context.Context, *core.Message, error) error { return errBoom }}
				ep := fx.newEndpoint(core.Config{
					Observers: []core.Observer{recovered.observer()}, Middleware: []core.Middleware{f}, Recoverability: immediateRetries(1),
				})
				fx.handle(ep, func(context.Context, *core.Message) error { return verdict() })
				core.HandleFailed(ep, orderType, func(_ context.Context, _ *core.Message, _ []byte, f *core.Failed) error {
					_, wraps := errors.AsType[*refusedError](f.Err)
					_, isVerdict := errors.AsType[*core.Verdict](f.Err)
					if !wraps || isVerdict || core.VerdictOf(f.Err) != nil || !errors.Is(f.Err, errBoom) {
						fx.Errorf("HandleFailed is told %v: wraps the cause %t, is a verdict %t", f.Err, wraps, isVerdict)
					}
					return nil
				})
				fx.run(ep)
				fx.enqueue("m1")
				fx.advance(time.Minute)
				equal(fx, "recovered", recovered.actions(), "ImmediateRetry MoveToError")
				fx.wantDepth("error", 1)
				fx.wantDepth("orders", 0)
			})
		})
	}
}

func TestVerdictDecidesAlone(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var recovered recoveries
		f := fallback.Middleware{On: fallback.On{OpenCircuit: true}, Handle: func(_ context.Context, _ *core.Message, cause error) error {
			return core.RetryAfter(cause, time.Minute)
		}}
		ep := fx.newEndpoint(core.Config{
			Observers:  []core.Observer{recovered.observer()},
			Middleware: []core.Middleware{f, refusing(func(*core.Message) bool { return true })},
		})
		fx.handle(ep, func(context.Context, *core.Message) error { return nil })
		fx.run(ep)
		fx.enqueue("m1")
		if all := recovered.all(); len(all) != 1 || all[0].Action != core.DelayedRetry(time.Minute) {
			fx.Errorf("decided %v, want the delayed retry of the fallback", all)
		}
	})
}

func TestNotAfterTheEndOfTheContext(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		f := fallback.Middleware{On: fallback.On{Any: true, Errors: []error{core.ErrHandlerTimeout}}, EachAttempt: true, Handle: func(context.Context, *core.Message, error) error {
			fx.Error("the fallback runs")
			return nil
		}}
		ep := fx.newEndpoint(core.Config{Middleware: []core.Middleware{f}, HandlerTimeout: time.Second, Recoverability: immediateRetries(0)})
		fx.handle(ep, func(ctx context.Context, _ *core.Message) error { <-ctx.Done(); return ctx.Err() })
		fx.run(ep)
		fx.enqueue("m1")
		fx.advance(time.Minute)
		fx.wantDepth("error", 1)
	})
}

func TestRollbackThatFailsFailsTheAttempt(t *testing.T) {
	bubble(t, func(fx *fixture) {
		fx.broker.rollbackErr = errors.New("the connection was lost")
		f := fallback.Middleware{On: fallback.On{Any: true}, Handle: func(context.Context, *core.Message, error) error {
			fx.Error("the fallback runs")
			return nil
		}}
		ep := fx.newEndpoint(core.Config{Middleware: []core.Middleware{f}, Recoverability: immediateRetries(0)})
		fx.handle(ep, failingHandler(fx, func() error { return errServiceUnavailable }))
		fx.run(ep)
		fx.enqueue("m1")
		fx.wantDepth("error", 1)
	})
}

func TestIsCheckedAtTheStart(t *testing.T) {
	answer := func(context.Context, *core.Message, error) error { return nil }
	policy := core.Recoverability{Policy: core.DefaultPolicy}
	for name, c := range map[string]struct {
		fallback       fallback.Middleware
		recoverability core.Recoverability
		says           string // "" if it is right
	}{
		"no filter":                     {fallback.Middleware{Handle: answer}, core.Recoverability{}, "takes no failures"},
		"no filter, each attempt":       {fallback.Middleware{Handle: answer, EachAttempt: true}, core.Recoverability{}, "takes no failures"},
		"no function":                   {fallback.Middleware{On: fallback.On{Any: true}}, core.Recoverability{}, "Handle is nil"},
		"a nil error":                   {fallback.Middleware{On: fallback.On{Errors: []error{nil}}, Handle: answer}, core.Recoverability{}, "has a nil"},
		"no types":                      {fallback.Middleware{On: fallback.On{Any: true}, Handle: answer, MessageTypes: []string{}}, core.Recoverability{}, "MessageTypes is empty"},
		"a policy":                      {fallback.Middleware{On: fallback.On{Any: true}, Handle: answer}, policy, "which only Recoverability.Policy knows"},
		"a policy and each attempt":     {fallback.Middleware{On: fallback.On{Any: true}, Handle: answer, EachAttempt: true}, policy, ""},
		"a policy and the open circuit": {fallback.Middleware{On: fallback.On{OpenCircuit: true}, Handle: answer}, policy, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				_, err := core.New("orders", fx.broker, core.Config{Middleware: []core.Middleware{c.fallback}, Recoverability: c.recoverability})
				if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
					fx.Errorf("New returned %v, want %q", err, c.says)
				}
			})
		})
	}
	caps := inmemory.Everything()
	caps.Savepoints = false
	inModesWith(t, caps, allModes, func(fx *fixture) {
		f := fallback.Middleware{On: fallback.On{Any: true}, Handle: answer}
		_, err := core.New("orders", fx.broker, core.Config{Transactions: fx.mode, Middleware: []core.Middleware{f}})
		equal(fx, "refused", errors.Is(err, errors.ErrUnsupported), fx.mode == core.TransactionSendsAtomicWithReceive)
	})
}

func TestOutsideOfAnEndpoint(t *testing.T) {
	in, _, sent := coretest.Message(orderStringType, "body")
	f := fallback.Middleware{On: fallback.On{Any: true}, Handle: func(_ context.Context, m *core.Message, _ error) error { return m.Send("shipping", answerType.Of(nil)) }}
	err := f.Wrap(core.MiddlewareScope{}, func(context.Context, *core.Message) error { return errBoom })(t.Context(), in)
	if err != nil || len(sent.Sent()) != 1 {
		t.Errorf("returned %v, sent %v", err, sent.Sent())
	}
	if err := (fallback.Middleware{}).Wrap(core.MiddlewareScope{}, nil)(t.Context(), in); err == nil {
		t.Error("a fallback without a filter returned nil")
	}
}

// A fallback for open circuits is refused where every circuit is around it.
func TestRefusesAPlaceInsideItsCircuit(t *testing.T) {
	opens := func(name string, types ...string) core.Middleware {
		return neighbour(core.MiddlewareFacts{Kind: "circuit breaker", Name: name, MessageTypes: types, Refusals: []error{core.Refuse(core.ErrCircuitOpen, 0)}})
	}
	answers := func(types ...string) core.Middleware {
		return fallback.Middleware{Name: "later", MessageTypes: types, On: fallback.On{OpenCircuit: true}, Handle: func(context.Context, *core.Message, error) error { return nil }}
	}
	retry := neighbour(core.MiddlewareFacts{Kind: "retry"})
	for _, test := range []struct {
		name  string
		order []core.Middleware
		says  string // "" if it is right
	}{
		{"around the circuit", []core.Middleware{answers(), opens("bank")}, ""},
		{"in the circuit", []core.Middleware{opens("bank"), retry, answers()}, `Middleware[2] (fallback "later") stands inside of Middleware[0] (circuit breaker "bank"), which refuses messages before they reach it`},
		{"between two", []core.Middleware{opens("bank"), answers(), opens("post")}, ""},
		{"in two", []core.Middleware{opens("post"), opens("bank"), answers()}, `inside of Middleware[1] (circuit breaker "bank")`},
		{"for another type", []core.Middleware{opens("bank", "a"), answers("b")}, ""},
		{"for a type in a circuit for all", []core.Middleware{opens("bank"), answers("b")}, "stands inside of"},
		{"in a circuit, and around one for another type", []core.Middleware{opens("bank"), answers("a"), opens("post", "b")}, "stands inside of"},
		{"without a circuit", []core.Middleware{answers()}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				_, err := core.New("orders", fx.broker, core.Config{Middleware: test.order})
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

// A transaction around a fallback would commit the work of the handlers that failed, so that
// an inbox refuses it, for an endpoint and for one handler.
func TestTransactionAroundItIsReported(t *testing.T) {
	bubble(t, func(fx *fixture) {
		inbox := neighbour(core.MiddlewareFacts{Kind: "inbox", Name: "orders", Check: func(_, inner []core.MiddlewareFacts) error {
			for _, f := range inner {
				if f.HidesFailures {
					return fmt.Errorf("stands around %v", f)
				}
			}
			return nil
		}})
		for _, on := range []fallback.On{{Any: true}, {OpenCircuit: true}} {
			answer := fallback.Middleware{On: on, Name: "later", Handle: func(context.Context, *core.Message, error) error { return nil }}
			const says = `Middleware[0] (inbox "orders") stands around `
			if _, err := core.New("orders", fx.broker, core.Config{Middleware: []core.Middleware{inbox, answer}}); err == nil || !strings.Contains(err.Error(), says+`Middleware[1] (fallback "later")`) {
				fx.Errorf("New returned %v", err)
			}
			fx.newEndpoint(core.Config{Middleware: []core.Middleware{answer, inbox}})

			ep := fx.newEndpoint(core.Config{Middleware: []core.Middleware{inbox}})
			fx.handle(ep, func(context.Context, *core.Message) error { return nil })
			fx.noError(ep.Err())
			fx.handle(ep, func(context.Context, *core.Message) error { return nil }, core.HandleOptions{Middleware: []core.Middleware{answer}})
			if err := ep.Err(); err == nil || !strings.Contains(err.Error(), says+`HandleOptions.Middleware[0] (fallback "later")`) {
				fx.Errorf("Handle: %v", err)
			}
		}
	})
}
