package sqlserver_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/reprise-go/reprise/core"
)

// A message whose lease ended while its handler was still at work is settled by
// nobody: what the receiver may hold must not become less with each of them.
func TestLease_LostDeliveryLeavesItsSlot(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	b := brokerOn(t, server)
	e := newBusiness(t, b, core.TransactionReceiveOnly)
	e.transport.Lease = minLease
	e.config.Concurrency = 1
	started, lost := make(chan struct{}, 1), make(chan error, 1)
	var stalled atomic.Bool
	stalled.Store(true)
	e.handle = func(ctx context.Context, m *core.Inbound[[]byte]) error {
		if !stalled.Load() {
			return e.work(ctx, m)
		}
		started <- struct{}{}
		<-ctx.Done()
		lost <- context.Cause(ctx)
		return ctx.Err()
	}
	const outages = 3 // one more than an endpoint with one slot may hold
	e.order(outages + 1)
	e.run()
	for i := range outages {
		next(t, "a message is handled", started)
		b.proxy.Stall()
		if cause := next(t, "the lease ends", lost); !errors.Is(cause, core.ErrLockLost) {
			t.Fatalf("the handler's context ended with %v, want ErrLockLost", cause)
		}
		if i == outages-1 {
			stalled.Store(false) // nobody handles anything until Resume
		}
		b.proxy.Resume()
	}
	e.awaitDone()
	e.checkDone(outages + 1)
}
