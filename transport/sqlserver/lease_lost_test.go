package sqlserver_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// A message whose lease ended while its handler was still at work is not settled:
// each of them must not lower the number of messages that the receiver may hold.
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
	e.handle = func(ctx context.Context, m *core.Message, body []byte) error {
		if !stalled.Load() {
			return e.work(ctx, m, body)
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
			stalled.Store(false) // no message is handled until Resume
		}
		b.proxy.Resume()
	}
	e.awaitDone()
	e.checkDone(outages + 1)
}

// A lease that has ended by the receiver's clock has ended, also where it lasts longer by the server's, as
// after a claim that took long to reach it: the receiver has filled its place.
func TestLease_EndsByTheReceiversClock(t *testing.T) {
	t.Parallel()
	for _, mode := range bothModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			db := newSchema(t)
			transport := db.open(t, sqlserver.Config{Lease: minLease})
			provision(t, transport, "orders")
			for name, settle := range map[string]func(d core.Delivery) error{
				"Complete": func(d core.Delivery) error { return d.Complete(t.Context()) },
				"Abandon":  func(d core.Delivery) error { return d.Abandon(t.Context(), nil) },
				"Renew":    func(d core.Delivery) error { return d.Renew(t.Context()) },
			} {
				send(t, transport, letter(name, "orders"))
				d := receive(t, openReceiver(t, transport, "orders", mode))
				db.exec(t, `update `+db.table("orders")+` set leased_until = now() + interval '1 hour'`)
				await(t, "the lease ends", func() bool { return !time.Now().Before(d.LockedUntil()) })
				if err := settle(d); !errors.Is(err, core.ErrLockLost) {
					t.Errorf("%s returns %v, want ErrLockLost", name, err)
				}
				if n := db.count(t, db.table("orders")+` where leased_until > now()`); n != "1" {
					t.Errorf("%s after the end of the lease has an effect: %s messages are leased", name, n)
				}
				db.exec(t, `truncate `+db.table("orders"))
			}
		})
	}
}
