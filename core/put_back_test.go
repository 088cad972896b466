package core_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

// switchableMiddleware is middleware that puts messages back while it is off.
type switchableMiddleware struct {
	off   atomic.Bool
	types []string // nil is all
	pause core.Pause
}

func (s *switchableMiddleware) middleware(next core.HandlerFunc) core.HandlerFunc {
	return func(ctx context.Context, m *core.Message) error {
		if s.off.Load() && (s.types == nil || slices.Contains(s.types, m.Type)) {
			return core.PutBack(errBoom, s.pause)
		}
		return next(ctx, m)
	}
}

// countingTransports are the ways in which brokers count deliveries.
var countingTransports = map[string]func(*core.Capabilities){
	"failures are counted":     func(*core.Capabilities) {},
	"each delivery is counted": func(c *core.Capabilities) { c.CountsReleases = true },
	"counted in memory":        func(c *core.Capabilities) { c.NativeDeliveryCount = false },
}

var allScopes = []core.PauseScope{core.PauseEndpoint, core.PauseMessage, core.PauseCopy}

// onCountingTransports runs body for each way to count, mode, scope and group.
func onCountingTransports(t *testing.T, body func(fx *fixture, scope core.PauseScope, group string)) {
	t.Helper()
	for name, change := range countingTransports {
		for _, scope := range allScopes {
			for _, group := range []string{"", "g"} {
				t.Run(fmt.Sprintf("%s, scope %d, group %q", name, scope, group), func(t *testing.T) {
					inModesWith(t, withCapabilities(change), retryModes, func(fx *fixture) { body(fx, scope, group) })
				})
			}
		}
	}
}

// A message that is put back between its attempts has as many as any other.
func TestPutBack_CostsNoAttempt(t *testing.T) {
	onCountingTransports(t, func(fx *fixture, scope core.PauseScope, group string) {
		var seen recorder[string]
		var deliveries atomic.Int64
		every := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				if deliveries.Add(1)%2 == 0 {
					fx.noError(m.Send("shipping", "order", nil))
					return core.PutBack(errBoom, core.Pause{Scope: scope})
				}
				return next(ctx, m)
			}
		}
		fx.runOrders(core.Config{
			Middleware:     []core.Middleware{core.MiddlewareFunc(every)},
			Recoverability: core.Recoverability{Immediate: core.Immediate{Retries: 3}, Delayed: core.Delayed{Retries: 1}, RequeueLimit: 1},
		}, func(_ context.Context, m *core.Message) error {
			seen.add(fmt.Sprint(m.DelayedRetries, ".", m.Attempt, ".", m.Deferrals))
			return errBoom
		})
		out := order("m1")
		out.GroupKey = group
		fx.send(out)
		fx.advance(time.Hour)
		want := []string{"0.1.0", "0.2.0", "0.3.0", "0.4.0", "1.1.0", "1.2.0", "1.3.0", "1.4.0"}
		if got := seen.all(); !slices.Equal(got, want) {
			fx.Errorf("attempts %q, want %q", got, want)
		}
		failed := fx.onlyMessage("error")
		if value, ok := failed.Headers.Lookup(core.HeaderFailures); ok {
			fx.Errorf("the error queue shows %s failures", value)
		}
		fx.wantDepth("shipping", 0)
	})
}

