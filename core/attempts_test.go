package core_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// countsReleasesConfig is a transport whose broker counts every delivery, a prefetched
// one that is given back too, as RabbitMQ, SQS and Service Bus do.
func countsReleasesConfig() inmemory.Config {
	return withCapabilities(func(c *core.Capabilities) { c.Prefetch, c.CountsReleases = true, true })
}

// attemptCounter counts attempts by message.
type attemptCounter struct {
	mu     sync.Mutex
	counts map[string]int
}

func (t *attemptCounter) add(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	t.counts[id]++
}

// TestAttempts_ExactWithPrefetchedMessages lets handlers turn from quick to failing and
// slow: each failing message has all its attempts, though many were prefetched for the
// quick ones, and the broker counts each delivery.
func TestAttempts_ExactWithPrefetchedMessages(t *testing.T) {
	if testing.Short() {
		t.Skip("ten runs of 1,300 messages: not in short runs")
	}
	t.Parallel()
	const quick, failing = 800, 500
	rules := core.Recoverability{
		Immediate:     core.Immediate{NumberOfRetries: 1},
		Delayed:       core.Delayed{NumberOfRetries: 1, TimeIncrease: 2 * time.Second},
		MaxDeliveries: 3,
	}
	rateLimited := rules
	rateLimited.RateLimit = core.RateLimit{ConsecutiveFailures: 20, TimeToWait: time.Second}
	for _, c := range []struct {
		name      string
		instances int
		rules     core.Recoverability
		disturb   func(step int, ep *core.Endpoint) // 200 times, 50 ms apart
	}{
		{"one instance", 1, rules, nil},
		{"three instances", 3, rules, nil},
		{"paused", 3, rules, func(step int, ep *core.Endpoint) {
			if step%2 == 0 {
				ep.Pause()
			} else {
				ep.Resume()
			}
		}},
		{"concurrency changes", 3, rules, func(step int, ep *core.Endpoint) {
			if err := ep.SetConcurrency(1 + step*7%20); err != nil {
				panic(err)
			}
		}},
		{"rate limited", 3, rateLimited, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			inModesWith(t, countsReleasesConfig(), retryModes, func(fx *fixture) {
				var attempts attemptCounter
				var endpoints []*core.Endpoint
				for range c.instances {
					ep, _ := fx.runOrders(core.Config{Recoverability: c.rules}, func(_ context.Context, m *core.Message) error {
						attempts.add(m.ID)
						switch {
						case strings.HasPrefix(m.ID, "slow"):
							time.Sleep(3 * time.Second)
						case strings.HasPrefix(m.ID, "failing"):
							return errBoom
						}
						return nil
					})
					endpoints = append(endpoints, ep)
				}
				want := map[string]int{}
				send := func(id string, times int) {
					want[id] = times
					fx.send(order(id))
				}
				for i := range quick {
					send(fmt.Sprint("quick", i), 1)
				}
				for i := range failing {
					send(fmt.Sprint("failing", i), 4)
					if i%20 == 0 {
						send(fmt.Sprint("slow", i), 1)
					}
				}
				if c.disturb != nil {
					for step := range 200 {
						for _, ep := range endpoints {
							c.disturb(step, ep)
						}
						time.Sleep(50 * time.Millisecond)
					}
				}
				fx.advance(5 * time.Hour)
				fx.wantDepth("orders", 0)
				fx.wantDepth("error", failing)
				wrong := 0
				for id, times := range want {
					if attempts.counts[id] != times {
						if wrong++; wrong <= 3 {
							fx.Errorf("%s had %d attempts, want %d", id, attempts.counts[id], times)
						}
					}
				}
				equal(fx, "messages with another number of attempts", wrong, 0)
			})
		})
	}
}

// What was prefetched when an endpoint is paused is finished where the broker would count
// it as an attempt to give it back, and nothing else is fetched.
func TestPause_PrefetchedFinishedWhereTheBrokerCounts(t *testing.T) {
	inModesWith(t, countsReleasesConfig(), retryModes[:1], func(fx *fixture) {
		var slow atomic.Bool
		var handled atomic.Int64
		ep, _ := fx.runOrders(core.Config{Concurrency: 2}, func(context.Context, *core.Message) error {
			if slow.Load() {
				time.Sleep(10 * time.Second)
			}
			handled.Add(1)
			return nil
		})
		fx.enqueue("quick")
		slow.Store(true)
		fx.enqueue("m1", "m2", "m3", "m4", "m5", "m6")
		equal(fx, "in flight before the pause", fx.depth("orders").Locked, 4)
		ep.Pause()
		fx.advance(time.Hour)
		equal(fx, "handled", handled.Load(), 1+4)
		fx.wantDepth("orders", 2)
		for _, m := range fx.messages("orders") {
			equal(fx, "delivery count of "+m.ID, m.DeliveryCount, 1) // of its first delivery, still to come
		}
		ep.Resume()
		fx.advance(time.Minute)
		fx.wantDepth("orders", 0)
	})
}

