package core_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// Rule R41.
func TestRateLimit_NoPrefetch(t *testing.T) {
	inModesWith(t, prefetchConfig(0), []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
		ep, _ := fx.runOrders(core.Config{Concurrency: 4, Recoverability: rateLimitedConfig(2)}, func(_ context.Context, m *core.Message) error {
			if m.ID == "quick" {
				return nil
			}
			time.Sleep(time.Second)
			return errBoom
		})
		fx.enqueue("quick")
		for i := range 20 {
			fx.send(order(fmt.Sprint("m", i)))
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		equal(fx, "rate limited", ep.Health().RateLimited, true)
		for range 100 {
			time.Sleep(300 * time.Millisecond)
			if held := fx.depth("orders").Locked; held > 1 {
				fx.Fatalf("%d messages are held, want the probe alone", held)
			}
		}
	})
}

// Messages held ahead of slow handlers are kept from other instances that have
// nothing to do.
func TestPrefetch_WaitsForMeasuredHandlers(t *testing.T) {
	for _, takes := range []time.Duration{4 * time.Second, 20 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			inModesWith(t, prefetchConfig(0), []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
				handler := func(context.Context, *core.Message) error {
					time.Sleep(takes)
					return nil
				}
				for i := range 40 {
					fx.send(order(fmt.Sprint("m", i)))
				}
				fx.runOrders(core.Config{Concurrency: 8}, handler)
				time.Sleep(takes / 2)
				equal(fx, "held with the first eight begun", fx.depth("orders").Locked, 8)
				time.Sleep(takes)
				if held := fx.depth("orders").Locked; held > 9 {
					fx.Errorf("%d messages are held with the next eight begun, want at most one ahead", held)
				}
			})
		})
	}
}

func (fx *fixture) newestMaxInFlight() int {
	synctest.Wait()
	all := fx.broker.inFlight.all()
	return all[len(all)-1]
}

// What is in the works may be held up by a fetch or a settlement, which cost the
// same for a hundred messages.
func TestPrefetch_FollowsHandlerTime(t *testing.T) {
	if testing.Short() {
		t.Skip("thousands of messages: not in short runs")
	}
	t.Parallel()
	for _, c := range []struct {
		slots    int
		takes    time.Duration
		min, max int // ahead, since small changes are not worth telling
	}{
		{slots: 8, takes: 0, min: 1024, max: 1024},
		{slots: 8, takes: time.Millisecond, min: 81, max: 160},
		{slots: 16, takes: time.Millisecond, min: 161, max: 320},
		{slots: 1, takes: time.Millisecond, min: 11, max: 20},
		{slots: 8, takes: 4 * time.Millisecond, min: 21, max: 40},
		{slots: 8, takes: 20 * time.Millisecond, min: 8, max: 8},
		{slots: 8, takes: 500 * time.Millisecond, min: 8, max: 8},
		{slots: 8, takes: time.Second, min: 4, max: 4},
		{slots: 8, takes: 5 * time.Second, min: 0, max: 0},
		{slots: 200, takes: time.Millisecond, min: 1024, max: 1024},
		{slots: 1100, takes: time.Millisecond, min: 1100, max: 1100},
	} {
		t.Run(fmt.Sprintf("%d slots, %v", c.slots, c.takes), func(t *testing.T) {
			inModesWith(t, prefetchConfig(0), []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
				for i := range 100 + 3*(c.slots+c.max) {
					fx.send(order(fmt.Sprint("m", i)))
				}
				var highest atomic.Int64
				fx.runOrders(core.Config{Concurrency: c.slots}, func(context.Context, *core.Message) error {
					depth, err := fx.broker.Depth(fx.Context(), "orders")
					if err != nil {
						fx.Error(err)
					}
					for {
						old := highest.Load()
						if int64(depth.Locked) <= old || highest.CompareAndSwap(old, int64(depth.Locked)) {
							break
						}
					}
					time.Sleep(c.takes)
					return nil
				})
				time.Sleep(time.Hour)
				fx.wantDepth("orders", 0)
				limits := func(prefetched int) int { return c.slots + prefetched + max(c.slots, prefetched) }
				got := fx.newestMaxInFlight()
				if got < limits(c.min) || got > limits(c.max) {
					fx.Errorf("MaxInFlight is %d, want %d to %d", got, limits(c.min), limits(c.max))
				}
				if peak := int(highest.Load()); peak > got || peak < c.slots+c.min*3/4 && c.takes > 0 {
					fx.Errorf("at most %d messages were held, want %d to %d ahead of %d", peak, c.min, c.max, c.slots)
				}
			})
		})
	}
}

