package suite

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Measurements of a whole endpoint.

// run starts an endpoint with this handler. The endpoint stops at the end of the
// measurement.
func (b *bench) run(mode core.TransactionMode, succeeded func(context.Context, core.Handling), handler func(ctx context.Context, m *core.Message, body []byte) error) {
	ep, err := core.New(b.queue, b.transport, core.Config{
		Transactions: mode, Provision: core.ProvisionNever, Logger: slog.New(slog.DiscardHandler),
		Recoverability: core.Recoverability{ErrorQueue: b.newQueue()}, Observers: []core.Observer{{Succeeded: succeeded}},
	})
	if err != nil {
		b.Fatal(err)
	}
	core.Handle(ep, jobType, handler)
	ctx, cancel := context.WithCancel(b.ctx)
	done := make(chan error, 1)
	go func() { done <- ep.Run(ctx) }()
	b.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			b.Error(err)
		}
	})
	select {
	case <-ep.Ready():
	case err := <-done:
		done <- nil
		b.Fatalf("the endpoint does not run: %v", err)
	}
}

// successCount counts completed messages.
type successCount struct{ n atomic.Int64 }

func (s *successCount) succeeded(context.Context, core.Handling) { s.n.Add(1) }

func (b *bench) endToEnd(mode core.TransactionMode, failing bool) {
	done := &successCount{}
	b.run(mode, done.succeeded, func(_ context.Context, m *core.Message, _ []byte) error {
		if failing && m.Attempt == 1 {
			return errHandler
		}
		return nil
	})
	b.ResetTimer()
	if err := b.fill(b.N); err != nil {
		b.Fatal(err)
	}
	b.reach(done)
	b.StopTimer()
	b.rate(b.N)
}

// reach waits until all messages are completed.
func (b *bench) reach(done *successCount) {
	last, since := int64(0), time.Now()
	for {
		n := done.n.Load()
		if n >= int64(b.N) {
			return
		}
		if n != last {
			last, since = n, time.Now()
		}
		if time.Since(since) > b.h.Timeout {
			b.Fatalf("%d of %d messages were handled, and none for %v", n, b.N, b.h.Timeout)
		}
		time.Sleep(100 * time.Microsecond)
	}
}

func (b *bench) latency(mode core.TransactionMode) {
	var handled atomic.Pointer[time.Time]
	done := make(chan struct{}, 1)
	b.run(mode, func(context.Context, core.Handling) { done <- struct{}{} }, func(context.Context, *core.Message, []byte) error {
		now := time.Now()
		handled.Store(&now)
		return nil
	})
	var all []time.Duration
	timeout := time.NewTimer(b.h.Timeout)
	defer timeout.Stop()
	for b.Loop() {
		msgs := b.messages(1)
		began := time.Now()
		if err := b.transport.Send(b.ctx, msgs...); err != nil {
			b.Fatal(err)
		}
		timeout.Reset(b.h.Timeout)
		select {
		case <-done:
			all = append(all, handled.Load().Sub(began))
		case <-timeout.C:
			b.Fatalf("a message was not handled within %v", b.h.Timeout)
		}
	}
	slices.Sort(all)
	b.ReportMetric(percentile(all, 50), "p50-µs")
	b.ReportMetric(percentile(all, 99), "p99-µs")
}

// percentile returns the nearest-rank percentile of sorted times, in
// microseconds.
func percentile(sorted []time.Duration, p float64) float64 {
	rank := int(math.Ceil(p / 100 * float64(len(sorted))))
	return float64(sorted[max(rank, 1)-1]) / float64(time.Microsecond)
}
