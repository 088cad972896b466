package core_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// limited is noRetries with a limit, and the function that is called there.
func limited(count int, onReached func(context.Context, error)) core.Recoverability {
	r := noRetries
	r.UnacceptableMessageLimit = core.UnacceptableMessageLimit{Count: count, OnReached: onReached}
	return r
}

// runLimited runs "orders" with one slot, where messages fail for good whose id begins with
// "bad". onReached is called at the limit.
func (fx *fixture) runLimited(count int, onReached func(ep *core.Endpoint, err error)) (*core.Endpoint, *runningEndpoint) {
	fx.Helper()
	var ep *core.Endpoint
	ep = fx.newEndpoint("orders", core.Config{Concurrency: 1, Recoverability: limited(count, func(_ context.Context, err error) { onReached(ep, err) })})
	fx.handle(ep, "order", failBadMessages)
	return ep, fx.run(ep)
}

// failBadMessages fails messages for good whose id begins with "bad".
func failBadMessages(_ context.Context, m *core.Message) error {
	if strings.HasPrefix(m.ID, "bad") {
		return core.GiveUp(errBoom)
	}
	return nil
}

// Rule R50.
func TestFailureLimit_OnReachedPauses(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var reached recorder[error]
		ep, run := fx.runLimited(3, func(ep *core.Endpoint, err error) {
			reached.add(err)
			ep.Pause()
		})
		fx.enqueue("good", "bad 1", "bad 2", "bad 3", "bad 4", "bad 5")
		fx.advance(time.Hour)
		fx.wantDepth("orders", 2)
		fx.wantDepth("error", 3)
		equal(fx, "in flight", fx.depth("orders").Locked, 0)
		h := ep.Health()
		equal(fx, "Health", fmt.Sprint(h.Paused, h.Running, h.RunError, h.CriticalErrors), "true true <nil> 0")
		if all := reached.all(); len(all) != 1 || !errors.Is(all[0], core.ErrUnacceptableMessageLimit) ||
			all[0].Error() != `unacceptable message limit reached: 3 messages failed for good, the newest: ["bad 1" "bad 2" "bad 3"]` {
			fx.Errorf("OnReached got %v", all)
		}
		equal(fx, "lines of start-up", len(fx.logs.find("OnReached is called when as many messages")), 1)

		ep.Resume()
		fx.advance(time.Hour)
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 5)
		equal(fx, "calls after two more failed", reached.len(), 1)
		fx.enqueue("bad 6")
		equal(fx, "paused by the third since Resume", ep.Health().Paused, true)
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		fx.run(ep)
		fx.enqueue("good")
		fx.wantDepth("orders", 1) // a pause lasts over several Runs
	})
}

// Rule R50.
// Messages that were in their handlers at the limit are not counted, so one limit is one
// call.
func TestFailureLimit_OnReachedIsCalledOnce(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var calls atomic.Int64
		returned := make(chan struct{})
		var ep *core.Endpoint
		recover := limited(2, func(context.Context, error) {
			calls.Add(1)
			ep.Pause()
			<-returned
		})
		ep = fx.newEndpoint("orders", core.Config{Concurrency: 12, Recoverability: recover})
		var fail [12]chan struct{}
		for i := range fail {
			fail[i] = make(chan struct{})
		}
		var began atomic.Int64
		fx.handle(ep, "order", func(context.Context, *core.Message) error {
			<-fail[began.Add(1)-1]
			return core.GiveUp(errBoom)
		})
		fx.run(ep)
		for i := range fail {
			fx.send(order(fmt.Sprint("m", i)))
		}
		synctest.Wait()
		for i := range 6 {
			close(fail[i])
		}
		synctest.Wait()
		close(returned) // when OnReached has returned the rest is still not counted
		synctest.Wait()
		for i := range 5 {
			close(fail[6+i])
		}
		fx.advance(time.Minute)
		fx.wantDepth("error", 11)
		equal(fx, "calls", calls.Load(), 1)
		ep.Resume()
		close(fail[11])
		fx.advance(time.Minute)
		fx.wantDepth("error", 12)
		equal(fx, "calls after one failure since Resume", calls.Load(), 1)
	})
}

