package core

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/internal/plan"
	"github.com/reprise-go/reprise/internal/bounded"
)

// perform performs a step of a plan. An error comes with every class of one, Blocked too.
func (c *carrier) perform(w *work, s plan.Step) (plan.Class, error) {
	if s.Form == plan.Clean && w.failure != nil { // and so are all later forms
		w.failure.sanitize()
	}
	switch s.Verb {
	case plan.Undo:
		return classOf(c.undo(w, s))
	case plan.RunHook:
		return c.runHook(w)
	case plan.TakeOver:
		w.takenOver = true
		return classOf(c.replace(w, s, w.hookSends))
	case plan.SendAhead:
		return classOfSends(c.send(w, w.hookSends), w.hookSends)
	case plan.SendCommitted:
		return c.sendCommitted(w)
	case plan.EditCopy:
		return c.editCopy(w)
	case plan.DeadLetter:
		return c.deadLetter(w, s)
	case plan.Copy:
		return c.copyTo(w, s)
	case plan.Store:
		return c.store(w, s)
	case plan.Resend:
		return c.resend(w, s)
	case plan.Postpone:
		return classOf(c.postpone(w))
	case plan.Consume:
		return classOf(c.consume(w.attempt, w))
	case plan.Abandon:
		return classOf(c.abandon(w))
	case plan.Release:
		w.releaseSlot()
		return classOf(w.attempt.delivery.Release(c.run.settleCtx))
	default: // Pause, Keep, Lose: only the next step matters
		return plan.OK, nil
	}
}

// classOf returns an error with its class, for a step without a copy.
func classOf(err error) (plan.Class, error) { return class(err, "", nil), err }

// classOfSends returns the class of the sends of handlers: that of a refusal if one of them
// was refused for good.
func classOfSends(err error, out []Outgoing) (plan.Class, error) {
	if err != nil && slices.ContainsFunc(out, func(o Outgoing) bool { return isRefusedPermanently(err, o.ID) }) {
		return plan.Unsupported, err
	}
	return class(err, "", nil), err
}

// send sends messages that are not sent with the settlement.
func (c *carrier) send(w *work, out []Outgoing) error {
	if len(out) == 0 {
		return nil
	}
	return c.ep.sender.send(w.attempt.settlementContext(c.run), out...)
}

// replace sends out, and consumes the message if the step does both as one. The failed
// handler's work is undone then.
func (c *carrier) replace(w *work, s plan.Step, out []Outgoing) error {
	if !s.Atomic {
		return c.send(w, out)
	}
	a := w.attempt
	return c.ep.sender.observe(a.settlementContext(c.run), out, func(ctx context.Context) error {
		if a.workUndone { // the work of HandleFailed or the policy is kept
			return a.delivery.CompleteWith(ctx, out)
		}
		return a.delivery.ReplaceWith(ctx, out)
	})
}

// undo undoes the failed work, so that users' code can work in the same transaction, or
// before a pause, for which its locks must not last.
func (c *carrier) undo(w *work, s plan.Step) error {
	if s.Place == plan.HookPlace && w.attempt.workUndone {
		return nil
	}
	return w.attempt.undo(c.run.settleCtx)
}

// undo undoes the work of the attempt.
func (a *attempt) undo(ctx context.Context) error {
	err := a.delivery.Reset(ctx)
	a.workUndone = err == nil
	if err == nil {
		a.allowCommit()
	}
	return err
}

// sendCommitted sends the committed messages.
func (c *carrier) sendCommitted(w *work) (plan.Class, error) {
	if err := c.send(w, w.committed.messages); err != nil {
		err = wrapSendError(err, w.committed.messages)
		return classOfSends(err, w.committed.messages)
	}
	w.committed.notifySent(c.ep.observers.onPanic)
	return plan.OK, nil
}

