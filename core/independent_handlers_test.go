package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// handleIndependently registers independent handlers of "order", by the order of their
// names.
func (fx *fixture) handleIndependently(ep *core.Endpoint, ran *recorder[string], handlers map[string]func(m *core.Message) error) {
	fx.Helper()
	var names []string
	for name := range handlers {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		core.Handle(ep, orderType, func(ctx context.Context, m *core.Message, _ []byte) error {
			ran.add(name)
			doWork(ctx, name)
			fx.noError(m.Send("shipping", core.NewMessageType[[]byte](name).Of(nil)))
			return handlers[name](m)
		}, core.HandleOptions{Independent: true})
	}
}

func TestIndependent_AllRunInEachAttempt(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		for name, fails := range map[string]func(){
			"error": func() {}, "panic": func() { panic("boom") },
		} {
			ran := &recorder[string]{}
			var recovered recoveryRecorder
			ep := fx.newEndpoint("orders", core.Config{Recoverability: immediateRetries(2), Observers: []core.Observer{recovered.observer()}})
			succeed := func(*core.Message) error { return nil }
			fx.handleIndependently(ep, ran, map[string]func(m *core.Message) error{"a": succeed, "c": succeed, "b": func(m *core.Message) error {
				if m.Attempt < 3 {
					fx.wantDepthNow("shipping", 0)
					fails()
					return errBoom
				}
				return nil
			}})
			r := fx.run(ep)
			fx.enqueue("m1")
			equal(fx, name+": ran", strings.Join(ran.all(), ""), "abcabcabc")
			equal(fx, name+": sent", fx.shippedTypes(), "a b c")
			if fx.mode == core.TransactionSendsAtomicWithReceive {
				equal(fx, name+": committed", strings.Join(fx.broker.committed.all(), ""), "abc")
			}
			for _, e := range recovered.all() {
				if !strings.Contains(e.Failure.Handler, "handleIndependently") {
					fx.Errorf("the handler that failed is %q", e.Failure.Handler)
				}
			}
			fx.noError(r.stop())
			fx.broker.committed = recorder[string]{}
			_, err := fx.broker.Purge(fx.Context(), "shipping")
			fx.noError(err)
		}
	})
}

func TestIndependent_TheWorkOfOneIsUndoneAlone(t *testing.T) {
	bubble(t, func(fx *fixture) {
		swallow := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				if err := next(ctx, m); !errors.Is(err, errBoom) {
					fx.Errorf("the error is %v", err)
				}
				return nil
			}
		}
		var ran recorder[string]
		ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(swallow)}})
		fx.handleIndependently(ep, &ran, map[string]func(m *core.Message) error{
			"a": func(*core.Message) error { return nil },
			"b": func(*core.Message) error { return errBoom },
			"c": func(*core.Message) error { return nil },
		})
		fx.run(ep)
		fx.enqueue("m1")
		equal(fx, "committed", strings.Join(fx.broker.committed.all(), ""), "ac")
		fx.wantDepth("shipping", 0)
	})
}

func TestIndependent_StopsWhereTheWorkCannotBeUndone(t *testing.T) {
	for _, operation := range []string{"Savepoint", "Rollback"} {
		t.Run(operation, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				fx.broker.setFaults(failOperation(operation))
				var ran recorder[string]
				ep := fx.newEndpoint("orders", core.Config{Recoverability: noRetries})
				fx.handleIndependently(ep, &ran, map[string]func(m *core.Message) error{
					"a": func(*core.Message) error { return errors.New("failed") },
					"b": func(*core.Message) error { return nil },
				})
				fx.run(ep)
				fx.enqueue("m1")
				want := "a"
				if operation == "Savepoint" {
					want = ""
				}
				equal(fx, "ran", strings.Join(ran.all(), ""), want)
				fx.onlyMessage("error")
				equal(fx, "committed", fx.broker.committed.len(), 0)
			})
		})
	}
}

