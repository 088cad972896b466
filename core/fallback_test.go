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

var errAway = errors.New("the service is away")

// answers is a fallback that says so in the queue "shipping".
func answers(b *bed, on core.FallbackOn) core.Fallback {
	return core.Fallback{On: on, Name: "answer", Handle: func(ctx context.Context, m *core.Message, _ error) error {
		work(ctx, "answer")
		return m.Send("shipping", "answer", nil)
	}}
}

// failsWith is a handler that does half of its work.
func failsWith(b *bed, err func() error) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		work(ctx, "half")
		b.must(m.Send("shipping", "half", nil))
		return err()
	}
}

func TestFallback_RunsInTheLastAttempt(t *testing.T) {
	for name, each := range map[string]bool{"last": false, "each": true} {
		t.Run(name, func(t *testing.T) {
			inModes(t, everyMode, func(b *bed) {
				attempts := 0
				f := answers(b, core.FallbackOn{Any: true})
				f.EachAttempt = each
				var success record[core.Success]
				var ends record[core.HandleEnd]
				retries := core.Recoverability{Immediate: core.Immediate{Retries: 1}, Delayed: core.Delayed{Retries: 1, Increase: time.Second}}
				if b.mode == core.TransactionNone {
					retries = noRetries
				}
				ep := b.endpoint("orders", core.Config{
					Observers:  []core.Observer{{Succeeded: fallbackSuccesses{&success}.Succeeded, HandleEnd: handleEnds{&ends}.HandleEnd}},
					Middleware: []core.Middleware{f.Middleware()}, Recoverability: retries,
				})
				b.handle(ep, "order", failsWith(b, func() error { attempts++; return errAway }))
				core.HandleFailed(ep, "order", func(context.Context, *core.TypedMessage[[]byte], *core.Failed) error {
					b.Error("HandleFailed runs")
					return nil
				})
				b.run(ep)
				b.put("m1")
				b.pass(time.Minute)
				want := 4
				if each || b.mode == core.TransactionNone {
					want = 1
				}
				equal(b, "attempts", attempts, want)
				equal(b, "sent", b.shipped(), "answer")
				b.holds("error", 0)
				b.holds("orders", 0)
				if b.mode == core.TransactionSendsAtomicWithReceive {
					equal(b, "committed", fmt.Sprint(b.broker.committed.all()), "[answer]")
				}
				if all := success.all(); len(all) != 1 || !errors.Is(all[0].Fallback, errAway) {
					b.Errorf("successes %v, want one by a fallback", all)
				}
				if all := ends.all(); len(all) != want || all[want-1].Err != nil || !errors.Is(all[want-1].Fallback, errAway) {
					b.Errorf("the last end is %v, want one by a fallback", all)
				}
				equal(b, "log lines", len(b.logs.about("a fallback handled the message")), 1)
			})
		})
	}
}

type fallbackSuccesses struct{ *record[core.Success] }

func (s fallbackSuccesses) Succeeded(_ context.Context, e core.Success) { s.add(e) }

type handleEnds struct{ *record[core.HandleEnd] }

func (s handleEnds) HandleEnd(_ context.Context, e core.HandleEnd) { s.add(e) }

