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
	"github.com/reprise-go/reprise/transport/inmemory"
)

// countingConfig is a transport whose broker counts every delivery, a prefetched one
// that is given back too, as RabbitMQ, SQS and Service Bus do.
func countingConfig() inmemory.Config {
	return able(func(c *core.Capabilities) { c.Prefetch, c.CountsReleases = true, true })
}

// tally counts attempts by message.
type tally struct {
	mu sync.Mutex
	of map[string]int
}

func (t *tally) add(id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.of == nil {
		t.of = map[string]int{}
	}
	t.of[id]++
}

// TestAttempts_ExactWhateverWasPrefetched lets handlers turn from quick to failing and
// slow: each failing message has all its attempts, though many were prefetched for the
// quick ones, and the broker counts each delivery.
func TestAttempts_ExactWhateverWasPrefetched(t *testing.T) {
	if testing.Short() {
		t.Skip("ten runs of 1,300 messages: not in short runs")
	}
	t.Parallel()
	const quick, failing = 800, 500
	rules := core.Recoverability{
		Immediate:     core.Immediate{Retries: 1},
		Delayed:       core.Delayed{Retries: 1, Increase: 2 * time.Second},
		MaxDeliveries: core.MaxDeliveries{Count: 3},
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
			inModesOn(t, countingConfig(), retrying, func(b *bed) {
				var attempts tally
				var endpoints []*core.Endpoint
				for range c.instances {
					ep, _ := b.orders(core.Config{Recoverability: c.rules}, func(_ context.Context, m *core.Message) error {
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
					b.send(order(id))
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
				b.pass(5 * time.Hour)
				b.holds("orders", 0)
				b.holds("error", failing)
				wrong := 0
				for id, times := range want {
					if attempts.of[id] != times {
						if wrong++; wrong <= 3 {
							b.Errorf("%s had %d attempts, want %d", id, attempts.of[id], times)
						}
					}
				}
				equal(b, "messages with another number of attempts", wrong, 0)
			})
		})
	}
}

// What was prefetched when an endpoint is paused is finished where the broker would count
// it as an attempt to give it back, and nothing else is fetched.
func TestPause_PrefetchedFinishedWhereTheBrokerCounts(t *testing.T) {
	inModesOn(t, countingConfig(), retrying[:1], func(b *bed) {
		var slow atomic.Bool
		var handled atomic.Int64
		ep, _ := b.orders(core.Config{Concurrency: 2}, func(context.Context, *core.Message) error {
			if slow.Load() {
				time.Sleep(10 * time.Second)
			}
			handled.Add(1)
			return nil
		})
		b.put("quick")
		slow.Store(true)
		b.put("m1", "m2", "m3", "m4", "m5", "m6")
		equal(b, "in flight before the pause", b.depth("orders").InFlight, 4)
		ep.Pause()
		b.pass(time.Hour)
		equal(b, "handled", handled.Load(), 1+4)
		b.holds("orders", 2)
		for _, m := range b.queue("orders") {
			equal(b, "delivery count of "+m.ID, m.DeliveryCount, 1) // of its first delivery, still to come
		}
		ep.Resume()
		b.pass(time.Minute)
		b.holds("orders", 0)
	})
}

// Handlers hang in one of two instances: the messages that it has prefetched go to the
// other one, at the price of an attempt, but not before any handler that waits for a
// service would have given up.
func TestPrefetched_WhereTheBrokerCounts(t *testing.T) {
	inModesOn(t, countingConfig(), retrying[:1], func(b *bed) {
		var hang atomic.Bool
		release := make(chan struct{})
		one, _ := b.orders(core.Config{Concurrency: 4, Instance: "one"}, func(context.Context, *core.Message) error {
			if hang.Load() {
				<-release
			}
			return nil
		})
		for i := range 100 { // so that it knows its handlers as quick
			b.put(fmt.Sprint("quick", i))
		}
		hang.Store(true)
		for i := range 50 {
			b.send(order(fmt.Sprint("m", i)))
		}
		prefetched := b.depth("orders").InFlight - 4
		if prefetched < 16 {
			b.Fatalf("%d are prefetched, want many", prefetched)
		}
		var handled atomic.Int64
		ep := b.endpoint("orders", core.Config{Concurrency: 4, Instance: "two"})
		b.handle(ep, "order", func(context.Context, *core.Message) error {
			handled.Add(1)
			return nil
		})
		b.run(ep)
		b.pass(110 * time.Second)
		equal(b, "handled by the other instance, after almost two minutes", int(handled.Load()), 50-4-prefetched)
		b.pass(11 * time.Second)
		equal(b, "handled by the other instance, after two minutes", handled.Load(), 46)
		equal(b, "in flight", b.depth("orders").InFlight, 4)
		equal(b, "MaxInFlight of the one that hangs", slices.Contains(b.broker.inFlight.all(), 0), true)
		hang.Store(false)
		close(release)
		synctest.Wait()
		b.put("after")
		b.holds("orders", 0)
		equal(b, "running", one.Health().Running, true)
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
			inModesOn(t, countingConfig(), retrying[:1], func(b *bed) {
				rules := limited(4)
				rules.RateLimit.TimeToWait = c.wait
				var down atomic.Bool
				fail := make(chan struct{})
				ep, _ := b.orders(core.Config{Concurrency: 4, Recoverability: rules}, func(context.Context, *core.Message) error {
					if !down.Load() {
						return nil
					}
					<-fail
					return errBoom
				})
				for i := range 10 {
					b.put(fmt.Sprint("quick", i))
				}
				down.Store(true)
				for i := range 20 {
					b.send(order(fmt.Sprint("m", i)))
				}
				if n := b.depth("orders").InFlight; n <= 4 {
					b.Fatalf("%d are in flight, want some that are prefetched", n)
				}
				close(fail)
				b.pass(time.Second)
				equal(b, "rate limited", ep.Health().RateLimited, true)
				equal(b, "prefetched messages are kept", b.depth("orders").InFlight > 0, c.kept)
			})
		})
	}
}

