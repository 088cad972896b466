package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// This file moves a failed message to an error queue or the broker's dead-letter queue,
// with HandleFailed before it.

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

// dropHandleFailedSends drops the work and the messages of HandleFailed from the move
// (R51).
func (r *runner) dropHandleFailedSends(a *attempt, f *failure, d *decision, cause error) {
	r.ep.log.logFailure(a.decisionContext(), r.ep.log.recoverability, slog.LevelError, f, []slog.Attr{slog.Any("send_error", cause)},
		"messages of HandleFailed could not be delivered; the message is moved",
		"What HandleFailed sent for message '%s' could not be delivered; the message is moved.", f.MessageID)
	d.handleFailedSends = nil
	a.workUndone = false // so that the move undoes its work too
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
		r.ep.log.logFailure(a.decisionContext(), r.ep.log.moved, slog.LevelError, f, []slog.Attr{slog.String("unreachable_queue", queue), slog.String("queue", standard), slog.Any("cause", cause)},
			"queue for failed messages cannot be reached; moving message to the error queue",
			"Queue '%s' cannot be reached. Moving message '%s' to the error queue '%s' instead.", queue, f.MessageID, standard)
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
	r.ep.log.logFailure(a.decisionContext(), r.ep.log.moved, slog.LevelError, f, []slog.Attr{slog.String("queue", d.action.Queue), slog.Any("cause", cause)},
		"the broker does not dead-letter the message; moving it to the error queue",
		"The broker does not dead-letter message '%s'. Moving it to the error queue '%s' instead.", f.MessageID, d.action.Queue)
	d.deadLetter = false
}

// sendHandleFailedSends sends the messages of HandleFailed before the move, if the two
// cannot be atomic.
func (r *runner) sendHandleFailedSends(a *attempt, d *decision) error {
	if r.isAtomic() && !d.deadLetter || len(d.handleFailedSends) == 0 {
		return nil
	}
	if r.lockLost(a) {
		return ErrLockLost
	}
	if err := r.ep.transportSend(a.settlementContext(r), d.handleFailedSends); err != nil {
		return err
	}
	d.handleFailedSends = nil
	return nil
}

// isRefusedWith reports whether a message was refused with the error target, not merely
// because of another message in the same call.
func isRefusedWith(err error, id string, target error) bool {
	sent, ok := errors.AsType[*SendError](err)
	if !ok {
		return errors.Is(err, target)
	}
	return slices.ContainsFunc(sent.Results, func(r SendResult) bool {
		return r.ID == id && r.State == SendRefused && errors.Is(r.Err, target)
	})
}

// refusalOfType returns the error of that type with which a message was refused.
func refusalOfType[E error](err error, id string) (refusal E, ok bool) {
	sent, isSend := errors.AsType[*SendError](err)
	if !isSend {
		return errors.AsType[E](err)
	}
	for _, r := range sent.Results {
		if r.ID == id && r.State == SendRefused {
			if refusal, ok = errors.AsType[E](r.Err); ok {
				return refusal, true
			}
		}
	}
	return refusal, false
}

// isRefusedPermanently reports whether sending the message again cannot help.
func isRefusedPermanently(err error, id string) bool {
	for _, target := range []error{ErrQueueNotFound, ErrTooLarge, ErrInvalidHeader, errors.ErrUnsupported} {
		if isRefusedWith(err, id, target) {
			return true
		}
	}
	return false
}

// failedByQueue reports whether a send failed because of its queue, not because of the
// message.
func failedByQueue(err error, id string) bool {
	return !isRefusedPermanently(err, id) || isRefusedWith(err, id, ErrQueueNotFound)
}

// moveToError sends the failed message to the decided error queue. A custom queue that
// does not exist is replaced by the default one (R31).
func (r *runner) moveToError(a *attempt, f *failure, d *decision) error {
	send := func(headers Headers, body []byte) error {
		out := failedCopy(a, f, d.action.Queue, headers, body, ReasonMoveToError)
		return r.replace(a, append(slices.Clone(d.handleFailedSends), out))
	}
	err := r.sendFailedCopy(a, f, d, send)
	standard := r.ep.rules.configFor(f.MessageType).Failed.ErrorQueue
	if err != nil && d.action.Queue != standard && isRefusedWith(err, f.MessageID, ErrQueueNotFound) {
		r.ep.log.logFailure(a.decisionContext(), r.ep.log.moved, slog.LevelError, f, []slog.Attr{slog.String("missing_queue", d.action.Queue), slog.String("queue", standard)},
			"error queue does not exist; moving message to the default one",
			"Error queue '%s' does not exist. Moving message '%s' to '%s' instead. Create it, or name another.", d.action.Queue, f.MessageID, standard)
		d.action.Queue = standard
		err = r.sendFailedCopy(a, f, d, send)
	}
	return err
}