// TestFallback_Filter compares what fallbacks take, by Invoke, which has one attempt.
func TestFallback_Filter(t *testing.T) {
	failures := map[string]func() error{
		"error":        func() error { return errBoom },
		"away":         func() error { return fmt.Errorf("wrapped: %w", errAway) },
		"open circuit": func() error { return core.ErrCircuitOpen },
		"refused":      func() error { return core.Refuse(core.ErrCircuitOpen, time.Second) },
		"rejected":     func() error { return core.Reject(errAway) },
		"undecodable":  func() error { return fmt.Errorf("%w: %w", core.ErrUndecodable, errAway) },
		"panic":        func() error { panic(errAway) },
		"panic told":   func() error { return fmt.Errorf("wrapped: %w", &core.PanicError{Value: errAway}) },
		"no handler":   func() error { return core.ErrNoHandler },
	}
	for name, c := range map[string]struct {
		on    core.FallbackOn
		takes []string
	}{
		"any":               {core.FallbackOn{Any: true}, []string{"error", "away", "open circuit"}},
		"open circuit":      {core.FallbackOn{OpenCircuit: true}, []string{"open circuit", "refused"}},
		"errors":            {core.FallbackOn{Errors: []error{errAway}}, []string{"away"}},
		"the circuit named": {core.FallbackOn{Errors: []error{core.ErrCircuitOpen}}, []string{"open circuit", "refused"}},
		"a function":        {core.FallbackOn{Func: func(err error) bool { return errors.Is(err, errAway) }}, []string{"away"}},
		"panics":            {core.FallbackOn{Panics: true}, []string{"panic", "panic told"}},
		"any and panics":    {core.FallbackOn{Any: true, Panics: true}, []string{"error", "away", "open circuit", "panic", "panic told"}},
		"verdicts":          {core.FallbackOn{Verdicts: true}, []string{"refused", "rejected"}},
		"undecodable named": {core.FallbackOn{Errors: []error{core.ErrUndecodable}}, []string{"undecodable"}},
		"no handler named":  {core.FallbackOn{Errors: []error{core.ErrNoHandler}}, []string{"no handler"}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				for failure, err := range failures {
					taken := false
					f := core.Fallback{On: c.on, Handle: func(context.Context, *core.Message, error) error { taken = true; return nil }}
					ep := b.endpoint("orders", core.Config{Middleware: []core.Middleware{f.Middleware()}})
					b.handle(ep, "order", func(context.Context, *core.Message) error { return err() })
					got := ep.Invoke(b.Context(), "order", []byte("x"))
					if want := slices.Contains(c.takes, failure); taken != want || (got == nil) != want {
						b.Errorf("%s: taken %t, Invoke returned %v; want it to be taken: %t", failure, taken, got, want)
					}
				}
			})
		})
	}
}

func TestFallback_AnOpenCircuitIsAnsweredAtOnce(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var recovered recoveries
		ep := b.endpoint("orders", core.Config{
			Observers: []core.Observer{recovered.observer()},
			Middleware: []core.Middleware{answers(b, core.FallbackOn{OpenCircuit: true, Any: true}).Middleware(), refuses(1, func(m *core.Message) bool {
				return m.ID == "m1"
			})},
			Recoverability: immediate(3),
		})
		b.handle(ep, "order", failsWith(b, func() error { return errBoom }))
		b.run(ep)
		b.put("m1")
		equal(b, "sent", b.shipped(), "answer")
		equal(b, "failed attempts", len(recovered.all()), 0)
		b.put("m2") // which waits for the last attempt
		equal(b, "sent", b.shipped(), "answer answer")
		equal(b, "failed attempts", len(recovered.all()), 3)
	})
}

func TestFallback_TheInnermostThatTakesTheFailureAnswers(t *testing.T) {
	bubble(t, func(b *bed) {
		var ran record[string]
		level := func(name string, on core.FallbackOn, types ...string) core.Middleware {
			return core.Fallback{On: on, MessageTypes: types, Handle: func(context.Context, *core.Message, error) error { ran.add(name); return nil }}.Middleware()
		}
		ep := b.endpoint("orders", core.Config{Middleware: []core.Middleware{
			level("endpoint", core.FallbackOn{Any: true}),
			level("type", core.FallbackOn{Any: true}, "order"),
			level("other type", core.FallbackOn{Any: true}, "other"),
		}})
		var err error
		handler := func(context.Context, *core.TypedMessage[[]byte]) error { return err }
		away := core.HandleOptions{Middleware: []core.Middleware{level("handler", core.FallbackOn{Errors: []error{errAway}})}}
		core.Handle(ep, "order", handler, away)
		core.Handle(ep, "third", handler)
		invoke := func(messageType string, fails error) {
			err = fails
			b.must(ep.Invoke(b.Context(), messageType, []byte("x")))
		}
		invoke("order", errAway)
		invoke("order", errBoom)
		invoke("third", errBoom)
		equal(b, "ran", fmt.Sprint(ran.all()), "[handler type endpoint]")
	})
}

func TestFallback_OfOneOfSeveralHandlers(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		for _, independent := range []bool{false, true} {
			ep := b.endpoint("orders", core.Config{Recoverability: noRetries})
			h := func(name string, err error) func(context.Context, *core.TypedMessage[[]byte]) error {
				return func(ctx context.Context, m *core.TypedMessage[[]byte]) error {
					work(ctx, name)
					b.must(m.Send("shipping", name, nil))
					return err
				}
			}
			plain := core.HandleOptions{Independent: independent}
			helped := core.HandleOptions{Independent: independent, Middleware: []core.Middleware{answers(b, core.FallbackOn{Any: true}).Middleware()}}
			core.Handle(ep, "order", h("first", nil), plain)
			core.Handle(ep, "order", h("second", errBoom), helped)
			core.Handle(ep, "order", h("third", nil), plain)
			r := b.run(ep)
			b.put("m1")
			equal(b, "sent", b.shipped(), "first answer third")
			if b.mode == core.TransactionSendsAtomicWithReceive {
				equal(b, "committed", fmt.Sprint(b.broker.committed.all()), "[first answer third]")
			}
			b.must(r.stop())
			b.broker.committed = record[string]{}
			_, err := b.broker.Purge(b.Context(), "shipping")
			b.must(err)
		}
	})
}