// TestR34_MessageThatNoHandlerSaw is about messages that were delivered more often than
// MaxDeliveries beside one that ended their process each time: where the broker counts
// every delivery, nobody knows which of them was given to a handler.
func TestR34_MessageThatNoHandlerSaw(t *testing.T) {
	inModesOn(t, countingConfig(), retrying, func(b *bed) {
		rules := immediate(1)
		rules.MaxDeliveries.Count = 3
		// deliver lets the messages of the queue be delivered as often without a handler.
		deliver := func(times int) {
			b.Helper()
			for range times {
				r, err := b.broker.Transport.OpenReceiver(b.Context(), core.ReceiverConfig{Queue: "orders", Mode: b.mode, MaxInFlight: 10})
				if err != nil {
					b.Fatal(err)
				}
				if _, err := r.Receive(b.Context(), make([]core.Delivery, 10)); err != nil {
					b.Fatal(err)
				}
				if err := r.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.send(order("m1"), order("m2"))
		deliver(3)
		var handled record[string]
		var seen recoveries
		ep := b.endpoint("orders", core.Config{Recoverability: rules, Observers: []core.Observer{seen.observer()}})
		b.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			handled.add(fmt.Sprint(m.ID, " attempt ", m.Attempt))
			if m.ID == "m2" {
				return errBoom
			}
			return nil
		})
		run := b.run(ep)
		equal(b, "kinds of recovery", seen.kinds(), "DelayedRetry DelayedRetry")
		equal(b, "new copies", seen.all()[0].NewCopy && seen.all()[1].NewCopy, true)
		equal(b, "lines about new copies", len(b.logs.about("deliveries are counted anew")), 2)
		equal(b, "handled at once", handled.len(), 0)
		b.pass(time.Minute)
		b.holds("orders", 0)
		failed := b.only("error") // m2, after all its attempts
		equal(b, "failed", failed.ID, "m2")
		equal(b, "header of the copy is gone", failed.Headers.Get(core.HeaderDeliveries), "")
		equal(b, "attempts", handled.len(), 3)

		// The copy is no more than one chance.
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		again := order("m3")
		again.Headers.Set(core.HeaderDeliveries, "4")
		b.send(again)
		deliver(3)
		b.run(ep)
		b.holds("orders", 0)
		b.holds("error", 2)
		equal(b, "attempts", handled.len(), 3)
	})
}
