package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// failed handles an attempt that returned an error.
func (r *runner) failed(w *worker, a *attempt, err error) {
	a.message.end()
	switch {
	case r.lockLost(a):
		r.endLockLost(a)
		return
	case r.interruptedByShutdown(): // not its fault (R27)
		r.releaseDelivery(a.decisionContext(), fetchedDelivery{a.delivery, a.lock})
		a.end()
		return
	}
	f := r.ep.describe(a, err)
	r.prepareRecovery(a, f)
	a.returned.Store(false)
	d := r.ep.rules.decide(a.decisionContext(), *f)
	a.returned.Store(true)
	f.reason, d.committedSends = d.reason, a.message.committedSends()
	if d.policyErr != nil && r.interruptedByShutdown() {
		r.releaseUndecided(a, f, d.policyErr)
		return
	}
	if d.err != nil {
		f.Err = d.err
	}
	if d.action.Kind != ActionPutBack {
		r.putBacks.reset(f.MessageType)
	}
	if d.policyErr != nil { // the policy's incomplete work is undone too
		r.prepareRecovery(a, f)
	}
	outage := mayBeOutage(err, d.fromVerdict)
	countsForLimit := outage && r.limiter.Counts(err)
	if countsForLimit { // before a retry can begin, and succeed
		r.limiter.Failed()
	}
	r.applyDecision(w, a, f, &d)
	switch {
	case countsForLimit:
		r.limiter.Probed()
	case d.fromVerdict && !outage && !d.uncounted: // the handler ran to a decision
		r.limiter.Succeeded()
	}
}

// mayBeOutage reports whether a failure may come from an outage, which rate limiting is
// for (R44). A final verdict or a plain Defer is the handler's decision about its
// message; RetryAfter, and Defer with an error, are its answers to a service that is
// unavailable. A message that middleware refused (Refuse) says nothing new about an
// outage.
func mayBeOutage(err error, verdict bool) bool {
	if !verdict {
		return !neverHandled(err) && !errors.Is(err, ErrNoType)
	}
	v := VerdictOf(err)
	return v.Kind == VerdictRetryAfter || v.Kind == VerdictDefer && v.Err != nil && !v.Refused
}

// describe collects the facts for the decision and the failure headers.
func (ep *Endpoint) describe(a *attempt, err error) *failure {
	in := a.delivery.Incoming()
	handler := a.message.failingHandler()
	f := &failure{
		ErrorContext: ErrorContext{
			Err:                         err,
			MessageID:                   in.ID,
			MessageType:                 a.message.handledAs().messageType,
			ReceiveQueue:                ep.receivedFrom(a.delivery),
			ImmediateProcessingFailures: in.attempt(),
			DelayedDeliveriesPerformed:  in.delayedRetries(),
			FailedAt:                    time.Now(),
			LastDelayedRetry:            parseTimeOrZero(in.Headers.Get(HeaderRetriesTimestamp)),
			FirstFailure:                in.firstFailure(),
			attemptValues:               a.message.values(false),
			Handler:                     handler.name,
			HandlerStarted:              handler.began,
		},
		deferrals:     in.deferrals(),
		inPlace:       ep.retriesInPlace(a.delivery),
		handlerFailed: handler.failed,
	}
	f.setMessage(in)
	return f
}

// prepareRecovery undoes the failed work if users' code is about to run in the same
// transaction: a custom policy, or HandleFailed.
func (r *runner) prepareRecovery(a *attempt, f *failure) {
	if !r.isAtomic() || r.ep.rules.policy == nil && handleFailedOf(a) == nil {
		return
	}
	err := a.delivery.Reset(r.settleCtx)
	a.workUndone = err == nil
	if err == nil {
		a.allowCommit()
	}
	if err != nil {
		r.ep.log.recoverability.LogAttrs(a.decisionContext(), slog.LevelWarn, "the failed handler's work could not be undone before the decision; it is undone with the decision, without HandleFailed",
			append(failureAttrs(f), slog.Any("reset_error", err))...)
	}
}

// applyDecision executes the decision and reports it. If that fails, the message is kept
// for another try.
func (r *runner) applyDecision(w *worker, a *attempt, f *failure, d *decision) {
	r.ep.log.logReasons(a.decisionContext(), f, d)
	if d.action.Kind == ActionPutBack {
		r.putBack(w, a, f, d)
		return
	}
	if d.action.Kind != ActionMoveToError { // HandleFailed comes first
		r.ep.log.logAction(a.decisionContext(), f, d)
	}
	if d.action.Kind == ActionImmediateRetry {
		r.notifyRecovered(a, f, d, false) // before the retry can begin
		r.retryImmediately(w, a, f, d.action.Delay)
		return
	}
	takenOver, err := r.tryDecision(a, f, d, firstTry)
	if undecided, ok := errors.AsType[*undecidedError](err); ok {
		r.releaseUndecided(a, f, undecided.cause)
		return
	}
	if err != nil && !endsDelivery(err) {
		w.releaseSlotEarly()
		r.retryDecisionLater(a, f, d, err, 1)
		return
	}
	r.concludeDecision(a, f, d, takenOver, err)
}

// Whether a decision is executed for the first time.
const (
	firstTry   = true
	anotherTry = false
)

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
