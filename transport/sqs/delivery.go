package sqs

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqs/internal/message"
)

// delivery is a received message. Its lock is its visibility timeout.
type delivery struct {
	transport.UnsupportedDelivery
	r      *receiver
	in     *message.Received
	handle string
	key    string // in the delivery log

	refreshed bool  // its lock was renewed before it was handed out; guarded by the receiver's mu
	refusal   error // why the service refuses its copy; set before it is handed out

	mu        sync.Mutex // guards the fields below
	lockEnd   time.Time  // at the earliest
	last      time.Time  // end of the lock even if it is renewed
	settled   bool
	settling  bool
	returning bool          // settling makes the message available to others
	renewal   chan struct{} // closed when the renewal in progress has ended; nil: none is in progress
	failed    bool          // the delivery log has counted the failure
	unseen    bool          // Transport.unseen has counted the delivery
}

var _ core.Delivery = (*delivery)(nil)

// newDelivery returns the delivery of a message whose answer arrived at the given time.
// The service locked it before that, at a time that the answer does not contain.
func newDelivery(r *receiver, in *message.Received, m *types.Message, at time.Time) *delivery {
	locked := at.Add(-min(onTheWay, r.visibility/4))
	d := &delivery{r: r, in: in, handle: aws.ToString(m.ReceiptHandle), lockEnd: locked.Add(r.visibility), last: locked.Add(maxVisibility)}
	d.key = transport.DeliveryKey(&in.Incoming)
	if in.Redelivered {
		in.DeliveryCount = max(1, in.DeliveryCount-r.t.unseen.count(in.NativeID))
		count, lastError := r.log.Delivered(d.key)
		in.LastError = lastError
		in.DeliveryCount = max(in.DeliveryCount, count)
	}
	return d
}

// onTheWay is the longest time from the lock of a message to the first byte of its
// answer. After a longer time the lock may end sooner than the adapter assumes, so that
// the message may be handled twice.
const onTheWay = time.Second

// Incoming implements core.Delivery.
func (d *delivery) Incoming() *core.Incoming { return &d.in.Incoming }

// Complete implements core.Delivery.
func (d *delivery) Complete(ctx context.Context) error {
	err := d.settle(ctx, settlement{kind: settleDelete})
	if err == nil && d.in.Redelivered {
		d.r.log.Forget(d.key)
		d.r.unreadable.Forget(d.key)
	}
	return err
}

// Abandon implements core.Delivery. The service counts each delivery.
func (d *delivery) Abandon(ctx context.Context, cause error) error {
	return d.settle(ctx, settlement{kind: settleReturn, before: func() { d.noteFailed(cause) }})
}

// Release implements core.Delivery. The service counts it as a delivery, which this
// process subtracts.
func (d *delivery) Release(ctx context.Context) error {
	return d.settle(ctx, settlement{kind: settleReturn, before: d.noteUnseen})
}

// Postpone implements core.Delivery, by the message's visibility timeout: SQS delivers no
// later message of its group before that ends. The service counts the delivery, with and
// without a cause.
func (d *delivery) Postpone(ctx context.Context, delay time.Duration, cause error) error {
	if !isFIFO(d.r.address) || d.in.GroupKey == "" || d.r.mode == core.TransactionNone {
		return fmt.Errorf("sqs: postpone a message of %q: it belongs to no group of a FIFO queue: %w", d.r.address, errors.ErrUnsupported)
	}
	timeout := time.Duration(seconds(delay)) * time.Second
	if delay < 0 || time.Now().Add(timeout).After(d.last) {
		return fmt.Errorf("sqs: postpone a message of %q by %v: SQS keeps a message that was received for 12 hours at most: %w", d.r.address, delay, errors.ErrUnsupported)
	}
	s := settlement{kind: settleReturn, timeout: timeout}
	if cause != nil {
		s.before = func() { d.noteFailed(cause) }
	}
	return d.settle(ctx, s)
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
	return d.lockEnd
}

