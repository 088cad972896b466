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

// orderToInstanceA is an order for the instance's own queue.
func orderToInstanceA(id string) core.Outgoing {
	m := order(id)
	m.Queue = "orders-a"
	return m
}

func (fx *fixture) sendMany(n int, make func(id string) core.Outgoing) {
	fx.Helper()
	for i := range n {
		fx.send(make(fmt.Sprint(make("").Queue, " ", i)))
	}
}

func TestInstanceQueue_OneConcurrencyLimit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ shared, own int }{
		"both": {35, 35}, "the shared queue alone": {70, 0}, "the instance's alone": {0, 70}, "few of the instance's": {65, 5},
	} {
		t.Run(name, func(t *testing.T) {
			onEachTransport(t, func(fx *fixture) {
				for _, concurrency := range []int{1, 2, 7} {
					var g gauge
					ep := fx.newEndpoint("orders", instanceA(core.Config{Concurrency: concurrency}))
					fx.handle(ep, "order", func(context.Context, *core.Message) error {
						g.enter()
						defer g.leave()
						time.Sleep(time.Second)
						return nil
					})
					ep.Pause()
					run := fx.run(ep)
					fx.sendMany(c.shared, order)
					fx.sendMany(c.own, orderToInstanceA)
					ep.Resume()
					start := time.Now()
					for fx.depth("orders").Total()+fx.depth("orders-a").Total() > 0 || g.now.Load() > 0 {
						fx.advance(time.Second)
					}
					equal(fx, fmt.Sprint("most at the same time of ", concurrency), g.max.Load(), int64(concurrency))
					want := time.Duration((70+concurrency-1)/concurrency) * time.Second
					if took := time.Since(start); took < want || took > want+5*time.Second {
						fx.Errorf("70 messages by %d took %v, want %v", concurrency, took, want)
					}
					if err := run.stop(); err != nil {
						fx.Error(err)
					}
				}
			})
		})
	}
}

// A queue that is never empty leaves the other one its share.
func TestInstanceQueue_NeitherQueueStarves(t *testing.T) {
	for _, busy := range []func(string) core.Outgoing{order, orderToInstanceA} {
		t.Run("busy "+busy("").Queue, func(t *testing.T) {
			onEachTransport(t, func(fx *fixture) {
				other := order
				if busy("").Queue == "orders" {
					other = orderToInstanceA
				}
				var handled atomic.Int64
				var urgent recorder[string]
				_, run := fx.runOrders(instanceA(core.Config{Concurrency: 2}), func(_ context.Context, m *core.Message) error {
					time.Sleep(time.Second)
					if strings.HasPrefix(m.ID, "urgent") {
						urgent.add(m.ID)
					}
					handled.Add(1)
					return nil
				})
				fx.sendMany(600, busy)
				fx.advance(10 * time.Second)
				for i := range 5 {
					fx.send(other(fmt.Sprint("urgent ", i)))
				}
				fx.advance(20 * time.Second)
				if n := handled.Load(); n < 58 || n > 60 {
					fx.Errorf("%d were handled by 2 in 30 s of a second each", n)
				}
				// The queues take turns where both have a message at hand, not for each place.
				fx.advance(30 * time.Second)
				equal(fx, "messages of the other queue that were handled", urgent.len(), 5)
				if err := run.stop(); err != nil {
					fx.Error(err)
				}
			})
		})
	}
}

