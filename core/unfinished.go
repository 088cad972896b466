package core

import (
	"crypto/sha256"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core/internal/backlog"
	"github.com/reprise-go/reprise/core/internal/delays"
	"github.com/reprise-go/reprise/core/internal/plan"
	"github.com/reprise-go/reprise/core/internal/unreachable"
	"github.com/reprise-go/reprise/internal/lru"
)

// unfinished is the memory of all that is decided, or done, and not carried out. Where a failed
// message can be:
//
//	| where                              | its keeper                        | survives a kill                     | ends by
//	|------------------------------------|-----------------------------------|-------------------------------------|--------
//	| locked, an attempt in progress     | the worker, with a slot           | yes: it is redelivered              | carry returns
//	| kept: a try is due later           | kept or paused, with its delivery | yes; the decision does not          | a try, MaxLockTime/2, a lost lock, the stop
//	| remembered: it may be redelivered  | remembered, without a delivery    | as above; the decision survives Run | its redelivery here, 10 minutes
//	| a copy is out, or none is needed   | as kept; and settled              | yes, twice, with the same id        | Consume, or its redelivery here
//	| stored in the own queue            | the broker; any instance          | yes, with the decision              | its destination is reached
//	| waiting for a delayed retry        | the broker                        | yes; rounds of a group do not       | it is due
//	| in an error queue                  | an operator                       | yes                                 |
//	| in TransactionNone, not in a queue | this process alone                | no                                  | a copy is out, or a critical error
//
// The Endpoint owns it: its contents survive Run, because messages do. It is bounded
// under any load. All methods but begin may be called concurrently.
type unfinished struct {
	mu         sync.Mutex
	remembered *lru.Cache[string, *work]    // by redeliveryKey (R25)
	settled    *lru.Cache[string, struct{}] // by NativeID (R28)
	// The length of remembered, so that the usual case takes no lock.
	count atomic.Int64

	// Of the Run in progress, with the timers of their tries. The pauses before immediate
	// retries are apart, because they are no sign of an outage.
	kept, paused *backlog.Backlog
}

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

func newUnfinished() *unfinished {
	return &unfinished{
		remembered: lru.New[string, *work](maxRememberedMessages),
		settled:    lru.New[string, struct{}](maxRememberedMessages),
	}
}

// begin prepares a Run. It must not be called beside other methods.
func (u *unfinished) begin(limit int, pump backlog.Pump, onFull func(now bool)) {
	u.kept = backlog.New(limit, pump, onFull)
	u.paused = backlog.New(limit, pump, nil) // further messages would probably fail too
}

// stop lets each kept work end, until the deadline.
func (u *unfinished) stop(deadline time.Time, log *slog.Logger) {
	if !u.paused.Stop(time.Until(deadline)) {
		log.Warn("a message that waited for its retry could not be given back in time; it is redelivered")
	}
	if !u.kept.Stop(time.Until(deadline)) {
		log.Warn("a settlement that was tried again has not returned; its message is redelivered")
	}
}

// rememberSettled records that the message has been dealt with, in case its settlement did
// not take effect.
func (u *unfinished) rememberSettled(nativeID string) {
	if nativeID == "" {
		return
	}
	u.mu.Lock()
	u.settled.Put(nativeID, struct{}{})
	u.mu.Unlock()
}

// wasSettled reports whether the message was dealt with before.
func (u *unfinished) wasSettled(nativeID string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, ok := u.settled.Get(nativeID)
	return ok
}

// redeliveryKey identifies a stored copy. A foreign message without NativeID is identified
// by its id and body. Two messages with equal ids and bodies share a decision, which is
// then carried out for each.
func redeliveryKey(in *Incoming) string {
	if in.NativeID != "" {
		return in.NativeID
	}
	body := sha256.Sum256(in.Body)
	return "foreign\x00" + in.ID + "\x00" + string(body[:])
}

// mayBeRedelivery reports whether a delivery may be of a copy that was delivered before.
func mayBeRedelivery(in *Incoming) bool {
	return in.NativeID != "" || in.Redelivered || in.DeliveryCount > 1
}

// maxRememberedBytes limits the remembered sends of a decision, in bytes: those of
// HandleFailed, and committed messages of handlers.
const maxRememberedBytes = 64 << 10

// remember records a decision that could not be carried out, in case the message is
// redelivered before that. It keeps neither the message, which the redelivery has, nor the
// error, which may be of any size. It does not keep a decision with too many sends: then the
// handler runs again.
func (u *unfinished) remember(w *work) {
	in := w.attempt.delivery.Incoming()
	size := w.committed.bytes()
	for _, out := range w.hookSends {
		size += len(out.Body) + out.Headers.Bytes()
	}
	if size > maxRememberedBytes {
		u.forget(in)
		return
	}
	f := *w.failure
	f.setMessage(&Incoming{})
	f.attemptValues, f.refused = nil, nil
	f.Err = snapshotError(f.Err)
	r := &work{walk: w.walk.Remembered(), failure: &f, decision: w.decision, hookSends: w.hookSends, committed: w.committed, announced: true, arrived: w.arrived}
	r.decision.reason.err, r.decision.reason.cause = f.Err, nil
	r.rememberedAt = time.Now()
	key := redeliveryKey(in)
	u.mu.Lock()
	defer u.mu.Unlock()
	u.remembered.Put(key, r)
	u.count.Store(int64(u.remembered.Len()))
}

