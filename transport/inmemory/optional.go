package inmemory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// These methods of a delivery depend on Config and the receiver's mode. Each returns
// errors.ErrUnsupported if it does not apply.

// BindContext implements core.Delivery. It returns ctx: the broker has no native transaction to hand out.
func (d *delivery) BindContext(ctx context.Context) context.Context { return ctx }

// CompleteWith sends out and consumes the message, or does neither.
func (d *delivery) CompleteWith(ctx context.Context, out []core.Outgoing) error {
	return d.consumeAndSend(ctx, "complete", out)
}

// Reset has nothing to undo. It reports whether the delivery is still locked.
func (d *delivery) Reset(ctx context.Context) error {
	err := d.atomic()
	if err == nil {
		err = d.whileHeld(ctx, func() error {
			d.savepoints.Clear()
			return nil
		})
	}
	if err != nil {
		return d.failed("reset", err)
	}
	return nil
}

// Savepoint marks a state. A rollback to it has nothing to undo, like Reset.
func (d *delivery) Savepoint(ctx context.Context) (func(context.Context) error, error) {
	err := d.atomic()
	if err == nil && !d.receiver.transport.caps.Savepoints {
		err = transport.Unsupported("Savepoints")
	}
	n := 0
	if err == nil {
		err = d.whileHeld(ctx, func() error {
			n = d.savepoints.Add()
			return nil
		})
	}
	if err != nil {
		return nil, d.failed("savepoint for", err)
	}
	return func(ctx context.Context) error {
		err := d.whileHeld(ctx, func() error {
			if err := d.savepoints.Check(n); err != nil {
				return err
			}
			d.savepoints.RolledBack(n)
			return nil
		})
		if err != nil {
			return d.failed("rollback to a savepoint of", err)
		}
		return nil
	}, nil
}

// whileHeld calls f if the delivery is still locked.
func (d *delivery) whileHeld(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	d.receiver.queue.mu.Lock()
	defer d.receiver.queue.unlock()
	if err := d.held(); err != nil {
		return err
	}
	return f()
}

// ReplaceWith sends out and consumes the message, or does neither.
func (d *delivery) ReplaceWith(ctx context.Context, out []core.Outgoing) error {
	return d.consumeAndSend(ctx, "replace", out)
}

func (d *delivery) consumeAndSend(ctx context.Context, verb string, out []core.Outgoing) error {
	if err := d.atomic(); err != nil {
		return d.failed(verb, err)
	}
	destinations, err := d.receiver.transport.destinationsOf(ctx, out)
	if err != nil {
		return d.failed(verb, err)
	}
	return d.consumeAfter(ctx, verb, func() { d.receiver.transport.deliverAll(out, destinations) })
}

// consumeAfter settles the message, calls send and then consumes the message. Only a
// crash could happen between the two, and it would end the broker too, so no lock over
// several queues is needed. The sends are first: until they are stored, the message
// counts as in flight, and no other message of its group is delivered, whose sends could
// overtake them.
func (d *delivery) consumeAfter(ctx context.Context, verb string, send func()) error {
	if err := d.settle(ctx, verb); err != nil {
		return err
	}
	q := d.receiver.queue
	q.inFlight++
	q.unlock()
	send()
	q.mu.Lock()
	q.inFlight--
	d.consume()
	q.unlock()
	return nil
}

// atomic returns nil if sends and the settlement are one transaction.
func (d *delivery) atomic() error {
	if d.receiver.mode != core.TransactionSendsAtomicWithReceive {
		return transport.Unsupported("SendsAtomicWithReceive")
	}
	return nil
}

// LockedUntil returns when the message becomes available to other receivers, or the zero
// time.
func (d *delivery) LockedUntil() time.Time {
	if d.receiver.lock == 0 {
		return time.Time{}
	}
	q := d.receiver.queue
	q.mu.Lock()
	defer q.unlock()
	return d.lockedUntil
}

// renewed returns the end of a lock that is taken or renewed now.
func (d *delivery) renewed(now time.Time) time.Time {
	if d.receiver.lock == 0 {
		return d.keptUntil
	}
	lockedUntil := now.Add(d.receiver.lock)
	if !d.keptUntil.IsZero() && lockedUntil.After(d.keptUntil) {
		lockedUntil = d.keptUntil
	}
	return lockedUntil
}

// Renew moves LockedUntil to Config.LockDuration from now, but not beyond
// Capabilities.MaxLockTime. A settled delivery is core.ErrSettled.
func (d *delivery) Renew(ctx context.Context) error {
	if d.receiver.lock == 0 {
		return d.failed("renew", fmt.Errorf("its lock does not end by itself: %w", errors.ErrUnsupported))
	}
	if err := ctx.Err(); err != nil {
		return d.failed("renew", err)
	}
	q := d.receiver.queue
	q.mu.Lock()
	defer q.unlock()
	if err := d.held(); err != nil {
		return d.failed("renew", err)
	}
	if d.lockedUntil.Equal(d.keptUntil) {
		return d.failed("renew", fmt.Errorf("it has been kept for as long as Capabilities.MaxLockTime allows, %v", d.receiver.longest))
	}
	d.lockedUntil = d.renewed(time.Now())
	q.deadlines.move(d.message, d.lockedUntil)
	q.arm()
	return nil
}

// DeadLetter moves the message to its queue's DeadLetterQueue.
func (d *delivery) DeadLetter(ctx context.Context, letter core.DeadLetter) error {
	if !d.receiver.transport.caps.DeadLetter {
		return d.failed("dead-letter", transport.Unsupported("DeadLetter"))
	}
	dead := d.receiver.queue.deadLetters
	if dead == nil {
		return d.failed("dead-letter", fmt.Errorf("it is in a dead-letter queue already: %w", errors.ErrUnsupported))
	}
	return d.consumeAfter(ctx, "dead-letter", func() {
		headers := letter.Headers
		if headers.Len() == 0 {
			headers = d.in.Headers
		}
		headers.Set(HeaderDeadLetterReason, strings.ToValidUTF8(string(letter.Reason), "?"))
		headers.Set(HeaderDeadLetterDescription, strings.ToValidUTF8(letter.Description, "?"))
		broker := d.receiver.transport.broker
		out := core.Outgoing{ID: d.in.ID, Headers: headers, GroupKey: d.in.GroupKey, Properties: d.in.Properties}
		// Neither copy's body is ever written, so the new one may share it.
		dead.send(broker.newMessage(&out, d.in.Body, time.Now(), false))
	})
}
