package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
)

type noteKey struct{}

// successObserver returns an observer that calls f for each message that is done.
func successObserver(f func(core.Handling)) core.Observer {
	return core.Observer{Succeeded: func(_ context.Context, e core.Handling) { f(e) }}
}

func TestAttemptValues_ReachTheDecisionOfTheirAttempt(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var policy, resort, told recorder[any]
		outer := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				equal(fx, "value at the start of an attempt", m.Value(noteKey{}), nil)
				m.SetValue("outer", "by middleware")
				_ = next(ctx, m) // a run that fails
				return next(ctx, m)
			}
		}
		inner := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error { return next(ctx, m) }
		}
		recover := core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: core.Off}}
		recover.Policy = func(ctx context.Context, c core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
			policy.add(f.Message.Value(noteKey{}))
			equal(fx, "value of middleware", f.Message.Value("outer"), any("by middleware"))
			equal(fx, "value under another key", f.Message.Value("noteKey"), nil)
			if m, ok := core.MessageFromContext(ctx); !ok || m.Value(noteKey{}) != f.Message.Value(noteKey{}) {
				fx.Error("the policy's message has other values")
			}
			return core.DefaultPolicy(ctx, c, f)
		}
		ep := fx.newEndpoint("orders", core.Config{
			Recoverability: recover, Middleware: []core.Middleware{core.MiddlewareFunc(outer), core.MiddlewareFunc(inner)},
			Observers: []core.Observer{onRecovery(func(_ context.Context, e core.Recovery) {
				told.add(fmt.Sprint(e.Failure.Message.Value(noteKey{}), " ", e.Failure.Message.Value("HandleFailed")))
			})},
		})
		runs := 0
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			runs++
			if runs%2 == 0 {
				equal(fx, "value of the earlier run", m.Value(noteKey{}), any(fmt.Sprint("run ", runs-1)))
			}
			m.SetValue(noteKey{}, fmt.Sprint("run ", runs))
			return errBoom
		})
		core.HandleFailed(ep, orderType, func(_ context.Context, m *core.Message, _ []byte, _ *core.Failed) error {
			resort.add(m.Value(noteKey{}))
			m.SetValue("HandleFailed", "ran")
			return nil
		})
		fx.run(ep)
		fx.enqueue("m1")
		fx.onlyMessage("error")
		equal(fx, "in the policy", fmt.Sprint(policy.all()), "[run 2 run 4]")
		equal(fx, "in HandleFailed", fmt.Sprint(resort.all()), "[run 4]")
		equal(fx, "told to the observer", fmt.Sprint(told.all()), "[run 2 <nil> run 4 ran]")
	})
}

// Nothing was noted down before HandleFailed did.
func TestAttemptValues_OfHandleFailedReachTheRecoveryObserver(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var told recorder[any]
		fx.runHandleFailed(core.Config{Recoverability: noRetries, Observers: []core.Observer{onRecovery(func(_ context.Context, e core.Recovery) {
			told.add(e.Failure.Message.Value(noteKey{}))
		})}}, func(_ context.Context, m *core.Message, _ *core.Failed) error {
			m.SetValue(noteKey{}, "noted")
			return nil
		})
		fx.enqueue("m1")
		equal(fx, "told to the observer", fmt.Sprint(told.all()), "[noted]")
	})
}

