package core

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// This file moves a failed message to an error queue or the broker's dead-letter queue,
// after HandleFailed.

// moveOrHandleFailed runs HandleFailed and moves the message to an error or dead-letter
// queue unless it was taken over.
func (r *runner) moveOrHandleFailed(a *attempt, f *failure, d *decision, first bool) (takenOver bool, err error) {
	switch {
	case first:
		d.handleFailedSends, takenOver, err = r.runHandleFailed(a, f, d)
	case r.isAtomic() && !d.deadLetter: // its work in the transaction was undone with the earlier try
		r.prepareRecovery(a, f)
		d.handleFailedSends, takenOver, err = r.runHandleFailed(a, f, d)
	}
	if err != nil {
		return false, err
	}
	if takenOver {
		err := r.sendCommitted(a, d)
		if err == nil {
			err = r.replace(a, d.handleFailedSends)
		}
		if err == nil || endsDelivery(err) {
			return true, err
		}
		r.dropHandleFailedSends(a, f, d, err)
	}
	if first {
		r.ep.log.logAction(a.decisionContext(), f, d)
	}
	if !a.sendsFailed {
		r.sendCommittedBeforeMove(a, f, d)
	}
	err = r.moveOrStore(a, f, d)
	if err != nil && slices.ContainsFunc(d.handleFailedSends, func(out Outgoing) bool { return isRefusedPermanently(err, out.ID) }) {
		r.dropHandleFailedSends(a, f, d, err)
		err = r.moveOrStore(a, f, d)
	}
	return false, err
}

// moveOrStore moves the message or, if the queue cannot be reached, stores it in the
// endpoint's own queue until it can.
func (r *runner) moveOrStore(a *attempt, f *failure, d *decision) error {
	if err := r.callEditFailed(a, f, d); err != nil {
		return err
	}
	if err := r.sendHandleFailedSends(a, d); err != nil {
		return err
	}
	queue := d.action.Queue
	standard := r.ep.rules.configFor(f.MessageType).Failed.ErrorQueue
	replaceable := d.reason != "" && queue != standard // by the error queue
	if d.deadLetter || r.ep.mode == TransactionNone && !replaceable || !r.ep.isConfiguredQueue(queue) {
		return r.move(a, f, d)
	}
	endProbe, cause := r.ep.unreachable.Blocked(queue)
	if cause == nil {
		defer endProbe()
		began := time.Now()
		cause = r.move(a, f, d)
		switch {
		case cause == nil:
			r.reportReached(queue)
			return nil
		case endsDelivery(cause), slices.ContainsFunc(d.handleFailedSends, func(out Outgoing) bool { return isRefusedPermanently(cause, out.ID) }):
			return cause
		case !failedByQueue(cause, f.MessageID):
		case replaceable:
			r.reportUnreachableDeadLetters(queue, standard, cause, began)
		default:
			r.reportUnreachable(queue, cause, began)
		}
	}
	if replaceable {
		logFailure(a.decisionContext(), r.ep.log.moved, slog.LevelError, f, "queue cannot be reached; moving message to the error queue",
			slog.String("instead_of", queue), slog.String("queue", standard), slog.Any("cause", cause))
		d.action.Queue = standard
		return r.moveOrStore(a, f, d)
	}
	if !r.ep.canStore(queue) {
		return cause
	}
	err := r.store(a, f, d)
	if err != nil && !endsDelivery(err) {
		err = fmt.Errorf("%w; nor can it be stored in the endpoint's own queue: %w", cause, err)
	}
	return err
}

// move moves the message.
func (r *runner) move(a *attempt, f *failure, d *decision) error {
	if r.lockLost(a) {
		return ErrLockLost
	}
	if d.deadLetter {
		err := r.deadLetter(a, f, d)
		outage := !isRefusedPermanently(err, f.MessageID) && r.ep.mode != TransactionNone // which has no other try
		if err == nil || endsDelivery(err) || outage {
			return err
		}
		r.replaceDeadLetterQueue(a, f, d, err)
	}
	return r.moveToError(a, f, d)
}

// replaceDeadLetterQueue replaces the broker's own dead-letter queue by the error queue.
func (r *runner) replaceDeadLetterQueue(a *attempt, f *failure, d *decision, cause error) {
	logFailure(a.decisionContext(), r.ep.log.moved, slog.LevelError, f, "broker does not dead-letter the message; moving message to the error queue",
		slog.String("queue", d.action.Queue), slog.Any("cause", cause))
	d.deadLetter = false
}

// moveToError sends the failed message to the decided error queue. A custom queue that
// does not exist is replaced by the default one (R31).
func (r *runner) moveToError(a *attempt, f *failure, d *decision) error {
	send := func(headers Headers) error {
		out := failedCopy(a, f, d.action.Queue, headers, ReasonMoveToError)
		return r.replace(a, append(slices.Clone(d.handleFailedSends), out))
	}
	err := r.sendFailedCopy(a, f, d, send)
	standard := r.ep.rules.configFor(f.MessageType).Failed.ErrorQueue
	if err != nil && d.action.Queue != standard && isRefusedWith(err, f.MessageID, ErrQueueNotFound) {
		logFailure(a.decisionContext(), r.ep.log.moved, slog.LevelError, f, "queue does not exist; moving message to the error queue",
			slog.String("instead_of", d.action.Queue), slog.String("queue", standard), slog.Any("cause", err))
		d.action.Queue = standard
		err = r.sendFailedCopy(a, f, d, send)
	}
	return err
}

// deadLetter uses the broker's own queue. Headers that do not fit, or that the broker
// does not accept, are left out (R24).
func (r *runner) deadLetter(a *attempt, f *failure, d *decision) error {
	if r.isAtomic() && !a.workUndone {
		if err := a.delivery.Reset(r.settleCtx); err != nil {
			return err
		}
	}
	caps := r.ep.caps.limitsForCopy(a.delivery.Incoming())
	deadLetter := DeadLetter{Reason: d.reason, Description: boundedText(f.description(), maxDeadLetterDescription)}
	deadLetter.Headers = headersForCopy(f, d.action, r.ep.host, caps)
	err := a.delivery.DeadLetter(r.settleCtx, deadLetter)
	for _, fewer := range []func() Headers{func() Headers { return copyForErrorMinimal(f) }, func() Headers { return Headers{} }} {
		if !errors.Is(err, ErrTooLarge) && !errors.Is(err, ErrInvalidHeader) {
			break
		}
		deadLetter.Headers = fewer()
		err = a.delivery.DeadLetter(r.settleCtx, deadLetter)
	}
	if err == nil {
		r.endAttempt(a)
	}
	return err
}

// maxDeadLetterDescription limits the description of a dead letter, which is the
// beginning of the error's text, in bytes.
const maxDeadLetterDescription = 4 << 10
