package sqlserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/operation"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/presence"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/settle"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// leaseStrategy leases messages: other receivers do not take them until the lease ends.
type leaseStrategy struct {
	*receiver
	settler  *settle.Settler
	renewals *settle.Settler
	presence *presence.Presence // its number is part of the numbers of leases; nil: there is none
	works    bool               // handlers may have a transaction

	mostClaimed int // limit of one claim, after large messages; 0: no limit; guarded by the receiver's mu
}

func newLeaseStrategy(r *receiver) *leaseStrategy {
	s := &leaseStrategy{receiver: r, works: r.mode == core.TransactionSendsAtomicWithReceive}
	cfg := settle.Config{
		Life:     r.t.life.Context(),
		Lease:    r.t.lease,
		InWork:   &r.inWork,
		Works:    s.works,
		Execute:  s.execute,
		Settled:  s.settled,
		Classify: r.t.server.Fault,
		Failed:   r.t.server.GaveUp,
	}
	s.settler, s.renewals = settle.New(cfg), settle.New(cfg)
	return s
}

func (r *leaseStrategy) open(ctx context.Context) {
	r.presence = r.t.joinPresence()
	r.presence.Await(ctx, r.t.life.Context())
}

func (*leaseStrategy) prepare(context.Context) bool { return true }

func (*leaseStrategy) holds() bool { return true }

func (*leaseStrategy) ended(h core.Delivery, now time.Time) bool {
	return now.After(h.(*leaseDelivery).LockedUntil())
}

func (r *leaseStrategy) giveBack(ctx context.Context, late []core.Delivery) {
	r.releaseAll(ctx, late)
}

func (r *leaseStrategy) close(ctx context.Context, left []core.Delivery) {
	var both sync.WaitGroup
	defer both.Wait()
	if r.works {
		both.Go(func() { rollBack(ctx, left) })
	}
	r.settler.Close(ctx)
	r.renewals.Close(ctx)
	r.releaseAll(ctx, left)
}

// fetch claims messages: one statement for all of them, and no transaction while handlers
// run. An expired message is consumed and not delivered. The contents of large messages
// are fetched after the claim.
func (r *leaseStrategy) fetch(ctx *operation.Operation, dst []core.Delivery) (n int, more bool, err error) {
	from := r.from()
	// The lease ends by the server's clock. Counted by our clock from before the
	// statement, it never ends later here than there.
	start := time.Now()
	until := start.Add(r.t.lease)
	var m dialect.Row
	columns := append(m.Columns(), &m.Size)
	asked := dialect.BatchSize(r.mayClaim(len(dst)))
	whole := r.wholeBytes(asked)
	large := 0
	got := make([]*leaseDelivery, 0, asked)
	claim := r.t.dialect.Claim(r.q.QueueTexts, asked, r.t.lease, from.Time, whole, r.presence.Own())
	claim.Row = func(scan sqlexec.Scanner) error {
		m.Body = nil // the last message's body is in use
		if err := scan(columns...); err != nil {
			return err
		}
		d := &leaseDelivery{r: r, seq: m.Seq, claims: m.Claims, due: m.Due, expired: m.Expired}
		d.until.Store(&until)
		switch {
		case m.Expired:
		case m.Size > 0:
			d.partial = m.WithoutContents()
			large++
		default:
			d.in = r.incoming(&m)
		}
		got = append(got, d)
		return nil
	}
	if err := r.t.db.Exec(ctx, claim); err != nil {
		return 0, false, err
	}
	slices.SortFunc(got, func(a, b *leaseDelivery) int { return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.seq, b.seq)) })
	var first time.Time
	if len(got) > 0 {
		first = got[0].due
	}
	took := time.Since(start)
	r.advanceWatermark(from, len(got), asked, first, took)
	got = slices.DeleteFunc(got, func(d *leaseDelivery) bool {
		if d.expired {
			r.settler.Drop(d)
			more = true
		}
		return d.expired
	})
	if large > 0 || took > r.t.lease/longTransfer {
		before := len(got)
		got, err = r.arrive(ctx, got, start)
		more = more || len(got) < before
	} else {
		r.learnClaim(false, len(got))
	}
	if len(got) == 0 {
		return 0, more, err
	}
	for _, d := range got {
		dst[n] = d
		n++
	}
	return n, more, nil
}

// leaseDelivery is a message that is leased to this receiver. Its lease is fenced by the row's
// count of claims: after another receiver has claimed the message, statements of this one
// have no effect.
type leaseDelivery struct {
	transport.UnsupportedDelivery
	r       *leaseStrategy
	in      core.Incoming
	seq     int64
	claims  int
	due     time.Time
	expired bool
	partial *dialect.Row // without the contents, until they have arrived; nil: the message is complete
	until   atomic.Pointer[time.Time]

	mu    sync.Mutex
	state state

	work work
}

// state is the state of a delivery's settlement.
type state int

const (
	held state = iota
	settled
	lost
)