// Rule R50.
func TestFailureLimit_NothingStartsBeforeOnReachedReturns(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		returned := make(chan struct{})
		var calls atomic.Int64
		ep, _ := fx.runLimited(1, func(ep *core.Endpoint, _ error) {
			if calls.Add(1) == 1 {
				ep.Pause()
				ep.Resume()
				<-returned
			}
		})
		fx.enqueue("bad 1", "bad 2", "bad 3")
		fx.advance(time.Hour)
		fx.wantDepth("error", 1)
		fx.wantDepth("orders", 2)
		close(returned)
		fx.advance(time.Minute)
		fx.wantDepth("error", 3)
		fx.wantDepth("orders", 0)
		equal(fx, "calls", calls.Load(), 3)
		equal(fx, "paused", ep.Health().Paused, false)
	})
}

// Rule R50.
// Messages that fail after Resume and before OnReached returns do not call it again.
func TestFailureLimit_ResumeInOnReachedIsNoSecondCall(t *testing.T) {
	bubble(t, func(fx *fixture) {
		release, returned := make(chan struct{}), make(chan struct{})
		var calls atomic.Int64
		var ep *core.Endpoint
		recover := limited(1, func(context.Context, error) {
			calls.Add(1)
			ep.Pause()
			ep.Resume()
			<-returned
		})
		ep = fx.newEndpoint("orders", core.Config{Concurrency: 6, Recoverability: recover})
		fx.handle(ep, "order", func(ctx context.Context, m *core.Message) error {
			if m.ID != "bad 0" {
				<-release
			}
			return failBadMessages(ctx, m)
		})
		fx.run(ep)
		fx.enqueue("bad 1", "bad 2", "bad 3", "bad 4", "bad 5")
		fx.enqueue("bad 0")
		close(release)
		synctest.Wait()
		close(returned)
		fx.enqueue("good")
		fx.wantDepth("error", 6)
		fx.wantDepth("orders", 0)
		equal(fx, "calls", calls.Load(), 1)
	})
}

// Rule R50.
func TestFailureLimit_ResumeStartsTheCount(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var calls atomic.Int64
		ep, _ := fx.runLimited(3, func(*core.Endpoint, error) { calls.Add(1) })
		fx.enqueue("bad 1", "bad 2")
		ep.Pause()
		ep.Resume()
		fx.enqueue("bad 3", "bad 4")
		equal(fx, "calls after two failures since Resume", calls.Load(), 0)
		fx.enqueue("bad 5")
		equal(fx, "calls after three", calls.Load(), 1)
	})
}

// Rule R50.
func TestFailureLimit_OnReachedThatPanicsIsReported(t *testing.T) {
	for name, end := range map[string]func(){"panic": func() { panic("boom") }, "Goexit": runtime.Goexit} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				var calls atomic.Int64
				fx.runLimited(2, func(*core.Endpoint, error) {
					calls.Add(1)
					end()
				})
				fx.enqueue("bad 1", "bad 2", "bad 3", "bad 4", "good")
				fx.wantDepth("orders", 0)
				equal(fx, "calls", calls.Load(), 2)
				equal(fx, "lines", len(fx.logs.find("panicked")), 2)
			})
		})
	}
}

// Rule R50.
func TestFailureLimit_OnReachedMayShutDown(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var told recorder[error]
		_, run := fx.runLimited(1, func(ep *core.Endpoint, _ error) { told.add(ep.Shutdown(fx.Context())) })
		fx.enqueue("bad 1", "bad 2")
		if err := run.wait(); err != nil {
			fx.Errorf("Run returned %v", err)
		}
		if all := told.all(); len(all) != 1 || all[0] != nil {
			fx.Errorf("Shutdown returned %v", all)
		}
		fx.wantDepth("orders", 1)
	})
}

