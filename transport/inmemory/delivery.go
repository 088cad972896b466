package inmemory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// delivery is one message locked by a receiver. The queue's lock guards state,
// lockedUntil and the list; the other fields never change.
type delivery struct {
	in       core.Incoming
	receiver *receiver
	message  *message // nil in TransactionNone, where it is consumed already

	state       deliveryState
	savepoints  transport.Savepoints
	lockedUntil time.Time // zero: until it is settled
	keptUntil   time.Time // the limit of all renewals; zero: no limit
	prev, next  *delivery // in the receiver's list of unsettled deliveries
}

var _ core.Delivery = (*delivery)(nil)

type deliveryState uint8

const (
	unsettled deliveryState = iota
	settled
	lockLost
	receiverClosed
)

// Incoming implements core.Delivery.
func (d *delivery) Incoming() *core.Incoming { return &d.in }

// settle marks the delivery as settled. Without an error the caller must finish the
// settlement: it holds the queue's lock and, except in TransactionNone, the message.
func (d *delivery) settle(ctx context.Context, verb string) error {
	if err := ctx.Err(); err != nil {
		return d.failed(verb, err)
	}
	q := d.receiver.queue
	q.mu.Lock()
	if err := d.held(); err != nil {
		q.unlock()
		return d.failed(verb, err)
	}
	d.state = settled
	if d.message != nil {
		d.receiver.unsettled.remove(d)
		q.takeBack(d.message)
	}
	return nil
}

// held returns nil while the delivery can be settled. The queue's lock is held.
func (d *delivery) held() error {
	if d.state == unsettled && !d.lockedUntil.IsZero() {
		// The timer may be about to fire. A settlement after the end of the lock is late,
		// in whatever order the two goroutines are scheduled.
		if !time.Now().Before(d.lockedUntil) {
			d.receiver.queue.loseLock(d.message)
		}
	}
	switch d.state {
	case settled:
		return core.ErrSettled
	case lockLost:
		return core.ErrLockLost
	case receiverClosed:
		return fmt.Errorf("%w: receiver %w", core.ErrLockLost, core.ErrClosed)
	}
	return nil
}

func (d *delivery) failed(verb string, err error) error {
	return fmt.Errorf("inmemory: %s message %s from %q: %w", verb, d.in.ID, d.receiver.name, err)
}

// consume forgets the message of a settled delivery.
func (d *delivery) consume() {
	if d.message == nil {
		return
	}
	d.receiver.queue.remove(d.message)
	if d.receiver.log != nil {
		d.receiver.log.Forget(d.in.NativeID)
	}
}

// Complete implements core.Delivery.
func (d *delivery) Complete(ctx context.Context) error {
	if err := d.settle(ctx, "complete"); err != nil {
		return err
	}
	d.consume()
	d.receiver.queue.unlock()
	return nil
}

// Abandon implements core.Delivery. The message goes to the tail of its queue, so that a
// message that always fails does not block the others.
func (d *delivery) Abandon(ctx context.Context, cause error) error {
	text := transport.ErrorText(cause) // runs foreign code: not under the lock
	if err := d.settle(ctx, "abandon"); err != nil {
		return err
	}
	q := d.receiver.queue
	if d.message != nil {
		d.fail(text)
		q.makeReady(d.message, false)
	}
	q.unlock()
	return nil
}

// fail counts the failure of a settled delivery.
func (d *delivery) fail(text string) {
	if log := d.receiver.log; log != nil {
		log.Failed(d.in.NativeID, errorText(text))
		return
	}
	d.message.failures++
	d.message.lastError = text
}

// Release implements core.Delivery. The message goes to the head of its queue.
func (d *delivery) Release(ctx context.Context) error {
	if err := d.settle(ctx, "release"); err != nil {
		return err
	}
	if d.message != nil {
		d.receiver.release(d.message)
	}
	d.receiver.queue.unlock()
	return nil
}

// errorText is an error of which only the text is kept.
type errorText string

func (e errorText) Error() string { return string(e) }

// release returns an unfailed message to the head of the queue.
func (r *receiver) release(m *message) {
	if r.transport.caps.CountsReleases {
		m.failures++
	}
	r.queue.makeReady(m, true)
}

// Postpone implements core.Delivery. The message's time to be received continues.
func (d *delivery) Postpone(ctx context.Context, delay time.Duration, cause error) error {
	const verb = "postpone"
	switch {
	case d.message == nil || !d.message.ordered:
		return d.failed(verb, fmt.Errorf("it is in no group that is kept in order: %w", errors.ErrUnsupported))
	case delay < 0:
		return d.failed(verb, fmt.Errorf("the delay is %v", delay))
	case !d.keptUntil.IsZero() && time.Now().Add(delay).After(d.keptUntil):
		return d.failed(verb, fmt.Errorf("a delay of %v is above Capabilities.MaxLockTime, %v: %w", delay, d.receiver.longest, errors.ErrUnsupported))
	}
	text := transport.ErrorText(cause)
	if err := d.settle(ctx, verb); err != nil {
		return err
	}
	q := d.receiver.queue
	switch {
	case cause != nil:
		d.fail(text)
	case d.receiver.transport.caps.CountsReleases:
		d.message.failures++
	}
	q.delay(d.message, time.Now().Add(delay))
	q.unlock()
	return nil
}
