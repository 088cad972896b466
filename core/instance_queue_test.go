package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

// instanceA is an instance with a queue, "orders-a".
func instanceA(c core.Config) core.Config {
	c.Instance, c.InstanceQueue = "a", true
	return c
}

// toA is an order for the instance's own queue.
func toA(id string) core.Outgoing {
	m := order(id)
	m.Queue = "orders-a"
	return m
}

func (b *bed) fill(n int, make func(id string) core.Outgoing) {
	b.Helper()
	for i := range n {
		b.send(make(fmt.Sprint(make("").Queue, " ", i)))
	}
}

func TestInstanceQueue_OneConcurrencyLimit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ shared, own int }{
		"both": {35, 35}, "the shared queue alone": {70, 0}, "the instance's alone": {0, 70}, "few of the instance's": {65, 5},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(b *bed) {
				for _, concurrency := range []int{1, 2, 7} {
					var g gauge
					ep := b.endpoint("orders", instanceA(core.Config{Concurrency: concurrency}))
					b.handle(ep, "order", func(context.Context, *core.Message) error {
						g.enter()
						defer g.leave()
						time.Sleep(time.Second)
						return nil
					})
					ep.Pause()
					run := b.run(ep)
					b.fill(c.shared, order)
					b.fill(c.own, toA)
					ep.Resume()
					start := time.Now()
					for b.depth("orders").Total()+b.depth("orders-a").Total() > 0 || g.now.Load() > 0 {
						b.pass(time.Second)
					}
					equal(b, fmt.Sprint("most at the same time of ", concurrency), g.most.Load(), int64(concurrency))
					want := time.Duration((70+concurrency-1)/concurrency) * time.Second
					if took := time.Since(start); took < want || took > want+5*time.Second {
						b.Errorf("70 messages by %d took %v, want %v", concurrency, took, want)
					}
					if err := run.stop(); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// A queue that is never empty leaves the other one its share.
func TestInstanceQueue_NeitherQueueStarves(t *testing.T) {
	for _, busy := range []func(string) core.Outgoing{order, toA} {
		t.Run("busy "+busy("").Queue, func(t *testing.T) {
			onEach(t, func(b *bed) {
				other := order
				if busy("").Queue == "orders" {
					other = toA
				}
				var handled atomic.Int64
				var urgent record[string]
				_, run := b.orders(instanceA(core.Config{Concurrency: 2}), func(_ context.Context, m *core.Message) error {
					time.Sleep(time.Second)
					if strings.HasPrefix(m.ID, "urgent") {
						urgent.add(m.ID)
					}
					handled.Add(1)
					return nil
				})
				b.fill(600, busy)
				b.pass(10 * time.Second)
				for i := range 5 {
					b.send(other(fmt.Sprint("urgent ", i)))
				}
				b.pass(20 * time.Second)
				if n := handled.Load(); n < 58 || n > 60 {
					b.Errorf("%d were handled by 2 in 30 s of a second each", n)
				}
				// The queues take turns where both have a message at hand, not for each place.
				b.pass(30 * time.Second)
				equal(b, "messages of the other queue that were handled", urgent.len(), 5)
				if err := run.stop(); err != nil {
					b.Error(err)
				}
			})
		})
	}
}

func TestInstanceQueue_FailuresStayWithTheirQueue(t *testing.T) {
	inModesOn(t, locking, retrying, func(b *bed) {
		var recovered recoveries
		var asked record[string]
		sound := false
		attempts := map[string]int{}
		_, run := b.orders(instanceA(core.Config{
			Observers: []core.Observer{recovered.observer()}, Concurrency: 1,
			Recoverability: core.Recoverability{
				Immediate: core.Immediate{Retries: 1},
				Delayed:   core.Delayed{Delays: []time.Duration{time.Minute}},
				Policy: func(ctx context.Context, c core.RecoverabilityConfig, f core.ErrorContext) core.Action {
					asked.add(f.ReceiveQueue)
					return core.DefaultPolicy(ctx, c, f)
				},
			},
		}), func(_ context.Context, m *core.Message) error {
			attempts[m.ID]++
			if sound {
				return nil
			}
			return errBoom
		})
		b.send(toA("m1"), order("m2"))
		b.pass(time.Second)
		equal(b, "waiting in the instance queue for a delayed retry", b.depth("orders-a").Delayed, 1)
		equal(b, "waiting in the shared one", b.depth("orders").Delayed, 1)
		b.pass(2 * time.Minute)
		queues := map[string]string{}
		for _, m := range b.queue("error") {
			queues[m.ID] = m.Headers.Get(core.HeaderFailedQ)
		}
		equal(b, "FailedQ of m1", queues["m1"], "orders-a")
		equal(b, "FailedQ of m2", queues["m2"], "orders")
		equal(b, "attempts", attempts["m1"], 4)
		for _, e := range recovered.all() {
			equal(b, "queue that observers see of "+e.MessageID, e.Queue, queues[e.MessageID])
		}
		equal(b, "failures seen by the policy", asked.len(), 8)
		equal(b, "of the instance queue", len(slices.DeleteFunc(asked.all(), func(q string) bool { return q != "orders-a" })), 4)

		sound = true // an operator sends it back
		b.send(toA("m1"))
		b.pass(time.Second)
		equal(b, "attempts after it was sent back", attempts["m1"], 5)
		b.holds("orders-a", 0)
		if err := run.stop(); err != nil {
			b.Error(err)
		}
	})
}

func TestInstanceQueue_VerdictsAndMalformedMessages(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.orders(instanceA(core.Config{}), func(_ context.Context, m *core.Message) error {
			if m.ID == "later" {
				return core.Defer(time.Hour)
			}
			return core.MoveTo(errBoom, "orders-a")
		})
		b.broker.provoke(faults{arrive: func(in *core.Incoming) {
			if in.ID == "malformed" {
				in.Malformed = errBoom
			}
		}})
		b.send(toA("later"), toA("malformed"), toA("round"))
		b.pass(time.Second)
		equal(b, "deferred in the instance queue", b.depth("orders-a").Delayed, 1)
		failed := b.queue("error")
		equal(b, "moved", len(failed), 2)
		for _, m := range failed {
			equal(b, "FailedQ of "+m.ID, m.Headers.Get(core.HeaderFailedQ), "orders-a")
		}
	})
}

// What cannot be moved is stored where any instance can move it.
func TestInstanceQueue_UndeliveredIsStoredInTheSharedQueue(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		reachable := b.unreachable("error")
		_, run := b.orders(instanceA(core.Config{Recoverability: noRetries}), func(context.Context, *core.Message) error { return errBoom })
		b.send(toA("m1"))
		synctest.Wait()
		equal(b, "stored", b.depth("orders").Delayed, 1)
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		reachable()
		b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom }) // another instance
		b.pass(time.Hour)
		equal(b, "FailedQ", b.only("error").Headers.Get(core.HeaderFailedQ), "orders-a")
	})
}