// Rule R50.
func TestFailureLimit_InRunAllOneEndpointEnds(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		const many = 1000
		var criticals recorder[error]
		one := fx.newEndpoint("orders", core.Config{
			Concurrency: 2, Recoverability: limited(2, nil), Observers: []core.Observer{{CriticalError: func(_ context.Context, _ *core.Endpoint, err error) { criticals.add(err) }}},
		})
		release := make(chan struct{})
		fx.handle(one, "order", func(ctx context.Context, m *core.Message) error {
			if m.ID == "slow" {
				<-release
			}
			return failBadMessages(ctx, m)
		})
		var handled atomic.Int64
		other := fx.newEndpoint("shipping", core.Config{Recoverability: limited(1, nil)})
		fx.handle(other, "order", func(ctx context.Context, m *core.Message) error {
			handled.Add(1)
			return failBadMessages(ctx, m)
		})
		done := make(chan error, 1)
		go func() { done <- core.RunAll(fx.Context(), one, other) }()
		synctest.Wait()
		fx.enqueue("slow", "bad 1", "bad 2", "bad 3")
		h := one.Health() // while it waits for its handler
		equal(fx, "Health at the limit", fmt.Sprint(h.Running, h.Draining, h.InFlight), "false true 1")
		if !errors.Is(h.RunError, core.ErrUnacceptableMessageLimit) || !strings.Contains(h.RunError.Error(), `run endpoint "orders"`) {
			fx.Errorf("Health.RunError at the limit is %v", h.RunError)
		}
		if all := criticals.all(); len(all) != 1 || !errors.Is(all[0], core.ErrUnacceptableMessageLimit) || !strings.Contains(all[0].Error(), "the others of RunAll continue") {
			fx.Errorf("CriticalError got %v", all)
		}
		close(release)
		synctest.Wait()
		h = one.Health()
		equal(fx, "Health after the end", fmt.Sprint(h.Running, h.Draining, errors.Is(h.RunError, core.ErrUnacceptableMessageLimit)), "false false true")
		fx.wantDepth("orders", 1)
		fx.wantDepth("error", 2)

		for i := range many {
			m := order(fmt.Sprint("s", i))
			m.Queue = "shipping"
			fx.send(m)
		}
		fx.advance(time.Hour)
		equal(fx, "messages of the other endpoint that were handled", handled.Load(), many)
		equal(fx, "the other endpoint runs", other.Health().Running, true)
		select {
		case err := <-done:
			fx.Fatalf("RunAll returned %v while an endpoint runs", err)
		default:
		}
		m := order("bad 4")
		m.Queue = "shipping"
		fx.send(m) // the last endpoint ends too
		err := <-done
		if !errors.Is(err, core.ErrUnacceptableMessageLimit) || !containsAll(err.Error(), `run endpoint "orders"`, `run endpoint "shipping"`) {
			fx.Errorf("RunAll returned %v", err)
		}
	})
}

// Rule R50.
func TestFailureLimit_ReachedDuringADrainIsNoCriticalError(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var criticals recorder[error]
		one := fx.newEndpoint("orders", core.Config{
			Recoverability: limited(1, nil), Observers: []core.Observer{{CriticalError: func(_ context.Context, _ *core.Endpoint, err error) { criticals.add(err) }}},
		})
		release := make(chan struct{})
		fx.handle(one, "order", func(ctx context.Context, m *core.Message) error {
			<-release
			return failBadMessages(ctx, m)
		})
		other := fx.newEndpoint("shipping", core.Config{})
		fx.handle(other, "order", func(context.Context, *core.Message) error { return nil })
		ctx, stop := context.WithCancel(fx.Context())
		done := make(chan error, 1)
		go func() { done <- core.RunAll(ctx, one, other) }()
		synctest.Wait()
		fx.enqueue("bad 1")
		stop()
		synctest.Wait()
		close(release)
		if err := <-done; err != nil {
			fx.Errorf("RunAll returned %v", err)
		}
		fx.wantDepth("error", 1)
		if all := criticals.all(); len(all) != 0 {
			fx.Errorf("CriticalError got %v", all)
		}
	})
}

