package rabbitmq

import (
	"context"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/acks"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/copylog"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/message"
)

// delivery is a message that the broker sent to a consumer. It is locked for as long as its
// channel lives.
type delivery struct {
	transport.UnsupportedDelivery
	channel  *consumerChannel
	consumer *consumer
	native   *amqp.Delivery // nil after decode: Incoming has it, and a program that holds many may let go of it
	incoming core.Incoming
	foreign  *copylog.Copy // nil: the sender was Reprise, and has named it

	entry   acks.Entry // the receiver's mu guards these
	settled bool
}

var _ core.Delivery = (*delivery)(nil)

// decode builds the Incoming that the engine sees.
func (d *delivery) decode() {
	r := d.channel.r
	in := &d.incoming
	native := d.native
	d.native = nil
	r.t.format.Incoming(native, r.queue, in)
	if r.brokerCounts {
		in.DeliveryCount = message.DeliveryCount(native)
	}
	if in.NativeID == "" || !r.copies.Delivered(in, native.Redelivered) {
		d.foreign = r.copies.Foreign.Delivered(in, native.Redelivered, d.channel.ended)
		in.NativeID = d.foreign.Name
	}
	if in.ID == "" {
		in.ID = in.NativeID
	}
	in.Redelivered = native.Redelivered || in.DeliveryCount > 1
	if in.Redelivered || !r.brokerCounts {
		count, lastError := r.log.Delivered(transport.DeliveryKey(in))
		in.LastError = lastError
		if !r.brokerCounts {
			in.DeliveryCount = count
			in.Redelivered = in.Redelivered || count > 1
		}
	}
}

// String describes the delivery without the state of its connection, which other goroutines
// use.
func (d *delivery) String() string {
	return fmt.Sprintf("delivery of %q from %q", d.incoming.ID, d.channel.r.queue)
}

// GoString returns the same as String.
func (d *delivery) GoString() string { return d.String() }

// Incoming implements core.Delivery.
func (d *delivery) Incoming() *core.Incoming { return &d.incoming }

// Complete implements core.Delivery. It returns when the acknowledgement is queued; the
// writer sends it within a millisecond or two, together with others.
func (d *delivery) Complete(ctx context.Context) error {
	if err := d.settle(ctx, acks.Acknowledge); err != nil {
		return err
	}
	if d.incoming.Redelivered {
		d.channel.r.log.Forget(transport.DeliveryKey(&d.incoming))
	}
	return nil
}

// Abandon implements core.Delivery.
func (d *delivery) Abandon(ctx context.Context, cause error) error {
	key := transport.DeliveryKey(&d.incoming)
	r := d.channel.r
	r.mu.Lock()
	defer r.mu.Unlock()
	err := d.settleLocked(ctx, acks.Abandon)
	if err == nil {
		r.log.Failed(key, cause) // before it can be redelivered
	}
	return err
}

// Release implements core.Delivery.
func (d *delivery) Release(ctx context.Context) error { return d.settle(ctx, acks.Release) }

func (d *delivery) settle(ctx context.Context, how acks.Settlement) error {
	r := d.channel.r
	r.mu.Lock()
	defer r.mu.Unlock()
	return d.settleLocked(ctx, how)
}

// settleLocked is called with the receiver's mu held.
func (d *delivery) settleLocked(ctx context.Context, how acks.Settlement) error {
	r := d.channel.r
	switch {
	case d.settled:
		return core.ErrSettled
	case r.channel != d.channel || r.closed:
		return core.ErrLockLost
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	switch {
	case d.foreign == nil && how == acks.Acknowledge:
		r.copies.Acknowledge(d.incoming.NativeID, d.channel.ended)
	case d.foreign == nil:
	case how == acks.Acknowledge:
		r.copies.Foreign.Acknowledged(d.foreign)
	default:
		r.copies.Foreign.Returned(d.foreign)
	}
	d.requestLocked(how)
	r.unsettled--
	if r.prefetchHead < len(r.prefetched) {
		r.wakeup.Notify()
	}
	return nil
}

// requestLocked requests the settlement. It is called with the receiver's mu held.
func (d *delivery) requestLocked(how acks.Settlement) {
	d.settled = true
	d.consumer.unsettled--
	if d.consumer.cancelled {
		d.channel.r.changed.Notify()
	}
	d.channel.acks.Settle(&d.entry, how)
}