// copyTo sends a copy of the message to a queue (R23, R24), if that is not known to be out
// of reach.
func (c *carrier) copyTo(w *work, s plan.Step) (plan.Class, error) {
	queue := w.queueOf(s.Place)
	id, send := w.id(), func() error {
		if w.failure == nil {
			out := c.storedMessage(w, queue, s.Form)
			err := c.replace(w, s, []Outgoing{out})
			if err == nil && s.Form == plan.Bare {
				c.ep.log.moved.ErrorContext(w.attempt.decisionContext(), "stored message was moved without headers of its sender, which the transport refused",
					"message_id", w.id(), "queue", queue)
			}
			return err
		}
		out := c.movedCopy(w, w.failure, queue, s.Form, ReasonMoveToError)
		err := c.replace(w, s, w.sendsWith(s, out))
		if err == nil && s.Form >= plan.Bare {
			c.ep.log.logLeftOut(w.attempt.decisionContext(), w.failure, "message was moved without headers of its sender, which the transport refused", w.failure.leftOut(&out))
		}
		return err
	}
	if !c.ep.resolved.isConfiguredQueue(queue) || w.walk.None && s.Place == plan.ErrorQueue { // there is no other place for it
		err := send()
		w.arrive(s, err)
		return class(err, id, w.hookSends), err
	}
	if w.refusedBy != queue {
		endProbe, err := c.ep.unreachable.Blocked(queue)
		if err != nil {
			return plan.Blocked, err
		}
		defer endProbe()
	}
	w.refusedBy = ""
	began := time.Now()
	err := send()
	w.arrive(s, err)
	result := class(err, id, w.hookSends)
	switch result {
	case plan.OK:
		c.run.reportReached(queue)
		if w.failure == nil {
			c.storedWasDelivered(w, queue)
		}
	case plan.NoQueue:
		if s.Place == plan.ErrorQueue || s.Place == plan.StoredQueue {
			c.run.reportUnreachable(queue, "", err, began)
		}
	case plan.Unreachable:
		c.run.reportUnreachable(queue, w.replaces(s), err, began)
	case plan.TooLarge, plan.BadHeader, plan.Unsupported:
		if result != plan.Unsupported && (s.Form != plan.Bare || w.failure != nil) {
			w.refusedBy = queue
		} else if w.failure == nil {
			effect := "it is stored further"
			if queue != w.decision.errorQueue && !w.note.Audit {
				effect = "it goes to the error queue"
			}
			c.run.raiseCriticalContext(w.attempt.decisionContext(), fmt.Errorf("queue %q refuses stored message %s in every form; %s: %w", queue, bounded.Name(id), effect, err))
		}
	}
	return result, err
}

// movedCopy returns the failed message for an error queue, in one form. From the bare one on it
// has neither group key nor properties, native ones included: any of them may be the part that
// the transport refuses.
func (c *carrier) movedCopy(w *work, f *failure, queue string, form plan.Form, reason SendReason) Outgoing {
	out := failedCopy(f, queue, c.headersOf(w, f, form), reason)
	if form >= plan.Bare {
		out.GroupKey, out.Properties, out.Native = "", nil, nil
	}
	return out
}

// headersOf returns the headers of the message in an error queue, in one form (R24).
func (c *carrier) headersOf(w *work, f *failure, form plan.Form) Headers {
	switch form {
	case plan.Small:
		return copyForErrorMinimal(f)
	case plan.Sender:
		return copyForErrorSender(f)
	case plan.Bare:
		return copyForErrorBare(f)
	case plan.Body:
		return Headers{}
	}
	return headersForCopy(f, &w.decision, c.ep.host, c.ep.caps.limitsForCopy(w.attempt.delivery.Incoming()))
}

// arrive records where the message is.
func (w *work) arrive(s plan.Step, err error) {
	if err == nil {
		w.arrived = s.For
	}
}

// replaces returns the queue that takes messages while the queue of the step cannot, or "".
func (w *work) replaces(s plan.Step) string {
	if s.Place == plan.ErrorQueue || s.Place == plan.StoredQueue || s.Place == plan.CustomQueue && w.walk.Configured && w.walk.Delayed {
		return ""
	}
	return w.decision.errorQueue
}