// Whatever the broker counts, a hundred pauses end no message.
func TestPutBack_AnyNumberOfTimes(t *testing.T) {
	onCountingTransports(t, func(fx *fixture, scope core.PauseScope, group string) {
		if group != "" && fx.broker.caps.CountsReleases {
			return // bounded by MaxDeliveries: a copy would come after its group
		}
		s := &switchableMiddleware{pause: core.Pause{Length: time.Second, Scope: scope}}
		s.off.Store(true)
		var handled, puts atomic.Int64
		var recovered recoveryRecorder
		var ids recorder[string]
		count := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error { puts.Add(1); return next(ctx, m) }
		}
		r := noRetries
		r.MaxDeliveries.Count = 5
		fx.broker.setFaults(faults{onReceive: func(in *core.Incoming) { ids.add(in.NativeID) }})
		fx.runOrders(core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(count), core.MiddlewareFunc(s.middleware)}, Recoverability: r, Observers: []core.Observer{recovered.observer()}},
			func(_ context.Context, m *core.Message) error {
				equal(fx, "attempt", m.Attempt, 1)
				handled.Add(1)
				return nil
			})
		out := order("m1")
		out.GroupKey = group
		fx.send(out)
		fx.advance(99*time.Second + time.Millisecond)
		if got := puts.Load(); got != 100 {
			fx.Errorf("%d deliveries in 99 s of pauses of 1 s, want 100", got)
		}
		all := recovered.all()
		if len(all) != 100 || all[99].Action != (core.Action{Kind: core.ActionPutBack, Delay: time.Second}) || all[99].Deferred {
			fx.Errorf("observers were told of %d, the last is %+v", len(all), all[len(all)-1].Action)
		}
		copies := fx.broker.caps.CountsReleases || group == "" &&
			(scope == core.PauseCopy || scope == core.PauseMessage && fx.mode == core.TransactionSendsAtomicWithReceive)
		seen := ids.all()
		slices.Sort(seen)
		if n, want := len(slices.Compact(seen)), map[bool]int{true: 100, false: 1}[copies]; n != want {
			fx.Errorf("%d native ids, want %d", n, want)
		}
		s.off.Store(false)
		fx.advance(time.Second)
		equal(fx, "handled", handled.Load(), 1)
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 0)
	})
}

func TestPutBack_PausesGrow(t *testing.T) {
	for _, scope := range allScopes {
		inModes(t, retryModes, func(fx *fixture) {
			start := time.Now()
			var seen recorder[string]
			fx.runOrders(core.Config{Concurrency: 1}, func(_ context.Context, m *core.Message) error {
				seen.add(fmt.Sprint(time.Since(start)))
				if n := len(seen.all()); n == 8 || n > 10 {
					return nil // lets the pauses begin anew
				}
				return core.PutBack(errBoom, core.Pause{Scope: scope})
			})
			fx.enqueue("m1")
			fx.advance(2 * time.Minute)
			fx.enqueue("m2")
			fx.advance(time.Minute)
			want := []string{"0s", "1s", "3s", "7s", "15s", "31s", "1m1s", "1m31s", "2m0s", "2m1s", "2m3s"}
			if got := seen.all(); !slices.Equal(got, want) {
				fx.Errorf("deliveries at %v, want %v", got, want)
			}
		})
	}
}

func TestPutBack_TheEndpointWaits(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		s := &switchableMiddleware{types: []string{"order"}, pause: core.Pause{Length: 10 * time.Second}}
		s.off.Store(true)
		start := time.Now()
		var seen recorder[string]
		ep := fx.newEndpoint("orders", core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(s.middleware)}, Instance: "one"})
		for _, messageType := range []string{"order", "other"} {
			fx.handle(ep, messageType, func(_ context.Context, m *core.Message) error {
				seen.add(fmt.Sprint(m.ID, " at ", time.Since(start)))
				return nil
			})
		}
		fx.run(ep)
		fx.enqueue("m1")
		other := order("m2")
		other.Headers.Set(core.HeaderMessageTypes, "other")
		fx.send(other)
		fx.advance(time.Second)
		h := ep.Health()
		equal(fx, "put back until", h.PutBackUntil, start.Add(10*time.Second))
		equal(fx, "handled in the pause", strings.Join(seen.all(), ","), "")
		fx.messages("orders") // both messages are there for others
		equal(fx, "available", len(fx.messages("orders")), 2)
		s.off.Store(false)
		fx.advance(8*time.Second + 999*time.Millisecond)
		equal(fx, "handled at the end of the pause", strings.Join(seen.all(), ","), "")
		fx.advance(time.Second)
		got := seen.all()
		slices.Sort(got)
		equal(fx, "handled", strings.Join(got, ","), "m1 at 10s,m2 at 10s")
		equal(fx, "put back until", ep.Health().PutBackUntil, time.Time{})
	})
}

