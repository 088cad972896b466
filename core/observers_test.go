package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// onRecovery returns an observer that calls f for each failed message.
func onRecovery(f func(ctx context.Context, e core.Recovery)) core.Observer {
	return core.Observer{Recovered: f}
}

// Rule R32.
func TestObserver_SlowDelaysNothing(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		release := make(chan struct{})
		var seen recorder[string]
		slow := onRecovery(func(_ context.Context, e core.Recovery) {
			<-release
			seen.add(e.Failure.Message.ID)
		})
		recover := core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}}
		ep, run := fx.runOrders(core.Config{Recoverability: recover, Observers: []core.Observer{slow}}, func(context.Context, *core.Message) error { return errBoom })
		for i := range 1200 {
			fx.send(order(fmt.Sprint("m", i)))
		}
		fx.wantDepth("error", 1200)
		// One is being told, 1,000 are queued.
		equal(fx, "dropped", ep.Health().NotificationsDropped, int64(199))
		close(release)
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		equal(fx, "told, all before Run returned", seen.len(), 1001)
	})
}

// Rule R32.
func TestObserver_HangingIsLeftBehind(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		release := make(chan struct{})
		stuck := onRecovery(func(context.Context, core.Recovery) { <-release })
		_, run := fx.runOrders(core.Config{Recoverability: noRetries, Observers: []core.Observer{stuck}}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		start := time.Now()
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		equal(fx, "time to stop", time.Since(start), 4*time.Second)
		equal(fx, "lines", len(fx.logs.find("has not returned; it is left behind")), 1)
		close(release)
	})
}

// panickingObserver panics in each function of an observer.
type panickingObserver struct{}

func (panickingObserver) HandleStart(context.Context, core.Handling) context.Context {
	panic("HandleStart")
}
func (panickingObserver) HandleEnd(context.Context, core.Handling) { panic("HandleEnd") }
func (panickingObserver) SendStart(context.Context, core.Sending) context.Context {
	panic("SendStart")
}
func (panickingObserver) SendEnd(context.Context, core.Sending)    { panic("SendEnd") }
func (panickingObserver) Succeeded(context.Context, core.Handling) { panic("Succeeded") }
func (panickingObserver) Recovered(context.Context, core.Recovery) { panic("Recovered") }
func (panickingObserver) RateLimitChanged(context.Context, *core.Endpoint, bool) {
	panic("RateLimitChanged")
}

func (p panickingObserver) observer() core.Observer {
	return core.Observer{HandleStart: p.HandleStart, HandleEnd: p.HandleEnd, SendStart: p.SendStart, SendEnd: p.SendEnd, Succeeded: p.Succeeded, Recovered: p.Recovered, RateLimitChanged: p.RateLimitChanged}
}

// Rule R32.
func TestObserver_PanicsChangeNothing(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var after calls
		recover := rateLimitedConfig(1)
		fx.runOrders(core.Config{Recoverability: recover, Observers: []core.Observer{panickingObserver{}.observer(), after.observer()}}, func(_ context.Context, m *core.Message) error {
			if m.Attempt == 1 {
				return errBoom
			}
			return m.Send("shipping", shipType.Of("x"))
		})
		fx.enqueue("m1")
		time.Sleep(10 * time.Second)
		fx.wantDepth("orders", 0)
		fx.wantDepth("shipping", 1)
		var panics []string
		for _, line := range fx.logs.find("panicked") {
			equal(fx, "level", line.level, slog.LevelError)
			panics = append(panics, fmt.Sprint(line.attrs["panic"]))
		}
		slices.Sort(panics)
		want := []string{
			"HandleEnd", "HandleEnd", "HandleStart", "HandleStart", "RateLimitChanged", "RateLimitChanged",
			"Recovered", "SendEnd", "SendStart", "Succeeded",
		}
		if !slices.Equal(panics, want) {
			fx.Errorf("logged panics of %v, want %v", panics, want)
		}
		equal(fx, "calls of the other observer", after.len(), 7)
	})
}

// calls notes the notifications of inline observers, in order.
type calls struct{ recorder[string] }

type callKey struct{}

func (c *calls) HandleStart(ctx context.Context, e core.Handling) context.Context {
	c.add(fmt.Sprint("handle ", e.Message.ID, " ", e.Message.Attempt, " ", e.Queue))
	return context.WithValue(ctx, callKey{}, "traced")
}

func (c *calls) HandleEnd(ctx context.Context, e core.Handling) {
	c.add(fmt.Sprint("handled ", e.Err, " ", e.Duration, " ", ctx.Value(callKey{})))
}