// A fallback that takes the failure of one independent handler does not hide that of another,
// whichever of them decides.
func TestFallback_TakesAllFailuresOfIndependentHandlersOrNone(t *testing.T) {
	refused := core.Refuse(core.ErrCircuitOpen, time.Second)
	away, panics := func(*core.Message) error { return errAway }, func(*core.Message) error { panic("nil map") }
	fails := func(err error) func(*core.Message) error { return func(*core.Message) error { return err } }
	for name, c := range map[string]struct {
		on    core.FallbackOn
		a, b  func(*core.Message) error
		takes bool
	}{
		"one that is not chosen, last":  {core.FallbackOn{Errors: []error{errAway}}, away, fails(errBoom), false},
		"one that is not chosen, first": {core.FallbackOn{Errors: []error{errAway}}, fails(errBoom), away, false},
		"a panic":                       {core.FallbackOn{Any: true}, away, panics, false},
		"a panic that is chosen":        {core.FallbackOn{Any: true, Panics: true}, away, panics, true},
		"a verdict":                     {core.FallbackOn{Any: true}, away, fails(core.Reject(errBoom)), false},
		"a verdict beside a circuit":    {core.FallbackOn{OpenCircuit: true}, fails(refused), fails(core.Reject(errBoom)), false},
		"an error beside a circuit":     {core.FallbackOn{OpenCircuit: true, Any: true}, fails(refused), away, true},
		"two circuits":                  {core.FallbackOn{OpenCircuit: true}, fails(refused), fails(core.ErrCircuitOpen), true},
		"two that are chosen":           {core.FallbackOn{Errors: []error{errAway, errBoom}}, away, fails(errBoom), true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				ep := b.endpoint("orders", core.Config{Middleware: []core.Middleware{answers(b, c.on).Middleware()}})
				b.independents(ep, &record[string]{}, map[string]func(*core.Message) error{"a": c.a, "b": c.b})
				err := ep.Invoke(b.Context(), "order", []byte("x"))
				if (err == nil) != c.takes {
					b.Errorf("Invoke returned %v; want it to be taken: %t", err, c.takes)
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
			inModes(t, retrying, func(b *bed) {
				f := core.Fallback{On: core.FallbackOn{Any: true}, Handle: func(ctx context.Context, m *core.Message, cause error) error {
					work(ctx, "answer")
					b.must(m.Send("shipping", "answer", nil))
					return c.answer()
				}}
				ep := b.endpoint("orders", core.Config{Middleware: []core.Middleware{f.Middleware()}, Recoverability: noRetries})
				b.handle(ep, "order", failsWith(b, func() error { return errAway }))
				last := 0
				core.HandleFailed(ep, "order", func(_ context.Context, _ *core.TypedMessage[[]byte], f *core.Failed) error {
					last++
					both, ok := errors.AsType[*core.FallbackError](f.Err)
					if !ok || !errors.Is(both, errAway) || !strings.Contains(both.Error(), "no answer") {
						b.Errorf("HandleFailed is told %v", f.Err)
					}
					return nil
				})
				b.run(ep)
				b.put("m1")
				b.holds("shipping", 0)
				equal(b, "committed", b.broker.committed.len(), 0)
				want := 0
				if c.moved {
					want = 1
				}
				b.holds("error", want)
				equal(b, "HandleFailed ran", last, want)
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
		"deferred":  func() error { return core.DeferError(&refusedError{errAway}, time.Second) },
		"discarded": func() error { return core.DiscardError(&refusedError{errAway}, "it is late") },
		"put back":  func() error { return core.PutBack(&refusedError{errAway}, core.Pause{}) },
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retrying, func(b *bed) {
				var recovered recoveries
				f := core.Fallback{On: core.FallbackOn{OpenCircuit: true, Verdicts: true}, EachAttempt: true, Handle: func(context.Context, *core.Message, error) error { return errBoom }}
				ep := b.endpoint("orders", core.Config{
					Observers: []core.Observer{recovered.observer()}, Middleware: []core.Middleware{f.Middleware()}, Recoverability: immediate(1),
				})
				b.handle(ep, "order", func(context.Context, *core.Message) error { return verdict() })
				core.HandleFailed(ep, "order", func(_ context.Context, _ *core.TypedMessage[[]byte], f *core.Failed) error {
					_, wraps := errors.AsType[*refusedError](f.Err)
					_, isVerdict := errors.AsType[*core.Verdict](f.Err)
					if !wraps || isVerdict || core.IsVerdict(f.Err) || !errors.Is(f.Err, errBoom) {
						b.Errorf("HandleFailed is told %v: wraps the cause %t, is a verdict %t", f.Err, wraps, isVerdict)
					}
					return nil
				})
				b.run(ep)
				b.put("m1")
				b.pass(time.Minute)
				equal(b, "recovered", recovered.kinds(), "ImmediateRetry MoveToError")
				b.holds("error", 1)
				b.holds("orders", 0)
			})
		})
	}
}

func TestFallback_VerdictDecidesAlone(t *testing.T) {
	bubble(t, func(b *bed) {
		var recovered recoveries
		f := core.Fallback{On: core.FallbackOn{OpenCircuit: true}, Handle: func(_ context.Context, _ *core.Message, cause error) error {
			return core.RetryAfter(cause, time.Minute)
		}}
		b.orders(core.Config{
			Observers:  []core.Observer{recovered.observer()},
			Middleware: []core.Middleware{f.Middleware(), refuses(1, func(*core.Message) bool { return true })},
		}, func(context.Context, *core.Message) error { return nil })
		b.put("m1")
		if all := recovered.all(); len(all) != 1 || all[0].Action != core.DelayedRetry(time.Minute) || all[0].Deferred {
			b.Errorf("decided %v, want the delayed retry of the fallback", all)
		}
	})
}

func TestFallback_NotAfterTheEndOfTheContext(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		f := core.Fallback{On: core.FallbackOn{Any: true, Errors: []error{core.ErrHandlerTimeout}}, EachAttempt: true, Handle: func(context.Context, *core.Message, error) error {
			b.Error("the fallback runs")
			return nil
		}}
		ep := b.endpoint("orders", core.Config{Middleware: []core.Middleware{f.Middleware()}, HandlerTimeout: time.Second, Recoverability: noRetries})
		b.handle(ep, "order", func(ctx context.Context, _ *core.Message) error { <-ctx.Done(); return ctx.Err() })
		b.run(ep)
		b.put("m1")
		b.pass(time.Minute)
		b.only("error")
	})
}

