package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/reprise-go/reprise/core/internal/backlog"
	"github.com/reprise-go/reprise/core/internal/delays"
	"github.com/reprise-go/reprise/core/internal/unreachable"
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
	if takenOver {
		logFailure(a.decisionContext(), r.ep.log.recoverability, slog.LevelInfo, f, "HandleFailed took the message over; it is not moved")
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
		out := failedCopy(a, f, r.ep.address, headers, reason)
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
		ObservedEndpoint: r.ep.observed,
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

// The following functions try decisions again that could not be carried out (R25), without a
// slot and without running the handler.

// retryDecisionLater keeps a failed message whose decision cannot be carried out, without
// a slot; the decision is remembered and tried again without running the handler (R25).
func (r *runner) retryDecisionLater(a *attempt, f *failure, decided *decision, cause error, tries int) {
	copied := *decided // so that no other decision has to be on the heap
	d := &copied
	if r.ep.mode == TransactionNone {
		r.endAttempt(a)
		r.raiseCriticalContext(a.decisionContext(), fmt.Errorf("message %s (%d bytes) is lost: it failed (%w), %v could not be carried out (%w), and in transaction mode None it cannot be given back",
			f.MessageID, len(f.Body), f.Err, d.action, cause))
		return
	}
	pause := r.decisionBackoff(cause, f.MessageID)
	r.recordFailedTry(a, f, d, cause, tries, pause)
	r.retainDelivery(a, pause, func() bool {
		if r.lockLost(a) {
			r.endLockLost(a)
			return true
		}
		tries++
		r.replaceCustomQueue(a, f, d, tries, cause)
		takenOver, err := r.tryDecision(a, f, d, anotherTry)
		if undecided, ok := errors.AsType[*undecidedError](err); ok {
			r.releaseUndecided(a, f, undecided.cause)
			return true
		}
		if err != nil && !endsDelivery(err) {
			r.recordFailedTry(a, f, d, err, tries, pause)
			cause = err
			return false
		}
		r.concludeDecision(a, f, d, takenOver, err)
		return true
	})
}

// moveBackoff is for the tries of a decision (R25).
var moveBackoff = delays.Backoff{First: time.Second, Last: unreachable.MaxPause}

// decisionBackoff returns the backoff for the tries of a decision that failed with err. A
// message that is refused in every form is tried less often: a setting has to be changed.
// Each pause leaves time for another try before the broker ends the delivery.
func (r *runner) decisionBackoff(err error, id string) delays.Backoff {
	pause := moveBackoff
	if !failedByQueue(err, id) {
		pause.Last = unreachable.MaxStoredDelay
	}
	if limit := r.ep.caps.MaxLockTime; limit > 0 {
		pause.Last = max(min(pause.Last, limit/4), pause.First)
	}
	return pause
}

// resumeDecision carries out a decision about a message that was redelivered before that
// was done.
func (r *runner) resumeDecision(w *worker, a *attempt, pending *pendingDecision) {
	in := a.delivery.Incoming()
	f, d := &pending.failure, &pending.decision
	f.setMessage(in)
	a.message.begin(r.ep.deps, in, r.ep.handlingOf(f.MessageType)) // that of the attempt that failed
	takenOver, err := r.tryDecision(a, f, d, anotherTry)
	if undecided, ok := errors.AsType[*undecidedError](err); ok {
		r.releaseUndecided(a, f, undecided.cause)
		return
	}
	if err != nil && !endsDelivery(err) {
		w.ReleaseSlotEarly()
		r.retryDecisionLater(a, f, d, err, pending.tries+1)
		return
	}
	r.concludeDecision(a, f, d, takenOver, err)
}

// recordFailedTry records a failed try.
func (r *runner) recordFailedTry(a *attempt, f *failure, d *decision, cause error, tries int, pause delays.Backoff) {
	if r.isAtomic() {
		if !d.deadLetter {
			d.handleFailedSends = nil // HandleFailed runs again, in the next try
		}
		// The failed work must not keep locks until then. If it cannot be undone now, the next
		// try or the release undoes it.
		_ = a.delivery.Reset(r.settleCtx)
		a.workUndone = false
	}
	r.ep.redeliveries.rememberPending(a.delivery.Incoming(), f, d)
	err := fmt.Errorf("%v of message %s cannot be carried out; trying again in %v: %w", d.action, f.MessageID, pause.After(tries), cause)
	if _, blocked := errors.AsType[*unreachable.BlockedError](cause); blocked { // the critical error was that of the message that tried
		logFailure(a.decisionContext(), r.ep.log.moved, slog.LevelWarn, f, "message is kept until its destination can be reached", slog.Any("cause", err))
		return
	}
	r.raiseCriticalContext(a.decisionContext(), err)
}

// customQueueTries is how often a move to the broker's own dead-letter queue, or to a
// queue that a policy or a verdict named, is tried before the error queue replaces it:
// about a minute.
const customQueueTries = 7

// replaceCustomQueue replaces such a queue by the error queue if it could not be reached
// for too long.
func (r *runner) replaceCustomQueue(a *attempt, f *failure, d *decision, tries int, cause error) {
	switch {
	case tries <= customQueueTries || d.action.Kind != ActionMoveToError:
		return
	case d.deadLetter:
		r.replaceDeadLetterQueue(a, f, d, cause)
		return
	case r.ep.isConfiguredQueue(d.action.Queue):
		return
	}
	standard := r.ep.rules.configFor(f.MessageType).Failed.ErrorQueue
	logFailure(a.decisionContext(), r.ep.log.moved, slog.LevelError, f, "queue cannot be reached; moving message to the error queue",
		slog.String("instead_of", d.action.Queue), slog.String("queue", standard), slog.Any("cause", cause))
	d.action.Queue = standard
}

// retainDelivery keeps an attempt's delivery without a slot until try reports that it is
// done. When the endpoint stops, or when the broker would soon end the delivery, the
// message is released.
func (r *runner) retainDelivery(a *attempt, pause delays.Backoff, try func() (done bool)) {
	release := func() {
		if r.ep.mode == TransactionNone {
			r.raiseCriticalContext(a.decisionContext(), fmt.Errorf("stored message %s is lost: its queue cannot be reached, and in transaction mode None it cannot be given back", a.message.incoming.ID))
		}
		r.releaseDelivery(a.decisionContext(), a.fetched())
		a.end()
	}
	r.backlog.Add(&backlog.Entry{CopyKey: pendingKey(a.delivery.Incoming()), Backoff: pause, Cancel: release, Try: func() bool {
		if limit := r.ep.caps.MaxLockTime; limit > 0 && time.Since(time.Unix(0, a.message.started)) > limit/2 {
			release()
			return true
		}
		return try()
	}})
}