func TestInstanceQueue_FailuresStayWithTheirQueue(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
		var recovered recoveryRecorder
		var asked recorder[string]
		sound := false
		attempts := map[string]int{}
		_, run := fx.runOrders(instanceA(core.Config{
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
		fx.send(orderToInstanceA("m1"), order("m2"))
		fx.advance(time.Second)
		equal(fx, "waiting in the instance queue for a delayed retry", fx.depth("orders-a").Delayed, 1)
		equal(fx, "waiting in the shared one", fx.depth("orders").Delayed, 1)
		fx.advance(2 * time.Minute)
		queues := map[string]string{}
		for _, m := range fx.messages("error") {
			queues[m.ID] = m.Headers.Get(core.HeaderFailedQ)
		}
		equal(fx, "FailedQ of m1", queues["m1"], "orders-a")
		equal(fx, "FailedQ of m2", queues["m2"], "orders")
		equal(fx, "attempts", attempts["m1"], 4)
		for _, e := range recovered.all() {
			equal(fx, "queue that observers see of "+e.MessageID, e.Queue, queues[e.MessageID])
		}
		equal(fx, "failures seen by the policy", asked.len(), 8)
		equal(fx, "of the instance queue", len(slices.DeleteFunc(asked.all(), func(q string) bool { return q != "orders-a" })), 4)

		sound = true // an operator sends it back
		fx.send(orderToInstanceA("m1"))
		fx.advance(time.Second)
		equal(fx, "attempts after it was sent back", attempts["m1"], 5)
		fx.wantDepth("orders-a", 0)
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
	})
}

func TestInstanceQueue_VerdictsAndMalformedMessages(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.runOrders(instanceA(core.Config{}), func(_ context.Context, m *core.Message) error {
			if m.ID == "later" {
				return core.Defer(time.Hour)
			}
			return core.MoveTo(errBoom, "orders-a")
		})
		fx.broker.setFaults(faults{onReceive: func(in *core.Incoming) {
			if in.ID == "malformed" {
				in.Malformed = errBoom
			}
		}})
		fx.send(orderToInstanceA("later"), orderToInstanceA("malformed"), orderToInstanceA("round"))
		fx.advance(time.Second)
		equal(fx, "deferred in the instance queue", fx.depth("orders-a").Delayed, 1)
		failed := fx.messages("error")
		equal(fx, "moved", len(failed), 2)
		for _, m := range failed {
			equal(fx, "FailedQ of "+m.ID, m.Headers.Get(core.HeaderFailedQ), "orders-a")
		}
	})
}

// What cannot be moved is stored where any instance can move it.
func TestInstanceQueue_UndeliveredIsStoredInTheSharedQueue(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		reachable := fx.failSendsTo("error")
		_, run := fx.runOrders(instanceA(core.Config{Recoverability: noRetries}), func(context.Context, *core.Message) error { return errBoom })
		fx.send(orderToInstanceA("m1"))
		synctest.Wait()
		equal(fx, "stored", fx.depth("orders").Delayed, 1)
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		reachable()
		fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom }) // another instance
		fx.advance(time.Hour)
		equal(fx, "FailedQ", fx.onlyMessage("error").Headers.Get(core.HeaderFailedQ), "orders-a")
	})
}

func TestInstanceQueue_Pause(t *testing.T) {
	onEachTransport(t, func(fx *fixture) {
		var handled atomic.Int64
		ep, _ := fx.runOrders(instanceA(core.Config{Concurrency: 3}), func(context.Context, *core.Message) error {
			time.Sleep(time.Second)
			handled.Add(1)
			return nil
		})
		fx.sendMany(30, order)
		fx.sendMany(30, orderToInstanceA)
		fx.advance(3500 * time.Millisecond)
		ep.Pause()
		fx.advance(time.Minute)
		before := handled.Load()
		for _, queue := range []string{"orders", "orders-a"} {
			if held := fx.depth(queue).InFlight; held > 0 && !fx.broker.caps.CountsReleases {
				fx.Errorf("%d messages of %q are held", held, queue)
			}
		}
		fx.advance(time.Minute)
		equal(fx, "handled while paused", handled.Load()-before, 0)
		ep.Resume()
		fx.advance(time.Minute)
		equal(fx, "handled", handled.Load(), 60)
		fx.wantDepth("orders", 0)
		fx.wantDepth("orders-a", 0)
	})
}

func TestInstanceQueue_StopReleasesUncounted(t *testing.T) {
	for name, cfg := range transports {
		if cfg.Capabilities != nil && cfg.Capabilities.CountsReleases {
			continue
		}
		t.Run(name, func(t *testing.T) {
			inModesWith(t, cfg, retryModes[:1], func(fx *fixture) {
				var handled recorder[string]
				_, run := fx.runOrders(instanceA(core.Config{Concurrency: 2}), func(_ context.Context, m *core.Message) error {
					time.Sleep(300 * time.Millisecond)
					handled.add(m.ID)
					return nil
				})
				fx.sendMany(40, order)
				fx.sendMany(40, orderToInstanceA)
				fx.advance(2 * time.Second)
				start := time.Now()
				if err := run.stop(); err != nil {
					fx.Error(err)
				}
				if took := time.Since(start); took > time.Second {
					fx.Errorf("stopping took %v", took)
				}
				for _, queue := range []string{"orders", "orders-a"} {
					for _, in := range fx.messages(queue) {
						if done := slices.Contains(handled.all(), in.ID); done || in.DeliveryCount > 1 {
							fx.Errorf("%q has %s, handled %t, with a count of %d", queue, in.ID, done, in.DeliveryCount)
						}
					}
				}
				equal(fx, "handled or left", handled.len()+fx.depth("orders").Total()+fx.depth("orders-a").Total(), 80)
			})
		})
	}
}

