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

// abilities says which optional interfaces the deliveries of a receiver
// implement. Each is a type of its own below, which a delivery embeds or not, so
// that a type assertion tells the truth.
type abilities uint8

const (
	canSend       abilities = 1 << iota // core.AtomicDelivery
	canRenew                            // core.Renewer
	canDeadLetter                       // core.DeadLetterer
)

// newDelivery returns an empty delivery, as what the engine sees and as what
// the receiver fills in: one allocation.
func newDelivery(can abilities) (core.Delivery, *delivery) {
	switch can {
	case canSend:
		d := &struct {
			delivery
			sender
		}{}
		d.sender.delivered = &d.delivery
		return d, &d.delivery
	case canRenew:
		d := &struct {
			delivery
			renewer
		}{}
		d.renewer.delivered = &d.delivery
		return d, &d.delivery
	case canDeadLetter:
		d := &struct {
			delivery
			deadLetterer
		}{}
		d.deadLetterer.delivered = &d.delivery
		return d, &d.delivery
	case canSend | canRenew:
		d := &struct {
			delivery
			sender
			renewer
		}{}
		d.sender.delivered, d.renewer.delivered = &d.delivery, &d.delivery
		return d, &d.delivery
	case canSend | canDeadLetter:
		d := &struct {
			delivery
			sender
			deadLetterer
		}{}
		d.sender.delivered, d.deadLetterer.delivered = &d.delivery, &d.delivery
		return d, &d.delivery
	case canRenew | canDeadLetter:
		d := &struct {
			delivery
			renewer
			deadLetterer
		}{}
		d.renewer.delivered, d.deadLetterer.delivered = &d.delivery, &d.delivery
		return d, &d.delivery
	case canSend | canRenew | canDeadLetter:
		d := &struct {
			delivery
			sender
			renewer
			deadLetterer
		}{}
		d.sender.delivered, d.renewer.delivered, d.deadLetterer.delivered = &d.delivery, &d.delivery, &d.delivery
		return d, &d.delivery
	default:
		d := &delivery{}
		return d, d
	}
}

// sender makes a delivery a core.AtomicDelivery.
type sender struct{ delivered *delivery }

// BindContext returns ctx itself: there is no native transaction to hand out.
func (s sender) BindContext(ctx context.Context) context.Context { return ctx }

// CompleteWith sends out and consumes the message, or does neither.
func (s sender) CompleteWith(ctx context.Context, out []core.Outgoing) error {
	return s.consumeAndSend(ctx, "complete", out)
}

// Reset has nothing to undo. It tells whether the delivery is still held.
func (s sender) Reset(ctx context.Context) error {
	d := s.delivered
	err := ctx.Err()
	if err == nil {
		d.receiver.queue.mu.Lock()
		err = d.held()
		d.receiver.queue.unlock()
	}
	if err != nil {
		return d.failed("reset", err)
	}
	return nil
}

// ReplaceWith sends out and consumes the message, or does neither.
func (s sender) ReplaceWith(ctx context.Context, out []core.Outgoing) error {
	return s.consumeAndSend(ctx, "replace", out)
}

func (s sender) consumeAndSend(ctx context.Context, verb string, out []core.Outgoing) error {
	d := s.delivered
	// All that can be refused is refused here: a queue, once it exists, does so
	// for ever and takes everything.
	destinations := make([][]*queue, len(out))
	for i := range out {
		err := transport.CheckOutgoing(&out[i], &d.receiver.transport.caps)
		if err == nil {
			destinations[i], err = d.receiver.transport.broker.destinations(&out[i], new([1]*queue))
		}
		if err != nil {
			return d.failed(verb, transport.NoneSent(out, i, err))
		}
	}
	if err := d.settle(ctx, verb); err != nil {
		return err
	}
	d.consume()
	d.receiver.queue.unlock()
	// Between the consumption and here only a crash could come, and it would
	// take the whole broker along. So no lock over several queues is needed.
	now := time.Now()
	for i := range out {
		d.receiver.transport.broker.deliver(&out[i], destinations[i], now)
	}
	return nil
}

// renewer makes a delivery a core.Renewer.
type renewer struct{ delivered *delivery }

// LockedUntil returns when the message becomes available to others.
func (r renewer) LockedUntil() time.Time {
	q := r.delivered.receiver.queue
	q.mu.Lock()
	defer q.unlock()
	return r.delivered.lockedUntil
}

// Renew moves LockedUntil to Config.LockDuration from now. A settled delivery is
// core.ErrSettled.
func (r renewer) Renew(ctx context.Context) error {
	d := r.delivered
	if err := ctx.Err(); err != nil {
		return d.failed("renew", err)
	}
	q := d.receiver.queue
	q.mu.Lock()
	defer q.unlock()
	if err := d.held(); err != nil {
		return d.failed("renew", err)
	}
	d.lockedUntil = time.Now().Add(d.receiver.lock)
	q.deadlines.move(d.message, d.lockedUntil)
	q.arm()
	return nil
}

// deadLetterer makes a delivery a core.DeadLetterer.
type deadLetterer struct{ delivered *delivery }

// DeadLetter moves the message to its queue's DeadLetterQueue.
func (l deadLetterer) DeadLetter(ctx context.Context, reason, description string) error {
	d := l.delivered
	dead := d.receiver.queue.deadLetters
	if dead == nil {
		return d.failed("dead-letter", fmt.Errorf("it is in a dead-letter queue already: %w", errors.ErrUnsupported))
	}
	if err := d.settle(ctx, "dead-letter"); err != nil {
		return err
	}
	d.consume()
	d.receiver.queue.unlock()
	headers := d.in.Headers
	headers.Set(HeaderDeadLetterReason, strings.ToValidUTF8(reason, "?"))
	headers.Set(HeaderDeadLetterDescription, strings.ToValidUTF8(description, "?"))
	broker := d.receiver.transport.broker
	now := time.Now()
	// The body is written by nobody, so the new copy may share it.
	dead.send(broker.newMessage(&core.Outgoing{ID: d.in.ID, Headers: headers}, d.in.Body, now), now)
	return nil
}
