package core

import (
	"context"
	"log/slog"
	"time"
)

// This file is about messages that stay in their queue while the endpoint pauses (PutBack,
// R64).
//
// If the broker counts failures only, a released delivery is the same message with the
// same count. If it counts every delivery, a release would cost the message an attempt,
// and bring it nearer to the broker's own limit: the engine then replaces it by a copy,
// as after Refuse.

const (
	// putBackCopyDelay is the delay of a copy for other instances. A copy without a delay
	// could reach this instance's receiver before the broker knows that it takes no more:
	// the receiver would then have to release the copy, which counts.
	putBackCopyDelay = time.Second

	// maxRefusalPause limits the pause of an endpoint that refused a single message and
	// cannot delay it.
	maxRefusalPause = time.Minute
)

// PutBack leaves the message in its queue and pauses this instance of the endpoint,
// because no message can be handled here and now: its data is not loaded yet, its licence
// has expired. The instance takes no message from its queues for the pause; attempts in
// progress continue. The message is available to other instances at once or, if the broker
// counts every delivery, after 1 s. To let a single message wait, use [Refuse].
//
// A pause of 0 or less is 1 s at first, and twice as long each time that a message is put
// back after a pause, up to 30 s. A message that ends in any other way resets it to 1 s.
//
// The message has not been attempted. PutBack is neither a failure nor a success, also for
// [RateLimit], and no deferral: nothing is counted, also for UnacceptableMessageLimit,
// RequeueLimit does not apply, and the messages that handlers sent are dropped. It does not
// begin a new round of attempts. If err is nil, so is the result.
//
// If the broker counts failures only, the message keeps its place, its id and its
// headers, and any number of pauses is possible. If it counts every delivery
// ([Capabilities.CountsReleases]), a copy at the end of the queue replaces the message,
// as with [Refuse]. So the broker's own delivery limit is not reached there either,
// except by a message of a group, which stays in its place and is counted.
//
// Middleware that gets such an error returns it at once (R53). In [TransactionNone], in
// which no message can be given back, the message goes to the error queue.
func PutBack(err error, pause time.Duration) error {
	if err == nil {
		return nil
	}
	return &Verdict{Kind: VerdictPutBack, Err: err, Delay: max(pause, 0)}
}

// putBack carries out the verdict. The pause begins before the message is released.
func (r *runner) putBack(w *worker, a *attempt, f *failure, d *decision) {
	var begins bool
	d.action.Delay, begins = r.pauses.Begin(d.action.Delay)
	r.ep.log.logPutBack(a.decisionContext(), f, d, begins)
	r.notifyRecovered(a, f, d, false) // before the message can be redelivered
	r.ep.recordSurvived(a.delivery.Incoming())
	if r.ep.caps.CountsReleases && r.putBackCopy(a, f, d.action.Delay) {
		return
	}
	w.ReleaseSlotEarly()
	r.releaseDelivery(a.decisionContext(), a.fetched())
	a.end()
}

// putBackCopy replaces the message by a copy, or postpones a message of a group, without
// counting it. It returns false if neither is possible.
func (r *runner) putBackCopy(a *attempt, f *failure, pause time.Duration) bool {
	delay := pause
	if !f.inPlace { // other instances may have it
		delay = 0
		if r.ep.caps.DelayedDelivery {
			delay = min(pause, putBackCopyDelay)
		}
	}
	d := &decision{action: DelayedRetry(r.ep.rules.possibleDelay(delay, *f)), deferral: true, uncounted: true}
	replace := r.sendAgain
	if f.inPlace {
		replace = r.postpone
	}
	err := replace(a, f, d)
	if err != nil && endsDelivery(err) {
		r.endDelivery(a, err)
		return true
	}
	if err != nil {
		logFailure(a.decisionContext(), r.ep.log.putBack, slog.LevelWarn, f, "message could not be replaced by a copy; it is given back, which the broker counts as a delivery",
			slog.Any("send_error", err))
	}
	return err == nil
}

// logPutBack writes a line at Info when a pause begins, and at Debug for each other message
// that is put back in it.
func (l *loggers) logPutBack(ctx context.Context, f *failure, d *decision, begins bool) {
	level := slog.LevelDebug
	if begins {
		level = slog.LevelInfo
	}
	logFailure(ctx, l.putBack, level, f, "putting message back", slog.Duration("pause", d.action.Delay))
}
