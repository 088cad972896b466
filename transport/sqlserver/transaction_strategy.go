package sqlserver

import (
	"context"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/operation"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// transactionStrategy takes each message in a transaction: the row is deleted, and until the
// commit other receivers neither see that nor can lock the row. The transaction has its
// own connection until the message is settled.
type transactionStrategy struct{ *receiver }

func (transactionStrategy) open(context.Context) {}

func (r transactionStrategy) prepare(ctx context.Context) bool {
	return r.t.limit.Reserve(ctx, r.closing)
}

func (transactionStrategy) holds() bool { return true }

// ended returns false: a transaction lasts until it is settled or the receiver is closed.
func (transactionStrategy) ended(core.Delivery, time.Time) bool { return false }

func (transactionStrategy) releaseFetched(ctx context.Context, deliveries []core.Delivery) {
	rollBack(ctx, deliveries)
}

func (transactionStrategy) close(ctx context.Context, left []core.Delivery) { rollBack(ctx, left) }

func (r transactionStrategy) fetch(ctx *operation.Operation, dst []core.Delivery) (n int, more bool, err error) {
	if n, more, err = r.fetchOne(ctx, dst); n == 0 {
		r.t.limit.Free()
	}
	return n, more, err
}

// fetchOne takes one message.
//
// The order of the statements matters: first the row, then the savepoint. If the outer
// transaction only locks a row, and the row is deleted after the savepoint, then two
// transactions lock it in the server's view, and that takes longer the more rows wait.
func (r transactionStrategy) fetchOne(ctx *operation.Operation, dst []core.Delivery) (n int, more bool, err error) {
	d, err := r.deleteOne(ctx)
	switch {
	case err != nil || d == nil:
		return 0, false, err
	case d.Deadline.Passed():
		if err := d.tx.Commit(ctx); err != nil { // without the message
			d.tx.Rollback(ctx)
			return 0, false, err
		}
		return 0, true, nil
	}
	if to := r.t.forwarded(r.q, &d.in); to != nil {
		if held, err := d.passOn(ctx, to); err != nil || !held {
			return 0, err == nil, err
		}
	}
	dst[0] = d
	return 1, false, nil
}

func (r transactionStrategy) deleteOne(ctx context.Context) (*transactionDelivery, error) {
	d := &transactionDelivery{r: r.receiver}
	found := 0
	from := r.from()
	take := r.t.dialect.Take(r.q.QueueTexts, 1, from.Time)
	if r.t.nserviceBusTables {
		take = r.t.dialect.TakeForeign(r.q.QueueTexts, 1)
	}
	r.aside.leaveOut(r.t.dialect, take)
	take.Row = func(scan sqlexec.Scanner) error {
		found = 1
		return scan(d.Columns()...)
	}
	start := time.Now()
	statements := []*sqlexec.Statement{take}
	if d.isAtomic() {
		statements = append(statements, r.t.dialect.Savepoint(dialect.BeforeHandler))
	}
	tx, err := r.t.db.Begin(ctx, statements...)
	if err != nil {
		return nil, err
	}
	r.advanceWatermark(from, found, 1, d.Due, time.Since(start))
	if found == 0 {
		tx.Rollback(ctx)
		return nil, nil
	}
	d.tx = tx
	if n, text := r.uncounted.Of(&d.Row); n > 0 {
		d.missed, d.Deliveries, d.LastError = n, d.Deliveries+n, text
	}
	d.in = r.incoming(&d.Row)
	d.in.Redelivered = d.in.Redelivered || r.t.returned.Has(d.ID)
	if r.count != nil && !d.isAtomic() {
		r.t.returned.Add(d.ID) // the server does not tell when it rolls back
	}
	return d, nil
}
