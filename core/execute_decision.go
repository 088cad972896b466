package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// This file executes the decision about a failed message, in its first try or a later one,
// and reports it.

// Whether a decision is executed for the first time.
const (
	firstTry   = true
	anotherTry = false
)

// tryDecision executes a decision other than an immediate retry. An error means that the
// message was not settled.
func (r *runner) tryDecision(a *attempt, f *failure, d *decision, first bool) (takenOver bool, err error) {
	switch d.action.Kind {
	case ActionDelayedRetry:
		retry := r.sendAgain
		if f.inPlace {
			retry = r.postpone
		}
		if !a.sendsFailed {
			_ = r.sendCommitted(a, d) // unsent messages are left to the retry
		}
		err := retry(a, f, d)
		if err == nil || !isRefusedWith(err, f.MessageID, ErrTooLarge) && !isRefusedWith(err, f.MessageID, errors.ErrUnsupported) {
			return false, err
		}
		// A message that is refused now would always be refused (R8).
		d.replaceAction(fmt.Sprintf("the transport refused it: %v", err))
		r.ep.rules.chooseErrorQueue(r.ep.rules.configFor(f.MessageType), *f, d)
		f.reason = d.reason
		r.ep.log.logReasons(a.decisionContext(), f, d)
		return r.moveOrHandleFailed(a, f, d, firstTry)
	case ActionDiscard:
		return false, r.discard(a, f, d)
	default:
		return r.moveOrHandleFailed(a, f, d, first)
	}
}

// concludeDecision does the last steps after a decision was executed, or after the
// delivery ended before that.
func (r *runner) concludeDecision(a *attempt, f *failure, d *decision, takenOver bool, err error) {
	if errors.Is(err, ErrLockLost) {
		r.endDelivery(a, err)
		return
	}
	r.ep.redeliveries.forgetPending(a.delivery.Incoming())
	if err != nil {
		r.endDelivery(a, err)
		return
	}
	r.ep.redeliveries.forgetAccepted(f.MessageID)
	if takenOver {
		r.ep.log.logFailure(a.decisionContext(), r.ep.log.recoverability, slog.LevelInfo, f, nil,
			"HandleFailed took the message over; it is not moved", "HandleFailed took message '%s' over; it is not moved.", f.MessageID)
	}
	r.notifyRecovered(a, f, d, takenOver)
	if d.action.Kind == ActionMoveToError && !takenOver {
		r.countTerminalFailure(f.MessageID, f.FailedAt)
	}
}

// sendAgain sends the message to the endpoint's own queue with a delay, without the
// decision trace if only that makes it fit (R24).
func (r *runner) sendAgain(a *attempt, f *failure, d *decision) error {
	reason := ReasonDelayedRetry
	switch {
	case d.deferral:
		reason = ReasonDeferral
	case d.newCopy:
		reason = ReasonNewCopy
	}
	send := func(headers Headers) error {
		out := failedCopy(a, f, r.ep.receivedFrom(a.delivery), headers, f.Body, reason)
		out.Delay = d.action.Delay
		return r.replace(a, []Outgoing{out})
	}
	compose := func() Headers {
		switch {
		case d.uncounted:
			return copyForRefusal(f)
		case d.deferral:
			return copyForDeferral(f)
		case d.newCopy:
			return newCopy(f)
		}
		return copyForRetry(f, d.action)
	}
	headers := compose()
	err := send(headers)
	if err != nil && isRefusedWith(err, f.MessageID, ErrInvalidHeader) {
		f.sanitize()
		headers = compose()
		err = send(headers)
	}
	if errors.Is(err, ErrTooLarge) && headers.Get(HeaderAttempts) != "" {
		headers.Del(HeaderAttempts)
		err = send(headers)
	}
	return err
}

// discard consumes the message once its committed messages have been sent. If they are
// refused permanently, the message is moved to the error queue, so that they are not
// lost.
func (r *runner) discard(a *attempt, f *failure, d *decision) error {
	err := r.sendCommitted(a, d)
	switch {
	case err == nil:
		return r.replace(a, nil)
	case !errors.Is(err, ErrSendRefused):
		return err
	}
	d.whyReplaced = fmt.Sprintf("%v was asked for, but messages that a handler has committed cannot be sent: %v", d.action, err)
	d.action = MoveToError(r.ep.rules.configFor(f.MessageType).Failed.ErrorQueue)
	d.fromVerdict = false
	f.Err = err
	r.ep.log.logReasons(a.decisionContext(), f, d)
	return r.moveOrStore(a, f, d)
}

// notifyRecovered notifies recovery observers.
func (r *runner) notifyRecovered(a *attempt, f *failure, d *decision, takenOver bool) {
	if len(r.ep.observers.recovery) == 0 {
		return
	}
	e := Recovery{
		ObservedEndpoint: r.ep.observedAt(a.delivery),
		MessageID:        f.MessageID, MessageType: f.MessageType, Headers: f.Headers, Err: f.Err, Handler: f.Handler,
		Attempt: f.ImmediateProcessingFailures, DelayedRetries: f.DelayedDeliveriesPerformed, Deferrals: f.deferrals,
		Action: d.action, Deferred: d.deferral, NewCopy: d.newCopy, DeadLettered: d.deadLetter && !takenOver, Reason: d.reason, TakenOver: takenOver,
		FailedAt: f.FailedAt, FirstFailure: f.FirstFailure,
		attemptValues: a.message.values(false),
	}
	ctx := r.valuesCtx
	if a.observedCtx != nil {
		ctx = context.WithoutCancel(a.observedCtx)
	}
	for _, o := range r.ep.observers.recovery {
		r.recoveryCalls.Add(func() { o.Recovered(ctx, e) })
	}
}
