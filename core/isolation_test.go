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
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// Messages that may have killed a process (R35).

// suspectConfigs are transports whose count tells of processes that died.
var suspectConfigs = map[string]inmemory.Config{
	"counts every delivery": countsReleasesConfig(), "leases": prefetchConfig(30 * time.Second), "leases, nothing ahead": expiringLocks,
	"RabbitMQ": inmemory.LikeRabbitMQ(), "SQS": inmemory.LikeSQS(),
}

// onSuspectTransports runs body on each of them.
func onSuspectTransports(t *testing.T, body func(fx *fixture)) {
	t.Helper()
	for name, cfg := range suspectConfigs {
		t.Run(name, func(t *testing.T) { inModesWith(t, cfg, retryModes[:1], body) })
	}
}

// redeliverTimes lets all messages of a queue be delivered so often to a process that
// dies.
func (fx *fixture) redeliverTimes(queue string, times int) {
	fx.Helper()
	for range times {
		r, err := fx.broker.Transport.OpenReceiver(fx.Context(), core.ReceiverConfig{Queue: queue, Mode: fx.mode, MaxInFlight: 100})
		if err != nil {
			fx.Fatal(err)
		}
		depth, err := fx.broker.Depth(fx.Context(), queue)
		if err != nil {
			fx.Fatal(err)
		}
		for left := depth.Ready; left > 0; {
			n, err := r.Receive(fx.Context(), make([]core.Delivery, left))
			if err != nil {
				fx.Fatal(err)
			}
			left -= n
		}
		if !fx.broker.caps.CountsReleases { // closing would count nothing
			time.Sleep(2 * time.Minute)
		}
		if err := r.Close(fx.Context()); err != nil {
			fx.Fatal(err)
		}
	}
}

// isolationLines are the log lines about its beginning.
func (fx *fixture) isolationLines() []logLine {
	return fx.logs.find("delivered several times without a known end")
}

// Rule R35.
func TestSuspects_AreAttemptedAlone(t *testing.T) {
	onSuspectTransports(t, func(fx *fixture) {
		var g gauge
		var suspects, healthy recorder[string]
		handler := func(_ context.Context, m *core.Message) error {
			g.enter()
			defer g.leave()
			if strings.HasPrefix(m.ID, "suspect") {
				n, inHand := suspects.add(m.ID), 1
				if fx.broker.caps.CountsReleases { // the other suspects, which cannot be given back
					inHand = 4 - n
				}
				for range 5 {
					equal(fx, "messages at once", g.now.Load(), 1)
					depth, err := fx.broker.Depth(fx.Context(), "orders")
					if err != nil || depth.Locked != inHand {
						fx.Errorf("%d messages in hand with a suspect, %v; want %d", depth.Locked, err, inHand)
					}
					time.Sleep(time.Second)
				}
				return nil
			}
			healthy.add(m.ID)
			time.Sleep(3 * time.Second)
			return nil
		}
		ep, _ := fx.runOrders(core.Config{Concurrency: 4}, handler)
		fx.enqueue("first")
		fx.advance(10 * time.Second)
		equal(fx, "MaxInFlight when a healthy message has come", fx.newestMaxInFlight() >= 4, true)
		ep.Pause()
		fx.enqueue("suspect 1", "suspect 2", "suspect 3")
		fx.redeliverTimes("orders", 7)
		for i := range 20 {
			fx.send(order(fmt.Sprint("healthy ", i)))
		}
		equal(fx, "isolating before", ep.Health().Isolating, false)
		ep.Resume()
		synctest.Wait()
		equal(fx, "isolating", ep.Health().Isolating, true)
		fx.advance(time.Minute)
		equal(fx, "suspects handled", suspects.len(), 3)
		equal(fx, "healthy handled", healthy.len(), 21)
		equal(fx, "most at once", g.max.Load(), 4)
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 0)
		equal(fx, "isolating afterwards", ep.Health().Isolating, false)
		equal(fx, "lines", len(fx.isolationLines()), 1)
		line := fx.isolationLines()[0].attrs
		if line["deliveries"] != int64(8) || line["isolate_after"] != int64(6) {
			fx.Errorf("the line has %v", line)
		}
		equal(fx, "lines about the end", len(fx.logs.find("side by side again")), 1)
	})
}

