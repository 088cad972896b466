package core

import (
	"errors"
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
		r.pauses.Reset()
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
			ReceiveQueue:                ep.address,
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

// IsLastAttempt reports whether no other attempt follows if this one fails with err: the
// message then goes to the error queue, or is discarded. Middleware that answers for
// handlers asks it, as package middleware/fallback does. With [Endpoint.Invoke], and outside an
// endpoint, each attempt is the last. With a [Policy] ([MiddlewareScope.HasPolicy]), whose
// decision cannot be known beforehand, it returns false.
func (m *Message) IsLastAttempt(err error) bool {
	a := m.attempt()
	return a == nil || a.delivery == nil || m.deps.isLast(a, err)
}

// isLastAttempt makes the decision in advance.
func (ep *Endpoint) isLastAttempt(a *attempt, err error) bool {
	if ep.rules.policy != nil { // which would be called twice
		return false
	}
	kind := ep.rules.decide(a, *ep.describe(a, err)).action.Kind
	return kind == ActionMoveToError || kind == ActionDiscard
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
