package core

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/reprise-go/reprise/core/internal/backlog"
	"github.com/reprise-go/reprise/core/internal/delays"
	"github.com/reprise-go/reprise/core/internal/unreachable"
)

// This file tries decisions again that could not be carried out (R25), without a slot and
// without running the handler.

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
		r.ep.log.moved.LogAttrs(a.decisionContext(), slog.LevelWarn, "message is kept until its destination can be reached", append(failureAttrs(f), slog.Any("cause", err))...)
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
	r.ep.log.logFailure(a.decisionContext(), r.ep.log.moved, slog.LevelError, f, []slog.Attr{slog.String("unreachable_queue", d.action.Queue), slog.String("queue", standard)},
		"error queue cannot be reached; moving message to the default one",
		"Error queue '%s' cannot be reached. Moving message '%s' to '%s' instead.", d.action.Queue, f.MessageID, standard)
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
