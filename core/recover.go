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
		r.abandonLost(a)
		return
	case r.cutOff(): // not its fault (R27)
		r.giveBackIn(a.deciding(), held{a.delivery, a.hold})
		a.end()
		return
	}
	f := r.ep.describe(a, err)
	r.prepareRecovery(a, f)
	a.returned.Store(false)
	d := r.ep.rules.decide(a.deciding(), *f)
	a.returned.Store(true)
	f.reason, d.committed = d.reason, a.message.committedOut()
	if d.policyErr != nil && r.cutOff() {
		r.leaveUndecided(a, f, d.policyErr)
		return
	}
	if d.err != nil {
		f.Err = d.err
	}
	if d.action.Kind != ActionPutBack {
		r.putBacks.ended(f.MessageType)
	}
	if d.policyErr != nil { // the policy's incomplete work is undone too
		r.prepareRecovery(a, f)
	}
	outage := tellsOfOutage(err, d.verdict)
	counts := outage && r.limiter.counts(err)
	if counts { // before a retry can begin, and succeed
		r.limiter.failed()
	}
	r.carryOut(w, a, f, &d)
	switch {
	case counts:
		r.limiter.probed()
	case d.verdict && !outage && !d.uncounted: // the handler ran to a decision
		r.limiter.succeeded()
	}
}

// tellsOfOutage reports whether a failure may come from an outage, which rate limiting is
// for (R44). A final verdict or a plain Defer is the handler's decision about its
// message; RetryAfter, and Defer with an error, are its answers to a service that is
// unavailable. A message that middleware refused (Refuse) says nothing new about an
// outage.
func tellsOfOutage(err error, verdict bool) bool {
	if !verdict {
		return !refused(err) && !errors.Is(err, ErrNoType)
	}
	v := VerdictOf(err)
	return v.Kind == VerdictRetryAfter || v.Kind == VerdictDefer && v.Err != nil && !v.Refused
}