// take returns the decision about a redelivered message, or nil. The goroutine with the
// message's earlier delivery may still try to carry it out: it stops, after the step that it
// is at.
func (u *unfinished) take(in *Incoming) *work {
	if !mayBeRedelivery(in) {
		return nil
	}
	key := ""
	if u.kept.HasCopies() {
		key = redeliveryKey(in)
		u.kept.Supersede(key)
	}
	if u.count.Load() == 0 {
		return nil
	}
	if key == "" {
		key = redeliveryKey(in)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.expireLocked()
	r, ok := u.remembered.Get(key)
	if !ok {
		return nil
	}
	w, f := *r, *r.failure
	f.setMessage(in)
	w.failure = &f
	w.walk.Redelivered()
	return &w
}

// expireLocked forgets decisions about messages that have not been redelivered for long.
func (u *unfinished) expireLocked() {
	for {
		key, r, ok := u.remembered.Oldest()
		if !ok || time.Since(r.rememberedAt) < pendingExpiry {
			break
		}
		u.remembered.Delete(key)
	}
	u.count.Store(int64(u.remembered.Len()))
}

// forget forgets the decision about a message, which was carried out.
func (u *unfinished) forget(in *Incoming) {
	if u.count.Load() == 0 {
		return
	}
	key := redeliveryKey(in)
	u.mu.Lock()
	u.remembered.Delete(key)
	u.count.Store(int64(u.remembered.Len()))
	u.mu.Unlock()
}

// undelivered returns the number of remembered decisions.
func (u *unfinished) undelivered() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.expireLocked()
	return u.remembered.Len()
}

// The carrier keeps a work after a step that only a later try can follow.

// moveBackoff is for the tries of a decision (R25), and settlementBackoff for those of a
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
		k.CopyKey = redeliveryKey(w.attempt.delivery.Incoming())
	}
	c.waitAgain(w, s)
	if k.as == keptPaused {
		c.paused.Add(&k.Entry)
	} else {
		c.kept.Add(&k.Entry)
	}
}

// waitAgain prepares the wait after a step.
func (c *carrier) waitAgain(w *work, s plan.Step) {
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
		k.Backoff = delays.Backoff{First: w.decision.action.Delay, Last: w.decision.action.Delay}
	case k.as == keptUnsettled:
		k.Backoff = settlementBackoff
		in, settlement := a.delivery.Incoming(), settlementNames[s.Verb]
		switch k.tries++; k.tries {
		case 1:
			c.ep.log.endpoint.WarnContext(a.decisionContext(), "message could not be settled; it is tried again while its lock holds",
				"message_id", in.ID, "settlement", settlement, "error", w.cause)
		case criticalSettlementTries:
			c.run.raiseCriticalContext(a.decisionContext(), fmt.Errorf("message %s cannot be %s after %d tries; it is tried further: %w", in.ID, settlement, k.tries, w.cause))
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
	if w.failure != nil && !failedByQueue(w.cause, w.failure.MessageID) {
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
	err := fmt.Errorf("%v of message %s cannot be carried out; trying again in %v: %w", w.action(), w.failure.MessageID, w.kept.Backoff.After(w.walk.Tries), w.cause)
	if isBlocked(w.cause) { // the critical error was that of the message that tried
		logFailure(a.decisionContext(), c.ep.log.moved, slog.LevelWarn, w.failure, "message is kept until its destination can be reached", slog.Any("cause", err))
		return
	}
	c.run.raiseCriticalContext(a.decisionContext(), err)
}

// rememberAgain remembers the progress of a later try that ended without an end of the message.
func (c *carrier) rememberAgain(w *work) {
	if w.failure != nil && w.walk.Tries > 0 && w.decision.action.Kind != ActionImmediateRetry && w.decision.action.Kind != ActionPutBack && !w.superseded && !w.concluded {
		c.unfinished.remember(w)
	}
}

// isEnding reports whether a kept message has to be given back: the endpoint stops, the
// message was redelivered, or the broker would soon end the delivery.
func (c *carrier) isEnding(w *work) bool {
	if w.kept == nil {
		return false
	}
	limit := c.ep.caps.MaxLockTime
	return w.kept.ending || limit > 0 && time.Since(time.Unix(0, w.attempt.message.started)) > limit/2
}

// isSuperseded reports whether the message of a kept work was redelivered, so that another
// goroutine carries the decision out.
func (c *carrier) isSuperseded(w *work) bool {
	return w.kept != nil && w.kept.as == keptUndelivered && c.kept.IsSuperseded(&w.kept.Entry)
}

// resume carries out the decision about a message that was redelivered before that was done.
func (c *carrier) resume(wk *worker, a *attempt, w *work) {
	w.attempt, w.worker = a, wk
	c.ep.invoker.begin(a, a.delivery.Incoming(), w.failure.MessageType) // that of the attempt that failed
	w.walk.Facts = c.facts(w)
	c.carry(w)
}