func TestInstanceQueue_Pause(t *testing.T) {
	onEach(t, func(b *bed) {
		var handled atomic.Int64
		ep, _ := b.orders(instanceA(core.Config{Concurrency: 3}), func(context.Context, *core.Message) error {
			time.Sleep(time.Second)
			handled.Add(1)
			return nil
		})
		b.fill(30, order)
		b.fill(30, toA)
		b.pass(3500 * time.Millisecond)
		ep.Pause()
		b.pass(time.Minute)
		before := handled.Load()
		for _, queue := range []string{"orders", "orders-a"} {
			if held := b.depth(queue).InFlight; held > 0 && !b.broker.caps.CountsReleases {
				b.Errorf("%d messages of %q are held", held, queue)
			}
		}
		b.pass(time.Minute)
		equal(b, "handled while paused", handled.Load()-before, 0)
		ep.Resume()
		b.pass(time.Minute)
		equal(b, "handled", handled.Load(), 60)
		b.holds("orders", 0)
		b.holds("orders-a", 0)
	})
}

func TestInstanceQueue_StopReleasesUncounted(t *testing.T) {
	for name, cfg := range transports {
		if cfg.Capabilities != nil && cfg.Capabilities.CountsReleases {
			continue
		}
		t.Run(name, func(t *testing.T) {
			inModesOn(t, cfg, retrying[:1], func(b *bed) {
				var handled record[string]
				_, run := b.orders(instanceA(core.Config{Concurrency: 2}), func(_ context.Context, m *core.Message) error {
					time.Sleep(300 * time.Millisecond)
					handled.add(m.ID)
					return nil
				})
				b.fill(40, order)
				b.fill(40, toA)
				b.pass(2 * time.Second)
				start := time.Now()
				if err := run.stop(); err != nil {
					b.Error(err)
				}
				if took := time.Since(start); took > time.Second {
					b.Errorf("stopping took %v", took)
				}
				for _, queue := range []string{"orders", "orders-a"} {
					for _, in := range b.queue(queue) {
						if done := slices.Contains(handled.all(), in.ID); done || in.DeliveryCount > 1 {
							b.Errorf("%q has %s, handled %t, with a count of %d", queue, in.ID, done, in.DeliveryCount)
						}
					}
				}
				equal(b, "handled or left", handled.len()+b.depth("orders").Total()+b.depth("orders-a").Total(), 80)
			})
		})
	}
}