// Rule R50.
// The failures that are counted, in docs/recoverability.md#stopping-on-too-many-failures.
func TestFailureLimit_CountsMovesAlone(t *testing.T) {
	exhausted := immediateRetries(1)
	for _, test := range []struct {
		name        string
		recover     core.Recoverability
		answer      func(m *core.Message) error
		failed      func(context.Context, *core.Message, []byte, *core.Failed) error
		message     string // its id, where makeUnhandleable knows it
		messageType string // the message's type, where it is not "order"
		around      []core.Middleware
		faults      faults
		limit       int // 0 is 1
		counts      bool
	}{
		{name: "retries used up", recover: exhausted, answer: func(*core.Message) error { return errBoom }, counts: true},
		{name: "Unrecoverable", recover: exhausted, answer: func(*core.Message) error { return core.GiveUpTo(errBoom, core.DeadLetterQueue) }, counts: true},
		{name: "MoveTo", recover: exhausted, answer: func(*core.Message) error { return core.GiveUpTo(errBoom, "shipping") }, counts: true},
		{name: "Reject to the error queue", recover: exhausted, answer: func(*core.Message) error { return core.GiveUpTo(errBoom, core.DeadLetterQueue) }, counts: true},
		{name: "Reject to a dead-letter queue", recover: core.Recoverability{}, answer: func(*core.Message) error { return core.GiveUpTo(errBoom, core.DeadLetterQueue) }, counts: true},
		{name: "Invalid", recover: core.Recoverability{InvalidQueue: "invalid"}, answer: func(*core.Message) error { return core.GiveUpTo(errBoom, core.InvalidQueue) }, counts: true},
		{
			name: "RequeueLimit", recover: core.Recoverability{RequeueLimit: 1, RequeueDelay: time.Second},
			answer: func(*core.Message) error { return core.Defer(errors.New("not yet"), 0) }, counts: true,
		},
		{name: "HandleFailed that fails", recover: exhausted, answer: func(*core.Message) error { return errBoom }, failed: func(context.Context, *core.Message, []byte, *core.Failed) error { return errBoom }, counts: true},
		{name: "HandleFailed that takes the message over", recover: exhausted, answer: func(*core.Message) error { return errBoom }, failed: func(_ context.Context, _ *core.Message, _ []byte, f *core.Failed) error {
			f.TakeOver()
			return nil
		}},
		{name: "HandleFailed that lets the message go", recover: exhausted, answer: func(*core.Message) error { return errBoom }, failed: func(context.Context, *core.Message, []byte, *core.Failed) error { return nil }, counts: true},
		{name: "success after a retry", recover: exhausted, answer: func(m *core.Message) error {
			if m.Attempt == 1 {
				return errBoom
			}
			return nil
		}},
		{name: "Discard", recover: exhausted, answer: func(*core.Message) error { return core.Discard(errors.New("not needed")) }},
		{name: "Defer", recover: core.Recoverability{RequeueDelay: 2 * time.Hour}, answer: func(*core.Message) error { return core.Defer(errors.New("not yet"), 0) }},
		{name: "Refuse", recover: exhausted, answer: func(*core.Message) error { return core.Refuse(errBoom, 2*time.Hour) }},
		{name: "Defer with an error", recover: exhausted, answer: func(*core.Message) error { return core.Defer(errBoom, 2*time.Hour) }},
		{name: "RetryAfter", recover: core.Recoverability{Delayed: core.Delayed{NumberOfRetries: 1}}, answer: func(*core.Message) error { return core.RetryAfter(errBoom, 2*time.Hour) }},
		{name: "PutBack", recover: exhausted, answer: func(*core.Message) error { return core.PutBack(errBoom, 0) }},
		{name: "middleware that hides the failure", recover: exhausted, around: []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error { _ = next(ctx, m); return nil }
		})}, answer: func(*core.Message) error { return errBoom }},
		{name: "malformed", recover: exhausted, message: "malformed", faults: faults{onReceive: makeUnhandleable}, counts: true},
		{name: "MaxDeliveries", recover: exhausted, message: "too-often", faults: faults{onReceive: makeUnhandleable}, counts: true},
		{name: "undecodable", recover: exhausted, messageType: "number", counts: true},
		{name: "no handler", recover: exhausted, messageType: "unknown", counts: true},
		{name: "stored while the error queue is away", recover: exhausted, faults: faults{send: failSendsToQueue("error")}, answer: func(*core.Message) error { return errBoom }, counts: true},
		{name: "stored, and stored again", recover: exhausted, faults: faults{send: failSendsToQueue("error")}, limit: 2, answer: func(*core.Message) error { return errBoom }},
		{name: "success", recover: exhausted, answer: func(*core.Message) error { return nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				if err := fx.broker.Provision(fx.Context(), core.Topology{Queues: []string{"invalid", "audit"}}); err != nil {
					fx.Fatal(err)
				}
				fx.broker.setFaults(test.faults)
				var reached atomic.Bool
				test.recover.UnacceptableMessageLimit = core.UnacceptableMessageLimit{Count: max(test.limit, 1), OnReached: func(context.Context, error) { reached.Store(true) }}
				ep := fx.newEndpoint("orders", core.Config{Recoverability: test.recover, AuditQueue: "audit", Middleware: test.around})
				core.Handle(ep, numberType, func(context.Context, *core.Message, int) error { return nil })
				fx.handle(ep, "order", func(_ context.Context, m *core.Message) error { return test.answer(m) })
				if test.failed != nil {
					core.HandleFailed(ep, orderType, test.failed)
				}
				fx.run(ep)
				m := order(cmp.Or(test.message, "m1"))
				m.Headers.Set(headers.MessageTypes, cmp.Or(test.messageType, "order"))
				fx.send(m)
				fx.advance(time.Hour)
				equal(fx, "counts", reached.Load(), test.counts)
			})
		})
	}
}

