package core

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/internal/backlog"
	"github.com/reprise-go/reprise/core/internal/plan"
	"github.com/reprise-go/reprise/internal/bounded"
)

// work is a decision on its way to be carried out. One goroutine at a time owns it: that of
// the worker until carry returns, then that of the timer by which unfinished tries again.
type work struct {
	walk     plan.Walk
	failure  *failure // nil: a message that is settled, or a stored one
	decision decision
	note     undeliveredNote // of a stored message

	attempt *attempt // nil while the work is remembered only
	worker  *worker  // nil: it has no slot
	kept    *keptWork

	hookSends []Outgoing // of HandleFailed (R51)
	takenOver bool
	committed *committedSends // to be sent before the message is consumed; nil: none
	pause     time.Duration   // of the endpoint, after a PutBack

	announced  bool       // the line about the action is written
	concluded  bool       // observers were told
	superseded bool       // the message was redelivered, and another goroutine has the decision
	stored     bool       // the message waits in the own queue, with a note that asks for its report
	refusedBy  string     // the queue that has just refused a form of the copy, and is asked for the next at once
	arrived    plan.Place // of the copy that is out
	cause      error      // why the newest step failed
	notMoved   error      // why the newest step failed that was no store

	rememberedAt time.Time // in unfinished
}

// carrier carries decisions out. Package plan chooses the steps, and the next after each; its
// methods perform them. It belongs to one Run.
type carrier struct {
	run        *runner
	ep         *Endpoint
	unfinished *unfinished
	// Those of unfinished in this Run: a handler may outlive it.
	kept, paused *backlog.Backlog
}

// newWork returns the work for a decision about a failed attempt.
func (c *carrier) newWork(w *worker, a *attempt, f *failure, d decision) *work {
	wk := &work{failure: f, decision: d, attempt: a, worker: w, committed: a.message.sends.committedSends()}
	wk.walk.Facts = c.facts(wk)
	wk.walk.Decided(d.planned())
	return wk
}

// newSettlement returns the work for a delivery that only has to be settled.
func (c *carrier) newSettlement(a *attempt, p plan.Progress) *work {
	wk := &work{attempt: a, announced: true}
	wk.walk.Facts, wk.walk.Progress = c.facts(wk), p
	return wk
}

// planned returns the part of a decision that its plan depends on.
func (d *decision) planned() plan.Decision {
	p := plan.Decision{Target: d.target, Pause: d.action.Delay > 0}
	switch d.action.Kind {
	case ActionImmediateRetry:
		p.Action = plan.ImmediateRetry
	case ActionDelayedRetry, ActionDefer, ActionRefuse:
		p.Action = plan.DelayedRetry
	case ActionDiscard:
		p.Action = plan.Discard
	case ActionPutBack:
		p.Action = plan.PutBack
	default:
		p.Action = plan.MoveToError
	}
	return p
}

// facts returns the facts that the plan of a work depends on.
func (c *carrier) facts(w *work) plan.Facts {
	caps := c.ep.caps
	f := plan.Facts{
		None: c.ep.mode == TransactionNone, Atomic: c.ep.mode.isAtomic(),
		Delayed: caps.DelayedDelivery, DeadLetters: caps.DeadLetter, CountsReleases: caps.CountsReleases,
		Isolated: w.decision.action.Kind == ActionImmediateRetry && w.decision.action.Delay > 0 && w.worker.IsIsolated(),
	}
	if w.failure == nil {
		return f
	}
	f.Grouped = w.failure.inPlace
	f.Hook = handleFailedOf(w.attempt) != nil && !errors.Is(w.failure.Err, ErrUndecodable) && !isUnhandled(w.failure.Err)
	f.Edit = c.ep.config.Recoverability.EditFailed != nil
	f.Committed, f.SendsFailed = w.committed != nil, w.attempt.sendsFailed
	f.Configured = w.decision.target == plan.CustomQueue && c.ep.resolved.isConfiguredQueue(w.decision.action.Queue)
	return f
}