// In None what was taken cannot be given back: all of it is handled.
func TestInstanceQueue_StopInNoneLosesNothing(t *testing.T) {
	for _, concurrency := range []int{1, 2, 5} {
		inModesOn(t, able(func(c *core.Capabilities) { c.MaxReceiveBatch = 2 }), everyMode[:1], func(b *bed) {
			left := 0
			for round := range 20 {
				var handled atomic.Int64
				ep := b.endpoint("orders", instanceA(core.Config{Concurrency: concurrency}))
				b.handle(ep, "order", func(context.Context, *core.Message) error {
					time.Sleep(10 * time.Millisecond)
					handled.Add(1)
					return nil
				})
				run := b.run(ep)
				ep.Pause()
				b.fill(10, order)
				b.fill(10, toA)
				ep.Resume()
				time.Sleep(time.Duration(round) * 5 * time.Millisecond)
				if err := run.stop(); err != nil {
					b.Error(err)
				}
				before := left + 20
				left = b.depth("orders").Total() + b.depth("orders-a").Total()
				equal(b, "handled or left", int(handled.Load())+left, before)
			}
		})
	}
}

func TestInstanceQueue_RateLimiting(t *testing.T) {
	onEach(t, func(b *bed) {
		if b.mode == core.TransactionNone {
			return
		}
		var g gauge
		var outage atomic.Bool
		outage.Store(true)
		_, _ = b.orders(instanceA(core.Config{Concurrency: 4, Recoverability: limited(4)}), func(context.Context, *core.Message) error {
			g.enter()
			defer g.leave()
			time.Sleep(time.Millisecond)
			if outage.Load() {
				return errBoom
			}
			return nil
		})
		b.fill(20, order)
		b.fill(20, toA)
		b.pass(10 * time.Second)
		g.most.Store(0)
		b.pass(time.Minute)
		equal(b, "most at the same time in the outage", g.most.Load(), 1)
		outage.Store(false)
		b.pass(time.Hour)
		b.holds("orders", 0)
		b.holds("orders-a", 0)
	})
}

// A receiver that has failed for good ends the endpoint, whichever it is.
func TestInstanceQueue_PermanentErrorOfAReceiver(t *testing.T) {
	for _, queue := range []string{"orders", "orders-a"} {
		t.Run(queue, func(t *testing.T) {
			inModes(t, everyMode, func(b *bed) {
				b.broker.provoke(faults{receiveFrom: func(from string) error {
					if from == queue {
						return errBoom
					}
					return nil
				}})
				r := b.launch(b.endpoint("orders", instanceA(core.Config{})))
				if err := r.wait(); !errors.Is(err, errBoom) || !strings.Contains(err.Error(), fmt.Sprintf("receive: queue %q: ", queue)) {
					b.Errorf("Run returned %v", err)
				}
			})
		})
	}
}

// Without its instance queue an endpoint does not start, and leaves no receiver open.
func TestInstanceQueue_IsMissing(t *testing.T) {
	bubble(t, func(b *bed) {
		ep := b.endpoint("orders", instanceA(core.Config{Provision: core.ProvisionNever}))
		if err := ep.Run(b.Context()); !errors.Is(err, core.ErrQueueNotFound) || !strings.Contains(err.Error(), "orders-a") {
			b.Errorf("Run returned %v", err)
		}
		opened := 0
		b.broker.provoke(faults{open: func(context.Context) error {
			if opened++; opened == 2 {
				return errBoom
			}
			return nil
		}})
		if err := b.endpoint("orders", instanceA(core.Config{})).Run(b.Context()); !errors.Is(err, errBoom) {
			b.Errorf("Run returned %v", err)
		}
		equal(b, "receivers closed", b.broker.closed.Load(), 1)
	})
}