// Renew implements core.Delivery.
func (d *delivery) Renew(ctx context.Context) error {
	if d.r.mode == core.TransactionNone {
		return d.UnsupportedDelivery.Renew(ctx)
	}
	lock, ended, err := d.beginRenewal(ctx)
	if err != nil {
		return err
	}
	asked, err := d.r.settler.do(ctx, d, settlement{kind: settleRenew, timeout: lock})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.renewal = nil
	close(ended)
	if err != nil {
		return err
	}
	d.lockEnd = latest(d.lockEnd, asked.Add(lock))
	return nil
}

// extend records that the lock ends at a later time.
func (d *delivery) extend(end time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lockEnd = latest(d.lockEnd, end)
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// beginRenewal returns how long to lock the message, and a channel to close when the
// renewal has ended.
func (d *delivery) beginRenewal(ctx context.Context) (lock time.Duration, ended chan struct{}, err error) {
	for {
		if err := d.awaitRenewal(ctx); err != nil {
			return 0, nil, err
		}
		d.mu.Lock()
		if d.renewal == nil {
			break
		}
		d.mu.Unlock()
	}
	defer d.mu.Unlock()
	now := time.Now()
	lock = min(d.r.visibility, d.last.Sub(now).Truncate(time.Second))
	switch {
	case d.settled || d.returning:
		return 0, nil, core.ErrSettled
	case now.After(d.lockEnd) || lock <= 0 || d.r.closing.Err() != nil:
		return 0, nil, core.ErrLockLost
	}
	d.renewal = make(chan struct{})
	return lock, d.renewal, nil
}

// awaitRenewal waits until the renewal in progress, if any, has ended.
func (d *delivery) awaitRenewal(ctx context.Context) error {
	d.mu.Lock()
	renewal := d.renewal
	d.mu.Unlock()
	if renewal == nil {
		return nil
	}
	select {
	case <-renewal:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// settle makes the delivery's only settlement.
func (d *delivery) settle(ctx context.Context, s settlement) error {
	returning := s.kind == settleReturn
	if err := d.begin(ctx, returning); err != nil || d.r.mode == core.TransactionNone {
		return err
	}
	if returning {
		// A renewal that arrives after the return would lock the message again, or end a
		// postponement early.
		if err := d.awaitRenewal(ctx); err != nil {
			d.end(err)
			return err
		}
	}
	if s.before != nil {
		s.before()
	}
	_, err := d.r.settler.do(ctx, d, s)
	d.end(err)
	return err
}

// noteFailed counts the failure of the delivery once, even if a refused settlement is
// repeated.
func (d *delivery) noteFailed(cause error) {
	d.mu.Lock()
	first := !d.failed
	d.failed = true
	d.mu.Unlock()
	if first {
		d.r.log.Failed(d.key, cause)
	}
}

// noteUnseen counts, once, that the delivery was no attempt.
func (d *delivery) noteUnseen() {
	d.mu.Lock()
	first := !d.unseen
	d.unseen = true
	d.mu.Unlock()
	if first {
		d.r.t.unseen.add(d.in.NativeID)
	}
}

// begin returns an error if the delivery cannot be settled now. In mode None it settles
// the delivery; in other modes end must follow.
func (d *delivery) begin(ctx context.Context, returning bool) error {
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
	case time.Now().After(d.lockEnd):
		return core.ErrLockLost
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if d.r.mode == core.TransactionNone {
		d.settled = true
		return nil
	}
	d.settling, d.returning = true, returning
	d.r.settlements.Add(1) // which Close waits for
	return nil
}

// end records the outcome.
func (d *delivery) end(err error) {
	defer d.r.settlements.Done()
	d.mu.Lock()
	d.settling, d.returning = false, false
	if err == nil {
		d.settled = true
	}
	d.mu.Unlock()
}
