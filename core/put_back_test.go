package core_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// switchableMiddleware is middleware that puts messages back while it is off.
type switchableMiddleware struct {
	off   atomic.Bool
	types []string // nil is all
	pause time.Duration
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

// onCountingTransports runs body for each way to count, mode and group.
func onCountingTransports(t *testing.T, body func(fx *fixture, group string)) {
	t.Helper()
	for name, change := range countingTransports {
		for _, group := range []string{"", "g"} {
			t.Run(fmt.Sprintf("%s, group %q", name, group), func(t *testing.T) {
				inModesWith(t, withCapabilities(change), retryModes, func(fx *fixture) { body(fx, group) })
			})
		}
	}
}

// A message that is put back between its attempts has as many as any other.
func TestPutBack_CostsNoAttempt(t *testing.T) {
	onCountingTransports(t, func(fx *fixture, group string) {
		var seen recorder[string]
		var deliveries atomic.Int64
		every := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				if deliveries.Add(1)%2 == 0 {
					fx.noError(m.Send("shipping", orderType.Of(nil)))
					return core.PutBack(errBoom, 0)
				}
				return next(ctx, m)
			}
		}
		fx.runOrders(core.Config{
			Middleware:     []core.Middleware{core.MiddlewareFunc(every)},
			Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 3}, Delayed: core.Delayed{NumberOfRetries: 1}, RequeueLimit: 1},
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
		if value, ok := failed.Headers.Lookup(headers.Failures); ok {
			fx.Errorf("the error queue shows %s failures", value)
		}
		fx.wantDepth("shipping", 0)
	})
}

// A hundred pauses end no message, with any delivery count of the broker.
func TestPutBack_AnyNumberOfTimes(t *testing.T) {
	onCountingTransports(t, func(fx *fixture, group string) {
		if group != "" && fx.broker.caps.CountsReleases {
			return // bounded by MaxDeliveries: a copy would come after its group
		}
		s := &switchableMiddleware{pause: time.Second}
		s.off.Store(true)
		var handled, puts atomic.Int64
		var recovered recoveryRecorder
		var ids recorder[string]
		count := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error { puts.Add(1); return next(ctx, m) }
		}
		r := noRetries
		r.MaxDeliveries = 5
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
		if len(all) != 100 || all[99].Action != (core.Action{Kind: core.ActionPutBack, Delay: time.Second}) {
			fx.Errorf("observers were told of %d, the last is %+v", len(all), all[len(all)-1].Action)
		}
		seen := ids.all()
		slices.Sort(seen)
		if n, want := len(slices.Compact(seen)), map[bool]int{true: 100, false: 1}[fx.broker.caps.CountsReleases]; n != want {
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
	inModes(t, retryModes, func(fx *fixture) {
		start := time.Now()
		var seen recorder[string]
		fx.runOrders(core.Config{Concurrency: 1}, func(_ context.Context, m *core.Message) error {
			seen.add(fmt.Sprint(time.Since(start)))
			if n := len(seen.all()); n == 8 || n > 10 {
				return nil // lets the pauses begin anew
			}
			return core.PutBack(errBoom, 0)
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

func TestPutBack_TheEndpointWaits(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		s := &switchableMiddleware{types: []string{"order"}, pause: 10 * time.Second}
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
		other.Headers.Set(headers.MessageTypes, "other")
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
					return core.PutBack(errBoom, time.Hour)
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

func TestPutBack_IsNoFailureAndNoSuccess(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		s := &switchableMiddleware{pause: time.Second}
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
			var seen recorder[string]
			r := rateLimitedConfig(1)
			r.RateLimit.TimeToWait, r.Delayed = 20*time.Second, core.Delayed{NumberOfRetries: 1}
			fx.runOrders(core.Config{Concurrency: 2, Recoverability: r}, func(_ context.Context, m *core.Message) error {
				seen.add(fmt.Sprint(m.ID, " at ", time.Since(start)))
				switch {
				case len(seen.all()) > 2:
				case m.ID == "slow":
					time.Sleep(time.Second)
					return core.PutBack(errBoom, 3*time.Second)
				case m.ID == "bad":
					time.Sleep(failsAfter)
					return core.RetryAfter(errBoom, time.Millisecond)
				}
				return nil
			})
			fx.enqueue("slow", "bad")
			fx.advance(19*time.Second + failsAfter)
			equal(fx, "attempts before the wait of rate limiting has passed", len(seen.all()), 2)
			fx.advance(2 * time.Second)
			got := seen.all()
			slices.Sort(got)
			nextFailure := 20*time.Second + failsAfter
			equal(fx, "attempts", strings.Join(got, ","), fmt.Sprintf("bad at 0s,bad at %v,slow at 0s,slow at %v", nextFailure, nextFailure))
		})
	}
}

func TestPutBack_InModeNone(t *testing.T) {
	inModes(t, allModes[:1], func(fx *fixture) {
		fx.runOrders(core.Config{}, func(context.Context, *core.Message) error { return core.PutBack(errBoom, 0) })
		fx.enqueue("m1")
		fx.onlyMessage("error")
		equal(fx, "lines that say why", len(fx.logs.findReason("PutBack(0s) was asked for, but transaction mode None cannot give a message back")), 1)
	})
}