// Rule R35.
// The message that kills the process was there each time that it died.
func TestSuspects_WithTheFewestDeliveriesComeFirst(t *testing.T) {
	inModesWith(t, countsReleasesConfig(), retryModes[:1], func(fx *fixture) {
		var order recorder[string]
		ep, _ := fx.runOrders(core.Config{Concurrency: 8}, func(_ context.Context, m *core.Message) error {
			order.add(m.ID)
			return nil
		})
		fx.enqueue("first")
		ep.Pause()
		fx.enqueue("killer")
		fx.redeliverTimes("orders", 3)
		fx.enqueue("neighbour")
		fx.redeliverTimes("orders", 1)
		fx.enqueue("other neighbour")
		fx.redeliverTimes("orders", 10)
		fx.enqueue("healthy")
		ep.Resume()
		fx.advance(10 * time.Second)
		if got, want := order.all(), []string{"first", "healthy", "other neighbour", "neighbour", "killer"}; !slices.Equal(got, want) {
			fx.Errorf("handled %q, want %q", got, want)
		}
	})
}

// Rule R35.
// A process that starts again after a crash takes one message at a time, until it sees
// that not all have been there.
func TestSuspects_StartBeginsWithOneMessage(t *testing.T) {
	onSuspectTransports(t, func(fx *fixture) {
		for i := range 5 {
			fx.send(order(fmt.Sprint("suspect ", i)))
		}
		fx.redeliverTimes("orders", 7)
		for i := range 40 {
			fx.send(order(fmt.Sprint("healthy ", i)))
		}
		var g gauge
		_, run := fx.runOrders(core.Config{Concurrency: 16}, func(_ context.Context, m *core.Message) error {
			g.enter()
			defer g.leave()
			depth, err := fx.broker.Depth(fx.Context(), "orders")
			if err != nil || strings.HasPrefix(m.ID, "suspect") && depth.Locked != 1 {
				fx.Errorf("%d messages in hand beside suspects, %v", depth.Locked, err)
			}
			time.Sleep(10 * time.Second)
			return nil
		})
		fx.advance(49 * time.Second)
		equal(fx, "at once among suspects", g.max.Load(), 1)
		fx.advance(2 * time.Second)
		equal(fx, "at once among the others", g.now.Load(), 16)
		fx.advance(time.Minute)
		fx.wantDepth("orders", 0)
		equal(fx, "lines", len(fx.isolationLines()), 1)
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
	})
}

// Rule R35.
// It costs a start nothing but one fetch where messages are healthy.
func TestSuspects_HealthyStartIsOpenAfterOneMessage(t *testing.T) {
	onSuspectTransports(t, func(fx *fixture) {
		for i := range 100 {
			fx.send(order(fmt.Sprint("m", i)))
		}
		fx.redeliverTimes("orders", 2) // two lost connections, or two deployments
		var g gauge
		_, run := fx.runOrders(core.Config{Concurrency: 16, DrainTimeout: time.Second}, func(ctx context.Context, _ *core.Message) error {
			g.enter()
			defer g.leave()
			<-ctx.Done()
			return ctx.Err()
		})
		synctest.Wait() // no time has passed
		equal(fx, "at once", g.now.Load(), 16)
		if got := fx.broker.inFlight.all(); got[0] != 1 || got[1] != 1 || got[2] < 16 {
			fx.Errorf("MaxInFlight was set to %v, want 1 to begin with, and the rest at once", got)
		}
		equal(fx, "lines", len(fx.isolationLines()), 0)
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
	})
}

// Rule R35.
// Failures explain as many deliveries as there are attempts in a round, whichever instance
// they were at.
func TestSuspects_FailingMessagesAreNone(t *testing.T) {
	stubborn := func(_ context.Context, _ core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
		if f.ImmediateProcessingFailures < 20 {
			return core.ImmediateRetry(), nil
		}
		return core.MoveToError(""), nil
	}
	for name, c := range map[string]struct {
		instances int
		rules     core.Recoverability
	}{
		"three instances":     {3, core.Recoverability{Delayed: core.Delayed{NumberOfRetries: core.Off}}},
		"one that knows them": {1, core.Recoverability{Policy: stubborn}},
	} {
		t.Run(name, func(t *testing.T) {
			onSuspectTransports(t, func(fx *fixture) {
				for i := range c.instances {
					fx.runOrders(core.Config{Concurrency: 4, Recoverability: c.rules, Instance: fmt.Sprint("i", i)}, func(context.Context, *core.Message) error {
						time.Sleep(time.Second)
						return errBoom
					})
				}
				for i := range 20 {
					fx.send(order(fmt.Sprint("m", i)))
				}
				fx.advance(10 * time.Minute)
				fx.wantDepth("error", 20)
				equal(fx, "lines", len(fx.isolationLines()), 0)
			})
		})
	}
}

