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
	"github.com/reprise-go/reprise/core/coretest"
)

var errServiceUnavailable = errors.New("the service is away")

// answeringFallback is a fallback that says so in the queue "shipping".
func answeringFallback(fx *fixture, on core.FallbackOn) core.Fallback {
	return core.Fallback{On: on, Name: "answer", Handle: func(ctx context.Context, m *core.Message, _ error) error {
		doWork(ctx, "answer")
		return m.Send("shipping", "answer", nil)
	}}
}

// failingHandler is a handler that does half of its work.
func failingHandler(fx *fixture, err func() error) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		doWork(ctx, "half")
		fx.noError(m.Send("shipping", "half", nil))
		return err()
	}
}

func TestFallback_RunsInTheLastAttempt(t *testing.T) {
	for name, each := range map[string]bool{"last": false, "each": true} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				attempts := 0
				f := answeringFallback(fx, core.FallbackOn{Any: true})
				f.EachAttempt = each
				var success recorder[core.Success]
				var ends recorder[core.HandleEnd]
				retries := core.Recoverability{Immediate: core.Immediate{Retries: 1}, Delayed: core.Delayed{Retries: 1, Increase: time.Second}}
				if fx.mode == core.TransactionNone {
					retries = noRetries
				}
				ep := fx.newEndpoint("orders", core.Config{
					Observers:  []core.Observer{{Succeeded: fallbackSuccesses{&success}.Succeeded, HandleEnd: handleEnds{&ends}.HandleEnd}},
					Middleware: []core.Middleware{f.Middleware()}, Recoverability: retries,
				})
				fx.handle(ep, "order", failingHandler(fx, func() error { attempts++; return errServiceUnavailable }))
				core.HandleFailed(ep, "order", func(context.Context, *core.TypedMessage[[]byte], *core.Failed) error {
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
				if all := success.all(); len(all) != 1 || !errors.Is(all[0].Fallback, errServiceUnavailable) {
					fx.Errorf("successes %v, want one by a fallback", all)
				}
				if all := ends.all(); len(all) != want || all[want-1].Err != nil || !errors.Is(all[want-1].Fallback, errServiceUnavailable) {
					fx.Errorf("the last end is %v, want one by a fallback", all)
				}
				equal(fx, "log lines", len(fx.logs.find("a fallback handled the message")), 1)
			})
		})
	}
}

type fallbackSuccesses struct{ *recorder[core.Success] }

func (s fallbackSuccesses) Succeeded(_ context.Context, e core.Success) { s.add(e) }

type handleEnds struct{ *recorder[core.HandleEnd] }

func (s handleEnds) HandleEnd(_ context.Context, e core.HandleEnd) { s.add(e) }