// ended returns the error of an operation on a message that is settled or lost, or nil.
func (s state) ended() error {
	switch s {
	case settled:
		return core.ErrSettled
	case lost:
		return core.ErrLockLost
	default:
		return nil
	}
}

var _ core.Delivery = (*leaseDelivery)(nil)

// String describes the delivery without the fields of its receiver.
func (d *leaseDelivery) String() string {
	return fmt.Sprintf("delivery of %q from %s", d.in.ID, d.r.q.Table.Address)
}

// GoString returns the same text as String.
func (d *leaseDelivery) GoString() string { return d.String() }

// Seq implements settle.Message.
func (d *leaseDelivery) Seq() int64 { return d.seq }

// Incoming implements core.Delivery.
func (d *leaseDelivery) Incoming() *core.Incoming { return &d.in }

// Complete implements core.Delivery.
func (d *leaseDelivery) Complete(ctx context.Context) error {
	if d.r.works {
		return d.completeWith(ctx, "complete", nil)
	}
	return d.settle(ctx, settle.Request{Action: settle.Completion})
}

// Abandon implements core.Delivery.
func (d *leaseDelivery) Abandon(ctx context.Context, cause error) error {
	return d.giveBack(ctx, settle.Request{Action: settle.Abandonment, Text: dialect.Storable(transport.ErrorText(cause))})
}

// Release implements core.Delivery.
func (d *leaseDelivery) Release(ctx context.Context) error {
	return d.giveBack(ctx, settle.Request{Action: settle.Release})
}

// GiveBack is a settlement that undoes the handler's work.
func (d *leaseDelivery) giveBack(ctx context.Context, what settle.Request) error {
	if d.r.works {
		d.work.mu.Lock()
		defer d.work.mu.Unlock()
		if err := d.usable(ctx); err != nil {
			return d.failed(what.Action.String(), err)
		}
		if d.work.tx != nil {
			d.undo(ctx)
			d.work.undone = fmt.Errorf("it was to be undone (%v)", what.Action) // also if that fails below
		}
	}
	return d.settle(ctx, what)
}

// settle performs the one settlement.
func (d *leaseDelivery) settle(ctx context.Context, what settle.Request) error {
	if err := d.begin(); err != nil {
		return d.failed(what.Action.String(), err)
	}
	what.Message = d
	err := d.r.settler.Do(ctx, what)
	switch {
	case err == nil:
		if what.Action != settle.Completion {
			d.r.lowerWatermark(d.due)
			d.r.t.wakeReceivers(d.r.q)
		}
		return nil
	case errors.Is(err, core.ErrLockLost):
		d.become(lost)
	default: // as far as is known, nothing happened
		d.become(held)
	}
	return d.failed(what.Action.String(), err)
}

// usable returns an error if the message can no longer be settled.
func (d *leaseDelivery) usable(ctx context.Context) error { return cmp.Or(d.advance(held), ctx.Err()) }

// begin makes this the one settlement.
func (d *leaseDelivery) begin() error { return d.advance(settled) }

// advance changes the state of a message that is held, unless its lease has ended by our
// clock. By the server's clock it may last a little longer, but the receiver has reused
// its place.
func (d *leaseDelivery) advance(next state) error {
	d.mu.Lock()
	ending := d.state == held && !time.Now().Before(d.LockedUntil())
	if ending {
		d.state = lost
	}
	err := d.state.ended()
	if err == nil {
		d.state = next
	}
	d.mu.Unlock()
	if ending {
		d.r.settled(d)
	}
	return err
}

// lose records that the lease was not valid when it was to be renewed. If the message was
// settled during the renewal, lose returns core.ErrSettled.
func (d *leaseDelivery) lose(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == settled {
		return core.ErrSettled
	}
	d.state = lost
	if d.r.works {
		d.r.t.life.Go(d.abandonWork) // it waits for a settlement
	}
	return err
}

func (d *leaseDelivery) become(s state) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state = s
}

func (d *leaseDelivery) failed(what string, err error) error {
	if errors.Is(err, core.ErrLockLost) && d.r.isClosed() {
		err = fmt.Errorf("%w: %w", err, core.ErrClosed)
	}
	return fmt.Errorf("sqlserver: %s message %s from %s: %w", what, d.in.NativeID, d.r.q.Table.Address, err)
}

// LockedUntil implements core.Delivery.
func (d *leaseDelivery) LockedUntil() time.Time { return *d.until.Load() }

// Renew implements core.Delivery.
func (d *leaseDelivery) Renew(ctx context.Context) error {
	if err := d.advance(held); err != nil {
		return d.failed(settle.Renewal.String(), err)
	}
	until := time.Now().Add(d.r.t.lease)
	if err := d.r.renewals.Do(ctx, settle.Request{Action: settle.Renewal, Message: d}); err != nil {
		if errors.Is(err, core.ErrLockLost) {
			err = d.lose(err)
		}
		return d.failed(settle.Renewal.String(), err)
	}
	d.until.Store(&until)
	return nil
}
