package core_test

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// refusingMiddleware is middleware that refuses the first n deliveries, once it was told
// to.
func refusingMiddleware(n int64, on func(m *core.Message) bool) core.MiddlewareFunc {
	var left atomic.Int64
	left.Store(n)
	return func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) error {
			if on(m) && left.Add(-1) >= 0 {
				return core.Refuse(core.ErrCircuitOpen, 5*time.Second)
			}
			return next(ctx, m)
		}
	}
}

func TestRefuse_CostsNothing(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		start := time.Now()
		var seen recorder[string]
		fx.runOrders(core.Config{
			Middleware: []core.Middleware{refusingMiddleware(3, func(m *core.Message) bool { return m.DelayedRetries == 1 })},
			Recoverability: core.Recoverability{
				Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 2, TimeIncrease: 10 * time.Second}, RequeueLimit: 1,
			},
		}, func(_ context.Context, m *core.Message) error {
			seen.add(fmt.Sprint(time.Since(start), " retries ", m.DelayedRetries, " deferrals ", m.Deferrals))
			return errBoom
		})
		fx.enqueue("m1")
		fx.advance(time.Minute)
		want := []string{"0s retries 0 deferrals 0", "25s retries 1 deferrals 0", "45s retries 2 deferrals 0"}
		if got := seen.all(); !slices.Equal(got, want) {
			fx.Errorf("runs %q, want %q", got, want)
		}
		fx.onlyMessage("error")
	})
}

func TestRefuse_SaysNothingToRateLimiting(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var refused atomic.Bool
		ep, _ := fx.runOrders(core.Config{
			Concurrency:    1,
			Middleware:     []core.Middleware{refusingMiddleware(100, func(*core.Message) bool { return refused.Load() })},
			Recoverability: rateLimitedConfig(2),
		}, func(context.Context, *core.Message) error { return errBoom })
		refused.Store(true)
		fx.enqueue("m1", "m2", "m3")
		equal(fx, "rate limited after refusals", ep.Health().RateLimited, false)
		refused.Store(false)
		fx.advance(10 * time.Second)
		equal(fx, "rate limited after failures", ep.Health().RateLimited, true)
		refused.Store(true)
		fx.advance(30 * time.Second)
		equal(fx, "rate limited after further refusals", ep.Health().RateLimited, true)
	})
}

func TestRefuse_ShortensItsDelay(t *testing.T) {
	bubbleWith(t, withCapabilities(func(c *core.Capabilities) { c.MaxDelay = 2 * time.Second }), func(fx *fixture) {
		start, ran := time.Now(), time.Duration(-1)
		fx.runOrders(core.Config{
			Middleware:     []core.Middleware{refusingMiddleware(1, func(*core.Message) bool { return true })},
			Recoverability: noRetries,
		}, func(context.Context, *core.Message) error { ran = time.Since(start); return nil })
		fx.enqueue("m1")
		fx.advance(time.Minute)
		equal(fx, "handled after", ran, 2*time.Second)
	})
}

func TestRefuse_InAGroup(t *testing.T) {
	for name, counts := range map[string]bool{"failures are counted": false, "each delivery is counted": true} {
		t.Run(name, func(t *testing.T) {
			caps := inmemory.Everything()
			caps.CountsReleases = counts
			synctest.Test(t, func(t *testing.T) {
				fx := newFixture(t, inmemory.Config{Capabilities: &caps}, core.TransactionReceiveOnly)
				start := time.Now()
				var seen recorder[string]
				fx.runOrders(core.Config{
					Middleware:     []core.Middleware{refusingMiddleware(3, func(m *core.Message) bool { return m.ID == "m1" })},
					Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: core.Off}, RequeueLimit: 1},
				}, func(_ context.Context, m *core.Message) error {
					seen.add(fmt.Sprint(m.ID, " after ", time.Since(start), " attempt ", m.Attempt, " deferrals ", m.Deferrals))
					return nil
				})
				for _, id := range []string{"m1", "m2"} {
					out := order(id)
					out.GroupKey = "g"
					fx.send(out)
				}
				fx.advance(time.Minute)
				want := []string{"m1 after 15s attempt 1 deferrals 0", "m2 after 15s attempt 1 deferrals 0"}
				if got := seen.all(); !slices.Equal(got, want) {
					fx.Errorf("runs %q, want %q", got, want)
				}
			})
		})
	}
}