// carry performs the steps of w's plan until one of them ends the delivery, or only a later
// try is left: then w is kept, or this is such a try and carry returns true.
func (c *carrier) carry(w *work) (keep bool) {
	if w.note.Queue != "" { // an audit copy may have expired since the last try
		w.walk.Arrived(w.note.planned(w.decision.errorQueue))
	}
	w.walk.Plan(w.isEnding(c.ep.caps.MaxLockTime))
	for {
		if !w.walk.GivenBack && c.isSuperseded(w) {
			w.superseded, w.walk.GivenBack = true, true
			w.walk.Plan(true)
		}
		s := w.walk.Step()
		if w.attempt.isLockLost() {
			c.lostBefore(w, s)
			return false
		}
		c.announce(w, s)
		class, err := c.perform(w, s) // the only calls of the transport, and of users' code
		if next := c.went(w, s, class, err); next != plan.Go {
			return next == plan.Wait
		}
	}
}

// went records the outcome of a step, and returns Go, or Wait, or Done if the work has ended.
func (c *carrier) went(w *work, s plan.Step, class plan.Class, err error) plan.Next {
	hadHook := !w.walk.Dropped
	next := w.walk.Went(class)
	if err != nil {
		w.cause = w.causeOf(s, err)
	}
	if hadHook && w.walk.Dropped {
		c.dropHook(w, s, err)
	}
	if w.walk.OnlyConsume && next != plan.Go {
		c.conclude(w)
	}
	switch next {
	case plan.Go:
		c.report(w, s, w.walk.Step(), err)
		return plan.Go
	case plan.Redecide:
		w.failure.refused = &refusal{w.decision, w.cause}
		w.decision = c.ep.rules.decide(w.attempt.decisionContext(), *w.failure)
		w.failure.Err = w.decision.reason.err
		w.walk.Facts = c.facts(w)
		w.walk.Decided(w.decision.planned())
		w.walk.Plan(w.walk.Ending)
		w.announced = false
		c.ep.log.logReasons(w.attempt.decisionContext(), w.failure, &w.decision)
		return plan.Go
	case plan.Wait:
		if w.kept != nil && w.kept.as == keptAsAfter(s) {
			c.scheduleRetry(w, s)
			return plan.Wait
		}
		c.keep(w, s)
	case plan.Gone:
		c.lost(w, s, err)
	case plan.LoseIt:
		c.lose(w)
	case plan.Done:
		c.done(w, s, class)
	default:
		panic(fmt.Sprintf("core: step %+v is followed by %d", s, next)) // unreachable
	}
	return plan.Done
}

// causeOf returns the error of a step, together with that of the step which it replaces.
func (w *work) causeOf(s plan.Step, err error) error {
	if s.Verb != plan.Store {
		w.notMoved = err
	} else if w.notMoved != nil {
		return fmt.Errorf("%w; nor can it be stored in the endpoint's own queue: %w", w.notMoved, err)
	}
	return err
}

// announce writes the line about the action once, before its first step that is not
// HandleFailed's.
func (c *carrier) announce(w *work, s plan.Step) {
	if w.announced || w.takenOver || s.Place == plan.HookPlace || s.Verb == plan.Release || w.failure == nil {
		return
	}
	w.announced = true
	c.ep.log.logAction(w.attempt.decisionContext(), w.failure, &w.decision)
}

// done ends a work whose message is where it belongs.
func (c *carrier) done(w *work, s plan.Step, class plan.Class) {
	a := w.attempt
	c.run.endAttempt(a)
	if class == plan.Settled {
		c.ep.log.endpoint.WarnContext(a.decisionContext(), "message was settled already, by a call of the transport that returned an error",
			"message_id", a.message.incoming.ID, "message_type", a.message.handledAs().messageType)
	}
	if s.Verb == plan.Release { // the next delivery has to carry it out
		c.rememberProgress(w)
		return
	}
	c.conclude(w)
}