// One fast handler says little about the next.
func TestPrefetch_NoMoreThanMeasured(t *testing.T) {
	inModesWith(t, prefetchConfig(0), []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
		var slow atomic.Bool
		fx.runOrders(core.Config{Concurrency: 4, DrainTimeout: time.Second}, func(ctx context.Context, _ *core.Message) error {
			if slow.Load() {
				<-ctx.Done()
			}
			return nil
		})
		for i := range 40 {
			fx.enqueue(fmt.Sprint("fast", i))
		}
		slow.Store(true)
		for i := range 1000 {
			fx.send(order(fmt.Sprint("slow", i)))
		}
		if held := fx.depth("orders").Locked; held <= 4+4 || held > 4+40 {
			fx.Errorf("%d messages are held after 40 fast handlers, want some more than slots ahead, but at most 40", held)
		}
	})
}

// slowSettlements makes settlements take a while, and counts those in progress.
func (fx *fixture) slowSettlements(operation string, takes time.Duration) *gauge {
	var g gauge
	fx.broker.setFaults(faults{settle: func(asked string, _ *core.Incoming) error {
		if asked == operation {
			g.enter()
			time.Sleep(takes)
			g.leave()
		}
		return nil
	}})
	return &g
}

// countWorkers counts the goroutines that handle messages.
func countWorkers() int {
	synctest.Wait()
	stacks := make([]byte, 8<<20)
	return strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "pump.(*Worker[...]).run(")
}

func TestWorkers_WaitForSettlements(t *testing.T) {
	for _, c := range []struct {
		name        string
		takes       time.Duration
		able        core.Capabilities
		min, max    int64
		maxSettling int
	}{
		{"fast handlers", 500 * time.Microsecond, *prefetchConfig(0).Capabilities, 100, 160 + 4, 160 + 4},
		{"handlers that take longer", 50 * time.Millisecond, *prefetchConfig(0).Capabilities, 4, 8, 8},
		{"nothing ahead", time.Millisecond, inmemory.Everything(), 4, 4, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := inmemory.Config{Capabilities: &c.able}
			inModesWith(t, cfg, []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
				settling := fx.slowSettlements("Complete", 200*time.Millisecond)
				fx.runOrders(core.Config{Concurrency: 4}, func(context.Context, *core.Message) error {
					time.Sleep(c.takes)
					return nil
				})
				first := countWorkers()
				if first > 8 {
					t.Errorf("%d workers at an idle endpoint with 4 slots, want at most 8", first)
				}
				for range 2 { // again, when they have left
					for i := range 2000 {
						fx.send(order(fmt.Sprint("m", i)))
					}
					time.Sleep(time.Second)
					if n := countWorkers(); n > c.maxSettling {
						t.Errorf("there are %d workers, want at most %d", n, c.maxSettling)
					}
					time.Sleep(5 * time.Minute)
					fx.wantDepth("orders", 0)
					if peak := settling.max.Load(); peak < c.min || peak > c.max {
						t.Errorf("%d messages were being settled at once, want %d to %d", peak, c.min, c.max)
					}
					equal(fx, "workers at the end", countWorkers(), first)
				}
			})
		})
	}
}

// The wait for the settlement is not the handler's: it would make fast handlers
// look slow as soon as many wait.
func TestPrefetch_SettlementIsNoHandlerTime(t *testing.T) {
	inModesWith(t, prefetchConfig(0), []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
		fx.slowSettlements("Complete", 5*time.Second)
		fx.runOrders(core.Config{Concurrency: 8}, func(context.Context, *core.Message) error { return nil })
		for i := range 3000 {
			fx.send(order(fmt.Sprint("m", i)))
		}
		time.Sleep(time.Minute)
		equal(fx, "MaxInFlight", fx.newestMaxInFlight(), 8+1024+1024)
	})
}

func TestPrefetched_KeptBesideOneSlowHandler(t *testing.T) {
	inModesWith(t, prefetchConfig(0), []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
		fx.runOrders(core.Config{Concurrency: 8}, func(_ context.Context, m *core.Message) error {
			time.Sleep(time.Millisecond)
			if m.ID == "m500" {
				time.Sleep(150 * time.Millisecond)
			}
			return nil
		})
		for i := range 2000 {
			fx.send(order(fmt.Sprint("m", i)))
		}
		time.Sleep(time.Hour)
		fx.wantDepth("orders", 0)
		for _, settled := range fx.broker.settled.all() {
			if strings.HasPrefix(settled, "Release ") {
				fx.Fatalf("%s: it was given back", settled)
			}
		}
	})
}