func TestAttemptValues_CostNothingWhereThereAreNone(t *testing.T) {
	m, _, _ := coretest.Message(core.NewMessageType[string]("t"), "x")
	if n := testing.AllocsPerRun(100, func() { _ = m.Value(noteKey{}) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAttemptValues_ReachTheSuccessObserver(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var seen recorder[any]
		fx.runOrders(core.Config{Concurrency: 1, Observers: []core.Observer{successObserver(func(e core.Handling) { seen.add(e.Message.Value(noteKey{})) })}}, func(_ context.Context, m *core.Message) error {
			m.SetValue(noteKey{}, m.ID)
			return nil
		})
		fx.enqueue("m1", "m2")
		equal(fx, "seen", fmt.Sprint(seen.all()), "[m1 m2]")
	})
}

// No message and no attempt sees the values of another.
func TestAttemptValues_BelongToOneAttempt(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		const messages, attempts = 64, 3
		var mu sync.Mutex
		decided := map[string]int{}
		recover := core.Recoverability{Immediate: core.Immediate{NumberOfRetries: attempts - 1}, Delayed: core.Delayed{NumberOfRetries: core.Off}}
		recover.Policy = func(ctx context.Context, c core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
			if want := fmt.Sprint(f.Message.ID, " ", f.ImmediateProcessingFailures); f.Message.Value(noteKey{}) != want {
				fx.Errorf("the policy sees %v in %s", f.Message.Value(noteKey{}), want)
			}
			mu.Lock()
			decided[f.Message.ID]++
			mu.Unlock()
			return core.DefaultPolicy(ctx, c, f)
		}
		fx.runOrders(core.Config{Concurrency: 16, Recoverability: recover}, func(_ context.Context, m *core.Message) error {
			if v := m.Value(noteKey{}); v != nil {
				fx.Errorf("attempt %d of %s begins with %v", m.Attempt, m.ID, v)
			}
			var wg sync.WaitGroup
			for i := range 4 { // safe for concurrent use
				wg.Go(func() {
					m.SetValue(i, i)
					m.SetValue(noteKey{}, fmt.Sprint(m.ID, " ", m.Attempt))
					_ = m.Value(i)
				})
			}
			wg.Wait()
			time.Sleep(time.Second) // until all slots are taken
			return errBoom
		})
		for i := range messages {
			fx.send(order(fmt.Sprint("m", i)))
		}
		fx.advance(time.Hour)
		fx.wantDepth("error", messages)
		for id, n := range decided {
			equal(fx, "decisions about "+id, n, attempts)
		}
	})
}

func TestErrorContext_HasTheMessage(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var seen recorder[*core.Message]
		recover := noRetries
		recover.Policy = func(_ context.Context, _ core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
			seen.add(f.Message)
			f.Message.Properties()["p"] = "written by the policy"
			return core.MoveToError(""), nil
		}
		var nativeID string
		fx.broker.setFaults(faults{onReceive: func(in *core.Incoming) { nativeID = in.NativeID }})
		fx.runOrders(core.Config{Recoverability: recover}, func(context.Context, *core.Message) error { return errBoom })
		out := order("m1")
		out.GroupKey, out.Properties = "g", map[string]string{"p": "v"}
		fx.send(out)
		moved := fx.onlyMessage("error")
		equal(fx, "property of the moved message", moved.Properties["p"], "v")
		m := seen.all()[0]
		if m.NativeID() == "" || m.NativeID() != nativeID || m.GroupKey() != "g" || m.Properties()["p"] != "v" {
			fx.Errorf("the policy sees %q, %q, %v", m.NativeID(), m.GroupKey(), m.Properties())
		}
	})
}

func TestMiddleware_ItsContextReachesTheHandler(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var seen recorder[any]
		adds := func(key, value string) core.MiddlewareFunc {
			return func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					//nolint:staticcheck // the key is the test's
					return next(context.WithValue(ctx, key, value), m)
				}
			}
		}
		fx.runOrders(core.Config{Middleware: []core.Middleware{adds("a", "outer"), adds("b", "inner")}}, func(ctx context.Context, _ *core.Message) error {
			seen.add(fmt.Sprint(ctx.Value("a"), " ", ctx.Value("b")))
			return nil
		})
		fx.enqueue("m1")
		equal(fx, "seen", fmt.Sprint(seen.all()), "[outer inner]")
	})
}

// tracedLog keeps for each line whether its context has the attempt's span.
type tracedLog struct {
	logHandler
	lines *recorder[string]
}

func (h tracedLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return tracedLog{h.logHandler.WithAttrs(attrs).(logHandler), h.lines}
}

func (h tracedLog) Handle(ctx context.Context, r slog.Record) error {
	text := r.Message
	about, noAttempt := strings.Contains(text, "m1"), false
	r.Attrs(func(a slog.Attr) bool {
		// No handler runs in the later deliveries of a stored message.
		noAttempt = noAttempt || a.Key == "tries" && a.Value.Int64() > 1
		about = about || strings.Contains(fmt.Sprint(a.Value), "m1")
		return true
	})
	if about && !noAttempt {
		h.lines.add(fmt.Sprint(ctx.Value(traceKey{}) == "span of m1", ": ", text))
	}
	return h.logHandler.Handle(ctx, r)
}