// In None what was taken cannot be given back: all of it is handled.
func TestInstanceQueue_StopInNoneLosesNothing(t *testing.T) {
	for _, concurrency := range []int{1, 2, 5} {
		inModesWith(t, withCapabilities(func(c *core.Capabilities) { c.MaxReceiveBatch = 2 }), allModes[:1], func(fx *fixture) {
			left := 0
			for round := range 20 {
				var handled atomic.Int64
				ep := fx.newEndpoint("orders", instanceA(core.Config{Concurrency: concurrency}))
				fx.handle(ep, "order", func(context.Context, *core.Message) error {
					time.Sleep(10 * time.Millisecond)
					handled.Add(1)
					return nil
				})
				run := fx.run(ep)
				ep.Pause()
				fx.sendMany(10, order)
				fx.sendMany(10, orderToInstanceA)
				ep.Resume()
				time.Sleep(time.Duration(round) * 5 * time.Millisecond)
				if err := run.stop(); err != nil {
					fx.Error(err)
				}
				before := left + 20
				left = fx.depth("orders").Total() + fx.depth("orders-a").Total()
				equal(fx, "handled or left", int(handled.Load())+left, before)
			}
		})
	}
}

func TestInstanceQueue_RateLimiting(t *testing.T) {
	onEachTransport(t, func(fx *fixture) {
		if fx.mode == core.TransactionNone {
			return
		}
		var g gauge
		var outage atomic.Bool
		outage.Store(true)
		_, _ = fx.runOrders(instanceA(core.Config{Concurrency: 4, Recoverability: rateLimitedConfig(4)}), func(context.Context, *core.Message) error {
			g.enter()
			defer g.leave()
			time.Sleep(time.Millisecond)
			if outage.Load() {
				return errBoom
			}
			return nil
		})
		fx.sendMany(20, order)
		fx.sendMany(20, orderToInstanceA)
		fx.advance(10 * time.Second)
		g.max.Store(0)
		fx.advance(time.Minute)
		equal(fx, "most at the same time in the outage", g.max.Load(), 1)
		outage.Store(false)
		fx.advance(time.Hour)
		fx.wantDepth("orders", 0)
		fx.wantDepth("orders-a", 0)
	})
}

// A receiver that has failed for good ends the endpoint, whichever it is.
func TestInstanceQueue_PermanentErrorOfAReceiver(t *testing.T) {
	for _, queue := range []string{"orders", "orders-a"} {
		t.Run(queue, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				fx.broker.setFaults(faults{receiveFrom: func(from string) error {
					if from == queue {
						return errBoom
					}
					return nil
				}})
				r := fx.start(fx.newEndpoint("orders", instanceA(core.Config{})))
				if err := r.wait(); !errors.Is(err, errBoom) || !strings.Contains(err.Error(), fmt.Sprintf("receive: queue %q: ", queue)) {
					fx.Errorf("Run returned %v", err)
				}
			})
		})
	}
}

// Without its instance queue an endpoint does not start, and leaves no receiver open.
func TestInstanceQueue_IsMissing(t *testing.T) {
	bubble(t, func(fx *fixture) {
		ep := fx.newEndpoint("orders", instanceA(core.Config{Provision: core.ProvisionNever}))
		if err := ep.Run(fx.Context()); !errors.Is(err, core.ErrQueueNotFound) || !strings.Contains(err.Error(), "orders-a") {
			fx.Errorf("Run returned %v", err)
		}
		opened := 0
		fx.broker.setFaults(faults{open: func(context.Context) error {
			if opened++; opened == 2 {
				return errBoom
			}
			return nil
		}})
		if err := fx.newEndpoint("orders", instanceA(core.Config{})).Run(fx.Context()); !errors.Is(err, errBoom) {
			fx.Errorf("Run returned %v", err)
		}
		equal(fx, "receivers closed", fx.broker.closed.Load(), 1)
	})
}