// Another instance has the message at once, or after a second where the broker counts every
// delivery.
func TestPutBack_ToAnotherInstance(t *testing.T) {
	for name, change := range countingTransports {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, withCapabilities(change), retryModes, func(fx *fixture) {
				start := time.Now()
				var handled recorder[string]
				cold := fx.newEndpoint("orders", core.Config{Instance: "cold"})
				fx.handle(cold, "order", func(context.Context, *core.Message) error {
					return core.PutBack(errBoom, core.Pause{Length: time.Hour})
				})
				fx.run(cold)
				fx.enqueue("m1")
				warm := fx.newEndpoint("orders", core.Config{Instance: "warm"})
				fx.handle(warm, "order", func(_ context.Context, m *core.Message) error {
					handled.add(fmt.Sprint(m.ID, " after ", time.Since(start), " attempt ", m.Attempt))
					return nil
				})
				fx.run(warm)
				fx.advance(time.Minute)
				wait := time.Duration(0)
				if fx.broker.caps.CountsReleases {
					wait = time.Second
				}
				equal(fx, "handled", strings.Join(handled.all(), ","), fmt.Sprintf("m1 after %v attempt 1", wait))
			})
		})
	}
}

func TestPutBack_OneTypeIsOffAndOthersFlow(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		s := &switchableMiddleware{types: []string{"order"}, pause: core.Pause{Scope: core.PauseMessage}}
		s.off.Store(true)
		var others, orders, deliveries atomic.Int64
		count := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				if m.Type == "order" {
					deliveries.Add(1)
				}
				return next(ctx, m)
			}
		}
		ep := fx.newEndpoint("orders", core.Config{Concurrency: 2, Middleware: []core.Middleware{core.MiddlewareFunc(count), core.MiddlewareFunc(s.middleware)}})
		fx.handle(ep, "order", func(context.Context, *core.Message) error { orders.Add(1); return nil })
		fx.handle(ep, "other", func(context.Context, *core.Message) error { others.Add(1); return nil })
		fx.run(ep)
		for n := range 20 {
			fx.enqueue(fmt.Sprint("off ", n))
		}
		for n := range 60 {
			other := order(fmt.Sprint("other ", n))
			other.Headers.Set(core.HeaderMessageTypes, "other")
			fx.send(other)
			fx.advance(time.Second)
			if got := others.Load(); got != int64(n+1) {
				fx.Fatalf("%d others were handled in %d s, want %d", got, n+1, n+1)
			}
		}
		// At 0, 1, 3, 7, 15, 31 s.
		if got := deliveries.Load(); got != 6*20 {
			fx.Errorf("20 messages were delivered %d times in a minute, want 120", got)
		}
		if fx.mode == core.TransactionReceiveOnly {
			equal(fx, "messages that are kept", ep.Health().PutBack, 20)
		}
		s.off.Store(false)
		fx.advance(30 * time.Second)
		equal(fx, "handled after the switch was on again", orders.Load(), 20)
		equal(fx, "messages that are kept", ep.Health().PutBack, 0)
		equal(fx, "attempts are counted", len(fx.messages("error")), 0)
	})
}

func TestPutBack_AContextEndsThePause(t *testing.T) {
	for _, scope := range []core.PauseScope{core.PauseEndpoint, core.PauseMessage} {
		t.Run(fmt.Sprint("scope ", scope), func(t *testing.T) {
			inModes(t, []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
				off, on := context.WithCancel(fx.Context())
				s := &switchableMiddleware{pause: core.Pause{Length: time.Hour, Scope: scope, Context: off}}
				s.off.Store(true)
				var handled, deliveries atomic.Int64
				count := func(next core.HandlerFunc) core.HandlerFunc {
					return func(ctx context.Context, m *core.Message) error { deliveries.Add(1); return next(ctx, m) }
				}
				fx.runOrders(core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(count), core.MiddlewareFunc(s.middleware)}}, func(context.Context, *core.Message) error { handled.Add(1); return nil })
				fx.enqueue("m1", "m2", "m3")
				fx.advance(time.Minute)
				equal(fx, "handled while it is off", handled.Load(), 0)
				s.off.Store(false)
				on()
				synctest.Wait()
				equal(fx, "handled at once", handled.Load(), 3)

				// One that has ended shortens the pause, and does not do away with it.
				s.off.Store(true)
				deliveries.Store(0)
				fx.enqueue("m4")
				fx.advance(10*time.Second + time.Millisecond)
				equal(fx, "deliveries in ten seconds", deliveries.Load(), 11)
				s.off.Store(false)
			})
		})
	}
}

