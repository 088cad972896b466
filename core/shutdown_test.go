package core_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// stops are the two ways to end a Run.
var stops = map[string]func(b *bed, ep *core.Endpoint, run *running){
	"context": func(_ *bed, _ *core.Endpoint, run *running) { run.cancel() },
	"Shutdown": func(b *bed, ep *core.Endpoint, _ *running) {
		done := make(chan error, 1)
		go func() { done <- ep.Shutdown(context.Background()) }()
		b.Cleanup(func() {
			if err := <-done; err != nil {
				b.Errorf("Shutdown: %v", err)
			}
		})
	},
}

func eachStop(t *testing.T, cfg inmemory.Config, modes []core.TransactionMode, body func(b *bed, stop func(*core.Endpoint, *running))) {
	t.Helper()
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, cfg, modes, func(b *bed) {
				body(b, func(ep *core.Endpoint, run *running) { stop(b, ep, run) })
			})
		})
	}
}

func TestShutdown_WithoutARun(t *testing.T) {
	bubble(t, func(b *bed) {
		ep := b.endpoint("orders", core.Config{})
		if err := ep.Shutdown(b.Context()); err != nil {
			b.Errorf("before Run: %v", err)
		}
		run := b.run(ep)
		if err := ep.Shutdown(b.Context()); err != nil {
			b.Errorf("idle: %v", err)
		}
		if !run.hasEnded() || run.wait() != nil {
			b.Error("Run goes on, or returned an error")
		}
		if err := ep.Shutdown(b.Context()); err != nil {
			b.Errorf("after Run: %v", err)
		}
	})
}

func TestShutdown_WhileStarting(t *testing.T) {
	eachStop(t, inmemory.Config{}, everyMode, func(b *bed, stop func(*core.Endpoint, *running)) {
		b.broker.provoke(faults{open: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		ep := b.endpoint("orders", core.Config{})
		run := b.launch(ep)
		equal(b, "running", ep.Health().Running, false)
		stop(ep, run)
		if !run.hasEnded() || run.wait() != nil {
			b.Error("Run goes on, or returned an error")
		}
	})
}

func TestR27_ShutdownLetsHandlersFinish(t *testing.T) {
	eachStop(t, locking, everyMode, func(b *bed, stop func(*core.Endpoint, *running)) {
		ep, run := b.orders(core.Config{Concurrency: 1}, func(ctx context.Context, m *core.Message) error {
			time.Sleep(15 * time.Second)
			return errors.Join(ctx.Err(), m.Send("shipping", "ship", "x"))
		})
		b.put("m1", "m2")
		stop(ep, run)
		if run.hasEnded() {
			b.Fatal("Run did not wait for the handler")
		}
		if err := run.wait(); err != nil {
			b.Error(err)
		}
		b.holds("shipping", 1)
		b.holds("orders", 1)
		left := b.only("orders")
		equal(b, "message that was not started", left.ID, "m2")
		equal(b, "its delivery count", left.DeliveryCount, 1)
	})
}

func TestR27_ShutdownReleasesCutOffMessages(t *testing.T) {
	results := map[string]func(ctx context.Context) error{
		"cancellation": func(ctx context.Context) error { return ctx.Err() },
		"other error":  func(context.Context) error { return errBoom },
		"verdict":      func(context.Context) error { return core.Unrecoverable(errBoom) },
		"panic":        func(context.Context) error { panic("boom") },
	}
	for name, result := range results {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, locking, retrying, func(b *bed) {
				var causes record[error]
				start := time.Now()
				_, run := b.orders(core.Config{DrainTimeout: 7 * time.Second}, func(ctx context.Context, m *core.Message) error {
					if err := m.Send("shipping", "ship", "x"); err != nil {
						b.Error(err)
					}
					<-ctx.Done()
					causes.add(context.Cause(ctx))
					return result(ctx)
				})
				b.put("m1")
				if err := run.stop(); err != nil {
					b.Error(err)
				}
				equal(b, "time to drain", time.Since(start), 7*time.Second)
				if got := causes.all(); len(got) != 1 || !errors.Is(got[0], core.ErrShutdown) {
					b.Errorf("causes %v, want ErrShutdown", got)
				}
				if got := b.broker.settled.all(); !slices.Equal(got, []string{"Release m1"}) {
					b.Errorf("settled by %v, want it released", got)
				}
				left := b.only("orders")
				equal(b, "delivery count", left.DeliveryCount, 1)
				equal(b, "last error", left.LastError, "")
				b.holds("shipping", 0)
				b.holds("error", 0)
			})
		})
	}
}

