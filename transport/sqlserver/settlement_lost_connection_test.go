package sqlserver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// renewed renews a delivery's lease.
func renewed(ctx context.Context, d core.Delivery) error { return d.Renew(ctx) }

// leaseActions are the settlements of a leased message, and the count of its redelivery;
// 0: none, or not before its lease ends.
var leaseActions = []struct {
	name  string
	do    func(ctx context.Context, d core.Delivery) error
	count int
}{
	{"complete", func(ctx context.Context, d core.Delivery) error { return d.Complete(ctx) }, 0},
	{"abandon", func(ctx context.Context, d core.Delivery) error { return d.Abandon(ctx, errors.New("as ordered")) }, 2},
	{"release", func(ctx context.Context, d core.Delivery) error { return d.Release(ctx) }, 1},
	{"renew", renewed, 0},
}

// However a connection breaks, what is said about a leased message is done, and once,
// while the lease holds.
func TestSettlement_ConnectionBreaks(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, action := range leaseActions {
		for _, how := range breaks {
			t.Run(action.name+"/"+how.name, func(t *testing.T) {
				t.Parallel()
				e := newBusiness(t, brokerOn(t, server), core.TransactionReceiveOnly)
				transport := open(t, e.transport)
				r := openReceiver(t, transport, inputQueue, e.mode)
				e.order(1)
				d := receive(t, r)
				lease := d.LockedUntil()
				struck := how.at(e.broker.proxy, carriedOut(statements(t, transport, inputQueue)[action.name]))
				if err := action.do(t.Context(), d); err != nil {
					t.Errorf("it failed, though it happened: %v", err)
				}
				next(t, "the connection breaks", struck)
				switch action.name {
				case "renew":
					if lockedUntil := d.LockedUntil(); !lockedUntil.After(lease) {
						t.Errorf("the lease ends at %v, as before", lockedUntil)
					}
					if n := e.number(`select count(*) from `+inputQueue+` where leased_until > $1`, lease.Add(-time.Second)); n != 1 {
						t.Error("in the table it is not renewed")
					}
					complete(t, d)
				default:
					if err := d.Complete(t.Context()); !errors.Is(err, core.ErrSettled) {
						t.Errorf("a second settlement returns %v, want ErrSettled", err)
					}
				}
				if action.count > 0 {
					redelivered := receive(t, r)
					if n := redelivered.Incoming().DeliveryCount; n != action.count {
						t.Errorf("it is redelivered with the count %d, want %d", n, action.count)
					}
					complete(t, redelivered)
				}
				if n := e.waiting(); n != 0 {
					t.Errorf("%d messages are left", n)
				}
			})
		}
	}
}

// A claim whose reply is lost leaves messages without a receiver: they are redelivered
// when the lease ends, and no sooner.
func TestLease_ConnectionBreaksAtTheClaim(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, how := range breaks {
		t.Run(how.name, func(t *testing.T) {
			t.Parallel()
			e := newBusiness(t, brokerOn(t, server), core.TransactionReceiveOnly)
			e.transport.Lease = minLease
			transport := open(t, e.transport)
			r := openReceiver(t, transport, inputQueue, e.mode)
			e.order(1)
			struck := how.at(e.broker.proxy, carriedOut(statements(t, transport, inputQueue)["claim"]))
			start := time.Now()
			d := receive(t, r)
			next(t, "the connection breaks", struck)
			count, since := d.Incoming().DeliveryCount, time.Since(start)
			switch {
			case how.name == "the request is lost" && count != 1 && since < minLease:
				t.Errorf("it comes with the count %d, want 1: no receiver had it before", count)
			case how.name == "the reply is lost" && count < 2:
				t.Errorf("it comes with the count %d, want 2: who had it first may have died of it", count)
			case count > 1 && since < minLease:
				t.Errorf("it is redelivered after %v, though it is leased for %v", since, minLease)
			}
			for errors.Is(d.Complete(t.Context()), core.ErrLockLost) { // on a busy machine its lease ends first
				d = receive(t, r)
			}
			if n := e.waiting(); n != 0 {
				t.Errorf("%d messages are left", n)
			}
		})
	}
}

// A process that was paused for longer than its leases wakes up. What it says about
// its messages is too late, and changes nothing for who has them now.
func TestLease_ProcessPausedBeyondItsEnd(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, action := range leaseActions {
		t.Run(action.name, func(t *testing.T) {
			t.Parallel()
			e := newBusiness(t, brokerOn(t, server), core.TransactionReceiveOnly)
			e.transport.Lease = minLease
			paused := open(t, e.transport)
			e.order(1)
			d := receive(t, openReceiver(t, paused, inputQueue, e.mode))
			e.transport.Lease = time.Minute
			theirs := receive(t, openReceiver(t, open(t, e.transport), inputQueue, e.mode)) // when the lease has ended
			const row = `select leased_until::text || ' ' || claims || ' ' || deliveries || ' ' || coalesce(last_error, '') from ` + inputQueue
			before := e.keys(row)
			if err := action.do(t.Context(), d); !errors.Is(err, core.ErrLockLost) {
				t.Errorf("it returns %v, want ErrLockLost", err)
			}
			for now := range e.keys(row) {
				if before[now] == 0 {
					t.Errorf("the row is now %q, want %v as who has it left it", now, before)
				}
			}
			if err := theirs.Complete(t.Context()); err != nil {
				t.Errorf("who has the message now cannot settle it: %v", err)
			}
		})
	}
}