// queueOf returns the queue of a place.
func (w *work) queueOf(p plan.Place) string {
	switch p {
	case plan.StoredQueue:
		return w.note.Queue
	case plan.ErrorQueue:
		return w.decision.errorQueue
	}
	return w.decision.action.Queue
}

// id returns the id of the copies of the message.
func (w *work) id() string {
	if w.failure == nil {
		return w.attempt.delivery.Incoming().ID
	}
	return w.failure.messageID
}

// store stores the message in the endpoint's own queue until its destination can be reached.
func (c *carrier) store(w *work, s plan.Step) (plan.Class, error) {
	note := undeliveredNote{Queue: w.queueOf(s.For), Tries: 1, Since: headers.FormatTime(time.Now())}
	var stored Outgoing
	var err error
	if w.failure == nil {
		note = w.note
		note.Queue = w.queueOf(s.For)
		note.Report = note.Report && s.Form != plan.Bare
		note.Tries++
		stored = note.storedCopy(c.storedMessage(w, "", s.Form), c.ep.rules, c.ep.unreachable)
		err = c.replace(w, s, []Outgoing{stored})
	} else {
		f := *w.failure
		note.Report = f.replay.report && s.Form != plan.Bare // which has no headers that ask for it
		f.headers.Set(headers.Undelivered, note.String())    // so that other headers make room for it
		stored = note.storedCopy(c.movedCopy(w, &f, "", s.Form, ReasonUndelivered), c.ep.rules, c.ep.unreachable)
		err = c.replace(w, s, w.sendsWith(s, stored))
		if err == nil && s.Form == plan.Bare {
			c.ep.log.logLeftOut(w.attempt.decisionContext(), w.failure, "message was stored without headers of its sender, which the transport refused", w.failure.leftOut(&stored))
		}
	}
	w.arrive(s, err)
	if err == nil {
		w.stored = note.Report
		c.run.reportStored(w.attempt.decisionContext(), &stored, note)
	}
	return class(err, w.id(), w.hookSends), err
}

// deadLetter moves the message to the broker's own queue. Headers that do not fit, or that
// the broker does not accept, are left out (R24).
func (c *carrier) deadLetter(w *work, s plan.Step) (plan.Class, error) {
	a, f := w.attempt, w.failure
	if w.walk.Atomic && !a.workUndone {
		if err := a.delivery.Reset(c.run.settleCtx); err != nil {
			return classOf(err)
		}
	}
	if s.Form == plan.Bare && !s.Last { // the message would keep its own headers
		if err := f.whyNotBare(); err != nil {
			return plan.BadHeader, err
		}
	}
	letter := DeadLetter{Reason: w.decision.reason.kind, Description: boundedText(f.description(), maxDeadLetterDescription)}
	if s.Form != plan.Bare {
		letter.Headers = c.headersOf(w, f, s.Form)
	}
	err := a.delivery.DeadLetter(c.run.settleCtx, letter)
	if err == nil && s.Form == plan.Bare {
		c.ep.log.logLeftOut(a.decisionContext(), f, "message was dead-lettered without headers of its failure, which the broker refused", c.headersOf(w, f, plan.Full).without(f.headers))
	}
	w.arrive(s, err)
	return class(err, f.messageID, nil), err
}

// whyNotBare returns the reason why the message must not become a dead letter with its own headers:
// an operator's tool would return it to another queue, or its next return would have no retries.
func (f *failure) whyNotBare() error {
	failedQ, ok := f.headers.Lookup(headers.FailedQ)
	switch {
	case ok && failedQ != f.ReceiveQueue:
		return fmt.Errorf("%w: headers of its failure are refused, and its own %s names %q", ErrInvalidHeader, headers.FailedQ, bounded.Name(failedQ))
	case f.replay != replay{}:
		return fmt.Errorf("%w: headers of its failure are refused, and its own %s would stay", ErrInvalidHeader, headers.Replay)
	}
	return nil
}