func TestShutdown_SuccessAfterTheCutOffCounts(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		_, run := b.orders(core.Config{DrainTimeout: time.Second}, func(ctx context.Context, m *core.Message) error {
			<-ctx.Done()
			return m.Send("shipping", "ship", "x")
		})
		b.put("m1")
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		b.holds("shipping", 1)
		b.holds("orders", 0)
	})
}

func TestShutdown_NamesHangingHandlers(t *testing.T) {
	inModesOn(t, locking, retrying, func(b *bed) {
		release := make(chan struct{})
		start := time.Now()
		ep, run := b.orders(core.Config{Concurrency: 2, DrainTimeout: time.Second}, func(context.Context, *core.Message) error {
			<-release
			return nil
		})
		b.put("m1", "m2", "m3")
		err := run.stop()
		equal(b, "time until Run gave up", time.Since(start), 6*time.Second)
		if !errors.Is(err, core.ErrHandlersRunning) || !containsAll(err.Error(), "message m1 (order)", "message m2 (order)") {
			b.Errorf("Run returned %v", err)
		}
		if containsAll(err.Error(), "m3") {
			b.Errorf("Run names a message that was not started: %v", err)
		}
		equal(b, "messages given back", b.depth("orders").Ready, 3)
		b.broker.provoke(faults{})

		// They come again, and what the old handlers do now changes nothing.
		again := make(chan string, 3)
		second := b.endpoint("orders", core.Config{})
		b.handle(second, "order", func(_ context.Context, m *core.Message) error {
			again <- m.ID
			return nil
		})
		close(release)
		synctest.Wait()
		equal(b, "messages in the queue after the late handlers returned", b.depth("orders").Ready, 3)
		b.run(second)
		b.holds("orders", 0)
		equal(b, "messages that came again", len(again), 3)
		equal(b, "running", ep.Health().Running, false)
	})
}

func TestShutdown_ContextReplacesDrainTimeout(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		start := time.Now()
		ep, run := b.orders(core.Config{DrainTimeout: time.Second}, func(ctx context.Context, _ *core.Message) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		b.put("m1")
		errHurry := errors.New("no more time")
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errHurry)
		defer cancel()
		if err := ep.Shutdown(ctx); !errors.Is(err, errHurry) {
			b.Errorf("Shutdown returned %v, want its context's cause", err)
		}
		equal(b, "time to shut down", time.Since(start), time.Minute)
		if err := run.wait(); err != nil {
			b.Errorf("Run returned %v", err)
		}
		equal(b, "delivery count", b.only("orders").DeliveryCount, 1)
	})
}

func TestShutdown_ConcurrentCalls(t *testing.T) {
	bubble(t, func(b *bed) {
		ep, run := b.orders(core.Config{}, func(context.Context, *core.Message) error {
			time.Sleep(10 * time.Second)
			return nil
		})
		b.put("m1")
		var returned atomic.Int64
		for range 10 {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if err := ep.Shutdown(ctx); err != nil {
					b.Error(err)
				}
				returned.Add(1)
			}()
		}
		run.cancel()
		if err := run.wait(); err != nil {
			b.Error(err)
		}
		synctest.Wait()
		equal(b, "Shutdowns that returned", returned.Load(), 10)
		b.holds("orders", 0)
	})
}