func TestIndependent_WithoutSavepoints(t *testing.T) {
	bubbleWith(t, withCapabilities(func(c *core.Capabilities) { c.Savepoints = false }), func(fx *fixture) {
		var ran recorder[string]
		ep := fx.newEndpoint("orders", core.Config{Recoverability: immediateRetries(1)})
		fx.handleIndependently(ep, &ran, map[string]func(m *core.Message) error{
			"a": func(m *core.Message) error {
				if m.Attempt == 1 {
					return errBoom
				}
				return nil
			},
			"b": func(*core.Message) error { return nil },
		})
		fx.run(ep)
		fx.enqueue("m1")
		equal(fx, "ran", strings.Join(ran.all(), ""), "abab")
		equal(fx, "committed", strings.Join(fx.broker.committed.all(), ""), "ab")
	})
}

func TestIndependent_CancellationEndsTheLaterOnes(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var ran recorder[string]
		ep := fx.newEndpoint("orders", core.Config{HandlerTimeout: time.Second, Recoverability: noRetries})
		fx.handleIndependently(ep, &ran, map[string]func(m *core.Message) error{
			"a": func(*core.Message) error { time.Sleep(2 * time.Second); return nil },
			"b": func(*core.Message) error { return nil },
		})
		fx.run(ep)
		fx.enqueue("m1")
		fx.advance(time.Minute)
		equal(fx, "ran", strings.Join(ran.all(), ""), "a")
		moved := fx.onlyMessage("error")
		if text := moved.Headers.Get(headers.ExceptionMessage); !strings.Contains(text, "before this handler ran") {
			fx.Errorf("the failure is %q", text)
		}
		fx.wantDepth("shipping", 0)
	})
}

func TestIndependent_SkipsNone(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var ran recorder[string]
		ep := fx.newEndpoint("orders", core.Config{})
		fx.handleIndependently(ep, &ran, map[string]func(m *core.Message) error{
			"a": func(m *core.Message) error { m.SkipRemainingHandlers(); return nil },
			"b": func(*core.Message) error { return nil },
		})
		fx.run(ep)
		fx.enqueue("m1")
		equal(fx, "ran", strings.Join(ran.all(), ""), "ab")
	})
}

func TestIndependent_IDsDoNotDependOnOtherHandlers(t *testing.T) {
	bubble(t, func(fx *fixture) {
		ids := map[string][]string{}
		ep := fx.newEndpoint("orders", core.Config{Recoverability: immediateRetries(1)})
		for _, name := range []string{"a", "b"} {
			core.Handle(ep, orderType, func(ctx context.Context, m *core.Message, _ []byte) error {
				if name == "a" && m.Attempt == 2 {
					fx.noError(m.Send("shipping", attemptType.Of(nil)))
				}
				fx.noError(m.SendNow(ctx, "shipping", core.NewMessageType[[]byte](name).Of(nil)))
				if m.Attempt == 1 {
					return errBoom
				}
				return nil
			}, core.HandleOptions{Independent: true})
		}
		fx.run(ep)
		fx.enqueue("m1")
		for _, m := range fx.messages("shipping") {
			name := m.Headers.Get(headers.MessageTypes)
			ids[name] = append(ids[name], m.ID)
		}
		if got := ids["b"]; len(got) != 2 || got[0] != got[1] {
			fx.Errorf("the ids of b are %q, want one id twice", got)
		}
		if slices.Contains(ids["a"], ids["b"][0]) {
			fx.Errorf("a and b share an id: %q", ids)
		}
	})
}

func TestIndependent_AllOrNone(t *testing.T) {
	bubble(t, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{})
		h := func(context.Context, *core.Message, []byte) error { return nil }
		core.Handle(ep, orderType, h, core.HandleOptions{Independent: true})
		core.Handle(ep, orderType, h)
		if err := ep.Err(); err == nil || !strings.Contains(err.Error(), "independent") {
			fx.Errorf("a handler that is not independent beside one that is: %v", err)
		}
		core.Handle(ep, orderType, h, core.HandleOptions{Independent: true}, core.HandleOptions{})
		if err := ep.Err(); err == nil || !strings.Contains(err.Error(), "2 HandleOptions") {
			fx.Errorf("two HandleOptions: %v", err)
		}
	})
}

