package core

import (
	"time"

	"github.com/reprise-go/reprise/core/internal/backlog"
	"github.com/reprise-go/reprise/core/internal/delays"
)

// This file is about the pause before an immediate retry (Immediate.Pause). The
// delivery is kept without a slot, with its lock renewed, and abandoned after the pause;
// then it is counted. A message of a group is postponed, so that its group waits for it.

// retryImmediately gives the message back for its next attempt, after a pause or at once.
func (r *runner) retryImmediately(w *worker, a *attempt, f *failure, pause time.Duration) {
	pause = min(pause, maxImmediatePause)
	switch {
	case pause <= 0, w.IsIsolated(): // an isolated message must not share the process with others
	case f.inPlace:
		if r.postponeRetry(a, f, pause) {
			return
		}
	default:
		if r.retainForRetry(a, f, pause) {
			return
		}
	}
	w.ReleaseSlotEarly()
	r.abandon(a, f)
}

// postponeRetry gives a message of a group back, to be available after the pause. It
// returns false if the delivery is still to be settled.
func (r *runner) postponeRetry(a *attempt, f *failure, pause time.Duration) bool {
	in := a.delivery.Incoming()
	r.ep.recordSurvived(in)
	r.ep.redeliveries.rememberRounds(in.NativeID, in.roundsAfter(1))
	err := a.delivery.Postpone(r.settleCtx, pause, f.Err)
	switch {
	case err == nil:
		r.endAttempt(a)
	case endsDelivery(err):
		r.endDelivery(a, err)
	default:
		return false
	}
	return true
}

// retainForRetry keeps the message without a slot, and abandons it after the pause. It
// returns false if the failed handler's work cannot be undone first: locks in a database
// must not last for the pause.
func (r *runner) retainForRetry(a *attempt, f *failure, pause time.Duration) bool {
	if r.isAtomic() {
		if err := a.delivery.Reset(r.settleCtx); err != nil {
			return false
		}
	}
	if longest := r.ep.caps.MaxLockTime; longest > 0 {
		pause = min(pause, longest/2)
	}
	a.end()
	retry := func() {
		if r.lockLost(a) {
			r.endLockLost(a)
			return
		}
		r.abandon(a, f)
	}
	r.retryWaits.Add(&backlog.Entry{
		Backoff: delays.Backoff{First: pause, Last: pause},
		Try:     func() bool { retry(); return true },
		Cancel:  retry,
	})
	return true
}
