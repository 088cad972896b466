package sqlserver

import (
	"context"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/operation"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/settle"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// This file is about large messages. A claim returns the size of each message, and the
// contents of the small ones. So it ends soon: while it runs, the rows are locked, and
// their leases cannot be renewed. The receiver then fetches as many of the large messages
// as it may, renews the leases in the meantime, and releases the others.

const (
	// claimBytes limits the bytes of one claim, and of one statement that fetches
	// contents, unless a single message is larger.
	claimBytes = 16 << 20
	// longTransfer is the part of a lease after which it is renewed when its message has
	// arrived, and the interval, as a part of a lease, at which the leases of other
	// messages are renewed.
	longTransfer = 4
	// minRate is the minimum rate of a connection, in bytes a second: large messages
	// have the time that this takes in addition to operation.Timeout.
	minRate = 1 << 20
)

// wholeBytes is the size up to which a claim of n messages returns headers, body and last
// error of each.
func (r *leaseStrategy) wholeBytes(n int) int64 {
	limit := int64(claimBytes)
	if r.maxBytes > 0 {
		limit = min(limit, r.maxBytes)
	}
	return limit / int64(3*n)
}

// mayClaim returns how many of n messages one claim may lease.
func (r *leaseStrategy) mayClaim(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.maxClaimed == 0 {
		return n
	}
	return min(n, r.maxClaimed)
}

// learnClaim limits the next claim after a claim of which only n messages could be
// delivered. A claim without surplus doubles the limit.
func (r *leaseStrategy) learnClaim(surplus bool, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case surplus:
		r.maxClaimed = max(n, 1)
	case r.maxClaimed > 0:
		if r.maxClaimed *= 2; r.maxClaimed > dialect.BatchSizes[len(dialect.BatchSizes)-1] {
			r.maxClaimed = 0
		}
	}
}

// arrive fetches the contents of claimed messages, of as many as one fetch may return,
// and renews all leases at the same time. It returns the messages that have arrived; the
// error says why others have not. It releases those.
func (r *leaseStrategy) arrive(ctx *operation.Operation, claimed []*leaseDelivery, since time.Time) (arrived []*leaseDelivery, err error) {
	wanted, surplus := r.affordable(claimed)
	r.release(ctx, surplus)
	var missing []*leaseDelivery
	var bytes int64
	for _, d := range wanted {
		if d.partial != nil {
			missing = append(missing, d)
			bytes += d.partial.Size
		}
	}
	if len(missing) > 0 {
		ctx.Extend(time.Duration(bytes/minRate) * time.Second)
		since = r.renewWhile(ctx, wanted, since, func() { err = r.fetchContents(ctx, missing) })
	}
	if err == nil && time.Since(since) > r.t.lease/longTransfer {
		err = r.beginLeases(ctx, wanted)
	}
	var left []*leaseDelivery
	for _, d := range wanted {
		switch {
		case d.isLost() || !time.Now().Before(d.LockedUntil()): // another receiver may have it
		case d.partial != nil:
			left = append(left, d)
		default:
			arrived = append(arrived, d)
		}
	}
	r.release(ctx, left)
	r.learnClaim(len(surplus) > 0, len(arrived))
	return arrived, err
}

// affordable splits claimed messages into those that one fetch may return, in the order
// of the queue, and the others.
func (r *leaseStrategy) affordable(claimed []*leaseDelivery) (wanted, surplus []*leaseDelivery) {
	if r.maxBytes == 0 {
		return claimed, nil
	}
	var bytes int64
	for _, d := range claimed {
		if d.partial == nil { // it has its contents
			bytes += int64(len(d.in.Body))
		}
	}
	for _, d := range claimed {
		if d.partial != nil {
			if bytes >= r.maxBytes {
				surplus = append(surplus, d)
				continue
			}
			bytes += d.partial.Size
		}
		wanted = append(wanted, d)
	}
	return wanted, surplus
}

