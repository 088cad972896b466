package sqs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// delivery is a message that was received. Its lock is its visibility timeout.
type delivery struct {
	core.UnsupportedDelivery
	r      *receiver
	in     *received
	handle string
	key    string // in the delivery log

	mu       sync.Mutex // guards what follows
	until    time.Time  // when the lock ends, at the earliest
	last     time.Time  // when the service takes the message back whatever is asked of it
	settled  bool
	settling bool
	failed   bool // the delivery log has counted the failure
	unseen   bool // Transport.unseen has counted the delivery
}

var _ core.Delivery = (*delivery)(nil)

// newDelivery is that of a message whose answer arrived at a time. It was locked a moment before, nobody knows when.
func newDelivery(r *receiver, in *received, m *types.Message, at time.Time) *delivery {
	locked := at.Add(-min(onTheWay, r.visibility/4))
	d := &delivery{r: r, in: in, handle: value(m.ReceiptHandle), until: locked.Add(r.visibility), last: locked.Add(mostVisibility)}
	d.key = transport.DeliveryKey(&in.Incoming)
	if in.Redelivered {
		in.DeliveryCount = max(1, in.DeliveryCount-r.t.unseen.of(in.NativeID))
		count, lastError := r.log.Delivered(d.key)
		in.LastError = lastError
		in.DeliveryCount = max(in.DeliveryCount, count)
	}
	return d
}

// onTheWay is how long an answer is on its way at most. One that takes longer may have a lock that
// ends sooner than the adapter takes it for: the message may then be handled twice.
const onTheWay = time.Second

// Incoming implements core.Delivery.
func (d *delivery) Incoming() *core.Incoming { return &d.in.Incoming }

// Complete implements core.Delivery.
func (d *delivery) Complete(ctx context.Context) error {
	err := d.settle(ctx, settlement{kind: deletion})
	if err == nil && d.in.Redelivered {
		d.r.log.Forget(d.key)
	}
	return err
}

// Abandon implements core.Delivery. The service counts each delivery.
func (d *delivery) Abandon(ctx context.Context, cause error) error {
	return d.settle(ctx, settlement{kind: giveBack, before: func() { d.noteFailed(cause) }})
}

// Release implements core.Delivery. The service counts it as a delivery, which this process takes off again.
func (d *delivery) Release(ctx context.Context) error {
	return d.settle(ctx, settlement{kind: giveBack, before: d.noteUnseen})
}

// Postpone implements core.Delivery, with the message's visibility timeout: SQS keeps the others of its group as
// long.
func (d *delivery) Postpone(ctx context.Context, delay time.Duration, cause error) error {
	if !isFIFO(d.r.address) || d.in.GroupKey == "" || d.r.mode == core.TransactionNone {
		return fmt.Errorf("sqs: postpone a message of %q: it belongs to no group of a FIFO queue: %w", d.r.address, errors.ErrUnsupported)
	}
	timeout := time.Duration(seconds(delay)) * time.Second
	if delay < 0 || time.Now().Add(timeout).After(d.last) {
		return fmt.Errorf("sqs: postpone a message of %q by %v: SQS keeps a message that was received for 12 hours at most: %w", d.r.address, delay, errors.ErrUnsupported)
	}
	return d.settle(ctx, settlement{kind: giveBack, timeout: timeout, before: func() {
		if cause == nil {
			d.noteUnseen()
		} else {
			d.noteFailed(cause)
		}
	}})
}

// LockedUntil implements core.Delivery.
func (d *delivery) LockedUntil() time.Time {
	if d.r.mode == core.TransactionNone {
		return time.Time{}
	}
	return d.lockedUntil()
}

func (d *delivery) lockedUntil() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.until
}

// Renew implements core.Delivery.
func (d *delivery) Renew(ctx context.Context) error {
	if d.r.mode == core.TransactionNone {
		return d.UnsupportedDelivery.Renew(ctx)
	}
	d.mu.Lock()
	now := time.Now()
	lock := min(d.r.visibility, d.last.Sub(now).Truncate(time.Second))
	switch {
	case d.settled:
		d.mu.Unlock()
		return core.ErrSettled
	case now.After(d.until) || lock <= 0:
		d.mu.Unlock()
		return core.ErrLockLost
	}
	d.mu.Unlock()
	asked, err := d.r.settler.do(ctx, d, settlement{kind: renewal, timeout: lock})
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if until := asked.Add(lock); until.After(d.until) {
		d.until = until
	}
	return nil
}

// settle carries out the one settlement.
func (d *delivery) settle(ctx context.Context, s settlement) error {
	if err := d.begin(ctx); err != nil || d.r.mode == core.TransactionNone {
		return err
	}
	if s.before != nil {
		s.before() // before it can come again
	}
	_, err := d.r.settler.do(ctx, d, s)
	d.end(err)
	return err
}

// noteFailed counts the failure of the delivery, once: a settlement that the service refused may be repeated.
func (d *delivery) noteFailed(cause error) {
	d.mu.Lock()
	first := !d.failed
	d.failed = true
	d.mu.Unlock()
	if first {
		d.r.log.Failed(d.key, cause)
	}
}

// noteUnseen counts the delivery as no attempt, once.
func (d *delivery) noteUnseen() {
	d.mu.Lock()
	first := !d.unseen
	d.unseen = true
	d.mu.Unlock()
	if first {
		d.r.t.unseen.add(d.in.NativeID)
	}
}

// begin reports whether the delivery can be settled, which in None is all. Otherwise end has to follow.
func (d *delivery) begin(ctx context.Context) error {
	d.r.mu.Lock()
	defer d.r.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.settled || d.settling:
		return core.ErrSettled
	case d.r.mode == core.TransactionNone:
	case d.r.closed:
		return core.ErrLockLost
	case time.Now().After(d.until):
		return core.ErrLockLost
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.r.mode == core.TransactionNone {
		d.settled = true
		return nil
	}
	d.settling = true
	d.r.settlements.Add(1) // which Close waits for
	return nil
}

// end notes the outcome.
func (d *delivery) end(err error) {
	defer d.r.settlements.Done()
	d.mu.Lock()
	d.settling = false
	if err == nil {
		d.settled = true
	}
	d.mu.Unlock()
	if err == nil || isLockLost(err) && !errors.Is(err, core.ErrClosed) { // what was not asked for, Close gives back
		d.r.mu.Lock()
		d.r.letGo(d)
		d.r.mu.Unlock()
	}
}
