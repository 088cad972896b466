package core_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// gauge counts concurrent operations.
type gauge struct{ now, max atomic.Int64 }

func (g *gauge) enter() {
	n := g.now.Add(1)
	for {
		highest := g.max.Load()
		if n <= highest || g.max.CompareAndSwap(highest, n) {
			return
		}
	}
}

func (g *gauge) leave() { g.now.Add(-1) }

// transports by how the engine works with them.
var transports = map[string]inmemory.Config{
	"plain": {}, "locking": expiringLocks, "ahead": prefetchConfig(0), "ahead, locking": prefetchConfig(10 * time.Second),
	"small batches": withCapabilities(func(c *core.Capabilities) { c.MaxReceiveBatch = 3 }),
	"own count":     withCapabilities(func(c *core.Capabilities) { c.NativeDeliveryCount = false }),
	"RabbitMQ":      inmemory.LikeRabbitMQ(), "SQS": inmemory.LikeSQS(), "classic": inmemory.LikeRabbitMQClassic(),
}

// onEachTransport runs body on every transport in each of its modes.
func onEachTransport(t *testing.T, body func(fx *fixture)) {
	t.Helper()
	for name, cfg := range transports {
		t.Run(name, func(t *testing.T) {
			modes := allModes
			if cfg.Capabilities != nil {
				modes = cfg.Capabilities.Transactions
			}
			inModesWith(t, cfg, modes, body)
		})
	}
}

func TestConcurrency_IsAnExactBound(t *testing.T) {
	onEachTransport(t, func(fx *fixture) {
		for _, concurrency := range []int{1, 7, 50} {
			var g gauge
			name := fmt.Sprint("queue ", concurrency)
			ep := fx.newEndpoint(name, core.Config{Concurrency: concurrency})
			fx.handle(ep, "order", func(context.Context, *core.Message) error {
				g.enter()
				defer g.leave()
				time.Sleep(time.Second)
				return nil
			})
			run := fx.run(ep)
			for i := range 200 {
				m := order(fmt.Sprint("m", i))
				m.Queue = name
				fx.send(m)
			}
			start := time.Now()
			for total(fx.depth(name)) > 0 || g.now.Load() > 0 {
				time.Sleep(time.Second)
			}
			equal(fx, fmt.Sprint("most at the same time of ", concurrency), g.max.Load(), int64(concurrency))
			want := time.Duration((200+concurrency-1)/concurrency) * time.Second
			if took := time.Since(start); took < want || took > want+time.Second {
				fx.Errorf("200 messages by %d took %v, want %v", concurrency, took, want)
			}
			if err := run.stop(); err != nil {
				fx.Error(err)
			}
		}
	})
}

func TestSetConcurrency_WithMessagesInFlight(t *testing.T) {
	onEachTransport(t, func(fx *fixture) {
		var g gauge
		var handled atomic.Int64
		ep, _ := fx.runOrders(core.Config{Concurrency: 4}, func(context.Context, *core.Message) error {
			g.enter()
			defer g.leave()
			time.Sleep(time.Second)
			handled.Add(1)
			return nil
		})
		const messages = 400
		for i := range messages {
			fx.send(order(fmt.Sprint("m", i)))
		}
		time.Sleep(100 * time.Millisecond)
		for _, n := range []int{20, 3, 1, 10} {
			if err := ep.SetConcurrency(n); err != nil {
				fx.Fatal(err)
			}
			time.Sleep(2 * time.Second) // the earlier handlers have finished
			synctest.Wait()
			equal(fx, fmt.Sprint("running at concurrency ", n), g.now.Load(), int64(n))
			equal(fx, "InFlight", ep.Health().InFlight, n)
			equal(fx, "Concurrency", ep.Health().Concurrency, n)
			limits := fx.broker.inFlight.all()
			if limit := limits[len(limits)-1]; limit < n || limit > 3*n {
				fx.Errorf("MaxInFlight is %d at concurrency %d", limit, n)
			}
			if held := fx.depth("orders").Locked; held > 3*n {
				fx.Errorf("%d messages are held at concurrency %d", held, n)
			}
		}
		if ep.SetConcurrency(0) == nil || ep.SetConcurrency(-1) == nil {
			fx.Error("a concurrency below 1 was accepted")
		}
		time.Sleep(time.Minute)
		fx.wantDepth("orders", 0)
		equal(fx, "handled", handled.Load(), messages)
	})
}