// The more is held, the longer it would take to give it back one after the other.
func TestPrefetched_ReleasedInParallel(t *testing.T) {
	inModesWith(t, prefetchConfig(time.Minute), []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
		var slow atomic.Bool
		ep, _ := fx.runOrders(core.Config{Concurrency: 4, DrainTimeout: time.Second}, func(ctx context.Context, _ *core.Message) error {
			if slow.Load() {
				<-ctx.Done()
			}
			return nil
		})
		for i := range 200 {
			fx.enqueue(fmt.Sprint("fast", i))
		}
		fx.slowSettlements("Release", time.Second)
		slow.Store(true)
		for i := range 200 {
			fx.send(order(fmt.Sprint("slow", i)))
		}
		if held := fx.depth("orders").Locked; held < 4+64 {
			fx.Errorf("%d messages are held before the pause, want many", held)
		}
		ep.Pause()
		time.Sleep(40 * time.Second) // by four workers; one would take more than a minute
		equal(fx, "held while paused", fx.depth("orders").Locked, 4)
	})
}

// Handlers that are no longer fast have as many held ahead as there are slots,
// however many there were before.
func TestPrefetch_IsTheConcurrencyOfSlowerHandlers(t *testing.T) {
	inModesWith(t, prefetchConfig(0), []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
		var takes atomic.Int64
		ep, _ := fx.runOrders(core.Config{Concurrency: 8}, func(context.Context, *core.Message) error {
			time.Sleep(time.Duration(takes.Load()))
			return nil
		})
		for i := range 1100 {
			fx.enqueue(fmt.Sprint("fast", i))
		}
		equal(fx, "MaxInFlight of fast handlers", fx.newestMaxInFlight(), 8+1024+1024)
		if err := ep.SetConcurrency(100); err != nil {
			fx.Fatal(err)
		}
		equal(fx, "MaxInFlight with more slots", fx.newestMaxInFlight(), 100+1024+1024)
		takes.Store(int64(100 * time.Millisecond))
		for i := range 1000 {
			fx.send(order(fmt.Sprint("slower", i)))
		}
		time.Sleep(time.Minute)
		fx.wantDepth("orders", 0)
		equal(fx, "MaxInFlight of handlers that take longer", fx.newestMaxInFlight(), 100+100+100)
	})
}

func TestFetch_LargeBatchesForFastHandlers(t *testing.T) {
	inModesWith(t, prefetchConfig(0), []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
		var fetches atomic.Int64
		fx.broker.setFaults(faults{receive: func(context.Context) (bool, int, error) {
			fetches.Add(1)
			time.Sleep(2 * time.Millisecond)
			return false, 0, nil
		}})
		fx.runOrders(core.Config{Concurrency: 16}, func(context.Context, *core.Message) error {
			time.Sleep(time.Millisecond)
			return nil
		})
		for i := range 10_000 {
			fx.send(order(fmt.Sprint("m", i)))
		}
		time.Sleep(time.Minute)
		fx.wantDepth("orders", 0)
		if each := 10_000 / fetches.Load(); each < 110 { // the first ones bring fewer
			fx.Errorf("a fetch brought %d messages on average, want about half of 320 or more", each)
		}
	})
}

// Handlers hang in one of two instances, on a database for example: the messages that it
// has prefetched go to the other one.
func TestPrefetched_ReleasedWhenAllSlotsHang(t *testing.T) {
	inModesWith(t, prefetchConfig(time.Minute), retryModes[:1], func(fx *fixture) {
		var hang atomic.Bool
		release := make(chan struct{})
		fx.runOrders(core.Config{Concurrency: 4, Instance: "one"}, func(context.Context, *core.Message) error {
			if hang.Load() {
				<-release
			}
			time.Sleep(time.Millisecond)
			return nil
		})
		for i := range 1000 { // so that it knows its handlers as quick
			fx.send(order(fmt.Sprint("quick", i)))
		}
		fx.advance(10 * time.Second)
		fx.wantDepth("orders", 0)
		hang.Store(true)
		for i := range 100 {
			fx.send(order(fmt.Sprint("m", i)))
		}
		synctest.Wait()
		if held := fx.depth("orders").Locked; held < 20 {
			fx.Fatalf("%d in flight, want many that are prefetched", held)
		}
		var handled atomic.Int64
		ep := fx.newEndpoint("orders", core.Config{Concurrency: 4, Instance: "two"})
		fx.handle(ep, "order", func(context.Context, *core.Message) error {
			handled.Add(1)
			return nil
		})
		fx.run(ep)
		fx.advance(2 * time.Second)
		equal(fx, "handled by the other instance", handled.Load(), 96)
		equal(fx, "in flight", fx.depth("orders").Locked, 4)
		close(release)
		fx.advance(time.Second)
		fx.wantDepth("orders", 0)
	})
}
