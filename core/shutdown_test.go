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
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// stopWays are the two ways to end a Run.
var stopWays = map[string]func(fx *fixture, ep *core.Endpoint, run *runningEndpoint){
	"context": func(_ *fixture, _ *core.Endpoint, run *runningEndpoint) { run.cancel() },
	"Shutdown": func(fx *fixture, ep *core.Endpoint, _ *runningEndpoint) {
		done := make(chan error, 1)
		go func() { done <- ep.Shutdown(context.Background()) }()
		fx.Cleanup(func() {
			if err := <-done; err != nil {
				fx.Errorf("Shutdown: %v", err)
			}
		})
	},
}

func onEachStop(t *testing.T, cfg inmemory.Config, modes []core.TransactionMode, body func(fx *fixture, stop func(*core.Endpoint, *runningEndpoint))) {
	t.Helper()
	for name, stop := range stopWays {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, cfg, modes, func(fx *fixture) {
				body(fx, func(ep *core.Endpoint, run *runningEndpoint) { stop(fx, ep, run) })
			})
		})
	}
}

func TestShutdown_WithoutARun(t *testing.T) {
	bubble(t, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{})
		if err := ep.Shutdown(fx.Context()); err != nil {
			fx.Errorf("before Run: %v", err)
		}
		run := fx.run(ep)
		if err := ep.Shutdown(fx.Context()); err != nil {
			fx.Errorf("idle: %v", err)
		}
		if !run.hasEnded() || run.wait() != nil {
			fx.Error("Run goes on, or returned an error")
		}
		if err := ep.Shutdown(fx.Context()); err != nil {
			fx.Errorf("after Run: %v", err)
		}
	})
}

func TestShutdown_WhileStarting(t *testing.T) {
	onEachStop(t, inmemory.Config{}, allModes, func(fx *fixture, stop func(*core.Endpoint, *runningEndpoint)) {
		fx.broker.setFaults(faults{open: func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		ep := fx.newEndpoint("orders", core.Config{})
		run := fx.start(ep)
		equal(fx, "running", ep.Health().Running, false)
		stop(ep, run)
		if !run.hasEnded() || run.wait() != nil {
			fx.Error("Run goes on, or returned an error")
		}
	})
}

// Rule R27.
func TestShutdown_LetsHandlersFinish(t *testing.T) {
	onEachStop(t, expiringLocks, allModes, func(fx *fixture, stop func(*core.Endpoint, *runningEndpoint)) {
		ep, run := fx.runOrders(core.Config{Concurrency: 1}, func(ctx context.Context, m *core.Message) error {
			time.Sleep(15 * time.Second)
			return errors.Join(ctx.Err(), m.Send("shipping", shipType.Of("x")))
		})
		fx.enqueue("m1", "m2")
		stop(ep, run)
		if run.hasEnded() {
			fx.Fatal("Run did not wait for the handler")
		}
		if err := run.wait(); err != nil {
			fx.Error(err)
		}
		fx.wantDepth("shipping", 1)
		fx.wantDepth("orders", 1)
		left := fx.onlyMessage("orders")
		equal(fx, "message that was not started", left.ID, "m2")
		equal(fx, "its delivery count", left.DeliveryCount, 1)
	})
}

// Rule R27.
func TestShutdown_ReleasesCutOffMessages(t *testing.T) {
	results := map[string]func(ctx context.Context) error{
		"cancellation": func(ctx context.Context) error { return ctx.Err() },
		"other error":  func(context.Context) error { return errBoom },
		"verdict":      func(context.Context) error { return core.GiveUp(errBoom) },
		"panic":        func(context.Context) error { panic("boom") },
	}
	for name, result := range results {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
				var causes recorder[error]
				start := time.Now()
				_, run := fx.runOrders(core.Config{DrainTimeout: 7 * time.Second}, func(ctx context.Context, m *core.Message) error {
					if err := m.Send("shipping", shipType.Of("x")); err != nil {
						fx.Error(err)
					}
					<-ctx.Done()
					causes.add(context.Cause(ctx))
					return result(ctx)
				})
				fx.enqueue("m1")
				if err := run.stop(); err != nil {
					fx.Error(err)
				}
				equal(fx, "time to drain", time.Since(start), 7*time.Second)
				if got := causes.all(); len(got) != 1 || !errors.Is(got[0], core.ErrShutdown) {
					fx.Errorf("causes %v, want ErrShutdown", got)
				}
				if got := fx.broker.settled.all(); !slices.Equal(got, []string{"Release m1"}) {
					fx.Errorf("settled by %v, want it released", got)
				}
				left := fx.onlyMessage("orders")
				equal(fx, "delivery count", left.DeliveryCount, 1)
				equal(fx, "last error", left.LastError, "")
				fx.wantDepth("shipping", 0)
				fx.wantDepth("error", 0)
			})
		})
	}
}

