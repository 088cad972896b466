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
	// the receiver would then have to release the copy, which counts. If the transport has
	// no delays, the message waits in the process before its copy is sent.
	putBackCopyDelay = time.Second

	// maxRefusalPause limits the pause of an endpoint that refused a single message and
	// cannot delay it.
	maxRefusalPause = time.Minute
)

// PutBack leaves the message in its queue and pauses this instance of the endpoint, because
// no message can be handled here and now. The instance takes no message for the pause;
// attempts in progress continue. A pause of 0 or less is 1 s at first, and twice as long
// each time, up to 30 s, until a message ends in any other way. To let a single message
// wait, use [Refuse].
//
// The message has not been attempted: nothing is counted. It stays available to other
// instances; if the broker counts every delivery ([Guarantees.CountsReleases]), a copy at
// the end of the queue replaces it after 1 s, except in a group, where the delivery is
// counted. Middleware that gets such an error returns it at once. In [TransactionNone] the
// message goes to the error queue.
func PutBack(err error, pause time.Duration) error {
	return verdict(err, Action{Kind: ActionPutBack, Delay: max(pause, 0)})
}

// putBack begins the pause for a message that is put back, before it is released.
func (p *processor) putBack(w *work) {
	action := w.decision.action
	pause, begins := p.run.pauses.Begin(action.Delay)
	action.Delay, w.pause = pause, pause
	p.ep.log.logPutBack(w.attempt.decisionContext(), w.failure, action.Delay, begins)
	w.announced = true
	p.carrier.notify(w, action)
	p.ep.suspects.recordSurvived(w.attempt.delivery.Incoming())
}

// putBackDelay returns the delay of a copy that replaces a message that is put back, or of
// the message in its group.
func (r *rules) putBackDelay(pause time.Duration, f failure) time.Duration {
	switch {
	case f.inPlace:
	case r.caps.DelayedDelivery: // other instances may have it
		pause = min(pause, putBackCopyDelay)
	default: // it has waited
		pause = 0
	}
	return r.possibleDelay(pause, f)
}

// logPutBack writes a line at Info when a pause begins, and at Debug for each other message
// that is put back in it.
func (l *loggers) logPutBack(ctx context.Context, f *failure, pause time.Duration, begins bool) {
	level := slog.LevelDebug
	if begins {
		level = slog.LevelInfo
	}
	logFailure(ctx, l.putBack, level, f, "putting message back", slog.Duration("pause", pause))
}