// release releases claimed messages that were not delivered. If that fails, they are
// available when their leases end.
func (r *leaseStrategy) release(ctx context.Context, these []*leaseDelivery) {
	if len(these) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), operation.Grace)
	defer cancel()
	left := make([]core.Delivery, len(these))
	first := these[0].due
	for i, d := range these {
		left[i] = d
		if d.due.Before(first) {
			first = d.due
		}
	}
	r.releaseAll(ctx, left)
	r.lowerWatermark(first)
}

// fetchContents fetches the contents of claimed messages, with a statement for each
// claimBytes. A message that is not found is lost: another receiver has claimed it.
func (r *leaseStrategy) fetchContents(ctx context.Context, missing []*leaseDelivery) error {
	for len(missing) > 0 {
		n, bytes := 0, int64(0)
		for n < len(missing) && (n == 0 || bytes+missing[n].partial.Size <= claimBytes) {
			bytes += missing[n].partial.Size
			n++
		}
		if err := r.fetchBatch(ctx, missing[:n]); err != nil {
			return err
		}
		missing = missing[n:]
	}
	return nil
}

func (r *leaseStrategy) fetchBatch(ctx context.Context, batch []*leaseDelivery) error {
	var m dialect.Row
	columns := []any{&m.Seq, &m.Headers, &m.Body, &m.LastError}
	err := r.t.db.Exec(ctx, sqlexec.Query(func(scan sqlexec.Scanner) error {
		m.Body = nil // the last message's body is in use
		if err := scan(columns...); err != nil {
			return err
		}
		i := slices.IndexFunc(batch, func(d *leaseDelivery) bool { return d.seq == m.Seq && d.partial != nil })
		if i < 0 {
			return nil
		}
		d := batch[i]
		p := d.partial
		p.Headers, p.Body, p.LastError = m.Headers, m.Body, m.LastError
		d.in, d.partial = r.incoming(p), nil
		return nil
	}, r.q.Contents, r.listed(batch)...))
	if err != nil {
		return err
	}
	for _, d := range batch {
		if d.partial != nil {
			d.become(lost)
		}
	}
	return nil
}

// listed returns arguments for messages and the numbers of their leases.
func (r *leaseStrategy) listed(these []*leaseDelivery) []any {
	seqs, claims := make([]int64, len(these)), make([]int32, len(these))
	for i, d := range these {
		seqs[i], claims[i] = d.seq, int32(d.claims)
	}
	return r.t.dialect.List(seqs, claims)
}

// renewWhile renews leases while do runs, and returns the time of the last renewal.
func (r *leaseStrategy) renewWhile(ctx context.Context, these []*leaseDelivery, since time.Time, do func()) time.Time {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(r.t.lease / longTransfer)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			began := time.Now()
			if r.beginLeases(ctx, these) == nil {
				since = began
			}
		}
	}()
	do()
	cancel()
	<-ended
	return since
}

// beginLeases restarts the leases of claimed messages. Messages that another receiver has
// claimed are lost.
func (r *leaseStrategy) beginLeases(ctx context.Context, these []*leaseDelivery) error {
	if len(these) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, settle.AttemptLimit(r.t.lease))
	defer cancel()
	lockedUntil := time.Now().Add(r.t.lease)
	held := make(map[int64]bool, len(these))
	err := r.t.db.Exec(ctx, sqlexec.Query(func(scan sqlexec.Scanner) error {
		var seq int64
		err := scan(&seq)
		held[seq] = true
		return err
	}, r.q.Begin, append([]any{r.t.lease.Microseconds()}, r.listed(these)...)...))
	if err != nil {
		return err
	}
	for _, d := range these {
		if held[d.seq] {
			d.lockedUntil.Store(&lockedUntil)
		} else {
			d.become(lost)
		}
	}
	return nil
}

func (d *leaseDelivery) isLost() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.state == lost
}