// sendFailedCopy sends a failed message. Headers that do not fit, or that the transport
// does not accept, are left out (R24), and a body of EditFailed is replaced by the
// original one.
func (r *runner) sendFailedCopy(a *attempt, f *failure, d *decision, send func(Headers, []byte) error) error {
	caps := r.ep.caps.limitsForCopy(a.delivery.Incoming())
	compose := func() (Headers, []byte) {
		if f.edited != nil {
			return f.edited.fitToLimits(f, caps)
		}
		return copyForError(f, d.action, r.ep.host, caps), f.Body
	}
	headers, body := compose()
	err := send(headers, body)
	if err != nil && isRefusedWith(err, f.MessageID, ErrInvalidHeader) {
		f.sanitize()
		headers, body = compose()
		err = send(headers, body)
	}
	noRoom := func() bool {
		return err != nil && (isRefusedWith(err, f.MessageID, ErrTooLarge) || isRefusedWith(err, f.MessageID, ErrInvalidHeader))
	}
	for {
		if noRoom() {
			err = send(copyForErrorMinimal(f), body)
		}
		if noRoom() {
			err = send(f.senderHeaders(), body)
		}
		if noRoom() {
			err = r.sendWithoutHeaders(a, f, err, func(headers Headers) error { return send(headers, body) })
		}
		if !noRoom() || len(body) <= len(f.Body) {
			break
		}
		body = f.Body
		err = send(f.edited.fitHeaders(f, body, caps), body)
	}
	if err == nil && f.edited.lostBody(f, body) {
		r.ep.log.moved.LogAttrs(a.decisionContext(), slog.LevelError, "the body that EditFailed made is too large for the transport; the message is moved with its original body",
			append(failureAttrs(f), slog.Int("edited_bytes", len(f.edited.body)), slog.Int("original_bytes", len(f.Body)))...)
	}
	return err
}

// sendWithoutHeaders sends a failed message whose sender's headers were refused with err:
// without as few of the largest as necessary, or with hardly any.
func (r *runner) sendWithoutHeaders(a *attempt, f *failure, err error, send func(Headers) error) error {
	headers := copyForErrorMinimal(f)
	for range maxSmallerCopies {
		if !isRefusedWith(err, f.MessageID, ErrTooLarge) {
			break
		}
		excess := max(headers.Bytes()/2, 1)
		if tooLarge, ok := refusalOfType[*TooLargeError](err, f.MessageID); ok && tooLarge.Size > tooLarge.Max {
			excess = tooLarge.Size - tooLarge.Max
		}
		smaller, enough := withoutLargest(headers, excess)
		if !enough {
			break
		}
		headers = smaller
		err = send(headers)
	}
	if err != nil && (isRefusedWith(err, f.MessageID, ErrTooLarge) || isRefusedWith(err, f.MessageID, ErrInvalidHeader)) {
		headers = copyForErrorBare(f)
		err = send(headers)
	}
	if err == nil {
		r.ep.log.moved.LogAttrs(a.decisionContext(), slog.LevelError, "message was moved without headers of its sender, which the transport refused",
			append(failureAttrs(f), slog.Any("headers_left_out", f.Headers.without(headers)))...)
	}
	return err
}

// maxSmallerCopies limits the tries to leave out the largest headers of a message for a
// smaller copy. A transport that tells its limit needs one or two.
const maxSmallerCopies = 8

// failedCopy returns the failed message for a queue.
func failedCopy(a *attempt, f *failure, queue string, headers Headers, body []byte, reason SendReason) Outgoing {
	out := a.delivery.Incoming().copyTo(queue, headers, reason)
	out.ID = f.MessageID // sanitized
	out.Body = body
	return out
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
	if f.edited != nil {
		deadLetter.Headers = f.edited.fitHeaders(f, f.Body, caps)
	} else {
		deadLetter.Headers = copyForError(f, d.action, r.ep.host, caps)
	}
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

func handleFailedOf(a *attempt) func(context.Context, *Message, *Failed) error {
	if handlers := a.message.handledAs().handlers; handlers != nil {
		return handlers.handleFailed
	}
	return nil
}

// runHandleFailed runs HandleFailed. It returns the messages to send with the move, or
// instead of it. Its error is an *undecidedError: neither is to happen.
func (r *runner) runHandleFailed(a *attempt, f *failure, d *decision) (out []Outgoing, takenOver bool, _ error) {
	handler := handleFailedOf(a)
	if handler == nil || errors.Is(f.Err, ErrUndecodable) || neverHandled(f.Err) {
		return nil, false, nil
	}
	if r.isAtomic() && !a.workUndone {
		return nil, false, nil // its work would be undone with the failed work
	}
	m := &Message{scope: "/failed", attemptValues: a.message.values(true)}
	m.begin(r.ep.deps, a.delivery.Incoming(), a.message.handledAs())
	failed := &Failed{Err: f.Err, Queue: d.action.Queue}
	if d.deadLetter {
		failed.Queue = ""
	}
	ctx := ContextWithMessage(a.decisionContext(), m)
	a.returned.Store(false)
	m.ctx = ctx
	err := callInGoroutine(func() error {
		return callRecovered(func(ctx context.Context, m *Message) error { return handler(ctx, m, failed) }, ctx, m)
	})
	a.returned.Store(true)
	out = m.end()
	if err == nil {
		err = a.commitError()
	}
	if err != nil && r.interruptedByShutdown() {
		return nil, false, &undecidedError{fmt.Errorf("HandleFailed: %w", err)}
	}
	if err != nil {
		r.ep.log.logFailure(a.decisionContext(), r.ep.log.recoverability, slog.LevelError, f, withStack([]slog.Attr{slog.Any("fallback_error", err)}, "fallback_stack", err),
			"HandleFailed failed; the message is moved", "HandleFailed failed for message '%s'; the message is moved.", f.MessageID)
		a.workUndone = false // so that the move undoes its work
		return nil, false, nil
	}
	return out, failed.takenOver, nil
}