// conclude reports, once, that a decision was carried out: the message is where it belongs,
// and has at most to be consumed.
func (c *carrier) conclude(w *work) {
	if w.concluded {
		return
	}
	w.concluded = true
	if w.failure == nil {
		switch {
		case w.note.Queue == "":
		case w.arrived == plan.Here:
			c.giveUpStored(w)
		default:
			c.reportOutcome(w, headers.OutcomeFailed)
		}
		return
	}
	a := w.attempt
	c.unfinished.forget(a.delivery.Incoming())
	kind := w.decision.action.Kind
	if kind == ActionImmediateRetry || kind == ActionPutBack { // observers were told before
		return
	}
	if w.takenOver {
		logFailure(a.decisionContext(), c.ep.log.recoverability, slog.LevelInfo, w.failure, "HandleFailed took the message over; it is not moved")
	}
	c.notify(w, w.action())
	if kind == ActionMoveToError && !w.takenOver {
		c.run.countTerminalFailure(w.failure.messageID, w.failure.FailedAt)
	}
	if outcome := w.outcome(); outcome != "" {
		c.reportOutcome(w, outcome)
	}
}

// action returns the action as it was carried out: another queue may have the message.
func (w *work) action() Action {
	action := w.decision.action
	if action.Kind == ActionMoveToError && w.arrived == plan.ErrorQueue {
		action.Queue = w.decision.errorQueue
	}
	return action
}

// lostBefore ends a work whose lock was lost before a step.
func (c *carrier) lostBefore(w *work, s plan.Step) {
	if w.walk.OnlyConsume {
		c.conclude(w)
	}
	if s.Verb != plan.Release && (w.kept == nil || w.kept.as != keptUnsettled) {
		s = plan.Step{} // no settlement has failed
	}
	c.lost(w, s, ErrLockLost)
}

// lost ends a work whose message the broker delivers again (R27).
func (c *carrier) lost(w *work, s plan.Step, err error) {
	a := w.attempt
	in := a.delivery.Incoming()
	if w.failure != nil || s.Verb != plan.Release { // else no handler has begun
		c.ep.suspects.recordSurvived(in)
	}
	if w.walk.OnlyConsume {
		c.unfinished.rememberSettled(in.NativeID)
	} else {
		c.rememberProgress(w)
	}
	c.run.endAttempt(a)
	switch {
	case s.Verb == plan.Release:
	case errors.Is(err, ErrUncounted):
		c.run.raiseCriticalContext(a.decisionContext(), fmt.Errorf("message %s is redelivered, but %w", bounded.Name(in.ID), err))
	case s.Verb == plan.Consume || s.Verb == plan.Abandon:
		c.ep.log.endpoint.WarnContext(a.decisionContext(), "message could not be settled while its lock held; it is redelivered",
			"message_id", in.ID, "settlement", settlementNames[s.Verb], "error", err)
	default:
		c.run.logLockLost(a)
	}
}

// lose ends a message in TransactionNone, which cannot be given back.
func (c *carrier) lose(w *work) {
	a := w.attempt
	c.run.endAttempt(a)
	if w.failure == nil {
		c.run.raiseCriticalContext(a.decisionContext(), fmt.Errorf("stored message %s is lost: its queue cannot be reached, and in transaction mode None it cannot be given back", bounded.Name(a.message.incoming.ID)))
		return
	}
	c.run.raiseCriticalContext(a.decisionContext(), fmt.Errorf("message %s (%d bytes) is lost: it failed (%w), %v could not be carried out (%w), and in transaction mode None it cannot be given back",
		bounded.Name(w.failure.messageID), len(w.failure.body), w.failure.Err, w.decision.action, w.cause))
	c.reportOutcome(w, headers.OutcomeFailed) // without a queue
}