// TestFallback_Filter compares what fallbacks take, by Invoke, which has one attempt.
func TestFallback_Filter(t *testing.T) {
	failures := map[string]func() error{
		"error":        func() error { return errBoom },
		"away":         func() error { return fmt.Errorf("wrapped: %w", errServiceUnavailable) },
		"open circuit": func() error { return core.ErrCircuitOpen },
		"refused":      func() error { return core.Refuse(core.ErrCircuitOpen, time.Second) },
		"rejected":     func() error { return core.Reject(errServiceUnavailable) },
		"undecodable":  func() error { return fmt.Errorf("%w: %w", core.ErrUndecodable, errServiceUnavailable) },
		"panic":        func() error { panic(errServiceUnavailable) },
		"panic told":   func() error { return fmt.Errorf("wrapped: %w", &core.PanicError{Value: errServiceUnavailable}) },
		"no handler":   func() error { return core.ErrNoHandler },
	}
	for name, c := range map[string]struct {
		on    core.FallbackOn
		takes []string
	}{
		"any":               {core.FallbackOn{Any: true}, []string{"error", "away", "open circuit"}},
		"open circuit":      {core.FallbackOn{OpenCircuit: true}, []string{"open circuit", "refused"}},
		"errors":            {core.FallbackOn{Errors: []error{errServiceUnavailable}}, []string{"away"}},
		"the circuit named": {core.FallbackOn{Errors: []error{core.ErrCircuitOpen}}, []string{"open circuit", "refused"}},
		"a function":        {core.FallbackOn{Func: func(err error) bool { return errors.Is(err, errServiceUnavailable) }}, []string{"away"}},
		"panics":            {core.FallbackOn{Panics: true}, []string{"panic", "panic told"}},
		"any and panics":    {core.FallbackOn{Any: true, Panics: true}, []string{"error", "away", "open circuit", "panic", "panic told"}},
		"verdicts":          {core.FallbackOn{Verdicts: true}, []string{"refused", "rejected"}},
		"undecodable named": {core.FallbackOn{Errors: []error{core.ErrUndecodable}}, []string{"undecodable"}},
		"no handler named":  {core.FallbackOn{Errors: []error{core.ErrNoHandler}}, []string{"no handler"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				for failure, err := range failures {
					taken := false
					f := core.Fallback{On: c.on, Handle: func(context.Context, *core.Message, error) error { taken = true; return nil }}
					ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{f.Middleware()}})
					fx.handle(ep, "order", func(context.Context, *core.Message) error { return err() })
					got := ep.Invoke(fx.Context(), "order", []byte("x"))
					if want := slices.Contains(c.takes, failure); taken != want || (got == nil) != want {
						fx.Errorf("%s: taken %t, Invoke returned %v; want it to be taken: %t", failure, taken, got, want)
					}
				}
			})
		})
	}
}

func TestFallback_AnOpenCircuitIsAnsweredAtOnce(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var recovered recoveryRecorder
		ep := fx.newEndpoint("orders", core.Config{
			Observers: []core.Observer{recovered.observer()},
			Middleware: []core.Middleware{answeringFallback(fx, core.FallbackOn{OpenCircuit: true, Any: true}).Middleware(), refusingMiddleware(1, func(m *core.Message) bool {
				return m.ID == "m1"
			})},
			Recoverability: immediateRetries(3),
		})
		fx.handle(ep, "order", failingHandler(fx, func() error { return errBoom }))
		fx.run(ep)
		fx.enqueue("m1")
		equal(fx, "sent", fx.shippedTypes(), "answer")
		equal(fx, "failed attempts", len(recovered.all()), 0)
		fx.enqueue("m2") // which waits for the last attempt
		equal(fx, "sent", fx.shippedTypes(), "answer answer")
		equal(fx, "failed attempts", len(recovered.all()), 3)
	})
}

func TestFallback_TheInnermostThatTakesTheFailureAnswers(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var ran recorder[string]
		level := func(name string, on core.FallbackOn, types ...string) core.Middleware {
			return core.Fallback{On: on, MessageTypes: types, Handle: func(context.Context, *core.Message, error) error { ran.add(name); return nil }}.Middleware()
		}
		ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{
			level("endpoint", core.FallbackOn{Any: true}),
			level("type", core.FallbackOn{Any: true}, "order"),
			level("other type", core.FallbackOn{Any: true}, "other"),
		}})
		var err error
		handler := func(context.Context, *core.TypedMessage[[]byte]) error { return err }
		away := core.HandleOptions{Middleware: []core.Middleware{level("handler", core.FallbackOn{Errors: []error{errServiceUnavailable}})}}
		core.Handle(ep, "order", handler, away)
		core.Handle(ep, "third", handler)
		invoke := func(messageType string, fails error) {
			err = fails
			fx.noError(ep.Invoke(fx.Context(), messageType, []byte("x")))
		}
		invoke("order", errServiceUnavailable)
		invoke("order", errBoom)
		invoke("third", errBoom)
		equal(fx, "ran", fmt.Sprint(ran.all()), "[handler type endpoint]")
	})
}