func TestShutdown_WhilePausedRateLimitedOrIdle(t *testing.T) {
	eachStop(t, locking, retrying, func(b *bed, stop func(*core.Endpoint, *running)) {
		recover := immediate(5)
		recover.RateLimit = core.RateLimit{ConsecutiveFailures: 2, TimeToWait: time.Hour}
		ep, run := b.orders(core.Config{Recoverability: recover}, func(context.Context, *core.Message) error { return errBoom })
		b.put("m1", "m2")
		time.Sleep(time.Minute)
		equal(b, "rate limited", ep.Health().RateLimited, true)
		ep.Pause()
		before := b.depth("orders")
		start := time.Now()
		stop(ep, run)
		if err := run.wait(); err != nil {
			b.Error(err)
		}
		equal(b, "time to shut down", time.Since(start), 0)
		equal(b, "messages", b.depth("orders").Ready, before.Total())
		ep.Resume()
	})
}

func TestHandlerContext_HasTheValuesOfRunWithoutCancellation(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		type key struct{}
		var ended, value any
		ep := b.endpoint("orders", core.Config{})
		b.handle(ep, "order", func(ctx context.Context, m *core.Message) error {
			value = ctx.Value(key{})
			time.Sleep(time.Second)
			ended = ctx.Err()
			if from, ok := core.MessageFromContext(ctx); !ok || from != m {
				b.Error("the context does not know its message")
			}
			return nil
		})
		run := b.launchUnder(context.WithValue(context.Background(), key{}, "value"), ep)
		b.put("m1")
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		equal(b, "value", value, any("value"))
		equal(b, "end of the handler's context", ended, nil)
	})
}

func TestShutdown_PrefetchedAreReleasedOrRun(t *testing.T) {
	c := locking
	caps := inmemory.Everything()
	caps.Prefetch = true
	c.Capabilities = &caps
	inModesOn(t, c, everyMode, func(b *bed) {
		var handled record[string]
		_, run := b.orders(core.Config{Concurrency: 1}, func(_ context.Context, m *core.Message) error {
			if m.ID == "quick" {
				return nil
			}
			time.Sleep(time.Second)
			handled.add(m.ID)
			return nil
		})
		b.put("quick") // so that others are held ahead
		b.put("m1", "m2", "m3", "m4")
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		for _, left := range b.queue("orders") {
			equal(b, "delivery count of "+left.ID, left.DeliveryCount, 1)
			handled.add(left.ID)
		}
		got := handled.all()
		slices.Sort(got)
		if !slices.Equal(got, []string{"m1", "m2", "m3", "m4"}) {
			b.Errorf("handled or still there: %v, want all four once", got)
		}
	})
}

// In None a message is consumed before its handler runs, so that giving it back
// would lose it.
func TestR30_InNoneReceivedMessagesAreHandled(t *testing.T) {
	for name, happens := range map[string]func(ep *core.Endpoint, run *running){
		"pause":            func(ep *core.Endpoint, _ *running) { ep.Pause() },
		"less concurrency": func(ep *core.Endpoint, _ *running) { _ = ep.SetConcurrency(1) },
		"shutdown":         func(_ *core.Endpoint, run *running) { run.cancel() },
		"pause, shutdown":  func(ep *core.Endpoint, run *running) { ep.Pause(); run.cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, everyMode[:1], func(b *bed) {
				var handled atomic.Int64
				ep, run := b.orders(core.Config{Concurrency: 4}, func(context.Context, *core.Message) error {
					time.Sleep(time.Second)
					handled.Add(1)
					return nil
				})
				b.broker.provoke(faults{arrive: func(in *core.Incoming) {
					if in.ID == "m2" {
						happens(ep, run)
						time.Sleep(time.Millisecond)
					}
				}})
				var batch []core.Outgoing
				for _, id := range []string{"m1", "m2", "m3", "m4"} {
					batch = append(batch, order(id))
				}
				ep.Pause()
				b.send(batch...)
				ep.Resume() // so that they are fetched together
				time.Sleep(time.Minute)
				synctest.Wait()
				if left := b.depth("orders").Total(); int(handled.Load())+left != 4 {
					b.Errorf("%d handled, %d left of 4", handled.Load(), left)
				}
				if handled.Load() < 2 {
					b.Errorf("%d handled, want those that were received", handled.Load())
				}
			})
		})
	}
}