// describe collects the facts for the decision and the failure headers.
func (ep *Endpoint) describe(a *attempt, err error) *failure {
	in := a.delivery.Incoming()
	handler := a.message.failingIn()
	f := &failure{
		ErrorContext: ErrorContext{
			Err:                         err,
			MessageID:                   in.ID,
			MessageType:                 a.message.handledAs().messageType,
			ReceiveQueue:                ep.receivedFrom(a.delivery),
			ImmediateProcessingFailures: in.attempt(),
			DelayedDeliveriesPerformed:  in.delayedRetries(),
			FailedAt:                    time.Now(),
			LastDelayedRetry:            timeText(in.Headers.Get(HeaderRetriesTimestamp)),
			FirstFailure:                in.firstFailure(),
			noted:                       a.message.values(false),
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

// setMessage sets the fields of f that come from this delivery of its message.
func (f *failure) setMessage(in *Incoming) {
	f.Headers, f.Body = in.Headers, in.Body
	f.NativeID, f.GroupKey, f.Properties = in.NativeID, in.GroupKey, in.Properties
	f.generatedID = !in.hasSentID()
	f.edited, f.edits = nil, false
}

// prepareRecovery undoes the failed work if users' code is about to run in the same
// transaction: a custom policy, or HandleFailed.
func (r *runner) prepareRecovery(a *attempt, f *failure) {
	if !r.isAtomic() || r.ep.rules.policy == nil && fallbackOf(a) == nil {
		return
	}
	err := a.delivery.Reset(r.settle)
	a.undone = err == nil
	if err == nil {
		a.canCommit()
	}
	if err != nil {
		r.ep.log.recoverability.LogAttrs(a.deciding(), slog.LevelWarn, "the failed handler's work could not be undone before the decision; it is undone with the decision, without HandleFailed",
			append(failureAttrs(f), slog.Any("reset_error", err))...)
	}
}

// carryOut executes the decision and reports it. If that fails, the message is kept for
// another try.
func (r *runner) carryOut(w *worker, a *attempt, f *failure, d *decision) {
	r.ep.log.logReasons(a.deciding(), f, d)
	if d.action.Kind == ActionPutBack {
		r.putBack(w, a, f, d)
		return
	}
	if d.action.Kind != ActionMoveToError { // HandleFailed comes first
		r.ep.log.logAction(a.deciding(), f, d)
	}
	if d.action.Kind == ActionImmediateRetry {
		r.announce(a, f, d, false) // before the retry can begin
		r.retryImmediately(w, a, f, d.action.Delay)
		return
	}
	takenOver, err := r.execute(a, f, d, firstTry)
	if undecided, ok := errors.AsType[*undecidedError](err); ok {
		r.leaveUndecided(a, f, undecided.cause)
		return
	}
	if err != nil && !hasEnded(err) {
		w.freeSlot()
		r.keep(a, f, d, err, 1)
		return
	}
	r.conclude(a, f, d, takenOver, err)
}

// Whether a decision is executed for the first time.
const (
	firstTry   = true
	anotherTry = false
)

// hasEnded reports whether a settlement's error means that no other settlement can be
// tried.
func hasEnded(err error) bool { return errors.Is(err, ErrLockLost) || errors.Is(err, ErrSettled) }

// leaveEnded ends the work on a delivery whose settlement returned such an error.
func (r *runner) leaveEnded(a *attempt, err error) {
	if !errors.Is(err, ErrSettled) {
		r.abandonLost(a)
		return
	}
	r.release(a)
	r.ep.log.endpoint.WarnContext(a.deciding(), "message was settled already, by a call of the transport that returned an error",
		"message_id", a.message.incoming.ID, "message_type", a.message.handledAs().messageType)
	// If an adapter settles deliveries that it was not asked to settle, the message would be
	// redelivered and attempted without a pause.
	pause := time.NewTimer(movePauses.first)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-r.fetch.Done():
	}
}

// conclude does the last steps after a decision was executed, or after the delivery ended
// before that.
func (r *runner) conclude(a *attempt, f *failure, d *decision, takenOver bool, err error) {
	if errors.Is(err, ErrLockLost) {
		r.leaveEnded(a, err)
		return
	}
	r.ep.memory.forgetPending(a.delivery.Incoming())
	if err != nil {
		r.leaveEnded(a, err)
		return
	}
	r.ep.memory.forgetAccepted(f.MessageID)
	if takenOver {
		r.ep.log.about(a.deciding(), r.ep.log.recoverability, slog.LevelInfo, f, nil,
			"HandleFailed took the message over; it is not moved", "HandleFailed took message '%s' over; it is not moved.", f.MessageID)
	}
	r.announce(a, f, d, takenOver)
	if d.action.Kind == ActionMoveToError && !takenOver {
		r.terminated(f.MessageID, f.FailedAt)
	}
}

// execute executes a decision other than an immediate retry. An error means that the
// message was not settled.
func (r *runner) execute(a *attempt, f *failure, d *decision, first bool) (takenOver bool, err error) {
	switch d.action.Kind {
	case ActionDelayedRetry:
		retry := r.sendAgain
		if f.inPlace {
			retry = r.postpone
		}
		if !a.tried {
			_ = r.sendCommitted(a, d) // unsent messages are left to the retry
		}
		err := retry(a, f, d)
		if err == nil || !refusedFor(err, f.MessageID, ErrTooLarge) && !refusedFor(err, f.MessageID, errors.ErrUnsupported) {
			return false, err
		}
		// A message that is refused now would always be refused (R8).
		d.fallBack(fmt.Sprintf("the transport refused it: %v", err))
		r.ep.rules.direct(r.ep.rules.configFor(f.MessageType), *f, d)
		f.reason = d.reason
		r.ep.log.logReasons(a.deciding(), f, d)
		return r.giveUp(a, f, d, firstTry)
	case ActionDiscard:
		return false, r.discard(a, f, d)
	default:
		return r.giveUp(a, f, d, first)
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
	if err != nil && refusedFor(err, f.MessageID, ErrInvalidHeader) {
		f.makeLegible()
		headers = compose()
		err = send(headers)
	}
	if errors.Is(err, ErrTooLarge) && headers.Get(HeaderAttempts) != "" {
		headers.Del(HeaderAttempts)
		err = send(headers)
	}
	return err
}

// abandon gives the message back for its next attempt.
func (r *runner) abandon(a *attempt, f *failure) {
	in := a.delivery.Incoming()
	r.ep.noteSurvived(in)
	if f.inPlace {
		r.ep.memory.rememberRounds(in.NativeID, in.roundsAfter(1))
	}
	err := a.delivery.Abandon(r.settle, f.Err)
	if err == nil {
		r.release(a)
		return
	}
	r.settleLater(a.deciding(), held{a.delivery, a.hold}, "abandoned", err, func() error { return a.delivery.Abandon(r.settle, f.Err) }, a.end)
}

// replace sends out and consumes the message: atomically if the mode can, otherwise in
// this order. The failed handler's work is undone either way.
func (r *runner) replace(a *attempt, out []Outgoing) error {
	if r.lockLost(a) { // while policy or HandleFailed ran: another copy must not leave
		return ErrLockLost
	}
	if r.isAtomic() {
		err := r.ep.observedSend(a.settling(r), out, func(ctx context.Context) error {
			if a.undone { // the work of HandleFailed or the policy is kept
				return a.delivery.CompleteWith(ctx, out)
			}
			return a.delivery.ReplaceWith(ctx, out)
		})
		if err == nil {
			r.release(a)
		}
		return err
	}
	if len(out) > 0 {
		if err := r.ep.transportSend(a.settling(r), out); err != nil {
			return err
		}
	}
	r.complete(a)
	return nil
}

// announce notifies recovery observers.
func (r *runner) announce(a *attempt, f *failure, d *decision, takenOver bool) {
	if len(r.ep.observers.recovery) == 0 {
		return
	}
	e := Recovery{
		ObservedEndpoint: r.ep.observedAt(a.delivery),
		MessageID:        f.MessageID, MessageType: f.MessageType, Headers: f.Headers, Err: f.Err, Handler: f.Handler,
		Attempt: f.ImmediateProcessingFailures, DelayedRetries: f.DelayedDeliveriesPerformed, Deferrals: f.deferrals,
		Action: d.action, Deferred: d.deferral, NewCopy: d.newCopy, DeadLettered: d.deadLetter && !takenOver, Reason: d.reason, TakenOver: takenOver,
		FailedAt: f.FailedAt, FirstFailure: f.FirstFailure,
		noted: a.message.values(false),
	}
	ctx := r.values
	if a.observed != nil {
		ctx = context.WithoutCancel(a.observed)
	}
	for _, o := range r.ep.observers.recovery {
		r.notifier.notify(func() { o.Recovered(ctx, e) })
	}
}

// refused reports whether a failure came before any handler was called.
func refused(err error) bool {
	return errors.Is(err, ErrMalformed) || errors.Is(err, ErrDeliveryCountExceeded)
}