// The round of attempts goes on after a refusal, so that a message that always fails comes to
// its end.
func TestRefuse_GivesNoAttempt(t *testing.T) {
	caps := map[string]func(*core.Capabilities){
		"failures are counted":     func(*core.Capabilities) {},
		"each delivery is counted": func(c *core.Capabilities) { c.CountsReleases = true },
		"counted in memory":        func(c *core.Capabilities) { c.NativeDeliveryCount = false },
	}
	for _, group := range []string{"", "g"} {
		for name, change := range caps {
			t.Run(fmt.Sprintf("group %q, %s", group, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					fx := newFixture(t, withCapabilities(change), core.TransactionReceiveOnly)
					var seen recorder[string]
					var deliveries atomic.Int64
					every := refusingMiddleware(100, func(*core.Message) bool { return deliveries.Add(1)%2 == 0 })
					fx.runOrders(core.Config{
						Middleware:     []core.Middleware{every},
						Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 3}, Delayed: core.Delayed{NumberOfRetries: 1}},
					}, func(_ context.Context, m *core.Message) error {
						seen.add(fmt.Sprint(m.DelayedRetries, ".", m.Attempt))
						return errBoom
					})
					out := order("m1")
					out.GroupKey = group
					fx.send(out)
					fx.advance(time.Hour)
					want := []string{"0.1", "0.2", "0.3", "0.4", "1.1", "1.2", "1.3", "1.4"}
					if got := seen.all(); !slices.Equal(got, want) {
						fx.Errorf("attempts %q, want %q", got, want)
					}
					failed := fx.onlyMessage("error")
					if value, ok := failed.Headers.Lookup(headers.Failures); ok {
						fx.Errorf("the error queue shows %s failures", value)
					}
				})
			})
		}
	}
}

func TestRefuse_OneTypeIsOffAndOthersFlow(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var off atomic.Bool
		off.Store(true)
		var others, orders atomic.Int64
		ep := fx.newEndpoint("orders", core.Config{Concurrency: 2, Middleware: []core.Middleware{
			refusingMiddleware(1e6, func(m *core.Message) bool { return off.Load() && m.Type == "order" }),
		}})
		fx.handle(ep, "order", func(context.Context, *core.Message) error { orders.Add(1); return nil })
		fx.handle(ep, "other", func(context.Context, *core.Message) error { others.Add(1); return nil })
		fx.run(ep)
		for n := range 3000 {
			fx.send(order(fmt.Sprint("off ", n)))
		}
		for n := range 60 {
			other := order(fmt.Sprint("other ", n))
			other.Headers.Set(headers.MessageTypes, "other")
			fx.send(other)
			fx.advance(time.Second)
			if got := others.Load(); got != int64(n+1) {
				fx.Fatalf("%d others were handled in %d s, want %d", got, n+1, n+1)
			}
		}
		equal(fx, "handled while the type is off", orders.Load(), 0)
		off.Store(false)
		fx.advance(5 * time.Second)
		equal(fx, "handled after the switch was on again", orders.Load(), 3000)
		fx.wantDepth("error", 0)
	})
}

// Without delayed delivery no message can wait alone, so the endpoint does.
func TestRefuse_WithoutDelayedDelivery(t *testing.T) {
	for name, counts := range map[string]bool{"failures are counted": false, "each delivery is counted": true} {
		t.Run(name, func(t *testing.T) {
			change := func(c *core.Capabilities) { c.CountsReleases, c.DelayedDelivery = counts, false }
			inModesWith(t, withCapabilities(change), retryModes, func(fx *fixture) {
				start := time.Now()
				var seen recorder[string]
				var recovered recoveryRecorder
				delays := []time.Duration{5 * time.Second, time.Hour, 0}
				refuse := func(next core.HandlerFunc) core.HandlerFunc {
					return func(ctx context.Context, m *core.Message) error {
						if m.ID == "m1" && len(delays) > 0 {
							delay := delays[0]
							delays = delays[1:]
							return core.Refuse(errBoom, delay)
						}
						return next(ctx, m)
					}
				}
				recover := core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}}
				ep, _ := fx.runOrders(core.Config{Concurrency: 1, Middleware: []core.Middleware{core.MiddlewareFunc(refuse)}, Recoverability: recover, Observers: []core.Observer{recovered.observer()}}, func(_ context.Context, m *core.Message) error {
					seen.add(fmt.Sprint(m.ID, " after ", time.Since(start), " attempt ", m.Attempt, " deferrals ", m.Deferrals))
					return nil
				})
				fx.enqueue("m1")
				equal(fx, "put back until", ep.Health().PutBackUntil, start.Add(5*time.Second))
				fx.enqueue("m2")
				fx.advance(4 * time.Second)
				equal(fx, "handled in the pause", seen.len(), 0)
				fx.advance(2 * time.Minute)
				got := seen.all()
				slices.Sort(got)
				if len(got) != 2 || got[0] != "m1 after 1m6s attempt 1 deferrals 0" { // after 5 s, 1 min and RequeueDelay
					fx.Errorf("runs %q", got)
				}
				fx.wantDepth("error", 0)
				for _, e := range recovered.all() {
					equal(fx, "action", e.Action.Kind, core.ActionPutBack)
				}
			})
		})
	}
}
