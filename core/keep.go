package core

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/reprise-go/reprise/core/internal/backlog"
	"github.com/reprise-go/reprise/core/internal/delays"
	"github.com/reprise-go/reprise/core/internal/plan"
	"github.com/reprise-go/reprise/core/internal/unreachable"
	"github.com/reprise-go/reprise/internal/bounded"
)

// The carrier keeps a work after a step that only a later try can follow.

// keptWork is the state of a work that this process keeps.
type keptWork struct {
	backlog.Entry
	as     keptAs
	tries  int  // failed settlements
	ending bool // the endpoint stops, or the message was redelivered
}

// keptAs is the reason why a work is kept.
type keptAs uint8

const (
	keptPaused keptAs = iota
	keptUnsettled
	keptUndelivered
)

// moveBackoff is for the tries of a decision, and settlementBackoff for those of a
// settlement.
var (
	moveBackoff       = delays.Backoff{First: time.Second, Last: unreachable.MaxPause}
	settlementBackoff = delays.Backoff{First: 50 * time.Millisecond, Last: 10 * time.Second}
)

// criticalSettlementTries is the number of failed tries after which a settlement raises a
// critical error: about half a minute.
const criticalSettlementTries = 10

// settlementNames are the names of settlements in the log.
var settlementNames = map[plan.Verb]string{plan.Consume: "completed", plan.Abandon: "abandoned", plan.Release: "released"}

// keptAsAfter returns why a work is kept after a step.
func keptAsAfter(s plan.Step) keptAs {
	switch s.Verb {
	case plan.Pause:
		return keptPaused
	case plan.Consume, plan.Abandon, plan.Release:
		return keptUnsettled
	}
	return keptUndelivered
}

// keep gives a work to the timers of unfinished, without a slot. It takes no capacity from
// other messages.
func (c *carrier) keep(w *work, s plan.Step) {
	w.releaseSlot()
	k := &keptWork{as: keptAsAfter(s)}
	w.worker, w.kept = nil, k
	k.Try = func() bool { return !c.carry(w) }
	k.Cancel = func() {
		k.ending = true
		w.superseded = w.superseded || c.isSuperseded(w)
		if w.kept == k && c.carry(w) { // the receiver's Close gives the message back
			c.lost(w, w.walk.Step(), fmt.Errorf("%w: %w", ErrLockLost, w.cause))
		}
	}
	if k.as == keptUndelivered {
		k.CopyKey = nativeKey(w.attempt.delivery.Incoming().NativeID)
	}
	c.scheduleRetry(w, s)
	if k.as == keptPaused {
		c.paused.Add(&k.Entry)
	} else {
		c.kept.Add(&k.Entry)
	}
}

// scheduleRetry prepares the wait after a step.
func (c *carrier) scheduleRetry(w *work, s plan.Step) {
	a, k := w.attempt, w.kept
	if w.walk.Atomic && w.failure != nil && k.as != keptPaused {
		// The failed work must not keep locks for the wait. If it cannot be undone now, the next
		// try or the release undoes it.
		_ = a.delivery.Reset(c.run.settleCtx)
		a.workUndone = false
	}
	switch {
	case k.as == keptPaused:
		a.end()
		pause := w.decision.action.Delay
		if w.decision.action.Kind == ActionPutBack {
			pause = putBackCopyDelay
		}
		k.Backoff = delays.Backoff{First: pause, Last: pause}
	case k.as == keptUnsettled:
		k.Backoff = settlementBackoff
		in, settlement := a.delivery.Incoming(), settlementNames[s.Verb]
		switch k.tries++; k.tries {
		case 1:
			c.ep.log.endpoint.WarnContext(a.decisionContext(), "message could not be settled; it is tried again while its lock holds",
				"message_id", in.ID, "settlement", settlement, "error", w.cause)
		case criticalSettlementTries:
			c.run.raiseCriticalContext(a.decisionContext(), fmt.Errorf("message %s cannot be %s after %d tries; it is tried further: %w", bounded.Name(in.ID), settlement, k.tries, w.cause))
		}
	case w.failure == nil:
		k.Backoff = c.moveBackoff(w)
	default:
		k.Backoff = c.moveBackoff(w)
		c.recordFailedTry(w)
	}
}

// moveBackoff returns the backoff for the tries of a decision. A message that is refused in
// every form is tried less often: a setting has to be changed. Each pause leaves time for
// another try before the broker ends the delivery.
func (c *carrier) moveBackoff(w *work) delays.Backoff {
	pause := moveBackoff
	if w.failure != nil && !failedByQueue(w.cause, w.failure.messageID) {
		pause.Last = unreachable.MaxStoredDelay
	}
	if limit := c.ep.caps.MaxLockTime; limit > 0 {
		pause.Last = max(min(pause.Last, limit/4), pause.First)
	}
	return pause
}

// recordFailedTry remembers and reports a try that failed.
func (c *carrier) recordFailedTry(w *work) {
	a := w.attempt
	if w.walk.Atomic && !w.walk.HookRan {
		w.hookSends = nil // HandleFailed runs again, in the next try
	}
	c.unfinished.remember(w)
	err := fmt.Errorf("%v of message %s cannot be carried out; trying again in %v: %w", w.action(), bounded.Name(w.failure.messageID), w.kept.Backoff.After(w.walk.Tries), w.cause)
	if isBlocked(w.cause) { // the critical error was that of the message that tried
		logFailure(a.decisionContext(), c.ep.log.moved, slog.LevelWarn, w.failure, "message is kept until its destination can be reached", slog.Any("cause", err))
		return
	}
	c.run.raiseCriticalContext(a.decisionContext(), err)
}

// rememberProgress remembers the progress of a later try that ended without an end of the message.
func (c *carrier) rememberProgress(w *work) {
	if w.failure != nil && w.walk.Tries > 0 && w.decision.action.Kind != ActionImmediateRetry && w.decision.action.Kind != ActionPutBack && !w.superseded && !w.concluded {
		c.unfinished.remember(w)
	}
}

// isEnding reports whether a kept message has to be given back: the endpoint stops, the
// message was redelivered, or the broker, which gives it maxLockTime, would soon end the
// delivery.
func (w *work) isEnding(maxLockTime time.Duration) bool {
	if w.kept == nil {
		return false
	}
	return w.kept.ending || maxLockTime > 0 && time.Since(time.Unix(0, w.attempt.message.started)) > maxLockTime/2
}

// isSuperseded reports whether the message of a kept work was redelivered, so that another
// goroutine carries the decision out.
func (c *carrier) isSuperseded(w *work) bool {
	return w.kept != nil && w.kept.as == keptUndelivered && c.kept.IsSuperseded(&w.kept.Entry)
}

// resume carries out the decision about a message that was redelivered before that was done.
func (c *carrier) resume(wk *worker, a *attempt, w *work) {
	w.attempt, w.worker = a, wk
	c.ep.invoker.begin(a, a.delivery.Incoming(), w.failure.messageType) // that of the attempt that failed
	w.walk.Facts = c.facts(w)
	c.carry(w)
}

// isBlocked reports whether a queue was not tried because of another message's try.
func isBlocked(err error) bool {
	_, blocked := errors.AsType[*unreachable.BlockedError](err)
	return blocked
}
