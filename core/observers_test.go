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
)

// onRecovery returns an observer that calls f for each failed message.
func onRecovery(f func(ctx context.Context, e core.Recovery)) core.Observer {
	return core.Observer{Recovered: f}
}

func TestR32_SlowObserverDelaysNothing(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		release := make(chan struct{})
		var seen record[string]
		slow := onRecovery(func(_ context.Context, e core.Recovery) {
			<-release
			seen.add(e.MessageID)
		})
		recover := core.Recoverability{Immediate: core.Immediate{Off: true}, Delayed: core.Delayed{Off: true}}
		ep, run := b.orders(core.Config{Recoverability: recover, Observers: []core.Observer{slow}}, func(context.Context, *core.Message) error { return errBoom })
		for i := range 1200 {
			b.send(order(fmt.Sprint("m", i)))
		}
		b.holds("error", 1200)
		// One is being told, 1,000 are queued.
		equal(b, "dropped", ep.Health().NotificationsDropped, int64(199))
		close(release)
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		equal(b, "told, all before Run returned", seen.len(), 1001)
	})
}

func TestR32_HangingObserverIsLeftBehind(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		release := make(chan struct{})
		stuck := onRecovery(func(context.Context, core.Recovery) { <-release })
		_, run := b.orders(core.Config{Recoverability: noRetries, Observers: []core.Observer{stuck}}, func(context.Context, *core.Message) error { return errBoom })
		b.put("m1")
		start := time.Now()
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		equal(b, "time to stop", time.Since(start), 4*time.Second)
		equal(b, "lines", len(b.logs.about("has not returned; it is left behind")), 1)
		close(release)
	})
}

// panicky panics in each function of an observer.
type panicky struct{}

func (panicky) HandleStart(context.Context, core.HandleStart) context.Context { panic("HandleStart") }
func (panicky) HandleEnd(context.Context, core.HandleEnd)                     { panic("HandleEnd") }
func (panicky) SendStart(context.Context, core.SendStart) context.Context     { panic("SendStart") }
func (panicky) SendEnd(context.Context, core.SendEnd)                         { panic("SendEnd") }
func (panicky) Succeeded(context.Context, core.Success)                       { panic("Succeeded") }
func (panicky) Recovered(context.Context, core.Recovery)                      { panic("Recovered") }
func (panicky) RateLimitChanged(context.Context, core.RateLimitChange)        { panic("RateLimitChanged") }

func (p panicky) observer() core.Observer {
	return core.Observer{HandleStart: p.HandleStart, HandleEnd: p.HandleEnd, SendStart: p.SendStart, SendEnd: p.SendEnd, Succeeded: p.Succeeded, Recovered: p.Recovered, RateLimitChanged: p.RateLimitChanged}
}

func TestR32_PanicsOfObserversChangeNothing(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var after calls
		recover := limited(1)
		b.orders(core.Config{Recoverability: recover, Observers: []core.Observer{panicky{}.observer(), after.observer()}}, func(_ context.Context, m *core.Message) error {
			if m.Attempt == 1 {
				return errBoom
			}
			return m.Send("shipping", "ship", "x")
		})
		b.put("m1")
		time.Sleep(10 * time.Second)
		b.holds("orders", 0)
		b.holds("shipping", 1)
		var panics []string
		for _, line := range b.logs.about("panicked") {
			equal(b, "level", line.level, slog.LevelError)
			panics = append(panics, fmt.Sprint(line.attrs["panic"]))
		}
		slices.Sort(panics)
		want := []string{
			"HandleEnd", "HandleEnd", "HandleStart", "HandleStart", "RateLimitChanged", "RateLimitChanged",
			"Recovered", "SendEnd", "SendStart", "Succeeded",
		}
		if !slices.Equal(panics, want) {
			b.Errorf("logged panics of %v, want %v", panics, want)
		}
		equal(b, "calls of the other observer", after.len(), 7)
	})
}

// calls notes what inline observers are told, in order.
type calls struct{ record[string] }

type callKey struct{}

func (c *calls) HandleStart(ctx context.Context, e core.HandleStart) context.Context {
	c.add(fmt.Sprint("handle ", e.Message.ID, " ", e.Message.Attempt, " ", e.Queue))
	return context.WithValue(ctx, callKey{}, "traced")
}