func TestConcurrency_ChangesLoseAndDuplicateNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("1,000 messages on each transport: not in short runs")
	}
	t.Parallel()
	onEachTransport(t, func(fx *fixture) {
		const messages = 1000
		var handled atomic.Int64
		config := core.Config{Concurrency: 8}
		if fx.mode != core.TransactionNone {
			config.Recoverability = immediateRetries(40) // CountsReleases also counts released messages
			config.Recoverability.MaxDeliveries = core.Off
		}
		ep, run := fx.runOrders(config, func(_ context.Context, m *core.Message) error {
			time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
			if m.Attempt == 1 && fx.mode != core.TransactionNone && rand.IntN(10) == 0 {
				return errBoom
			}
			handled.Add(1)
			return m.Send("shipping", shipType.Of("x"))
		})
		for i := range messages {
			fx.send(order(fmt.Sprint("m", i)))
		}
		for range 150 {
			switch rand.IntN(5) {
			case 0:
				ep.Pause()
			case 1:
				if err := run.stop(); err != nil {
					fx.Error(err)
				}
				run = fx.start(ep)
			default:
				if err := ep.SetConcurrency(1 + rand.IntN(30)); err != nil {
					fx.Error(err)
				}
			}
			time.Sleep(time.Duration(rand.IntN(15)) * time.Millisecond)
			ep.Resume()
		}
		time.Sleep(time.Hour)
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 0)
		equal(fx, "handled", handled.Load(), messages)
		fx.wantDepth("shipping", messages)
	})
}

func TestPause_FinishesRunningHandlersAndReleasesTheRest(t *testing.T) {
	for name, cfg := range map[string]inmemory.Config{"plain": expiringLocks, "ahead": prefetchConfig(10 * time.Second)} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, cfg, retryModes, func(fx *fixture) {
				var handled recorder[string]
				ep, run := fx.runOrders(core.Config{Concurrency: 2}, func(_ context.Context, m *core.Message) error {
					if m.ID == "fast" {
						return nil // so that others are held ahead, where they may be
					}
					time.Sleep(10 * time.Second)
					handled.add(m.ID)
					return nil
				})
				fx.enqueue("fast", "m1", "m2", "m3", "m4", "m5")
				prefetched := 0
				if name == "ahead" && fx.mode == core.TransactionReceiveOnly {
					prefetched = 2
				}
				equal(fx, "held before the pause", fx.depth("orders").Locked, 2+prefetched)
				ep.Pause()
				ep.Pause() // no more than once
				synctest.Wait()
				equal(fx, "held while paused", fx.depth("orders").Locked, 2)
				equal(fx, "paused", ep.Health().Paused, true)
				equal(fx, "running", ep.Health().Running, true)
				time.Sleep(time.Hour)
				synctest.Wait()
				equal(fx, "handled while paused", handled.len(), 2)
				equal(fx, "held while paused", fx.depth("orders").Locked, 0)
				for _, m := range fx.messages("orders") {
					equal(fx, "delivery count of "+m.ID, m.DeliveryCount, 1)
				}
				ep.Resume()
				time.Sleep(20 * time.Second)
				fx.wantDepth("orders", 0)

				ep.Pause() // holds over several Runs
				if err := run.stop(); err != nil {
					fx.Error(err)
				}
				fx.run(ep)
				fx.enqueue("m6")
				fx.wantDepth("orders", 1)
				equal(fx, "handled", handled.len(), 5)
				ep.Resume()
				time.Sleep(10 * time.Second)
				fx.wantDepth("orders", 0)
			})
		})
	}
}

func TestPrefetch_NoneForSlowHandlers(t *testing.T) {
	inModesWith(t, prefetchConfig(10*time.Second), []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
		var slow atomic.Bool
		ep, _ := fx.runOrders(core.Config{Concurrency: 4}, func(context.Context, *core.Message) error {
			if slow.Load() {
				time.Sleep(time.Minute)
			} else {
				time.Sleep(time.Millisecond)
			}
			return nil
		})
		for i := range 1000 {
			fx.send(order(fmt.Sprint("m", i)))
		}
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		if held := fx.depth("orders").Locked; held <= 12 || held > 4+4*20 {
			fx.Errorf("%d messages are prefetched for fast handlers, want as many as they handle in 20 ms", held)
		}
		slow.Store(true)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		equal(fx, "held for slow handlers", fx.depth("orders").Locked, 4)
		equal(fx, "in flight", ep.Health().InFlight, 4)
	})
}