// Handlers hang in one of two instances: the messages that it has prefetched go to the
// other one, at the price of an attempt, but not before any handler that waits for a
// service would have given up.
func TestPrefetched_WhereTheBrokerCounts(t *testing.T) {
	inModesWith(t, countsReleasesConfig(), retryModes[:1], func(fx *fixture) {
		var hang atomic.Bool
		release := make(chan struct{})
		one, _ := fx.runOrders(core.Config{Concurrency: 4, Instance: "one"}, func(context.Context, *core.Message) error {
			if hang.Load() {
				<-release
			}
			return nil
		})
		for i := range 100 { // so that it knows its handlers as quick
			fx.enqueue(fmt.Sprint("quick", i))
		}
		hang.Store(true)
		for i := range 50 {
			fx.send(order(fmt.Sprint("m", i)))
		}
		prefetched := fx.depth("orders").Locked - 4
		if prefetched < 16 {
			fx.Fatalf("%d are prefetched, want many", prefetched)
		}
		var handled atomic.Int64
		ep := fx.newEndpoint("orders", core.Config{Concurrency: 4, Instance: "two"})
		fx.handle(ep, "order", func(context.Context, *core.Message) error {
			handled.Add(1)
			return nil
		})
		fx.run(ep)
		fx.advance(110 * time.Second)
		equal(fx, "handled by the other instance, after almost two minutes", int(handled.Load()), 50-4-prefetched)
		fx.advance(11 * time.Second)
		equal(fx, "handled by the other instance, after two minutes", handled.Load(), 46)
		equal(fx, "in flight", fx.depth("orders").Locked, 4)
		equal(fx, "MaxInFlight of the one that hangs", slices.Contains(fx.broker.inFlight.all(), 0), true)
		hang.Store(false)
		close(release)
		synctest.Wait()
		fx.enqueue("after")
		fx.wantDepth("orders", 0)
		equal(fx, "running", one.Health().Running, true)
	})
}

// A rate-limited endpoint keeps what it has prefetched during its short waits, and gives
// it back at once for a long one.
func TestRateLimited_PrefetchedWhereTheBrokerCounts(t *testing.T) {
	for _, c := range []struct {
		wait time.Duration
		kept bool
	}{{time.Minute, true}, {5 * time.Minute, false}} {
		t.Run(c.wait.String(), func(t *testing.T) {
			inModesWith(t, countsReleasesConfig(), retryModes[:1], func(fx *fixture) {
				rules := rateLimitedConfig(4)
				rules.RateLimit.TimeToWait = c.wait
				var down atomic.Bool
				fail := make(chan struct{})
				ep, _ := fx.runOrders(core.Config{Concurrency: 4, Recoverability: rules}, func(context.Context, *core.Message) error {
					if !down.Load() {
						return nil
					}
					<-fail
					return errBoom
				})
				for i := range 10 {
					fx.enqueue(fmt.Sprint("quick", i))
				}
				down.Store(true)
				for i := range 20 {
					fx.send(order(fmt.Sprint("m", i)))
				}
				if n := fx.depth("orders").Locked; n <= 4 {
					fx.Fatalf("%d are in flight, want some that are prefetched", n)
				}
				close(fail)
				fx.advance(time.Second)
				equal(fx, "rate limited", ep.Health().RateLimited, true)
				equal(fx, "prefetched messages are kept", fx.depth("orders").Locked > 0, c.kept)
			})
		})
	}
}

// Rule R34.
// It is about messages that were delivered more often than
// MaxDeliveries beside one that ended their process each time: where the broker counts
// every delivery, it is unknown which of them was given to a handler.
func TestMaxDeliveries_MessageThatNoHandlerSaw(t *testing.T) {
	inModesWith(t, countsReleasesConfig(), retryModes, func(fx *fixture) {
		rules := immediateRetries(1)
		rules.MaxDeliveries = 3
		// deliver lets the messages of the queue be delivered as often without a handler.
		deliver := func(times int) {
			fx.Helper()
			for range times {
				r, err := fx.broker.Transport.OpenReceiver(fx.Context(), core.ReceiverConfig{Queue: "orders", Mode: fx.mode, MaxInFlight: 10})
				if err != nil {
					fx.Fatal(err)
				}
				if _, err := r.Receive(fx.Context(), make([]core.Delivery, 10)); err != nil {
					fx.Fatal(err)
				}
				if err := r.Close(fx.Context()); err != nil {
					fx.Fatal(err)
				}
			}
		}
		fx.send(order("m1"), order("m2"))
		deliver(3)
		var handled recorder[string]
		var seen recoveryRecorder
		ep := fx.newEndpoint("orders", core.Config{Recoverability: rules, Observers: []core.Observer{seen.observer()}})
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			handled.add(fmt.Sprint(m.ID, " attempt ", m.Attempt))
			if m.ID == "m2" {
				return errBoom
			}
			return nil
		})
		run := fx.run(ep)
		equal(fx, "kinds of recovery", seen.actions(), "DelayedRetry DelayedRetry")
		equal(fx, "new copies", seen.all()[0].NewCopy && seen.all()[1].NewCopy, true)
		equal(fx, "lines about new copies", len(fx.logs.find("whose deliveries are counted from 1")), 2)
		equal(fx, "handled at once", handled.len(), 0)
		fx.advance(time.Minute)
		fx.wantDepth("orders", 0)
		failed := fx.onlyMessage("error") // m2, after all its attempts
		equal(fx, "failed", failed.ID, "m2")
		equal(fx, "header of the copy is gone", failed.Headers.Get(headers.Deliveries), "")
		equal(fx, "attempts", handled.len(), 3)

		// The copy is no more than one chance.
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		repeated := order("m3")
		repeated.Headers.Set(headers.Deliveries, "4")
		fx.send(repeated)
		deliver(3)
		fx.run(ep)
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 2)
		equal(fx, "attempts", handled.len(), 3)
	})
}