func TestShutdown_SuccessAfterTheCutOffCounts(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		_, run := fx.runOrders(core.Config{DrainTimeout: time.Second}, func(ctx context.Context, m *core.Message) error {
			<-ctx.Done()
			return m.Send("shipping", shipType.Of("x"))
		})
		fx.enqueue("m1")
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		fx.wantDepth("shipping", 1)
		fx.wantDepth("orders", 0)
	})
}

func TestShutdown_NamesHangingHandlers(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
		release := make(chan struct{})
		start := time.Now()
		ep, run := fx.runOrders(core.Config{Concurrency: 2, DrainTimeout: time.Second}, func(context.Context, *core.Message) error {
			<-release
			return nil
		})
		fx.enqueue("m1", "m2", "m3")
		err := run.stop()
		equal(fx, "time until Run gave up", time.Since(start), 6*time.Second)
		if !errors.Is(err, core.ErrHandlersRunning) || !containsAll(err.Error(), "message m1 (order)", "message m2 (order)") {
			fx.Errorf("Run returned %v", err)
		}
		if containsAll(err.Error(), "m3") {
			fx.Errorf("Run names a message that was not started: %v", err)
		}
		equal(fx, "messages given back", fx.depth("orders").Ready, 3)
		fx.broker.setFaults(faults{})

		// They are redelivered, and the old handlers have no effect any more.
		redelivered := make(chan string, 3)
		second := fx.newEndpoint("orders", core.Config{})
		fx.handle(second, "order", func(_ context.Context, m *core.Message) error {
			redelivered <- m.ID
			return nil
		})
		close(release)
		synctest.Wait()
		equal(fx, "messages in the queue after the late handlers returned", fx.depth("orders").Ready, 3)
		fx.run(second)
		fx.wantDepth("orders", 0)
		equal(fx, "messages that came again", len(redelivered), 3)
		equal(fx, "running", ep.Health().Running, false)
	})
}

func TestShutdown_ContextReplacesDrainTimeout(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		start := time.Now()
		ep, run := fx.runOrders(core.Config{DrainTimeout: time.Second}, func(ctx context.Context, _ *core.Message) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		fx.enqueue("m1")
		errHurry := errors.New("no more time")
		ctx, cancel := context.WithTimeoutCause(context.Background(), time.Minute, errHurry)
		defer cancel()
		if err := ep.Shutdown(ctx); !errors.Is(err, errHurry) {
			fx.Errorf("Shutdown returned %v, want its context's cause", err)
		}
		equal(fx, "time to shut down", time.Since(start), time.Minute)
		if err := run.wait(); err != nil {
			fx.Errorf("Run returned %v", err)
		}
		equal(fx, "delivery count", fx.onlyMessage("orders").DeliveryCount, 1)
	})
}

func TestShutdown_ConcurrentCalls(t *testing.T) {
	bubble(t, func(fx *fixture) {
		ep, run := fx.runOrders(core.Config{}, func(context.Context, *core.Message) error {
			time.Sleep(10 * time.Second)
			return nil
		})
		fx.enqueue("m1")
		var returned atomic.Int64
		for range 10 {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
				defer cancel()
				if err := ep.Shutdown(ctx); err != nil {
					fx.Error(err)
				}
				returned.Add(1)
			}()
		}
		run.cancel()
		if err := run.wait(); err != nil {
			fx.Error(err)
		}
		synctest.Wait()
		equal(fx, "Shutdowns that returned", returned.Load(), 10)
		fx.wantDepth("orders", 0)
	})
}