// runWaitingSuspects makes an endpoint with two suspects that wait for a handler, which
// takes the given time; 0 is until the end of its context.
func (fx *fixture) runWaitingSuspects(c core.Config, takes time.Duration, handled *recorder[string]) (*core.Endpoint, *runningEndpoint) {
	fx.Helper()
	c.Concurrency = 4
	ep, run := fx.runOrders(c, func(ctx context.Context, m *core.Message) error {
		if m.ID == "slow" {
			end := time.After(takes)
			if takes == 0 {
				end = nil
			}
			select {
			case <-end:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		handled.add(m.ID)
		return nil
	})
	fx.enqueue("first")
	fx.advance(time.Second)
	ep.Pause()
	fx.enqueue("suspect 1", "suspect 2")
	fx.redeliverTimes("orders", 7)
	fx.enqueue("slow")
	ep.Resume()
	fx.advance(time.Second)
	equal(fx, "isolating", ep.Health().Isolating, true)
	if got := handled.all(); !slices.Equal(got, []string{"first"}) {
		fx.Fatalf("handled %q, want the first alone", got)
	}
	return ep, run
}

// Rule R35.
func TestSuspects_WaitingOnesAreReleasedAtShutdown(t *testing.T) {
	onSuspectTransports(t, func(fx *fixture) {
		var handled recorder[string]
		_, run := fx.runWaitingSuspects(core.Config{DrainTimeout: time.Minute}, 20*time.Second, &handled)
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		if got := handled.all(); !slices.Equal(got, []string{"first", "slow"}) {
			fx.Errorf("handled %q, want the slow one alone to be finished", got)
		}
		equal(fx, "left", fx.depth("orders").Ready, 2)
		equal(fx, "in flight", fx.depth("orders").Locked, 0)
	})
}

// Rule R35.
// Locks are renewed for as long as their messages wait, and nothing is fetched.
func TestSuspects_WaitingOnesKeepTheirLocks(t *testing.T) {
	onSuspectTransports(t, func(fx *fixture) {
		var handled recorder[string]
		fx.runWaitingSuspects(core.Config{}, 100*time.Second, &handled)
		fx.enqueue("m1", "m2")
		held := 3
		if !fx.broker.caps.CountsReleases {
			held = 2 // one suspect is for another instance
		}
		for range 95 {
			fx.advance(time.Second)
			equal(fx, "in hand", fx.depth("orders").Locked, held)
		}
		fx.advance(time.Minute)
		got := handled.all()
		if len(got) != 6 || got[1] != "slow" || !strings.HasPrefix(got[2], "suspect") {
			fx.Errorf("handled %q, want the slow one first, then a suspect", got)
		}
		equal(fx, "lines about lost locks", len(fx.logs.find("was lost")), 0)
	})
}

// Rule R35.
// Where it costs nothing, an instance has one suspect in hand: another that has nothing to
// do gets the others.
func TestSuspects_LeasedOnesGoToOtherInstances(t *testing.T) {
	inModesWith(t, prefetchConfig(30*time.Second), retryModes[:1], func(fx *fixture) {
		var handled, elsewhere recorder[string]
		fx.runWaitingSuspects(core.Config{Instance: "one"}, 0, &handled)
		ep := fx.newEndpoint("orders", core.Config{Instance: "two"})
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			elsewhere.add(m.ID)
			return nil
		})
		run := fx.run(ep)
		fx.advance(time.Second)
		if got := elsewhere.all(); len(got) != 1 || !strings.HasPrefix(got[0], "suspect") {
			fx.Errorf("the other instance handled %q, want one suspect", got)
		}
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
	})
}

