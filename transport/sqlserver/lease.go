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
)

// claim leases messages: one statement for all of them, and no transaction while
// handlers run. A message that has expired is consumed instead of handed out. The contents
// of large messages are fetched after the claim.
func (r *receiver) claim(ctx *operation, dst []core.Delivery) (n int, more bool, err error) {
	from := r.from()
	// The lease ends by the server's clock. Counted from before the statement, by
	// ours, it never ends later here than there.
	start := time.Now()
	until := start.Add(r.t.lease)
	var m record
	columns := append(m.columns(), &m.size)
	asked := batchSize(r.mayClaim(len(dst)))
	whole := r.wholeBytes(asked)
	large := 0
	got := make([]*leased, 0, asked)
	claim := r.t.dialect.claim(r.q.queueTexts, asked, r.t.lease, from.time, whole)
	claim.row = func(scan scanner) error {
		m.body = nil // the last one's is in use
		if err := scan(columns...); err != nil {
			return err
		}
		d := &leased{r: r, seq: m.seq, claims: m.claims, due: m.due, expired: m.expired}
		d.until.Store(&until)
		switch {
		case m.expired:
		case m.size > 0:
			d.partial = m.withoutContents()
			large++
		default:
			d.in = r.incoming(&m)
		}
		got = append(got, d)
		return nil
	}
	if err := r.t.db.exec(ctx, claim); err != nil {
		return 0, false, err
	}
	slices.SortFunc(got, func(a, b *leased) int { return cmp.Or(a.due.Compare(b.due), cmp.Compare(a.seq, b.seq)) })
	var first time.Time
	if len(got) > 0 {
		first = got[0].due
	}
	took := time.Since(start)
	r.learnFloor(from, len(got), asked, first, took)
	got = slices.DeleteFunc(got, func(d *leased) bool {
		if d.expired {
			r.settler.drop(d)
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

// leased is a message that belongs to this receiver for a time. Its lease is fenced
// by the row's count of claims: once another one has claimed it, nothing that is
// said here has an effect.
type leased struct {
	core.UnsupportedDelivery
	r       *receiver
	in      core.Incoming
	seq     int64
	claims  int
	due     time.Time
	expired bool
	partial *record // without the contents, until they have arrived; nil: it is whole
	until   atomic.Pointer[time.Time]

	mu    sync.Mutex
	state state
}

// state is how far a delivery's settlement is.
type state int

const (
	held state = iota
	settled
	lost
)

var _ holding = (*leased)(nil)

// String describes it without what its receiver knows.
func (d *leased) String() string {
	return fmt.Sprintf("delivery of %q from %s", d.in.ID, d.r.q.table.address)
}

// GoString returns what String does.
func (d *leased) GoString() string { return d.String() }

// Incoming implements core.Delivery.
func (d *leased) Incoming() *core.Incoming { return &d.in }

// Complete implements core.Delivery.
func (d *leased) Complete(ctx context.Context) error { return d.settle(ctx, completion, "") }

// Abandon implements core.Delivery.
func (d *leased) Abandon(ctx context.Context, cause error) error {
	return d.settle(ctx, abandonment, storable(transport.ErrorText(cause)))
}

// Release implements core.Delivery.
func (d *leased) Release(ctx context.Context) error { return d.settle(ctx, release, "") }

func (d *leased) settle(ctx context.Context, what action, text string) error {
	if err := d.begin(); err != nil {
		return d.failed(what, err)
	}
	err := d.r.settler.do(ctx, what, d, text)
	switch {
	case err == nil:
		if what != completion {
			d.r.lower(d.due)
			d.r.t.ring(d.r.q)
		}
		return nil
	case errors.Is(err, core.ErrLockLost):
		d.become(lost)
	default: // nothing happened, as far as is known
		d.become(held)
	}
	return d.failed(what, err)
}

// begin makes this the one settlement.
func (d *leased) begin() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch d.state {
	case settled:
		return core.ErrSettled
	case lost:
		return core.ErrLockLost
	}
	d.state = settled
	return nil
}

// lose notes that the lease did not hold when it was to be renewed. Where the message
// was settled meanwhile, that is why.
func (d *leased) lose(err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state == settled {
		return core.ErrSettled
	}
	d.state = lost
	return err
}

func (d *leased) become(s state) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.state = s
}

func (d *leased) failed(what action, err error) error {
	if errors.Is(err, core.ErrLockLost) && d.r.isClosed() {
		err = fmt.Errorf("%w: %w", err, core.ErrClosed)
	}
	return fmt.Errorf("sqlserver: %s message %s from %s: %w", what, d.in.NativeID, d.r.q.table.address, err)
}

// LockedUntil implements core.Delivery.
func (d *leased) LockedUntil() time.Time { return *d.until.Load() }

// Renew implements core.Delivery.
func (d *leased) Renew(ctx context.Context) error {
	d.mu.Lock()
	now := d.state
	d.mu.Unlock()
	switch now {
	case settled:
		return d.failed(renewal, core.ErrSettled)
	case lost:
		return d.failed(renewal, core.ErrLockLost)
	}
	until := time.Now().Add(d.r.t.lease)
	if err := d.r.renewals.do(ctx, renewal, d, ""); err != nil {
		if errors.Is(err, core.ErrLockLost) {
			err = d.lose(err)
		}
		return d.failed(renewal, err)
	}
	d.until.Store(&until)
	return nil
}