// Rule R50.
// A paused endpoint has only the messages of its running handlers: other instances get all
// others.
func TestFailureLimit_PausedEndpointHasNoOtherMessages(t *testing.T) {
	for name, cfg := range map[string]inmemory.Config{"plain": expiringLocks, "ahead": prefetchConfig(10 * time.Second)} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, cfg, retryModes, func(fx *fixture) {
				release := make(chan struct{})
				var handled recorder[string]
				var ep *core.Endpoint
				ep = fx.newEndpoint("orders", core.Config{Concurrency: 2, Recoverability: limited(1, func(context.Context, error) { ep.Pause() })})
				fx.handle(ep, "order", func(ctx context.Context, m *core.Message) error {
					if m.ID == "slow" {
						<-release
					}
					handled.add(m.ID)
					if m.ID == "slow" {
						return errBoom
					}
					return failBadMessages(ctx, m)
				})
				run := fx.run(ep)
				for i := range 20 {
					fx.enqueue(fmt.Sprint("fast", i)) // so that others are prefetched, where they may be
				}
				fx.send(order("slow"))
				synctest.Wait() // it runs when the limit is reached
				waiting := []core.Outgoing{order("bad")}
				for i := range 20 {
					waiting = append(waiting, order(fmt.Sprint("late", i)))
				}
				fx.send(waiting...)
				synctest.Wait()
				equal(fx, "paused", ep.Health().Paused, true)
				equal(fx, "in flight with one handler running", fx.depth("orders").Locked, 1)
				equal(fx, "MaxInFlight", fx.newestMaxInFlight(), 0)
				close(release)
				fx.advance(time.Hour)
				equal(fx, "in flight", fx.depth("orders").Locked, 0)
				fx.wantDepth("orders", 20)
				fx.wantDepth("error", 2) // the one that ran too

				var taken atomic.Int64
				second := fx.newEndpoint("orders", core.Config{})
				fx.handle(second, "order", func(context.Context, *core.Message) error { taken.Add(1); return nil })
				other := fx.run(second)
				fx.advance(time.Minute)
				equal(fx, "handled by another instance", taken.Load(), 20)
				if err := other.stop(); err != nil {
					fx.Error(err)
				}
				ep.Resume()
				fx.enqueue("last")
				fx.advance(time.Minute)
				fx.wantDepth("orders", 0)
				equal(fx, "handled by the resumed one", handled.len(), 23)
				if err := run.stop(); err != nil {
					fx.Error(err)
				}
			})
		})
	}
}

// Rule R50.
// Pauses at the limit and others, Resume and ends of Run in any order lose nothing.
func TestFailureLimit_PausesLoseNothing(t *testing.T) {
	for name, cfg := range map[string]inmemory.Config{"ahead": prefetchConfig(10 * time.Second), "counting": countsReleasesConfig()} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, cfg, retryModes, func(fx *fixture) {
				const messages = 500
				var ep *core.Endpoint
				recover := limited(3, func(context.Context, error) {
					ep.Pause()
					time.AfterFunc(200*time.Millisecond, ep.Resume)
				})
				recover.MaxDeliveries = core.Off
				var good atomic.Int64
				ep = fx.newEndpoint("orders", core.Config{Recoverability: recover})
				fx.handle(ep, "order", func(ctx context.Context, m *core.Message) error {
					time.Sleep(time.Duration(len(m.ID)) * time.Millisecond)
					err := failBadMessages(ctx, m)
					if err == nil {
						good.Add(1)
					}
					return err
				})
				run := fx.run(ep)
				for i := range messages {
					id := fmt.Sprint("good", i)
					if i%10 == 0 {
						id = fmt.Sprint("bad", i)
					}
					fx.send(order(id))
				}
				for i := range 40 {
					switch i % 4 {
					case 0:
						ep.Pause()
					case 1:
						if err := run.stop(); err != nil {
							fx.Error(err)
						}
						run = fx.start(ep)
					case 2:
						ep.Resume()
					}
					time.Sleep(time.Duration(i*7) * time.Millisecond)
				}
				ep.Resume()
				fx.advance(time.Hour)
				fx.wantDepth("orders", 0)
				fx.wantDepth("error", messages/10)
				equal(fx, "handled", good.Load(), messages*9/10)
			})
		})
	}
}
