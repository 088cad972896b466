package core

import (
	"context"
	"time"

	"github.com/reprise-go/reprise/core/internal/locks"
)

// queueDelivery is a delivery that knows its queue.
type queueDelivery struct {
	Delivery
	from       *queueReceiver
	lock       *locks.Context
	prev, next *queueDelivery // in the ring of its queue; nil when the delivery has ended
}

// addUnsettledLocked records that a delivery is unsettled.
func (q *queueReceiver) addUnsettledLocked(d *queueDelivery) {
	d.prev, d.next = q.unsettled.prev, &q.unsettled
	d.prev.next, d.next.prev = d, d
	q.count++
}

// removeUnsettledLocked records that a delivery has ended.
func (q *queueReceiver) removeUnsettledLocked(d *queueDelivery) {
	if d.next == nil {
		return
	}
	d.prev.next, d.next.prev = d.next, d.prev
	d.prev, d.next = nil, nil
	q.count--
}

// dropExpiredLocked removes deliveries whose locks have expired, which may never be
// settled.
func (q *queueReceiver) dropExpiredLocked() {
	now := time.Now()
	for d := q.unsettled.next; d != &q.unsettled; {
		next := d.next
		if until := d.LockedUntil(); !until.IsZero() && now.After(until) {
			q.removeUnsettledLocked(d)
		}
		d = next
	}
}

// settledWith records the end of a delivery, if err is that of a settlement which ended
// it.
func (d *queueDelivery) settledWith(err error) error {
	if err == nil || endsDelivery(err) {
		c := d.from.combined
		c.mu.Lock()
		d.from.removeUnsettledLocked(d)
		c.mu.Unlock()
	}
	return err
}

func (d *queueDelivery) Complete(ctx context.Context) error {
	return d.settledWith(d.Delivery.Complete(ctx))
}

func (d *queueDelivery) Abandon(ctx context.Context, cause error) error {
	return d.settledWith(d.Delivery.Abandon(ctx, cause))
}

func (d *queueDelivery) Release(ctx context.Context) error {
	return d.settledWith(d.Delivery.Release(ctx))
}

func (d *queueDelivery) CompleteWith(ctx context.Context, out []Outgoing) error {
	return d.settledWith(d.Delivery.CompleteWith(ctx, out))
}

func (d *queueDelivery) ReplaceWith(ctx context.Context, out []Outgoing) error {
	return d.settledWith(d.Delivery.ReplaceWith(ctx, out))
}

func (d *queueDelivery) DeadLetter(ctx context.Context, letter DeadLetter) error {
	return d.settledWith(d.Delivery.DeadLetter(ctx, letter))
}

func (d *queueDelivery) Renew(ctx context.Context) error {
	err := d.Delivery.Renew(ctx)
	if err != nil {
		_ = d.settledWith(err)
	}
	return err
}

func (d *queueDelivery) Postpone(ctx context.Context, delay time.Duration, cause error) error {
	return d.settledWith(d.Delivery.Postpone(ctx, delay, cause))
}

// receivedFrom returns the address of the queue that a delivery came from.
func (ep *Endpoint) receivedFrom(d Delivery) string {
	for {
		switch at := d.(type) {
		case *queueDelivery:
			return at.from.address
		case *adjustedDelivery:
			d = at.Delivery
		default:
			return ep.address
		}
	}
}

// observedAt returns the ObservedEndpoint of an attempt.
func (ep *Endpoint) observedAt(d Delivery) ObservedEndpoint {
	at := ep.observed
	at.Queue = ep.receivedFrom(d)
	at.InstanceQueue = ep.instanceAddress != "" && at.Queue == ep.instanceAddress
	return at
}