// maxDeadLetterDescription limits the description of a dead letter, which is the
// beginning of the error's text, in bytes.
const maxDeadLetterDescription = 4 << 10

// remainingTime returns the time until a message expires, for a copy of it; 0 means never. A
// message that has expired in the hands of its handler has the shortest time.
func remainingTime(expiresAt time.Time) time.Duration {
	if expiresAt.IsZero() {
		return 0
	}
	return max(time.Until(expiresAt), 1)
}

// resend sends the message to the endpoint's own queue with a delay. The smallest form
// has no trace, or only the time by which RetryAfter is bounded (R24).
func (c *carrier) resend(w *work, s plan.Step) (plan.Class, error) {
	f := w.failure
	copied, reason := w.resendHeaders()
	switch {
	case s.Form == plan.Bare && w.decision.as == asRetryAfter:
		copied.Set(headers.Attempts, shortTrace(f, w.decision.action))
	case s.Form == plan.Bare:
		copied.Del(headers.Attempts)
	}
	out := failedCopy(f, c.ep.address, copied, reason)
	out.Delay = w.decision.action.Delay
	if w.decision.action.Kind == ActionPutBack {
		out.Delay = c.ep.rules.putBackDelay(w.pause, *f)
	}
	out.TimeToBeReceived = remainingTime(f.expiresAt)
	err := c.replace(w, s, []Outgoing{out})
	return class(err, f.messageID, nil), err
}

// resendHeaders returns the headers of a copy that is to be handled again, and the reason of
// its send.
func (w *work) resendHeaders() (Headers, SendReason) {
	switch w.decision.as {
	case asRetryAfter:
		return copyForRetryAfter(w.failure, w.decision.action), ReasonDelayedRetry
	case asRefusal:
		return copyForRefusal(w.failure), ReasonDeferral
	case asDeferral:
		return copyForDeferral(w.failure), ReasonDeferral
	case asNewCopy:
		return newCopy(w.failure), ReasonNewCopy
	}
	return copyForRetry(w.failure, w.decision.action), ReasonDelayedRetry
}

// consume ends the delivery of a message that has been dealt with; w is nil for one that was
// handled. A failure is remembered for the redelivery that follows it, and so is a call that
// has not returned (R28).
func (c *carrier) consume(a *attempt, w *work) error {
	id := a.delivery.Incoming().NativeID
	a.settled.Store(true)
	if !c.ep.caps.ConfirmsSettlement {
		c.unfinished.rememberSettled(id)
	}
	var err error
	if w != nil && w.walk.Atomic && w.failure != nil { // and undoes the failed handler's work
		err = c.replace(w, plan.Step{Atomic: true}, nil)
	} else {
		err = a.delivery.Complete(c.run.settleCtx)
	}
	if err != nil {
		c.unfinished.rememberSettled(id)
	}
	return err
}

// complete consumes a message that was handled.
func (c *carrier) complete(a *attempt) {
	err := c.consume(a, nil)
	if err == nil {
		c.run.endAttempt(a)
		return
	}
	w := c.newSettlement(a, plan.Progress{OnlyConsume: true})
	w.walk.Plan(false)
	result, _ := classOf(err)
	c.went(w, w.walk.Step(), result, err)
}

// abandon gives the message back for its next attempt.
func (c *carrier) abandon(w *work) error {
	w.releaseSlot()
	in := w.attempt.delivery.Incoming()
	c.ep.suspects.recordSurvived(in)
	if w.failure.inPlace {
		c.ep.rounds.remember(in.NativeID, in.roundsAfter(1))
	}
	return w.attempt.delivery.Abandon(c.run.settleCtx, w.failure.Err)
}

// releaseSlot frees the worker's slot for another message.
func (w *work) releaseSlot() {
	if w.worker != nil {
		w.worker.ReleaseSlotEarly()
	}
}
