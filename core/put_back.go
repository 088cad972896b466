package core

import (
	"context"
	"log/slog"
	"time"

	"github.com/reprise-go/reprise/core/internal/backlog"
	"github.com/reprise-go/reprise/core/internal/delays"
)

// This file is about messages that stay in their queue (PutBack, R64).
//
// If the broker counts failures only, a released delivery is the same message with the
// same count. If it counts every delivery, a release would cost the message an attempt,
// and bring it nearer to the broker's own limit: the engine then replaces it by a copy,
// as after Refuse.

// Pause is the pause after a message was put back.
type Pause struct {
	// Length is the length of the pause. 0 means 1 s at first, and twice as long each time
	// that a message is put back after a pause, up to 30 s. A message that ends in any other
	// way resets it to 1 s; with [PauseMessage], only a message of the same type.
	Length time.Duration
	// Scope selects what the pause applies to.
	Scope PauseScope
	// Context ends the pause early when it ends, or is nil. If it has ended before, the
	// pause is at most 1 s.
	Context context.Context
}

// PauseScope selects what a Pause applies to.
type PauseScope int

const (
	// PauseEndpoint: this instance of the endpoint takes no message from its queues. The
	// message is available to other instances at once or, if the broker counts every
	// delivery, after 1 s. Attempts in progress continue.
	PauseEndpoint PauseScope = iota
	// PauseMessage: only this message waits; others are handled. It takes no slot. This
	// instance keeps it for the pause, so that it keeps its place in the queue, and then
	// releases it. At 1,000 such messages it fetches no more until one is released; messages
	// that it has fetched already may exceed the limit.
	//
	// If the broker counts every delivery ([Capabilities.CountsReleases]), and in
	// [TransactionSendsAtomicWithReceive], a copy is delivered after the pause instead: any
	// number of messages can wait, but an end of Context does not end their pauses. Without
	// delayed delivery that is not possible, and the endpoint waits.
	PauseMessage
	// PauseCopy is [PauseMessage] with a copy that is delivered after the pause on every
	// broker, at the end of the queue, so that any number of messages can wait and none
	// delays others. A message of a group from a queue that keeps groups stays in its place.
	// Without delayed delivery it is PauseMessage.
	PauseCopy
)

const (
	// putBackCopyDelay is the delay of a copy for other instances. A copy without a delay
	// could reach this instance's receiver before the broker knows that it takes no more:
	// the receiver would then have to release the copy, which counts.
	putBackCopyDelay = time.Second

	// maxPutBacks limits the messages that are kept for their pause.
	maxPutBacks = backlog.Max
)

// PutBack leaves the message in its queue, because it cannot be handled here and now: the
// feature is switched off, this instance is not ready. The message has not been
// attempted. PutBack is neither a failure nor a success, also for [RateLimit], and no
// deferral: nothing is counted, also for UnacceptableMessageLimit, RequeueLimit does not
// apply, and the messages that handlers sent are dropped. It does not begin a new round of attempts. If
// err is nil, so is the result.
//
// If the broker counts failures only, the message keeps its place, its id and its
// headers, and any number of pauses is possible. If it counts every delivery
// ([Capabilities.CountsReleases]), a copy at the end of the queue replaces the message,
// as with [Refuse]. So the broker's own delivery limit is not reached there either,
// except by a message of a group, which stays in its place and is counted.
//
// Middleware that gets such an error returns it at once (R53). In [TransactionNone], in
// which no message can be given back, the message goes to the error queue.
func PutBack(err error, pause Pause) error {
	if err == nil {
		return nil
	}
	pause.Length = max(pause.Length, 0)
	return &Verdict{Kind: VerdictPutBack, Err: err, Pause: pause}
}

// putBack carries out the verdict.
func (r *runner) putBack(w *worker, a *attempt, f *failure, d *decision) {
	scope, asCopy := r.possiblePause(d.pause.Scope, f)
	length, begins := r.beginPause(d.pause, scope, f.MessageType)
	d.action.Delay = length
	r.ep.log.logPutBack(a.decisionContext(), f, d, scope, begins)
	r.notifyRecovered(a, f, d, false) // before the message can be redelivered
	r.ep.recordSurvived(a.delivery.Incoming())
	if asCopy {
		if r.putBackCopy(a, f, scope, length) {
			return
		}
	} else if scope == PauseMessage {
		r.retainForPause(a, length, d.pause.Context)
		return
	}
	w.ReleaseSlotEarly()
	r.releaseDelivery(a.decisionContext(), a.fetched())
	a.end()
}

// beginPause records the pause of the endpoint, which begins before the message is
// released, or of the message.
func (r *runner) beginPause(pause Pause, scope PauseScope, messageType string) (length time.Duration, begins bool) {
	if scope == PauseMessage {
		return r.pauses.BeginMessage(messageType, pause.Length, pause.Context)
	}
	return r.pauses.BeginEndpoint(pause.Length, pause.Context)
}

// possiblePause returns the scope that is possible, PauseEndpoint or PauseMessage, and
// whether a copy replaces the message.
func (r *runner) possiblePause(scope PauseScope, f *failure) (possible PauseScope, asCopy bool) {
	asCopy = r.ep.caps.CountsReleases
	if scope == PauseEndpoint {
		return scope, asCopy
	}
	canWait := r.ep.caps.DelayedDelivery || f.inPlace
	switch {
	case asCopy, r.isAtomic(): // it cannot be kept
		if !canWait {
			return PauseEndpoint, asCopy
		}
		return PauseMessage, true
	default:
		return PauseMessage, scope == PauseCopy && canWait
	}
}

// putBackCopy replaces the message by a copy, or postpones a message of a group, without
// counting it. It returns false if neither is possible.
func (r *runner) putBackCopy(a *attempt, f *failure, scope PauseScope, length time.Duration) bool {
	delay := length
	if scope == PauseEndpoint && !f.inPlace { // other instances may have it
		delay = 0
		if r.ep.caps.DelayedDelivery {
			delay = min(length, putBackCopyDelay)
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

// retainForPause keeps the message without a slot, and releases it after the pause.
func (r *runner) retainForPause(a *attempt, length time.Duration, skipPause context.Context) {
	if longest := r.ep.caps.MaxLockTime; longest > 0 {
		length = min(length, longest/2)
	}
	if skipPause != nil && skipPause.Err() != nil {
		skipPause = nil
	}
	a.end()
	release := func() { r.releaseDelivery(a.decisionContext(), a.fetched()) }
	r.putBackMessages.Add(&backlog.Entry{
		Backoff:   delays.Backoff{First: length, Last: length},
		SkipPause: skipPause,
		Try:       func() bool { release(); return true },
		Cancel:    release,
	})
}

// reportFullPutBacks logs that maxPutBacks messages are kept for their pause, so that no more
// are fetched.
func (r *runner) reportFullPutBacks(full bool) {
	if full {
		r.ep.log.putBack.Warn("no messages are fetched until one of those that were put back is released: this instance keeps as many as it can", "messages", maxPutBacks)
	}
}

// logPutBack writes a line at Info when a pause begins, and at Debug for each other message
// that is put back in it.
func (l *loggers) logPutBack(ctx context.Context, f *failure, d *decision, scope PauseScope, begins bool) {
	level := slog.LevelDebug
	if begins {
		level = slog.LevelInfo
	}
	waits := "the endpoint"
	if scope == PauseMessage {
		waits = "the message"
	}
	logFailure(ctx, l.putBack, level, f, "putting message back", slog.Duration("pause", d.action.Delay), slog.String("waits", waits))
}