// The connection is there when those of both receivers are.
func TestInstanceQueue_Connection(t *testing.T) {
	bubble(t, func(b *bed) {
		ep, _ := b.orders(instanceA(core.Config{}), func(context.Context, *core.Message) error { return nil })
		opened := b.broker.receivers.all()
		equal(b, "receivers", len(opened), 2)
		start := time.Now()
		tell := func(i int, connected bool) {
			opened[i].ConnectionChanged(core.ConnectionChange{Connected: connected, Err: errBoom, Since: time.Now()})
		}
		tell(0, false)
		b.pass(time.Second)
		tell(1, false)
		equal(b, "disconnected since", ep.Health().DisconnectedSince, start)
		tell(0, true)
		equal(b, "connected with one of two", ep.Health().Connected, false)
		tell(1, true)
		equal(b, "connected", ep.Health().Connected, true)
	})
}

func TestReplyToInstance_ReachesTheInstance(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		answers := map[string]*record[string]{"a": {}, "b": {}}
		for _, name := range []string{"a", "b"} {
			ep := b.endpoint("orders", core.Config{Instance: name, InstanceQueue: true})
			b.handle(ep, "answer", func(_ context.Context, m *core.Message) error {
				answers[name].add(string(m.RawBody()))
				return nil
			})
			b.handle(ep, "start", func(_ context.Context, m *core.Message) error {
				return m.Send("shipping", "question", []byte("of "+name+" in a handler"), core.SendOptions{ReplyToInstance: true})
			})
			b.run(ep)
			for i := range 10 {
				if err := ep.Send(b.Context(), "shipping", "question", fmt.Appendf(nil, "%d of %s", i, name), core.SendOptions{ReplyToInstance: true}); err != nil {
					b.Fatal(err)
				}
			}
			if err := ep.Send(b.Context(), "orders-"+name, "start", nil); err != nil {
				b.Fatal(err)
			}
		}
		shipping := b.endpoint("shipping", core.Config{})
		b.handle(shipping, "question", func(_ context.Context, m *core.Message) error { return m.Reply("answer", m.RawBody()) })
		b.run(shipping)
		b.pass(time.Second)
		for _, name := range []string{"a", "b"} {
			equal(b, "answers of "+name, answers[name].len(), 11)
			for _, answer := range answers[name].all() {
				if !strings.Contains(answer, "of "+name) {
					b.Errorf("%s got %q", name, answer)
				}
			}
		}
	})
}

func TestReplyToInstance_Refused(t *testing.T) {
	bubble(t, func(b *bed) {
		without := b.endpoint("orders", core.Config{})
		err := without.Send(b.Context(), "shipping", "question", nil, core.SendOptions{ReplyToInstance: true})
		if err == nil || !containsAll(err.Error(), "ReplyToInstance", `"orders" has no instance queue`, "set Config.InstanceQueue") {
			b.Errorf("without an instance queue: %v", err)
		}
		with := b.endpoint("orders", instanceA(core.Config{}))
		err = with.Send(b.Context(), "shipping", "question", nil, core.SendOptions{ReplyToInstance: true, ReplyTo: "elsewhere"})
		if err == nil || !containsAll(err.Error(), `ReplyTo is "elsewhere"`, "ReplyToInstance", "remove one") {
			b.Errorf("with ReplyTo: %v", err)
		}
		b.holds("shipping", 0)
	})
}

// Events come to the endpoint once, not to each of its instances.
func TestInstanceQueue_SubscriptionsAreTheSharedQueues(t *testing.T) {
	bubble(t, func(b *bed) {
		var handled atomic.Int64
		var ep *core.Endpoint
		for _, name := range []string{"a", "b"} {
			ep = b.endpoint("orders", core.Config{Instance: name, InstanceQueue: true})
			core.HandleEvent(ep, "ordered", func(context.Context, *core.TypedMessage[[]byte]) error {
				handled.Add(1)
				return nil
			})
			b.run(ep)
		}
		if err := ep.Publish(b.Context(), "ordered", nil); err != nil {
			b.Fatal(err)
		}
		b.pass(time.Second)
		equal(b, "handled", handled.Load(), 1)
	})
}