// report logs that a step did not succeed, and that a place was given up for another.
func (c *carrier) report(w *work, s, next plan.Step, err error) {
	ctx, log := w.attempt.decisionContext(), c.ep.log
	switch {
	case err == nil || w.failure == nil:
	case s.Verb == plan.Undo && s.Place == plan.HookPlace:
		log.logNotUndone(ctx, w.failure, err)
	case s.Verb == plan.SendCommitted && s.Place == plan.CommittedPlace && w.decision.action.Kind == ActionMoveToError:
		logFailure(ctx, log.moved, slog.LevelWarn, w.failure, "messages that a handler has committed could not be sent before the message is moved; they are sent when it is returned to its queue",
			slog.Any("send_error", err))
	case w.decision.action.Kind == ActionPutBack && next.Verb == plan.Release:
		logFailure(ctx, log.putBack, slog.LevelWarn, w.failure, "message could not be replaced by a copy; it is given back, which the broker counts as a delivery",
			slog.Any("send_error", err))
	case next.Last && !s.Last:
		logFailure(ctx, log.moved, slog.LevelError, w.failure, "error queue refuses the message in every form; moving message to the broker's dead-letter queue",
			slog.String("queue", w.decision.errorQueue), slog.Any("cause", err))
	case s.For == plan.Here || s.Last || next.For != plan.ErrorQueue || s.For == next.For:
	case s.For == plan.BrokerQueue:
		logFailure(ctx, log.moved, slog.LevelError, w.failure, "broker does not dead-letter the message; moving message to the error queue",
			slog.String("queue", w.decision.errorQueue), slog.Any("cause", err))
	default:
		text := "queue cannot be reached; moving message to the error queue"
		switch {
		case isRefusedWith(err, w.failure.messageID, ErrQueueNotFound):
			text = "queue does not exist (Recoverability.CustomErrorQueues lets Run create it); moving message to the error queue"
		case isRefusedPermanently(err, w.failure.messageID):
			text = "queue refuses the message; moving message to the error queue"
		}
		logFailure(ctx, log.moved, slog.LevelError, w.failure, text,
			slog.String("instead_of", w.decision.action.Queue), slog.String("queue", w.decision.errorQueue), slog.Any("cause", err))
	}
}

// dropHook gives up the work and the messages of HandleFailed (R51), after a step that was
// about them.
func (c *carrier) dropHook(w *work, s plan.Step, err error) {
	w.hookSends, w.takenOver = nil, false
	w.attempt.workUndone = false // so that the move undoes its work too
	if s.Verb != plan.RunHook && s.Verb != plan.Undo {
		logFailure(w.attempt.decisionContext(), c.ep.log.recoverability, slog.LevelError, w.failure, "messages of HandleFailed could not be delivered; the message is moved", slog.Any("send_error", err))
	}
}

// notify notifies recovery observers.
func (c *carrier) notify(w *work, action Action) {
	observers := c.ep.observers.recovery
	if len(observers) == 0 {
		return
	}
	f, d, ctx := w.failure, &w.decision, w.attempt.recoveryContext(c.run)
	e := Recovery{
		ObservedEndpoint: c.ep.observed, Failure: f.ErrorContext,
		Action: action, NewCopy: d.as == asNewCopy,
		DeadLettered: w.arrived == plan.BrokerQueue, Reason: d.reason.kind, TakenOver: w.takenOver,
	}
	in := *w.attempt.delivery.Incoming()
	in.Body, in.Native = nil, nil // which events in the queue would keep in memory
	for _, o := range observers {
		own := e
		own.Failure.Message = w.attempt.failedMessage(&in) // which an observer may change
		c.run.recoveryCalls.Add(func() { o.Recovered(ctx, own) })
	}
}

// sendsWith returns a copy of the message with those of HandleFailed that leave together with
// it.
func (w *work) sendsWith(s plan.Step, out Outgoing) []Outgoing {
	if !s.Atomic || w.walk.AheadSent {
		return []Outgoing{out}
	}
	return append(slices.Clone(w.hookSends), out)
}

// class returns the class of an error of the transport, for a copy of the message with the
// id that may have left together with others.
func class(err error, id string, others []Outgoing) plan.Class {
	switch {
	case err == nil:
		return plan.OK
	case errors.Is(err, ErrLockLost):
		return plan.Lost
	case errors.Is(err, ErrSettled):
		return plan.Settled
	case isRefusedWith(err, id, ErrTooLarge):
		return plan.TooLarge
	case isRefusedWith(err, id, ErrInvalidHeader):
		return plan.BadHeader
	case isRefusedWith(err, id, ErrQueueNotFound), isRefusedWith(err, id, errName):
		return plan.NoQueue
	case isRefusedWith(err, id, errors.ErrUnsupported):
		return plan.Unsupported
	case slices.ContainsFunc(others, func(o Outgoing) bool { return isRefusedPermanently(err, o.ID) }):
		return plan.Companion
	}
	return plan.Unreachable
}