func TestShutdown_WhilePausedRateLimitedOrIdle(t *testing.T) {
	onEachStop(t, expiringLocks, retryModes, func(fx *fixture, stop func(*core.Endpoint, *runningEndpoint)) {
		recover := immediateRetries(5)
		recover.RateLimit = core.RateLimit{ConsecutiveFailures: 2, TimeToWait: time.Hour}
		ep, run := fx.runOrders(core.Config{Recoverability: recover}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1", "m2")
		time.Sleep(time.Minute)
		equal(fx, "rate limited", ep.Health().RateLimited, true)
		ep.Pause()
		before := fx.depth("orders")
		start := time.Now()
		stop(ep, run)
		if err := run.wait(); err != nil {
			fx.Error(err)
		}
		equal(fx, "time to shut down", time.Since(start), 0)
		equal(fx, "messages", fx.depth("orders").Ready, total(before))
		ep.Resume()
	})
}

func TestHandlerContext_HasTheValuesOfRunWithoutCancellation(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		type key struct{}
		var ended, value any
		ep := fx.newEndpoint("orders", core.Config{})
		fx.handle(ep, "order", func(ctx context.Context, m *core.Message) error {
			value = ctx.Value(key{})
			time.Sleep(time.Second)
			ended = ctx.Err()
			if from, ok := core.MessageFromContext(ctx); !ok || from != m {
				fx.Error("the context does not know its message")
			}
			return nil
		})
		run := fx.startWithContext(context.WithValue(context.Background(), key{}, "value"), ep)
		fx.enqueue("m1")
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		equal(fx, "value", value, any("value"))
		equal(fx, "end of the handler's context", ended, nil)
	})
}

func TestShutdown_PrefetchedAreReleasedOrRun(t *testing.T) {
	c := expiringLocks
	caps := inmemory.Everything()
	caps.Prefetch = true
	c.Capabilities = &caps
	inModesWith(t, c, allModes, func(fx *fixture) {
		var handled recorder[string]
		_, run := fx.runOrders(core.Config{Concurrency: 1}, func(_ context.Context, m *core.Message) error {
			if m.ID == "quick" {
				return nil
			}
			time.Sleep(time.Second)
			handled.add(m.ID)
			return nil
		})
		fx.enqueue("quick") // so that others are held ahead
		fx.enqueue("m1", "m2", "m3", "m4")
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		for _, left := range fx.messages("orders") {
			equal(fx, "delivery count of "+left.ID, left.DeliveryCount, 1)
			handled.add(left.ID)
		}
		got := handled.all()
		slices.Sort(got)
		if !slices.Equal(got, []string{"m1", "m2", "m3", "m4"}) {
			fx.Errorf("handled or still there: %v, want all four once", got)
		}
	})
}