func (c *calls) HandleEnd(ctx context.Context, e core.HandleEnd) {
	c.add(fmt.Sprint("handled ", e.Err, " ", e.Duration, " ", ctx.Value(callKey{})))
}

func (c *calls) Succeeded(ctx context.Context, e core.Success) {
	c.add(fmt.Sprint("done ", e.Message.ID, " ", ctx.Value(callKey{})))
}

func (c *calls) SendStart(ctx context.Context, e core.SendStart) context.Context {
	for i := range e.Messages {
		e.Messages[i].Headers.Set("Trace", "on "+e.Messages[i].Queue)
	}
	c.add(fmt.Sprint("send ", e.Messages[0].Queue, " ", ctx.Value(callKey{})))
	return ctx
}

func (c *calls) SendEnd(_ context.Context, e core.SendEnd) { c.add(fmt.Sprint("sent ", e.Err)) }

func (c *calls) observer() core.Observer {
	return core.Observer{HandleStart: c.HandleStart, HandleEnd: c.HandleEnd, Succeeded: c.Succeeded, SendStart: c.SendStart, SendEnd: c.SendEnd}
}

func TestObservers_SeeAttemptsAndSendsInOrder(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		var seen calls
		b.orders(core.Config{Observers: []core.Observer{seen.observer()}, Recoverability: core.Recoverability{Unrecoverable: []error{errBoom}}}, func(ctx context.Context, m *core.Message) error {
			if ctx.Value(callKey{}) != "traced" {
				b.Error("the handler's context lacks what HandleStart put there")
			}
			time.Sleep(time.Second)
			if m.ID == "bad" {
				return errBoom
			}
			return m.Send("shipping", "ship", "x")
		})
		b.put("good")
		time.Sleep(2 * time.Second)
		b.put("bad")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		want := []string{
			"handle good 1 orders", "handled <nil> 1s traced", "send shipping traced", "sent <nil>", "done good traced",
			"handle bad 1 orders", "handled boom 1s traced", "send error traced", "sent <nil>",
		}
		if got := seen.all(); !slices.Equal(got, want) {
			b.Errorf("observed\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		equal(b, "header set by the observer", b.only("shipping").Headers.Get("Trace"), "on shipping")
		equal(b, "header set by the observer", b.only("error").Headers.Get("Trace"), "on error")
	})
}

func TestRecoveryObserver_GetsEachOutcome(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var recovered recoveries
		failedAt := time.Now()
		b.orders(core.Config{Instance: "i1", Observers: []core.Observer{recovered.observer()}, Recoverability: core.Recoverability{
			Immediate: core.Immediate{Retries: 1}, Delayed: core.Delayed{Retries: 1, Increase: time.Second},
		}}, func(_ context.Context, m *core.Message) error {
			switch {
			case m.ID == "discard":
				return core.Discard("why")
			case m.ID == "defer" && m.Headers.Get(core.HeaderDeferrals) == "":
				return core.Defer(time.Second)
			case m.ID == "bad":
				return errBoom
			}
			return nil
		})
		b.put("bad")
		time.Sleep(2 * time.Second)
		b.put("discard")
		b.put("defer")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		equal(b, "kinds", recovered.kinds(), "ImmediateRetry DelayedRetry ImmediateRetry MoveToError Discard DelayedRetry")
		all := recovered.all()
		for i, want := range []struct{ attempt, delayed int }{{1, 0}, {2, 0}, {1, 1}, {2, 1}, {1, 0}, {1, 0}} {
			equal(b, fmt.Sprint("attempt of event ", i), all[i].Attempt, want.attempt)
			equal(b, fmt.Sprint("delayed retries of event ", i), all[i].DelayedRetries, want.delayed)
			equal(b, fmt.Sprint("deferred ", i), all[i].Deferred, i == 5)
		}
		first := all[0]
		equal(b, "endpoint, instance, queue", first.Endpoint+first.Instance+first.Queue, "ordersi1orders")
		equal(b, "message", first.MessageID+" "+first.MessageType, "bad order")
		equal(b, "time", first.FailedAt, failedAt)
		if !errors.Is(first.Err, errBoom) || all[3].Action.Queue != "error" || all[4].Action.Reason != "why" || all[1].Action.Delay != time.Second {
			b.Errorf("told %+v", all)
		}
	})
}

