package core_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// slowTransport makes every Receive take a while, as one over a network does.
type slowTransport struct {
	*inmemory.Transport
	roundTrip time.Duration
	waiting   atomic.Int64 // calls of Receive in progress
}

func (d *slowTransport) OpenReceiver(ctx context.Context, c core.ReceiverConfig) (core.Receiver, error) {
	r, err := d.Transport.OpenReceiver(ctx, c)
	return &slowReceivingReceiver{r, d}, err
}

type slowReceivingReceiver struct {
	core.Receiver
	transport *slowTransport
}

func (r *slowReceivingReceiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	r.transport.waiting.Add(1)
	defer r.transport.waiting.Add(-1)
	time.Sleep(r.transport.roundTrip)
	return r.Receiver.Receive(ctx, dst)
}

func TestFetch_SmallBatchesKeepManySlotsBusy(t *testing.T) {
	bubbleWith(t, withCapabilities(func(c *core.Capabilities) { c.MaxReceiveBatch = 10 }), func(fx *fixture) {
		far := &slowTransport{Transport: fx.broker.Transport, roundTrip: 12 * time.Millisecond}
		ep, err := core.New("orders", far, core.Config{
			Concurrency: 64, Transactions: core.TransactionReceiveOnly, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			fx.Fatal(err)
		}
		var running, highest atomic.Int64
		fx.handle(ep, "order", func(context.Context, *core.Message) error {
			if n := running.Add(1); n > highest.Load() {
				highest.Store(n)
			}
			time.Sleep(20 * time.Millisecond)
			running.Add(-1)
			return nil
		})
		for i := range 2000 {
			fx.send(order(fmt.Sprint("m", i)))
		}
		fx.run(ep)
		for total(fx.depth("orders")) > 0 {
			time.Sleep(time.Second)
		}
		// One fetch at a time could not keep more than 17 busy.
		if highest.Load() < 40 {
			fx.Errorf("at most %d of 64 slots were busy", highest.Load())
		}
		if highest.Load() > 64 {
			fx.Errorf("%d messages were handled at once, with 64 slots", highest.Load())
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := far.waiting.Load(); n != 1 {
			fx.Errorf("%d calls of Receive watch the idle queue, want one", n)
		}
	})
}

// A push adapter fetches without being asked: it must be told to hold nothing.
func TestPause_ReceiverPrefetchesNothing(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		ep, _ := fx.runOrders(core.Config{Concurrency: 3}, func(context.Context, *core.Message) error { return nil })
		ep.Pause()
		if err := ep.SetConcurrency(5); err != nil {
			fx.Fatal(err)
		}
		ep.Resume()
		want := []int{3, 3, 0, 5}
		if fx.mode == core.TransactionReceiveOnly {
			want = []int{1, 1, 0, 1} // until a message has come that is no suspect (R35)
		}
		if got := fx.broker.inFlight.all(); !slices.Equal(got, want) {
			fx.Errorf("MaxInFlight was set to %v, want %v: the concurrency at first, 0 for the pause, the concurrency after it", got, want)
		}
	})
}

func TestPause_BeforeRunReceiverPrefetchesNothing(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{Concurrency: 3})
		ep.Pause()
		fx.run(ep)
		ep.Resume()
		want := []int{3, 0, 3}
		if fx.mode == core.TransactionReceiveOnly {
			want = []int{1, 0, 1} // until a message has come that is no suspect (R35)
		}
		if got := fx.broker.inFlight.all(); !slices.Equal(got, want) {
			fx.Errorf("MaxInFlight was set to %v, want %v: the concurrency at first, 0 for the pause, the concurrency after it", got, want)
		}
	})
}

func TestPrefetch_ReceiverIsToldTheLimit(t *testing.T) {
	inModesWith(t, prefetchConfig(0), []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
		var takes atomic.Int64
		fx.runOrders(core.Config{Concurrency: 8, DrainTimeout: time.Second}, func(ctx context.Context, _ *core.Message) error {
			select {
			case <-time.After(time.Duration(takes.Load())):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		equal(fx, "MaxInFlight before a message has come", fx.newestMaxInFlight(), 1) // R35
		fx.enqueue("quick")
		equal(fx, "MaxInFlight before a handler was measured", fx.broker.inFlight.all()[2], 16) // slots, and as many being settled
		equal(fx, "MaxInFlight of quick handlers", fx.newestMaxInFlight(), 24)
		takes.Store(int64(time.Minute))
		for i := range 100 {
			fx.send(order(fmt.Sprint("slow", i)))
		}
		time.Sleep(10 * time.Minute)
		equal(fx, "MaxInFlight of handlers that take a minute", fx.newestMaxInFlight(), 16)
		equal(fx, "held", fx.depth("orders").Locked, 8)
	})
}

// Rule R28.
func TestRedelivery_WithoutCount(t *testing.T) {
	c := withCapabilities(func(c *core.Capabilities) { c.NativeDeliveryCount = false })
	c.LockDuration = time.Minute
	inModesWith(t, c, []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
		var attempts recorder[int]
		lost := false
		fx.broker.setFaults(faults{settle: func(operation string, _ *core.Incoming) error {
			if operation == "Complete" && !lost {
				lost = true
				return errBoom
			}
			return nil
		}})
		fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
			attempts.add(m.Attempt)
			return nil
		})
		fx.enqueue("m1")
		time.Sleep(5 * time.Minute) // its lock runs out, which this count does not see
		fx.wantDepth("orders", 0)
		equal(fx, "times it was handled", attempts.len(), 1)
	})
}

// blockingLogHandler blocks the goroutine that logs a line.
type blockingLogHandler struct {
	slog.Handler
	line    string
	release <-chan struct{}
}

func (h blockingLogHandler) WithAttrs([]slog.Attr) slog.Handler { return h }

func (h blockingLogHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h blockingLogHandler) Handle(_ context.Context, r slog.Record) error {
	if r.Message == h.line {
		<-h.release
	}
	return nil
}

func TestReceive_IsNotRepeatedWhileRunEnds(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		release := make(chan struct{})
		var calls atomic.Int64
		fx.broker.setFaults(faults{receive: func(ctx context.Context) (bool, int, error) {
			<-ctx.Done()
			if calls.Add(1) > 10 {
				<-release // a call without an end would stop the bubble's clock
			}
			return true, 0, ctx.Err()
		}})
		ep := fx.newEndpoint("orders", core.Config{
			Concurrency: 1,
			Logger:      slog.New(blockingLogHandler{slog.DiscardHandler, "endpoint is running", release}),
		})
		r := fx.start(ep)
		r.cancel() // Run does not notice yet
		synctest.Wait()
		equal(fx, "calls of Receive", calls.Load(), 1)
		close(release)
	})
}

func TestRun_EndsForANilDelivery(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.broker.setFaults(faults{receive: func(context.Context) (bool, int, error) { return true, 1, nil }})
		r := fx.start(fx.newEndpoint("orders", core.Config{}))
		if err := r.wait(); err == nil || !containsAll(err.Error(), "receive", "number 1 is nil (C3)") {
			fx.Errorf("Run returned %v, want the error of the adapter", err)
		}
	})
}