func (c *calls) Succeeded(ctx context.Context, e core.Handling) {
	c.add(fmt.Sprint("done ", e.Message.ID, " ", ctx.Value(callKey{})))
}

func (c *calls) SendStart(ctx context.Context, e core.Sending) context.Context {
	for i := range e.Messages {
		e.Messages[i].Headers.Set("Trace", "on "+e.Messages[i].Queue)
	}
	c.add(fmt.Sprint("send ", e.Messages[0].Queue, " ", ctx.Value(callKey{})))
	return ctx
}

func (c *calls) SendEnd(_ context.Context, e core.Sending) { c.add(fmt.Sprint("sent ", e.Err)) }

func (c *calls) observer() core.Observer {
	return core.Observer{HandleStart: c.HandleStart, HandleEnd: c.HandleEnd, Succeeded: c.Succeeded, SendStart: c.SendStart, SendEnd: c.SendEnd}
}

func TestObservers_SeeAttemptsAndSendsInOrder(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var seen calls
		fx.runOrders(core.Config{Observers: []core.Observer{seen.observer()}, Recoverability: core.Recoverability{Unrecoverable: []error{errBoom}}}, func(ctx context.Context, m *core.Message) error {
			if ctx.Value(callKey{}) != "traced" {
				fx.Error("the handler's context lacks the value of HandleStart")
			}
			time.Sleep(time.Second)
			if m.ID == "bad" {
				return errBoom
			}
			return m.Send("shipping", shipType.Of("x"))
		})
		fx.enqueue("good")
		time.Sleep(2 * time.Second)
		fx.enqueue("bad")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		want := []string{
			"handle good 1 orders", "handled <nil> 1s traced", "send shipping traced", "sent <nil>", "done good traced",
			"handle bad 1 orders", "handled boom 1s traced", "send error traced", "sent <nil>",
		}
		if got := seen.all(); !slices.Equal(got, want) {
			fx.Errorf("observed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		equal(fx, "header set by the observer", fx.onlyMessage("shipping").Headers.Get("Trace"), "on shipping")
		equal(fx, "header set by the observer", fx.onlyMessage("error").Headers.Get("Trace"), "on error")
	})
}

func TestRecoveryObserver_GetsEachOutcome(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var recovered recoveryRecorder
		failedAt := time.Now()
		fx.runOrders(core.Config{Instance: "i1", Observers: []core.Observer{recovered.observer()}, Recoverability: core.Recoverability{
			Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second},
		}}, func(_ context.Context, m *core.Message) error {
			switch {
			case m.ID == "discard":
				return core.Discard(errors.New("why"))
			case m.ID == "defer" && m.Headers.Get(headers.Deferrals) == "":
				return core.Defer(errors.New("not yet"), time.Second)
			case m.ID == "bad":
				return errBoom
			}
			return nil
		})
		fx.enqueue("bad")
		time.Sleep(2 * time.Second)
		fx.enqueue("discard")
		fx.enqueue("defer")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		equal(fx, "kinds", recovered.actions(), "ImmediateRetry DelayedRetry ImmediateRetry MoveToError Discard Defer")
		all := recovered.all()
		for i, want := range []struct{ attempt, delayed int }{{1, 0}, {2, 0}, {1, 1}, {2, 1}, {1, 0}, {1, 0}} {
			equal(fx, fmt.Sprint("attempt of event ", i), all[i].Failure.ImmediateProcessingFailures, want.attempt)
			equal(fx, fmt.Sprint("delayed retries of event ", i), all[i].Failure.DelayedDeliveriesPerformed, want.delayed)
			equal(fx, fmt.Sprint("deferred ", i), all[i].Action.Kind == core.ActionDefer, i == 5)
		}
		first := all[0]
		equal(fx, "endpoint, instance, queue", first.Endpoint+first.Instance+first.Queue, "ordersi1orders")
		equal(fx, "message", first.Failure.Message.ID+" "+first.Failure.Message.Type, "bad order")
		equal(fx, "body, which events would keep in memory", len(first.Failure.Message.RawBody()), 0)
		equal(fx, "time", first.Failure.FailedAt, failedAt)
		if !errors.Is(first.Failure.Err, errBoom) || all[3].Action.Queue != "error" || all[4].Failure.Err.Error() != "why" || all[1].Action.Delay != time.Second {
			fx.Errorf("told %+v", all)
		}
	})
}