// The connection is there when those of both receivers are.
func TestInstanceQueue_Connection(t *testing.T) {
	bubble(t, func(fx *fixture) {
		ep, _ := fx.runOrders(instanceA(core.Config{}), func(context.Context, *core.Message) error { return nil })
		opened := fx.broker.receivers.all()
		equal(fx, "receivers", len(opened), 2)
		start := time.Now()
		tell := func(i int, connected bool) {
			opened[i].ConnectionChanged(core.ConnectionChange{Connected: connected, Err: errBoom, Since: time.Now()})
		}
		tell(0, false)
		fx.advance(time.Second)
		tell(1, false)
		equal(fx, "disconnected since", ep.Health().DisconnectedSince, start)
		tell(0, true)
		equal(fx, "connected with one of two", ep.Health().Connected, false)
		tell(1, true)
		equal(fx, "connected", ep.Health().Connected, true)
	})
}

func TestReplyToInstance_ReachesTheInstance(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		answers := map[string]*recorder[string]{"a": {}, "b": {}}
		for _, name := range []string{"a", "b"} {
			ep := fx.newEndpoint("orders", core.Config{Instance: name, InstanceQueue: true})
			fx.handle(ep, "answer", func(_ context.Context, m *core.Message) error {
				answers[name].add(string(m.RawBody()))
				return nil
			})
			fx.handle(ep, "start", func(_ context.Context, m *core.Message) error {
				return m.Send("shipping", "question", []byte("of "+name+" in a handler"), core.SendOptions{ReplyToInstance: true})
			})
			fx.run(ep)
			for i := range 10 {
				if err := ep.Send(fx.Context(), "shipping", "question", fmt.Appendf(nil, "%d of %s", i, name), core.SendOptions{ReplyToInstance: true}); err != nil {
					fx.Fatal(err)
				}
			}
			if err := ep.Send(fx.Context(), "orders-"+name, "start", nil); err != nil {
				fx.Fatal(err)
			}
		}
		shipping := fx.newEndpoint("shipping", core.Config{})
		fx.handle(shipping, "question", func(_ context.Context, m *core.Message) error { return m.Reply("answer", m.RawBody()) })
		fx.run(shipping)
		fx.advance(time.Second)
		for _, name := range []string{"a", "b"} {
			equal(fx, "answers of "+name, answers[name].len(), 11)
			for _, answer := range answers[name].all() {
				if !strings.Contains(answer, "of "+name) {
					fx.Errorf("%s got %q", name, answer)
				}
			}
		}
	})
}

func TestReplyToInstance_Refused(t *testing.T) {
	bubble(t, func(fx *fixture) {
		without := fx.newEndpoint("orders", core.Config{})
		err := without.Send(fx.Context(), "shipping", "question", nil, core.SendOptions{ReplyToInstance: true})
		if err == nil || !containsAll(err.Error(), "ReplyToInstance", `"orders" has no instance queue`, "set Config.InstanceQueue") {
			fx.Errorf("without an instance queue: %v", err)
		}
		with := fx.newEndpoint("orders", instanceA(core.Config{}))
		err = with.Send(fx.Context(), "shipping", "question", nil, core.SendOptions{ReplyToInstance: true, ReplyTo: "elsewhere"})
		if err == nil || !containsAll(err.Error(), `ReplyTo is "elsewhere"`, "ReplyToInstance", "remove one") {
			fx.Errorf("with ReplyTo: %v", err)
		}
		fx.wantDepth("shipping", 0)
	})
}

// Events come to the endpoint once, not to each of its instances.
func TestInstanceQueue_SubscriptionsAreTheSharedQueues(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var handled atomic.Int64
		var ep *core.Endpoint
		for _, name := range []string{"a", "b"} {
			ep = fx.newEndpoint("orders", core.Config{Instance: name, InstanceQueue: true})
			core.HandleEvent(ep, "ordered", func(context.Context, *core.TypedMessage[[]byte]) error {
				handled.Add(1)
				return nil
			})
			fx.run(ep)
		}
		if err := ep.Publish(fx.Context(), "ordered", nil); err != nil {
			fx.Fatal(err)
		}
		fx.advance(time.Second)
		equal(fx, "handled", handled.Load(), 1)
	})
}