func TestFallback_RollbackThatFailsFailsTheAttempt(t *testing.T) {
	bubble(t, func(b *bed) {
		b.broker.provoke(fails("Rollback"))
		f := core.Fallback{On: core.FallbackOn{Any: true}, Handle: func(context.Context, *core.Message, error) error {
			b.Error("the fallback runs")
			return nil
		}}
		ep := b.endpoint("orders", core.Config{Middleware: []core.Middleware{f.Middleware()}, Recoverability: noRetries})
		b.handle(ep, "order", failsWith(b, func() error { return errAway }))
		b.run(ep)
		b.put("m1")
		b.only("error")
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
			bubble(t, func(b *bed) {
				_, err := core.New("orders", b.broker, core.Config{Middleware: []core.Middleware{c.fallback.Middleware()}, Recoverability: c.recoverability})
				if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
					b.Errorf("New returned %v, want %q", err, c.says)
				}
			})
		})
	}
	inModesOn(t, able(func(c *core.Capabilities) { c.Savepoints = false }), everyMode, func(b *bed) {
		f := core.Fallback{On: core.FallbackOn{Any: true}, Handle: answer}
		_, err := core.New("orders", b.broker, core.Config{Transactions: b.mode, Middleware: []core.Middleware{f.Middleware()}})
		equal(b, "refused", errors.Is(err, errors.ErrUnsupported), b.mode == core.TransactionSendsAtomicWithReceive)
	})
}

func TestFallback_OutsideOfAnEndpoint(t *testing.T) {
	in, sent := coretest.Message("order", "body")
	f := core.Fallback{On: core.FallbackOn{Any: true}, Handle: func(_ context.Context, m *core.Message, _ error) error { return m.Send("shipping", "answer", nil) }}
	err := f.Middleware()(func(context.Context, *core.Message) error { return errBoom })(t.Context(), in.Message)
	if err != nil || len(sent.Sent()) != 1 {
		t.Errorf("returned %v, sent %v", err, sent.Sent())
	}
	if err := (core.Fallback{}).Middleware()(nil)(t.Context(), in.Message); err == nil {
		t.Error("a fallback without a filter returned nil")
	}
}