// TestIndependent_Precedence compares each pair of answers, in both orders of the handlers.
func TestIndependent_Precedence(t *testing.T) {
	answers := []struct {
		name string
		err  func() error
	}{ // the first decides
		{"retry after a minute", func() error { return core.RetryAfter(errors.New("later"), time.Minute) }},
		{"error", func() error { return errors.New("failed") }},
		{"defer", func() error { return core.Defer(errors.New("not yet"), time.Hour) }},
		{"refused", func() error { return core.Refuse(core.ErrCircuitOpen, 2*time.Hour) }},
		{"put back", func() error { return core.PutBack(errors.New("not ready"), time.Minute) }},
		{"reject", func() error { return core.GiveUpTo(errors.New("rejected"), core.DeadLetterQueue) }},
		{"invalid", func() error { return core.GiveUpTo(errors.New("invalid"), core.InvalidQueue) }},
		{"unrecoverable", func() error { return core.GiveUp(errors.New("unrecoverable")) }},
		{"move", func() error { return core.GiveUpTo(errors.New("moved"), "shipping") }},
		{"discard", func() error { return core.Discard(errors.New("done")) }},
	}
	decide := func(t *testing.T, errs ...error) (got core.Recovery) {
		t.Helper()
		bubble(t, func(fx *fixture) {
			var recovered recoveryRecorder
			ep := fx.newEndpoint("orders", core.Config{
				Observers:      []core.Observer{recovered.observer()},
				Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second}, InvalidQueue: "invalid"},
			})
			for _, err := range errs {
				core.Handle(ep, orderType, func(context.Context, *core.Message, []byte) error { return err }, core.HandleOptions{Independent: true})
			}
			fx.run(ep)
			fx.enqueue("m1")
			got = recovered.all()[0]
		})
		return got
	}
	for i, first := range answers {
		alone := decide(t, first.err())
		for _, second := range answers[i+1:] {
			for name, errs := range map[string][]error{
				first.name + " before " + second.name: {first.err(), second.err()},
				second.name + " before " + first.name: {second.err(), first.err()},
			} {
				got := decide(t, errs...)
				if got.Action != alone.Action {
					t.Errorf("%s: %v, want %v", name, got.Action, alone.Action)
				}
				failures, ok := errors.AsType[*core.HandlersError](got.Failure.Err)
				if !ok || len(failures.Failures) != 2 || !strings.HasPrefix(got.Failure.Err.Error(), "2 of 2 handlers failed: ") {
					t.Errorf("%s: the error is %v", name, got.Failure.Err)
				}
			}
		}
	}
	if got := decide(t, core.Defer(errors.New("not yet"), time.Second), core.Defer(errors.New("not yet"), time.Hour)); got.Action.Delay != time.Hour {
		t.Errorf("of two Defer the delay is %v, want the longer one", got.Action.Delay)
	}
}

// The stack of a panic is told although the failure of another handler decides.
func TestIndependent_LogsThePanicThatDoesNotDecide(t *testing.T) {
	bubble(t, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{Recoverability: noRetries})
		for _, h := range []core.HandlerFunc{func(context.Context, *core.Message) error { return errBoom }, panicsWithText} {
			core.Handle(ep, orderType, func(ctx context.Context, m *core.Message, _ []byte) error { return h(ctx, m) }, core.HandleOptions{Independent: true})
		}
		fx.run(ep)
		fx.enqueue("m1")
		const want = "github.com/reprise-go/reprise/core_test.panicsWithText"
		equal(fx, "frame in the error queue", firstFrame(fx.onlyMessage("error").Headers.Get(headers.ExceptionStackTrace)), want)
		line := fx.logs.find("moving message to the error queue", "message_id", "m1")[0]
		equal(fx, "frame in the log", firstFrame(fmt.Sprint(line.attrs["stack"])), want)
	})
}

