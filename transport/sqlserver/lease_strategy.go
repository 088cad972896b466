package sqlserver

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/operation"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/presence"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/settle"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// leaseStrategy leases messages: other receivers do not take them until the lease ends.
type leaseStrategy struct {
	*receiver
	settler      *settle.Settler
	renewals     *settle.Settler
	presence     *presence.Presence // its number is part of the numbers of leases; nil: there is none
	joinPresence func() *presence.Presence
	works        bool // handlers may have a transaction

	maxClaimed int // limit of one claim, after large messages; 0: no limit; guarded by the receiver's mu
}

// newLeaseStrategy returns the strategy of a receiver. joinPresence is called when it opens.
func newLeaseStrategy(r *receiver, joinPresence func() *presence.Presence) *leaseStrategy {
	s := &leaseStrategy{receiver: r, joinPresence: joinPresence, works: r.mode == core.TransactionSendsAtomicWithReceive}
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
	r.presence = r.joinPresence()
	r.presence.Await(ctx, r.t.life.Context())
}

func (*leaseStrategy) prepare(context.Context) bool { return true }

func (*leaseStrategy) holds() bool { return true }

func (*leaseStrategy) ended(h core.Delivery, now time.Time) bool {
	return now.After(h.(*leaseDelivery).LockedUntil())
}

func (r *leaseStrategy) releaseFetched(ctx context.Context, deliveries []core.Delivery) {
	r.releaseAll(ctx, deliveries)
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
	lockedUntil := start.Add(r.t.lease)
	var m dialect.Row
	columns := append(m.Columns(), &m.Size)
	asked := dialect.BatchSize(r.mayClaim(len(dst)))
	whole := r.wholeBytes(asked)
	large := 0
	got := make([]*leaseDelivery, 0, asked)
	claim := r.t.dialect.Claim(r.q.QueueTexts, asked, r.t.lease, from.Time, whole, r.presence.Own())
	r.aside.leaveOut(r.t.dialect, claim)
	claim.Row = func(scan sqlexec.Scanner) error {
		m.Body = nil // the last message's body is in use
		if err := scan(columns...); err != nil {
			return err
		}
		d := &leaseDelivery{r: r, seq: m.Seq, claims: m.Claims, due: m.Due, expired: m.Deadline.Passed()}
		d.lockedUntil.Store(&lockedUntil)
		switch {
		case d.expired:
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
