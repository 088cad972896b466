package rabbitmq

import (
	"context"
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// delivery is a message that the broker sent to a consumer. It is locked for as long as its
// channel lives.
type delivery struct {
	transport.UnsupportedDelivery
	session  *session
	consumer *consumer
	native   amqp.Delivery
	in       core.Incoming
	key      string // in the delivery log; "" until it is first used
	expires  time.Time

	entry   entry // the receiver's mu guards these
	settled bool
}

var _ core.Delivery = (*delivery)(nil)

// expiry returns the time at which a message with that time to live has certainly expired:
// the broker counts from the message's arrival in the queue, and how long the message
// waited there is unknown. A time to live of 0 allows delivery only to a consumer that can
// take the message at once, and this one did.
func expiry(milliseconds string) time.Time {
	n, err := strconv.ParseInt(milliseconds, 10, 64)
	if err != nil || n <= 0 {
		return time.Time{}
	}
	return time.Now().Add(time.Duration(n) * time.Millisecond)
}

// read builds the Incoming that the engine sees.
func (d *delivery) read() {
	r := d.session.r
	in := &d.in
	r.t.format.incoming(&d.native, r.queue, in)
	if in.NativeID != "" && !r.copies.delivered(in, d.native.Redelivered) {
		in.NativeID = ""
	}
	in.DeliveryCount = 1
	if r.counts {
		in.DeliveryCount = deliveryCount(&d.native)
	}
	in.Redelivered = d.native.Redelivered || in.DeliveryCount > 1
	// A message without its own identity shares its record with other messages of the same
	// content, and must not get a higher count from them than necessary.
	if in.Redelivered || !r.counts && in.NativeID != "" {
		count, lastError := r.log.Delivered(d.logKey())
		in.LastError = lastError
		if !r.counts {
			in.DeliveryCount = count
			in.Redelivered = in.Redelivered || count > 1
		}
	}
}

func (d *delivery) logKey() string {
	if d.key == "" {
		d.key = transport.DeliveryKey(&d.in)
	}
	return d.key
}

// String describes the delivery without the state of its connection, which other goroutines
// use.
func (d *delivery) String() string {
	return fmt.Sprintf("delivery of %q from %q", d.in.ID, d.session.r.queue)
}

// GoString returns the same as String.
func (d *delivery) GoString() string { return d.String() }

// Incoming implements core.Delivery.
func (d *delivery) Incoming() *core.Incoming { return &d.in }

// Complete implements core.Delivery. It returns when the acknowledgement is queued; the
// writer sends it within a millisecond or two, together with others.
func (d *delivery) Complete(ctx context.Context) error {
	if err := d.settle(ctx, acknowledge); err != nil {
		return err
	}
	if d.in.Redelivered {
		d.session.r.log.Forget(d.logKey())
	}
	return nil
}

// Abandon implements core.Delivery.
func (d *delivery) Abandon(ctx context.Context, cause error) error {
	key := d.logKey()
	r := d.session.r
	r.mu.Lock()
	defer r.mu.Unlock()
	err := d.settleLocked(ctx, abandon)
	if err == nil {
		r.log.Failed(key, cause) // before it can be redelivered
	}
	return err
}

// Release implements core.Delivery.
func (d *delivery) Release(ctx context.Context) error { return d.settle(ctx, release) }

func (d *delivery) settle(ctx context.Context, how settlement) error {
	r := d.session.r
	r.mu.Lock()
	defer r.mu.Unlock()
	return d.settleLocked(ctx, how)
}

// settleLocked is called with the receiver's mu held.
func (d *delivery) settleLocked(ctx context.Context, how settlement) error {
	r := d.session.r
	switch {
	case d.settled:
		return core.ErrSettled
	case r.session != d.session || r.closed:
		return core.ErrLockLost
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	d.session.settle(d, how)
	if how == acknowledge && d.in.NativeID != "" {
		r.copies.acknowledge(d.in.NativeID, d.session.over)
	}
	r.held--
	if r.first < len(r.arrived) {
		r.bell.Notify()
	}
	return nil
}