func TestIndependent_LimitsEndTheWishForARetry(t *testing.T) {
	errNever := errors.New("never")
	bubble(t, func(fx *fixture) {
		var recovered recoveryRecorder
		ep := fx.newEndpoint("orders", core.Config{
			Observers: []core.Observer{recovered.observer()},
			Recoverability: core.Recoverability{
				Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}, RequeueLimit: 1, RetryAfterLimit: 30 * time.Second,
				Unrecoverable: []error{errNever},
			},
		})
		deferrals := 0
		for _, h := range []func(m *core.Message) error{
			func(*core.Message) error { return core.RetryAfter(errBoom, time.Minute) }, // granted once
			func(*core.Message) error { return errNever },
			func(*core.Message) error { deferrals++; return core.Defer(errors.New("not yet"), time.Second) },
		} {
			core.Handle(ep, orderType, func(_ context.Context, m *core.Message, _ []byte) error { return h(m) }, core.HandleOptions{Independent: true})
		}
		fx.run(ep)
		fx.enqueue("m1")
		fx.advance(2 * time.Minute)
		equal(fx, "runs of the handler that defers", deferrals, 3)
		fx.onlyMessage("error")
	})
}

// FuzzIndependent lets handlers end as the bytes say: in any order, every handler that
// can succeed has succeeded when the message is consumed without a move.
func FuzzIndependent(f *testing.F) {
	f.Add([]byte{3, 0, 1, 7, 0, 0, 0})
	f.Add([]byte{2, 6, 1, 6, 0})
	f.Add([]byte{4, 2, 3, 4, 5, 6, 7, 8, 0, 0, 1, 1})
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) < 2 || len(script) > 60 {
			return
		}
		n := int(script[0])%4 + 1
		next := func(handler, run int) byte {
			if i := 1 + run*n + handler; i < len(script) {
				return script[i]
			}
			return 0
		}
		synctest.Test(t, func(t *testing.T) {
			fx := newFixture(t, withCapabilities(func(*core.Capabilities) {}), retryModes[int(script[1])%2])
			var recovered recoveryRecorder
			ep := fx.newEndpoint("orders", core.Config{Observers: []core.Observer{recovered.observer()}, Recoverability: core.Recoverability{
				Immediate: core.Immediate{NumberOfRetries: 2}, Delayed: core.Delayed{NumberOfRetries: 2, TimeIncrease: time.Second}, RequeueLimit: 5,
			}})
			runs, succeeded, gaveUp := make([]int, n), make([]bool, n), make([]bool, n)
			for h := range n {
				core.Handle(ep, orderType, func(_ context.Context, m *core.Message, _ []byte) error {
					outcome := next(h, runs[h])
					runs[h]++
					succeeded[h], gaveUp[h] = false, false
					fx.noError(m.Send("shipping", core.NewMessageType[[]byte](fmt.Sprint(h)).Of(nil)))
					switch outcome % 8 {
					case 1:
						return errBoom
					case 2:
						panic("boom")
					case 3:
						return core.Defer(errors.New("not yet"), time.Second)
					case 4:
						return core.RetryAfter(errBoom, time.Second)
					case 5:
						return core.GiveUp(errBoom)
					case 6:
						gaveUp[h] = true
						return core.Discard(errors.New("enough"))
					case 7:
						return core.GiveUpTo(errBoom, "error")
					}
					succeeded[h] = true
					return nil
				}, core.HandleOptions{Independent: true})
			}
			fx.run(ep)
			fx.enqueue("m1")
			fx.advance(time.Hour)
			fx.wantDepth("orders", 0)
			if total(fx.depth("error")) == 1 {
				fx.wantDepth("shipping", 0)
				return
			}
			discarded := false
			for h := range n {
				if !succeeded[h] && !gaveUp[h] {
					fx.Errorf("the message is gone, but handler %d of %d neither succeeded nor gave it up in its last run", h, n)
				}
				discarded = discarded || gaveUp[h]
			}
			want := n
			if discarded {
				want = 0
			}
			fx.wantDepth("shipping", want)
		})
	})
}
