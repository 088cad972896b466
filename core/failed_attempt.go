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
		r.releaseDelivery(a.decisionContext(), a.fetched())
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
		r.pauses.Reset(f.MessageType)
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
		w.ReleaseSlotEarly()
		r.retryDecisionLater(a, f, d, err, 1)
		return
	}
	r.concludeDecision(a, f, d, takenOver, err)
}

// The rest of this file runs the application's HandleFailed before a message is moved, in
// the same transaction if there is one.

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

// handleFailedOf returns the HandleFailed of the message's type, or nil.
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
	err := callRecovered(func(ctx context.Context, m *Message) error { return handler(ctx, m, failed) }, ctx, m)
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

// dropHandleFailedSends drops the work and the messages of HandleFailed from the move
// (R51).
func (r *runner) dropHandleFailedSends(a *attempt, f *failure, d *decision, cause error) {
	r.ep.log.logFailure(a.decisionContext(), r.ep.log.recoverability, slog.LevelError, f, []slog.Attr{slog.Any("send_error", cause)},
		"messages of HandleFailed could not be delivered; the message is moved",
		"What HandleFailed sent for message '%s' could not be delivered; the message is moved.", f.MessageID)
	d.handleFailedSends = nil
	a.workUndone = false // so that the move undoes its work too
}