func TestRecoveryObserver_ChangesItsOwnMessage(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var seen recorder[string]
		observer := onRecovery(func(_ context.Context, e core.Recovery) {
			seen.add(e.Failure.Message.Headers.Get("Sender"))
			e.Failure.Message.Headers.Set("Sender", "changed")
		})
		fx.runOrders(core.Config{Recoverability: noRetries, Observers: []core.Observer{observer, observer}}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		equal(fx, "header that the observers see", fmt.Sprint(seen.all()), "[unit é unit é]")
		equal(fx, "header of the moved message", fx.onlyMessage("error").Headers.Get("Sender"), "unit é")
	})
}

func TestRecoveryObserver_NothingIsKeptForASlowLog(t *testing.T) {
	bubble(t, func(fx *fixture) {
		slow := slog.New(slowLogHandler{logHandler{recorder: fx.logs}})
		ep, _ := fx.runOrders(core.Config{Logger: slow, Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1", "m2")
		time.Sleep(time.Minute)
		fx.wantDepth("error", 2)
		equal(fx, "in flight", ep.Health().InFlight, 0)
	})
}

// slowLogHandler takes a second for each line.
type slowLogHandler struct{ logHandler }

func (h slowLogHandler) Handle(ctx context.Context, r slog.Record) error {
	time.Sleep(time.Second)
	return h.logHandler.Handle(ctx, r)
}

func (h slowLogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return slowLogHandler{h.logHandler.WithAttrs(attrs).(logHandler)}
}

// One event whose observer ends its goroutine ended all that followed.
func TestObservers_SurviveGoexit(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var told recorder[string]
		observer := onRecovery(func(_ context.Context, e core.Recovery) {
			if told.add(e.Failure.Message.ID) == 1 {
				runtime.Goexit()
			}
		})
		ep, run := fx.runOrders(core.Config{Recoverability: noRetries, Observers: []core.Observer{observer}}, func(context.Context, *core.Message) error { return errBoom })
		for i := range 5 {
			fx.enqueue(fmt.Sprint("m", i))
		}
		equal(fx, "told", told.len(), 5)
		equal(fx, "dropped", ep.Health().NotificationsDropped, 0)
		equal(fx, "lines", len(fx.logs.find("an observer or hook panicked")), 1)
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
	})
}

// A callback that blocks had a goroutine for each critical error.
func TestCriticalError_ThatBlocks(t *testing.T) {
	if testing.Short() {
		t.Skip("hours of an outage: not in short runs")
	}
	inModes(t, retryModes, func(fx *fixture) {
		fx.failSendsTo("error", "orders")
		release := make(chan struct{})
		var called atomic.Int64
		ep, _ := fx.runOrders(core.Config{Recoverability: noRetries, Observers: []core.Observer{{CriticalError: func(context.Context, *core.Endpoint, error) {
			called.Add(1)
			<-release
		}}}}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1", "m2", "m3")
		before := runtime.NumGoroutine()
		fx.advance(6 * time.Hour)
		if more := runtime.NumGoroutine() - before; more > 10 {
			fx.Errorf("%d more goroutines after six hours", more)
		}
		equal(fx, "calls", called.Load(), 1)
		if n := ep.Health().CriticalErrors; n < 250 {
			fx.Errorf("Health counts %d critical errors", n)
		}
		close(release)
	})
}

type traceKey struct{}

// tracing puts a span into the context of each attempt.
type tracing struct{}

func (tracing) HandleStart(ctx context.Context, e core.Handling) context.Context {
	return context.WithValue(ctx, traceKey{}, "span of "+e.Message.ID)
}

func (t tracing) observer() core.Observer { return core.Observer{HandleStart: t.HandleStart} }

// The decision belongs to the trace of the attempt that failed.
func TestObservers_TheirContextReachesPolicyAndHandleFailed(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var spans recorder[any]
		recover := noRetries
		recover.Policy = func(ctx context.Context, c core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
			spans.add(ctx.Value(traceKey{}))
			if m, ok := core.MessageFromContext(ctx); !ok || m.ID != "m1" {
				fx.Error("the policy's context has no message")
			}
			return core.DefaultPolicy(ctx, c, f)
		}
		ep := fx.newEndpoint("orders", core.Config{Recoverability: recover, Observers: []core.Observer{tracing{}.observer()}})
		fx.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		core.HandleFailed(ep, orderType, func(ctx context.Context, m *core.Message, _ []byte, _ *core.Failed) error {
			spans.add(ctx.Value(traceKey{}))
			if from, ok := core.MessageFromContext(ctx); !ok || from != m {
				fx.Error("HandleFailed's context has another message")
			}
			return nil
		})
		fx.run(ep)
		fx.enqueue("m1")
		fx.onlyMessage("error")
		if got := spans.all(); len(got) != 2 || got[0] != "span of m1" || got[1] != "span of m1" {
			fx.Errorf("spans %v", got)
		}
	})
}