func TestFallback_OfOneOfSeveralHandlers(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		for _, independent := range []bool{false, true} {
			ep := fx.newEndpoint("orders", core.Config{Recoverability: noRetries})
			h := func(name string, err error) func(context.Context, *core.TypedMessage[[]byte]) error {
				return func(ctx context.Context, m *core.TypedMessage[[]byte]) error {
					doWork(ctx, name)
					fx.noError(m.Send("shipping", name, nil))
					return err
				}
			}
			plain := core.HandleOptions{Independent: independent}
			helped := core.HandleOptions{Independent: independent, Middleware: []core.Middleware{answeringFallback(fx, core.FallbackOn{Any: true}).Middleware()}}
			core.Handle(ep, "order", h("first", nil), plain)
			core.Handle(ep, "order", h("second", errBoom), helped)
			core.Handle(ep, "order", h("third", nil), plain)
			r := fx.run(ep)
			fx.enqueue("m1")
			equal(fx, "sent", fx.shippedTypes(), "first answer third")
			if fx.mode == core.TransactionSendsAtomicWithReceive {
				equal(fx, "committed", fmt.Sprint(fx.broker.committed.all()), "[first answer third]")
			}
			fx.noError(r.stop())
			fx.broker.committed = recorder[string]{}
			_, err := fx.broker.Purge(fx.Context(), "shipping")
			fx.noError(err)
		}
	})
}

// A fallback that takes the failure of one independent handler does not hide that of another,
// whichever of them decides.
func TestFallback_TakesAllFailuresOfIndependentHandlersOrNone(t *testing.T) {
	refused := core.Refuse(core.ErrCircuitOpen, time.Second)
	away, panics := func(*core.Message) error { return errServiceUnavailable }, func(*core.Message) error { panic("nil map") }
	fails := func(err error) func(*core.Message) error { return func(*core.Message) error { return err } }
	for name, c := range map[string]struct {
		on    core.FallbackOn
		a, b  func(*core.Message) error
		takes bool
	}{
		"one that is not chosen, last":  {core.FallbackOn{Errors: []error{errServiceUnavailable}}, away, fails(errBoom), false},
		"one that is not chosen, first": {core.FallbackOn{Errors: []error{errServiceUnavailable}}, fails(errBoom), away, false},
		"a panic":                       {core.FallbackOn{Any: true}, away, panics, false},
		"a panic that is chosen":        {core.FallbackOn{Any: true, Panics: true}, away, panics, true},
		"a verdict":                     {core.FallbackOn{Any: true}, away, fails(core.Reject(errBoom)), false},
		"a verdict beside a circuit":    {core.FallbackOn{OpenCircuit: true}, fails(refused), fails(core.Reject(errBoom)), false},
		"an error beside a circuit":     {core.FallbackOn{OpenCircuit: true, Any: true}, fails(refused), away, true},
		"two circuits":                  {core.FallbackOn{OpenCircuit: true}, fails(refused), fails(core.ErrCircuitOpen), true},
		"two that are chosen":           {core.FallbackOn{Errors: []error{errServiceUnavailable, errBoom}}, away, fails(errBoom), true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{answeringFallback(fx, c.on).Middleware()}})
				fx.handleIndependently(ep, &recorder[string]{}, map[string]func(*core.Message) error{"a": c.a, "b": c.b})
				err := ep.Invoke(fx.Context(), "order", []byte("x"))
				if (err == nil) != c.takes {
					fx.Errorf("Invoke returned %v; want it to be taken: %t", err, c.takes)
				}
			})
		})
	}
}