// Each line about a failed attempt belongs to the attempt's trace.
func TestLog_LinesAboutAFailureHaveTheContextOfItsObservers(t *testing.T) {
	fail := func(err error) core.HandlerFunc { return func(context.Context, *core.Message) error { return err } }
	once := func(err error) core.HandlerFunc {
		return func(_ context.Context, m *core.Message) error {
			if m.Attempt+m.DelayedRetries+m.Deferrals > 1 {
				return nil
			}
			return err
		}
	}
	cases := map[string]struct {
		handler core.HandlerFunc
		recover core.Recoverability
		last    func(*core.Failed) error
		faults  func() faults
		want    string // in a line
	}{
		"immediate retry":     {once(errBoom), immediateRetries(1), nil, nil, "retrying message immediately"},
		"delayed retry":       {once(errBoom), core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}}, nil, nil, "retrying message after a delay"},
		"deferral":            {once(core.Defer(errors.New("not yet"), time.Second)), noRetries, nil, nil, "deferring message"},
		"discard":             {fail(core.Discard(errors.New("why"))), noRetries, nil, nil, "discarding message"},
		"move":                {fail(errBoom), noRetries, nil, nil, "moving message to the error queue"},
		"panic":               {func(context.Context, *core.Message) error { panic("boom") }, noRetries, nil, nil, "moving message to the error queue"},
		"missing queue":       {fail(core.GiveUpTo(errBoom, "nowhere")), noRetries, nil, nil, "does not exist"},
		"HandleFailed fails":  {fail(errBoom), noRetries, func(*core.Failed) error { return errBoom }, nil, "HandleFailed failed"},
		"HandleFailed":        {fail(errBoom), noRetries, func(f *core.Failed) error { f.TakeOver(); return nil }, nil, "took the message over"},
		"policy panics":       {fail(errBoom), panickingPolicy, nil, nil, "policy failed"},
		"error queue is away": {fail(errBoom), noRetries, nil, func() faults { return refuseOnce("error", 1) }, "is stored in the endpoint's own queue"},
		"all is away":         {fail(errBoom), noRetries, nil, func() faults { return failSends(3) }, "critical error"},
		"abandon fails":       {once(errBoom), immediateRetries(1), nil, func() faults { return failSettlement("Abandon", 12) }, "critical error"},
		"settled":             {once(errBoom), immediateRetries(1), nil, func() faults { return failSettlement("Abandon", 1) }, "is tried again while its lock holds"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
				var lines recorder[string]
				log := slog.New(tracedLog{logHandler{recorder: fx.logs}, &lines})
				ep := fx.newEndpoint("orders", core.Config{Logger: log, Recoverability: c.recover, Observers: []core.Observer{tracing{}.observer()}})
				fx.handle(ep, "order", c.handler)
				if c.last != nil {
					core.HandleFailed(ep, orderType, func(_ context.Context, _ *core.Message, _ []byte, f *core.Failed) error { return c.last(f) })
				}
				if c.faults != nil {
					fx.broker.setFaults(c.faults())
				}
				fx.run(ep)
				fx.enqueue("m1")
				fx.advance(time.Minute)
				found := false
				for _, line := range lines.all() {
					traced, text, _ := strings.Cut(line, ": ")
					if traced != "true" {
						fx.Errorf("outside of the attempt's trace: %s", text)
					}
					found = found || strings.Contains(text, c.want)
				}
				if !found {
					fx.Errorf("no line with %q in %q", c.want, lines.all())
				}
			})
		})
	}
}

var panickingPolicy = func() core.Recoverability {
	r := noRetries
	r.Policy = func(context.Context, core.RecoverabilityConfig, core.ErrorContext) (core.Action, error) {
		panic("boom")
	}
	return r
}()

// failSettlement makes the first n settlements of one kind fail.
func failSettlement(operation string, times int) faults {
	n := 0
	return faults{settle: func(op string, _ *core.Incoming) error {
		if op != operation {
			return nil
		}
		if n++; n <= times {
			return errBoom
		}
		return nil
	}}
}

// failSends makes the first n sends fail.
func failSends(times int) faults {
	n := 0
	return faults{send: func([]core.Outgoing) error {
		if n++; n <= times {
			return errBoom
		}
		return nil
	}}
}