// Rule R35.
// A handler that hangs must not keep suspects waiting for ever, nor a suspect that hangs
// the others.
func TestSuspects_IsolationHasAnEnd(t *testing.T) {
	onSuspectTransports(t, func(fx *fixture) {
		var handled recorder[string]
		fx.runWaitingSuspects(core.Config{DrainTimeout: time.Second}, 0, &handled)
		fx.enqueue("m1")
		fx.advance(110 * time.Second)
		equal(fx, "handled while the slow one is waited for", handled.len(), 1)
		fx.advance(20 * time.Second)
		got := handled.all()
		slices.Sort(got)
		if !slices.Equal(got, []string{"first", "m1", "suspect 1", "suspect 2"}) {
			fx.Errorf("handled %q, want all but the slow one", got)
		}
	})
	t.Run("a suspect that hangs", func(t *testing.T) {
		onSuspectTransports(t, func(fx *fixture) {
			var handled recorder[string]
			fx.enqueue("suspect")
			fx.redeliverTimes("orders", 7)
			ep, run := fx.runOrders(core.Config{Concurrency: 4, DrainTimeout: time.Second}, func(ctx context.Context, m *core.Message) error {
				if m.ID == "suspect" {
					<-ctx.Done()
					return ctx.Err()
				}
				handled.add(m.ID)
				return nil
			})
			fx.enqueue("m1", "m2", "m3", "m4", "m5")
			fx.advance(110 * time.Second)
			equal(fx, "handled beside it at first", handled.len(), 0)
			equal(fx, "isolating", ep.Health().Isolating, true)
			fx.advance(20 * time.Second)
			equal(fx, "handled beside it afterwards", handled.len(), 5)
			equal(fx, "isolating", ep.Health().Isolating, false)
			if err := run.stop(); err != nil {
				fx.Error(err)
			}
		})
	})
}

// Rule R35.
// A pause gives suspects back, or has them handled where the broker would count that.
func TestSuspects_PauseWhileTheyWait(t *testing.T) {
	onSuspectTransports(t, func(fx *fixture) {
		var handled recorder[string]
		ep, _ := fx.runWaitingSuspects(core.Config{}, 10*time.Second, &handled)
		ep.Pause()
		fx.advance(time.Minute)
		want := 2 // the first and the slow one
		if fx.broker.caps.CountsReleases {
			want = 4
		}
		equal(fx, "handled in the pause", handled.len(), want)
		equal(fx, "in flight in the pause", fx.depth("orders").Locked, 0)
		ep.Resume()
		fx.advance(time.Second)
		equal(fx, "handled", handled.len(), 4)
		fx.wantDepth("orders", 0)
	})
}

// Rule R35.
func TestSuspects_ConcurrencyOfOne(t *testing.T) {
	onSuspectTransports(t, func(fx *fixture) {
		var handled recorder[string]
		ep, _ := fx.runOrders(core.Config{Concurrency: 1}, func(_ context.Context, m *core.Message) error {
			handled.add(m.ID)
			return nil
		})
		fx.enqueue("first", "second") // prefetches from now on, where it can
		ep.Pause()
		fx.enqueue("suspect 1", "suspect 2")
		fx.redeliverTimes("orders", 7)
		fx.enqueue("m1", "m2")
		ep.Resume()
		fx.advance(10 * time.Second)
		equal(fx, "handled", handled.len(), 6)
		fx.wantDepth("orders", 0)
	})
}

// Rule R35.
// A failed suspect is rate limited, deferred and retried as any other message.
func TestSuspects_InARateLimitedEndpoint(t *testing.T) {
	onSuspectTransports(t, func(fx *fixture) {
		var down atomic.Bool
		down.Store(true)
		rules := core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 3}, Delayed: core.Delayed{NumberOfRetries: core.Off}, MaxDeliveries: 1000}
		rules.RateLimit = core.RateLimit{ConsecutiveFailures: 2, TimeToWait: 10 * time.Second}
		rules.Policy = func(context.Context, core.RecoverabilityConfig, core.ErrorContext) (core.Action, error) {
			return core.ImmediateRetry(), nil
		}
		var g gauge
		ep, _ := fx.runOrders(core.Config{Concurrency: 4, Recoverability: rules}, func(context.Context, *core.Message) error {
			g.enter()
			defer g.leave()
			if down.Load() {
				return errBoom
			}
			time.Sleep(time.Second)
			return nil
		})
		ep.Pause()
		for i := range 10 {
			fx.send(order(fmt.Sprint("suspect ", i)))
		}
		fx.redeliverTimes("orders", 9)
		ep.Resume()
		fx.advance(time.Minute)
		equal(fx, "rate limited", ep.Health().RateLimited, true)
		down.Store(false)
		fx.advance(5 * time.Minute)
		equal(fx, "rate limited", ep.Health().RateLimited, false)
		fx.wantDepth("orders", 0)
	})
}