func TestFallback_FailureIsThatOfTheAttempt(t *testing.T) {
	for name, c := range map[string]struct {
		answer func() error
		moved  bool
	}{
		"an error":  {func() error { return errors.New("no answer") }, true},
		"a panic":   {func() error { panic("no answer") }, true},
		"a verdict": {func() error { return core.Discard("no answer") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				f := core.Fallback{On: core.FallbackOn{Any: true}, Handle: func(ctx context.Context, m *core.Message, cause error) error {
					doWork(ctx, "answer")
					fx.noError(m.Send("shipping", "answer", nil))
					return c.answer()
				}}
				ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{f.Middleware()}, Recoverability: noRetries})
				fx.handle(ep, "order", failingHandler(fx, func() error { return errServiceUnavailable }))
				last := 0
				core.HandleFailed(ep, "order", func(_ context.Context, _ *core.TypedMessage[[]byte], f *core.Failed) error {
					last++
					both, ok := errors.AsType[*core.FallbackError](f.Err)
					if !ok || !errors.Is(both, errServiceUnavailable) || !strings.Contains(both.Error(), "no answer") {
						fx.Errorf("HandleFailed is told %v", f.Err)
					}
					return nil
				})
				fx.run(ep)
				fx.enqueue("m1")
				fx.wantDepth("shipping", 0)
				equal(fx, "committed", fx.broker.committed.len(), 0)
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
func TestFallback_FailureAfterAVerdictCounts(t *testing.T) {
	for name, verdict := range map[string]func() error{
		"refused":   func() error { return core.Refuse(&refusedError{core.ErrCircuitOpen}, time.Second) },
		"deferred":  func() error { return core.DeferError(&refusedError{errServiceUnavailable}, time.Second) },
		"discarded": func() error { return core.DiscardError(&refusedError{errServiceUnavailable}, "it is late") },
		"put back":  func() error { return core.PutBack(&refusedError{errServiceUnavailable}, core.Pause{}) },
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				var recovered recoveryRecorder
				f := core.Fallback{On: core.FallbackOn{OpenCircuit: true, Verdicts: true}, EachAttempt: true, Handle: func(context.Context, *core.Message, error) error { return errBoom }}
				ep := fx.newEndpoint("orders", core.Config{
					Observers: []core.Observer{recovered.observer()}, Middleware: []core.Middleware{f.Middleware()}, Recoverability: immediateRetries(1),
				})
				fx.handle(ep, "order", func(context.Context, *core.Message) error { return verdict() })
				core.HandleFailed(ep, "order", func(_ context.Context, _ *core.TypedMessage[[]byte], f *core.Failed) error {
					_, wraps := errors.AsType[*refusedError](f.Err)
					_, isVerdict := errors.AsType[*core.Verdict](f.Err)
					if !wraps || isVerdict || core.IsVerdict(f.Err) || !errors.Is(f.Err, errBoom) {
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

func TestFallback_VerdictDecidesAlone(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var recovered recoveryRecorder
		f := core.Fallback{On: core.FallbackOn{OpenCircuit: true}, Handle: func(_ context.Context, _ *core.Message, cause error) error {
			return core.RetryAfter(cause, time.Minute)
		}}
		fx.runOrders(core.Config{
			Observers:  []core.Observer{recovered.observer()},
			Middleware: []core.Middleware{f.Middleware(), refusingMiddleware(1, func(*core.Message) bool { return true })},
		}, func(context.Context, *core.Message) error { return nil })
		fx.enqueue("m1")
		if all := recovered.all(); len(all) != 1 || all[0].Action != core.DelayedRetry(time.Minute) || all[0].Deferred {
			fx.Errorf("decided %v, want the delayed retry of the fallback", all)
		}
	})
}

func TestFallback_NotAfterTheEndOfTheContext(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		f := core.Fallback{On: core.FallbackOn{Any: true, Errors: []error{core.ErrHandlerTimeout}}, EachAttempt: true, Handle: func(context.Context, *core.Message, error) error {
			fx.Error("the fallback runs")
			return nil
		}}
		ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{f.Middleware()}, HandlerTimeout: time.Second, Recoverability: noRetries})
		fx.handle(ep, "order", func(ctx context.Context, _ *core.Message) error { <-ctx.Done(); return ctx.Err() })
		fx.run(ep)
		fx.enqueue("m1")
		fx.advance(time.Minute)
		fx.onlyMessage("error")
	})
}

func TestFallback_RollbackThatFailsFailsTheAttempt(t *testing.T) {
	bubble(t, func(fx *fixture) {
		fx.broker.setFaults(failOperation("Rollback"))
		f := core.Fallback{On: core.FallbackOn{Any: true}, Handle: func(context.Context, *core.Message, error) error {
			fx.Error("the fallback runs")
			return nil
		}}
		ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{f.Middleware()}, Recoverability: noRetries})
		fx.handle(ep, "order", failingHandler(fx, func() error { return errServiceUnavailable }))
		fx.run(ep)
		fx.enqueue("m1")
		fx.onlyMessage("error")
	})
}