func TestR30_InNoneRateLimitingLosesNothing(t *testing.T) {
	inModes(t, everyMode[:1], func(b *bed) {
		var attempts atomic.Int64
		ep, _ := b.orders(core.Config{Concurrency: 4, Recoverability: core.Recoverability{
			RateLimit: core.RateLimit{ConsecutiveFailures: 1, TimeToWait: time.Second},
		}}, func(context.Context, *core.Message) error {
			attempts.Add(1)
			return errBoom
		})
		ep.Pause()
		b.put("m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8")
		ep.Resume()
		time.Sleep(time.Minute)
		synctest.Wait()
		equal(b, "attempts", attempts.Load(), 8)
		b.holds("error", 8)
	})
}

func TestR30_InNoneACutOffMessageIsMoved(t *testing.T) {
	inModes(t, everyMode[:1], func(b *bed) {
		_, run := b.orders(core.Config{DrainTimeout: time.Second}, func(ctx context.Context, _ *core.Message) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		b.put("m1")
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		failed := b.only("error")
		equal(b, "error text", failed.Headers.Get(core.HeaderExceptionMessage), core.ErrShutdown.Error())
	})
}

// As http.Server's: it does not wait for handlers beyond its context, nor for observers.
func TestShutdown_KeepsToItsContext(t *testing.T) {
	inModesOn(t, locking, retrying, func(b *bed) {
		release := make(chan struct{})
		stuck := onRecovery(func(context.Context, core.Recovery) { <-release })
		ep, run := b.orders(core.Config{Observers: []core.Observer{stuck}, Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			if m.ID == "fails" {
				return errBoom
			}
			<-release // and not for its context
			return nil
		})
		b.put("fails", "hangs")
		start := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := ep.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			b.Errorf("Shutdown returned %v", err)
		}
		equal(b, "time to shut down", time.Since(start), time.Second)
		if err := run.wait(); !errors.Is(err, core.ErrHandlersRunning) || !containsAll(err.Error(), "hangs") {
			b.Errorf("Run returned %v", err)
		}
		if took := time.Since(start); took > 10*time.Second {
			b.Errorf("Run returned after %v", took)
		}
		close(release)
	})
}

// The whole of a shutdown with handlers, observers and locks that hang ends before
// Kubernetes kills the process.
func TestShutdown_DefaultsEndWithinThirtySeconds(t *testing.T) {
	inModesOn(t, locking, retrying, func(b *bed) {
		release := make(chan struct{})
		stuck := onRecovery(func(context.Context, core.Recovery) { <-release })
		_, run := b.orders(core.Config{Observers: []core.Observer{stuck}, Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			if m.ID == "fails" {
				return errBoom
			}
			<-release
			return nil
		})
		b.put("fails", "hangs")
		start := time.Now()
		if err := run.stop(); !errors.Is(err, core.ErrHandlersRunning) {
			b.Errorf("Run returned %v", err)
		}
		if took := time.Since(start); took >= 30*time.Second {
			b.Errorf("Run returned after %v", took)
		}
		close(release)
	})
}

// The handler returned long ago: it is the settlement that hangs, and that is said.
func TestShutdown_NamesASettlementThatHangs(t *testing.T) {
	inModes(t, retrying[:1], func(b *bed) {
		release := make(chan struct{})
		b.broker.provoke(faults{settle: func(operation string, _ *core.Incoming) error {
			if operation == "Complete" {
				<-release
			}
			return nil
		}})
		_, run := b.orders(core.Config{DrainTimeout: time.Second}, func(context.Context, *core.Message) error { return nil })
		b.put("m1")
		err := run.stop()
		if err == nil || errors.Is(err, core.ErrHandlersRunning) || !containsAll(err.Error(), "message m1 (order)", "settled", "handlers have returned") {
			b.Errorf("Run returned %v", err)
		}
		close(release)
	})
}

func TestDrainTimeout_OffCancelsHandlersAtOnce(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		var cause error
		_, run := b.orders(core.Config{DrainTimeout: core.Off}, func(ctx context.Context, _ *core.Message) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		})
		b.put("m1")
		start := time.Now()
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		if took := time.Since(start); took > time.Second || !errors.Is(cause, core.ErrShutdown) {
			b.Errorf("drained in %v with %v", took, cause)
		}
	})
}