// Rule R34.
// All deliveries of a message that kills its process, those of its new copy included, are
// MaxDeliveries together.
func TestMaxDeliveries_DeliveriesOfAMessageAndItsNewCopy(t *testing.T) {
	for _, c := range []struct {
		rules            core.Recoverability
		original, copied int
	}{
		{core.Recoverability{}, 44, 6},
		{immediateRetries(0), 47, 3},
		{core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 12}}, 39, 13}, // of 52
		{core.Recoverability{MaxDeliveries: 100}, 94, 6},
		{core.Recoverability{MaxDeliveries: 12}, 6, 6},
		{core.Recoverability{MaxDeliveries: 7}, 6, 3}, // not fewer than attempts
		{core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, MaxDeliveries: 2}, 1, 1},
	} {
		t.Run(fmt.Sprint(c.original, " and ", c.copied), func(t *testing.T) {
			inModesWith(t, countsReleasesConfig(), retryModes[:1], func(fx *fixture) {
				handled := 0
				// deliver starts an endpoint that has the message handled, if so.
				deliver := func() bool {
					before := handled
					ep := fx.newEndpoint("orders", core.Config{Recoverability: c.rules})
					fx.handle(ep, "order", func(ctx context.Context, _ *core.Message) error {
						handled++
						return core.Discard(errors.New("enough"))
					})
					run := fx.run(ep)
					fx.advance(30 * time.Second)
					if err := run.stop(); err != nil {
						fx.Error(err)
					}
					return handled > before
				}
				// last is how many deliveries there are, at most, to a handler.
				last := func(make func() core.Outgoing) int {
					for n := 1; n <= 200; n++ {
						fx.send(make())
						fx.redeliverTimes("orders", n)
						if !deliver() {
							fx.wantDepth("orders", 0)
							return n
						}
					}
					return -1
				}
				copied := last(func() core.Outgoing {
					m := order("m1")
					m.Headers.Set(headers.Deliveries, "101") // more than the first copy has in each case
					return m
				})
				equal(fx, "deliveries of a copy", copied, c.copied)
				fx.wantDepth("error", 1)
				handled = 0
				var seen recoveryRecorder
				fx.send(order("m2"))
				fx.redeliverTimes("orders", c.original)
				ep := fx.newEndpoint("orders", core.Config{Recoverability: c.rules, Observers: []core.Observer{seen.observer()}})
				fx.handle(ep, "order", func(context.Context, *core.Message) error { handled++; return nil })
				run := fx.run(ep)
				equal(fx, "new copies", seen.len() == 1 && seen.all()[0].NewCopy, true)
				fx.advance(time.Minute)
				equal(fx, "handled", handled, 1)
				if err := run.stop(); err != nil {
					fx.Error(err)
				}
				if c.original > 1 {
					fx.send(order("m3"))
					fx.redeliverTimes("orders", c.original-1)
					equal(fx, "the delivery before is handled", deliver(), true)
				}
			})
		})
	}
}

// A message is a suspect after more deliveries than its immediate retries explain.
func TestSuspects_NumberOfDeliveries(t *testing.T) {
	for name, c := range map[string]struct {
		rules core.Recoverability
		after int
	}{
		"default":                {core.Recoverability{}, 6},
		"no immediate retries":   {immediateRetries(0), 2},
		"many immediate retries": {immediateRetries(20), 21},
		"of a message type":      {core.Recoverability{MessageTypes: map[string]core.TypeRecoverability{"a": {Immediate: core.Immediate{NumberOfRetries: 30}}}}, 31},
		"few deliveries":         {core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, MaxDeliveries: 2}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, expiringLocks, retryModes[:1], func(fx *fixture) { fx.wantSuspectAfter(c.rules, c.after) })
		})
	}
}

// wantSuspectAfter checks after how many deliveries of unknown end a message is a suspect.
func (fx *fixture) wantSuspectAfter(rules core.Recoverability, deliveries int) {
	fx.Helper()
	for n, want := range map[int]int{deliveries: 0, deliveries + 1: 1} {
		fx.enqueue("m1")
		fx.redeliverTimes("orders", n-1)
		before := len(fx.isolationLines())
		_, run := fx.runOrders(core.Config{Recoverability: rules}, func(context.Context, *core.Message) error { return nil })
		synctest.Wait()
		equal(fx, fmt.Sprint("suspects among messages with ", n, " deliveries"), len(fx.isolationLines())-before, want)
		fx.wantDepth("orders", 0)
		fx.noError(run.stop())
	}
}

// Without MaxDeliveries no message is a suspect: one that kills its process would keep all
// others waiting for ever.
func TestSuspects_NoneWithoutMaxDeliveries(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes[:1], func(fx *fixture) {
		fx.enqueue("m1")
		fx.redeliverTimes("orders", 60)
		fx.runOrders(core.Config{Recoverability: core.Recoverability{MaxDeliveries: core.Off}}, func(context.Context, *core.Message) error { return nil })
		synctest.Wait()
		equal(fx, "suspects", len(fx.isolationLines()), 0)
		fx.wantDepth("orders", 0)
	})
}