func TestFallback_IsCheckedAtTheStart(t *testing.T) {
	answer := func(context.Context, *core.Message, error) error { return nil }
	policy := core.Recoverability{Policy: core.DefaultPolicy}
	for name, c := range map[string]struct {
		fallback       core.Fallback
		recoverability core.Recoverability
		says           string // "" if it is right
	}{
		"no filter":                     {core.Fallback{Handle: answer}, core.Recoverability{}, "takes no failures"},
		"no filter, each attempt":       {core.Fallback{Handle: answer, EachAttempt: true}, core.Recoverability{}, "takes no failures"},
		"no function":                   {core.Fallback{On: core.FallbackOn{Any: true}}, core.Recoverability{}, "Handle is nil"},
		"a nil error":                   {core.Fallback{On: core.FallbackOn{Errors: []error{nil}}, Handle: answer}, core.Recoverability{}, "has a nil"},
		"no types":                      {core.Fallback{On: core.FallbackOn{Any: true}, Handle: answer, MessageTypes: []string{}}, core.Recoverability{}, "MessageTypes is empty"},
		"a policy":                      {core.Fallback{On: core.FallbackOn{Any: true}, Handle: answer}, policy, "which only Recoverability.Policy knows"},
		"a policy and each attempt":     {core.Fallback{On: core.FallbackOn{Any: true}, Handle: answer, EachAttempt: true}, policy, ""},
		"a policy and the open circuit": {core.Fallback{On: core.FallbackOn{OpenCircuit: true}, Handle: answer}, policy, ""},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				_, err := core.New("orders", fx.broker, core.Config{Middleware: []core.Middleware{c.fallback.Middleware()}, Recoverability: c.recoverability})
				if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
					fx.Errorf("New returned %v, want %q", err, c.says)
				}
			})
		})
	}
	inModesWith(t, withCapabilities(func(c *core.Capabilities) { c.Savepoints = false }), allModes, func(fx *fixture) {
		f := core.Fallback{On: core.FallbackOn{Any: true}, Handle: answer}
		_, err := core.New("orders", fx.broker, core.Config{Transactions: fx.mode, Middleware: []core.Middleware{f.Middleware()}})
		equal(fx, "refused", errors.Is(err, errors.ErrUnsupported), fx.mode == core.TransactionSendsAtomicWithReceive)
	})
}

func TestFallback_OutsideOfAnEndpoint(t *testing.T) {
	in, sent := coretest.Message("order", "body")
	f := core.Fallback{On: core.FallbackOn{Any: true}, Handle: func(_ context.Context, m *core.Message, _ error) error { return m.Send("shipping", "answer", nil) }}
	err := f.Middleware().Wrap(core.MiddlewareScope{}, func(context.Context, *core.Message) error { return errBoom })(t.Context(), in.Message)
	if err != nil || len(sent.Sent()) != 1 {
		t.Errorf("returned %v, sent %v", err, sent.Sent())
	}
	if err := (core.Fallback{}).Middleware().Wrap(core.MiddlewareScope{}, nil)(t.Context(), in.Message); err == nil {
		t.Error("a fallback without a filter returned nil")
	}
}

// A fallback for open circuits is refused where every circuit is around it.
func TestFallback_RefusesAPlaceInsideItsCircuit(t *testing.T) {
	opens := func(name string, types ...string) core.Middleware {
		return describingMiddleware(core.MiddlewareFacts{Kind: "circuit breaker", Name: name, MessageTypes: types, Refusals: []error{core.Refuse(core.ErrCircuitOpen, 0)}})
	}
	answers := func(types ...string) core.Middleware {
		return core.Fallback{Name: "later", MessageTypes: types, On: core.FallbackOn{OpenCircuit: true}, Handle: func(context.Context, *core.Message, error) error { return nil }}.Middleware()
	}
	retry := describingMiddleware(core.MiddlewareFacts{Kind: "retry"})
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