// Rule R30.
// In None a message is consumed before its handler runs, so that giving it back
// would lose it.
func TestNone_ReceivedMessagesAreHandled(t *testing.T) {
	for name, happens := range map[string]func(ep *core.Endpoint, run *runningEndpoint){
		"pause":            func(ep *core.Endpoint, _ *runningEndpoint) { ep.Pause() },
		"less concurrency": func(ep *core.Endpoint, _ *runningEndpoint) { _ = ep.SetConcurrency(1) },
		"shutdown":         func(_ *core.Endpoint, run *runningEndpoint) { run.cancel() },
		"pause, shutdown":  func(ep *core.Endpoint, run *runningEndpoint) { ep.Pause(); run.cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes[:1], func(fx *fixture) {
				var handled atomic.Int64
				ep, run := fx.runOrders(core.Config{Concurrency: 4}, func(context.Context, *core.Message) error {
					time.Sleep(time.Second)
					handled.Add(1)
					return nil
				})
				fx.broker.setFaults(faults{onReceive: func(in *core.Incoming) {
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
				fx.send(batch...)
				ep.Resume() // so that they are fetched together
				time.Sleep(time.Minute)
				synctest.Wait()
				if left := total(fx.depth("orders")); int(handled.Load())+left != 4 {
					fx.Errorf("%d handled, %d left of 4", handled.Load(), left)
				}
				if handled.Load() < 2 {
					fx.Errorf("%d handled, want those that were received", handled.Load())
				}
			})
		})
	}
}

// Rule R30.
func TestNone_RateLimitingLosesNothing(t *testing.T) {
	inModes(t, allModes[:1], func(fx *fixture) {
		var attempts atomic.Int64
		ep, _ := fx.runOrders(core.Config{Concurrency: 4, Recoverability: core.Recoverability{
			RateLimit: core.RateLimit{ConsecutiveFailures: 1, TimeToWait: time.Second},
		}}, func(context.Context, *core.Message) error {
			attempts.Add(1)
			return errBoom
		})
		ep.Pause()
		fx.enqueue("m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8")
		ep.Resume()
		time.Sleep(time.Minute)
		synctest.Wait()
		equal(fx, "attempts", attempts.Load(), 8)
		fx.wantDepth("error", 8)
	})
}

// Rule R30.
func TestNone_CutOffMessageIsMoved(t *testing.T) {
	inModes(t, allModes[:1], func(fx *fixture) {
		_, run := fx.runOrders(core.Config{DrainTimeout: time.Second}, func(ctx context.Context, _ *core.Message) error {
			<-ctx.Done()
			return context.Cause(ctx)
		})
		fx.enqueue("m1")
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		failed := fx.onlyMessage("error")
		equal(fx, "error text", failed.Headers.Get(headers.ExceptionMessage), core.ErrShutdown.Error())
	})
}

// As http.Server's: it does not wait for handlers beyond its context, nor for observers.
func TestShutdown_KeepsToItsContext(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
		release := make(chan struct{})
		stuck := onRecovery(func(context.Context, core.Recovery) { <-release })
		ep, run := fx.runOrders(core.Config{Observers: []core.Observer{stuck}, Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			if m.ID == "fails" {
				return errBoom
			}
			<-release // and not for its context
			return nil
		})
		fx.enqueue("fails", "hangs")
		start := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := ep.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			fx.Errorf("Shutdown returned %v", err)
		}
		equal(fx, "time to shut down", time.Since(start), time.Second)
		if err := run.wait(); !errors.Is(err, core.ErrHandlersRunning) || !containsAll(err.Error(), "hangs") {
			fx.Errorf("Run returned %v", err)
		}
		if took := time.Since(start); took > 10*time.Second {
			fx.Errorf("Run returned after %v", took)
		}
		close(release)
	})
}

// The whole of a shutdown with handlers, observers and locks that hang ends before
// Kubernetes kills the process.
func TestShutdown_DefaultsEndWithinThirtySeconds(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
		release := make(chan struct{})
		stuck := onRecovery(func(context.Context, core.Recovery) { <-release })
		_, run := fx.runOrders(core.Config{Observers: []core.Observer{stuck}, Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			if m.ID == "fails" {
				return errBoom
			}
			<-release
			return nil
		})
		fx.enqueue("fails", "hangs")
		start := time.Now()
		if err := run.stop(); !errors.Is(err, core.ErrHandlersRunning) {
			fx.Errorf("Run returned %v", err)
		}
		if took := time.Since(start); took >= 30*time.Second {
			fx.Errorf("Run returned after %v", took)
		}
		close(release)
	})
}

// The handler returned long ago: it is the settlement that hangs, and that is said.
func TestShutdown_NamesASettlementThatHangs(t *testing.T) {
	inModes(t, retryModes[:1], func(fx *fixture) {
		release := make(chan struct{})
		fx.broker.setFaults(faults{settle: func(operation string, _ *core.Incoming) error {
			if operation == "Complete" {
				<-release
			}
			return nil
		}})
		_, run := fx.runOrders(core.Config{DrainTimeout: time.Second}, func(context.Context, *core.Message) error { return nil })
		fx.enqueue("m1")
		err := run.stop()
		if err == nil || errors.Is(err, core.ErrHandlersRunning) || !containsAll(err.Error(), "message m1 (order)", "settled", "handlers have returned") {
			fx.Errorf("Run returned %v", err)
		}
		close(release)
	})
}

func TestDrainTimeout_OffCancelsHandlersAtOnce(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var cause error
		_, run := fx.runOrders(core.Config{DrainTimeout: core.Off}, func(ctx context.Context, _ *core.Message) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return cause
		})
		fx.enqueue("m1")
		start := time.Now()
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		if took := time.Since(start); took > time.Second || !errors.Is(cause, core.ErrShutdown) {
			fx.Errorf("drained in %v with %v", took, cause)
		}
	})
}