func TestRecoveryObserver_NothingIsKeptForASlowLog(t *testing.T) {
	bubble(t, func(b *bed) {
		slow := slog.New(slowHandler{logHandler{book: b.logs}})
		ep, _ := b.orders(core.Config{Logger: slow, Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		b.put("m1", "m2")
		time.Sleep(time.Minute)
		b.holds("error", 2)
		equal(b, "in flight", ep.Health().InFlight, 0)
	})
}

// slowHandler takes a second for each line.
type slowHandler struct{ logHandler }

func (h slowHandler) Handle(ctx context.Context, r slog.Record) error {
	time.Sleep(time.Second)
	return h.logHandler.Handle(ctx, r)
}

func (h slowHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return slowHandler{h.logHandler.WithAttrs(attrs).(logHandler)}
}

// One event whose observer ends its goroutine ended all that followed.
func TestObservers_SurviveGoexit(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var told record[string]
		observer := onRecovery(func(_ context.Context, e core.Recovery) {
			if told.add(e.MessageID) == 1 {
				runtime.Goexit()
			}
		})
		ep, run := b.orders(core.Config{Recoverability: noRetries, Observers: []core.Observer{observer}}, func(context.Context, *core.Message) error { return errBoom })
		for i := range 5 {
			b.put(fmt.Sprint("m", i))
		}
		equal(b, "told", told.len(), 5)
		equal(b, "dropped", ep.Health().NotificationsDropped, 0)
		equal(b, "lines", len(b.logs.about("an observer or hook panicked")), 1)
		if err := run.stop(); err != nil {
			b.Error(err)
		}
	})
}

// A callback that blocks had a goroutine for each critical error.
func TestOnCriticalError_ThatBlocks(t *testing.T) {
	if testing.Short() {
		t.Skip("hours of an outage: not in short runs")
	}
	inModes(t, retrying, func(b *bed) {
		b.unreachable("error", "orders")
		release := make(chan struct{})
		var called atomic.Int64
		ep, _ := b.orders(core.Config{Recoverability: noRetries, OnCriticalError: func(context.Context, error) {
			called.Add(1)
			<-release
		}}, func(context.Context, *core.Message) error { return errBoom })
		b.put("m1", "m2", "m3")
		before := runtime.NumGoroutine()
		b.pass(6 * time.Hour)
		if more := runtime.NumGoroutine() - before; more > 10 {
			b.Errorf("%d more goroutines after six hours", more)
		}
		equal(b, "calls", called.Load(), 1)
		if n := ep.Health().CriticalErrors; n < 250 {
			b.Errorf("Health counts %d critical errors", n)
		}
		close(release)
	})
}

type traceKey struct{}

// tracing puts a span into the context of each attempt.
type tracing struct{}

func (tracing) HandleStart(ctx context.Context, e core.HandleStart) context.Context {
	return context.WithValue(ctx, traceKey{}, "span of "+e.Message.ID)
}

func (t tracing) observer() core.Observer { return core.Observer{HandleStart: t.HandleStart} }

// The decision belongs to the trace of the attempt that failed.
func TestObservers_TheirContextReachesPolicyAndHandleFailed(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		var spans record[any]
		recover := noRetries
		recover.Policy = func(ctx context.Context, c core.RecoverabilityConfig, f core.ErrorContext) core.Action {
			spans.add(ctx.Value(traceKey{}))
			if m, ok := core.MessageFromContext(ctx); !ok || m.ID != "m1" {
				b.Error("the policy's context has no message")
			}
			return core.DefaultPolicy(ctx, c, f)
		}
		ep := b.endpoint("orders", core.Config{Recoverability: recover, Observers: []core.Observer{tracing{}.observer()}})
		b.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		core.HandleFailed(ep, "order", func(ctx context.Context, m *core.TypedMessage[[]byte], _ *core.Failed) error {
			spans.add(ctx.Value(traceKey{}))
			if from, ok := core.MessageFromContext(ctx); !ok || from != m.Message {
				b.Error("HandleFailed's context has another message")
			}
			return nil
		})
		b.run(ep)
		b.put("m1")
		b.only("error")
		if got := spans.all(); len(got) != 2 || got[0] != "span of m1" || got[1] != "span of m1" {
			b.Errorf("spans %v", got)
		}
	})
}