// Contexts that do not end keep nothing of pauses that have ended.
func TestPutBack_ForgetsContexts(t *testing.T) {
	for _, scope := range []core.PauseScope{core.PauseEndpoint, core.PauseMessage} {
		for _, shared := range []bool{true, false} {
			inModes(t, []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
				var waiting afterFuncCounter
				early := waiting.context(fx.Context())
				var deliveries atomic.Int64
				fx.runOrders(core.Config{}, func(context.Context, *core.Message) error {
					if deliveries.Add(1) > 50 {
						return nil
					}
					if !shared {
						early = waiting.context(fx.Context())
					}
					return core.PutBack(errBoom, core.Pause{Length: time.Second, Scope: scope, Context: early})
				})
				fx.enqueue("m1")
				fx.advance(time.Minute)
				equal(fx, "deliveries", deliveries.Load(), 51)
				if n := waiting.max.Load(); n > 2 { // those of one pause and of the next
					fx.Errorf("%d functions waited for contexts at the same time", n)
				}
			})
		}
	}
}

// afterFuncCounter counts the functions of context.AfterFunc that wait for its contexts.
type afterFuncCounter struct{ now, max atomic.Int64 }

func (w *afterFuncCounter) context(parent context.Context) context.Context {
	return &watchedContext{parent, w, make(chan struct{})}
}

type watchedContext struct {
	context.Context
	by   *afterFuncCounter
	done chan struct{}
}

func (c *watchedContext) Done() <-chan struct{} { return c.done }
func (c *watchedContext) Err() error            { return nil }
func (c *watchedContext) AfterFunc(func()) func() bool {
	c.by.max.Store(max(c.by.max.Load(), c.by.now.Add(1)))
	return func() bool { c.by.now.Add(-1); return true }
}

func TestPutBack_KeepsABoundedNumber(t *testing.T) {
	inModes(t, []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
		s := &switchableMiddleware{pause: core.Pause{Length: 10 * time.Second, Scope: core.PauseMessage}}
		s.off.Store(true)
		var handled atomic.Int64
		ep, run := fx.runOrders(core.Config{Middleware: []core.Middleware{core.MiddlewareFunc(s.middleware)}}, func(context.Context, *core.Message) error { handled.Add(1); return nil })
		var ids []string
		for n := range 1500 {
			ids = append(ids, fmt.Sprint("m", n))
		}
		fx.enqueue(ids...)
		fx.advance(time.Second)
		const most = 1000 + 4*16 // with those that are in the 16 slots, fetched ahead and being settled
		if n := ep.Health().PutBack; n < 1000 || n > most {
			fx.Errorf("%d messages are kept, want from 1,000 to %d", n, most)
		}
		equal(fx, "critical errors", ep.Health().CriticalErrors, 0)
		equal(fx, "stalled", ep.Health().Stalled, false)
		fx.advance(10 * time.Second)
		if n := ep.Health().PutBack; n < 1000 || n > most {
			fx.Errorf("%d messages are kept later, want from 1,000 to %d", n, most)
		}
		s.off.Store(false)
		fx.advance(21 * time.Second)
		equal(fx, "handled", handled.Load(), 1500)
		s.off.Store(true)
		fx.enqueue("last")
		fx.noError(run.stop()) // gives back what is kept
		fx.wantDepth("orders", 1)
		equal(fx, "available", len(fx.messages("orders")), 1)
		fx.wantDepth("error", 0)
	})
}

// Copies wait in any number, and others pass them. Without delayed delivery this process
// keeps the messages.
func TestPutBack_CopiesLetOthersPass(t *testing.T) {
	for name, tt := range map[string]struct {
		waits        int
		capabilities func(*core.Capabilities)
	}{
		"copies":                {3000, func(*core.Capabilities) {}},
		"no delayed delivery":   {900, func(c *core.Capabilities) { c.DelayedDelivery = false }},
		"each delivery counted": {3000, func(c *core.Capabilities) { c.CountsReleases = true }},
	} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, withCapabilities(tt.capabilities), allModes[1:2], func(fx *fixture) {
				var passed atomic.Int64
				for i := range tt.waits {
					fx.enqueue(fmt.Sprint("waits ", i))
				}
				for i := range 100 {
					fx.enqueue(fmt.Sprint("passes ", i))
				}
				ep, _ := fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
					if strings.HasPrefix(m.ID, "waits") {
						return core.PutBack(errBoom, core.Pause{Length: time.Minute, Scope: core.PauseCopy})
					}
					passed.Add(1)
					return nil
				})
				fx.advance(time.Second)
				equal(fx, "handled", passed.Load(), 100)
				if kept := ep.Health().PutBack; kept != 0 && fx.broker.caps.DelayedDelivery {
					fx.Errorf("this process keeps %d messages", kept)
				}
			})
		})
	}
}

func TestPutBack_IsNoFailureAndNoSuccess(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		s := &switchableMiddleware{pause: core.Pause{Length: time.Second}}
		ep, _ := fx.runOrders(core.Config{Concurrency: 1, Middleware: []core.Middleware{core.MiddlewareFunc(s.middleware)}, Recoverability: rateLimitedConfig(2)},
			func(context.Context, *core.Message) error { return errBoom })
		s.off.Store(true)
		fx.enqueue("m1", "m2", "m3")
		fx.advance(time.Minute)
		equal(fx, "rate limited after put-backs", ep.Health().RateLimited, false)
		s.off.Store(false)
		fx.advance(10 * time.Second)
		equal(fx, "rate limited after failures", ep.Health().RateLimited, true)
		s.off.Store(true)
		fx.advance(30 * time.Second)
		equal(fx, "rate limited after further put-backs", ep.Health().RateLimited, true)
	})
}

// The waits of rate limiting and of messages that were put back do not end each other,
// whichever begins first.
func TestPutBack_BesideRateLimiting(t *testing.T) {
	for _, failsAfter := range []time.Duration{0, 2 * time.Second} {
		inModes(t, []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
			start := time.Now()
			off, on := context.WithCancel(fx.Context())
			defer on()
			var seen recorder[string]
			r := rateLimitedConfig(1)
			r.RateLimit.TimeToWait = 20 * time.Second
			fx.runOrders(core.Config{Concurrency: 2, Recoverability: r}, func(_ context.Context, m *core.Message) error {
				seen.add(fmt.Sprint(m.ID, " at ", time.Since(start)))
				switch {
				case len(seen.all()) > 2:
				case m.ID == "slow":
					time.Sleep(time.Second)
					return core.PutBack(errBoom, core.Pause{Length: time.Hour, Context: off})
				case m.ID == "bad":
					time.Sleep(failsAfter)
					return core.DeferError(errBoom, time.Millisecond)
				}
				return nil
			})
			fx.enqueue("slow", "bad")
			fx.advance(5 * time.Second)
			on()
			fx.advance(14*time.Second + failsAfter)
			equal(fx, "attempts before the wait of rate limiting has passed", len(seen.all()), 2)
			fx.advance(2 * time.Second)
			got := seen.all()
			slices.Sort(got)
			again := 20*time.Second + failsAfter
			equal(fx, "attempts", strings.Join(got, ","), fmt.Sprintf("bad at 0s,bad at %v,slow at 0s,slow at %v", again, again))
		})
	}
}

func TestPutBack_InModeNone(t *testing.T) {
	inModes(t, allModes[:1], func(fx *fixture) {
		fx.runOrders(core.Config{}, func(context.Context, *core.Message) error { return core.PutBack(errBoom, core.Pause{}) })
		fx.enqueue("m1")
		fx.onlyMessage("error")
		equal(fx, "lines that say why", len(fx.logs.findReason("PutBack(0s) was asked for, but transaction mode None cannot give a message back")), 1)
	})
}
