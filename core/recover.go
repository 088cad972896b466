package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// failed deals with an attempt that returned an error.
func (r *runner) failed(w *worker, a *attempt, err error) {
	a.message.end()
	switch {
	case r.lockLost(a):
		r.abandonLost(a)
		return
	case r.work.Err() != nil && r.ep.mode != TransactionNone: // cut off by the shutdown: not its fault (R27)
		r.giveBack(held{a.delivery, a.hold})
		r.release(a)
		return
	}
	f := r.describe(a, err)
	r.prepareRecovery(a, f)
	d := r.ep.rules.decide(a, *f)
	if d.err != nil {
		f.Err = d.err
	}
	if d.policyErr != nil { // what the policy did half is undone too
		r.prepareRecovery(a, f)
	}
	counts := !d.verdict && !refused(err) && r.limiter.counts(err)
	if counts { // before a retry can begin, and succeed
		r.limiter.failed()
	}
	r.carryOut(w, a, f, &d, nil)
	if counts {
		r.limiter.probed()
	}
}

// describe gathers what the decision and the failure headers need.
func (r *runner) describe(a *attempt, err error) *failure {
	in := a.delivery.Incoming()
	return &failure{
		ErrorContext: ErrorContext{
			Err:                         err,
			MessageID:                   in.ID,
			MessageType:                 a.message.handledAs().messageType,
			Headers:                     in.Headers,
			Body:                        in.Body,
			ReceiveQueue:                r.ep.address,
			ImmediateProcessingFailures: max(in.DeliveryCount, 1),
			DelayedDeliveriesPerformed:  intHeader(in.Headers, HeaderRetries),
			FailedAt:                    time.Now(),
			LastDelayedRetry:            timeText(in.Headers.Get(HeaderRetriesTimestamp)),
			FirstFailure:                firstFailure(in.Headers),
		},
		deferrals: intHeader(in.Headers, HeaderDeferrals),
	}
}

// prepareRecovery undoes the failed work where users' code is about to run in
// the same transaction: a custom policy, or HandleFailed.
func (r *runner) prepareRecovery(a *attempt, f *failure) {
	if !r.isAtomic() || r.ep.rules.policy == nil && fallbackOf(a) == nil {
		return
	}
	err := a.delivery.Reset(r.settle)
	a.undone = err == nil
	if err != nil {
		r.ep.log.recoverability.LogAttrs(a, slog.LevelWarn, "the failed handler's work could not be undone before the decision; it is undone with the decision, without HandleFailed",
			append(failureAttrs(f), slog.Any("reset_error", err))...)
	}
}

// carryOut does what was decided, tells about it, and keeps the message where
// it cannot be done. u is the memory of an earlier try, or nil.
func (r *runner) carryOut(w *worker, a *attempt, f *failure, d *decision, u *undelivered) {
	if u == nil {
		r.ep.log.logReasons(a, f, d)
		if d.action.Kind != ActionMoveToError { // HandleFailed comes first
			r.ep.log.logAction(a, f, d)
		}
	}
	takenOver, err := r.execute(w, a, f, d, u)
	switch {
	case errors.Is(err, ErrLockLost):
		r.abandonLost(a)
		return
	case err != nil:
		r.keep(a, f, d, err)
		return
	}
	if u != nil { // else a retry that fails already may have remembered its own
		r.ep.memory.forgetPending(a.delivery.Incoming().NativeID)
	}
	r.release(a)
	if takenOver {
		r.ep.log.recoverability.LogAttrs(a, slog.LevelInfo, fmt.Sprintf("HandleFailed took message '%s' over; it is not moved.", f.MessageID), failureAttrs(f)...)
	}
	if d.action.Kind != ActionImmediateRetry {
		r.announce(a, f, d, takenOver)
	}
	if d.action.Kind == ActionMoveToError && !takenOver {
		r.terminated(f.FailedAt)
	}
}

// execute carries a decision out. An error means that the message was not
// settled.
func (r *runner) execute(w *worker, a *attempt, f *failure, d *decision, u *undelivered) (takenOver bool, err error) {
	switch d.action.Kind {
	case ActionImmediateRetry:
		r.announce(a, f, d, false) // before the retry can begin
		w.freeSlot()
		r.abandon(a, f)
		return false, nil
	case ActionDelayedRetry:
		err := r.sendAgain(a, f, d)
		if err == nil || !refusedFor(err, f.MessageID, ErrTooLarge) && !refusedFor(err, f.MessageID, errors.ErrUnsupported) {
			return false, err
		}
		// What is refused now always will be (R8).
		d.fallback = fmt.Sprintf("%v was asked for, but the transport refused it: %v", d.action, err)
		d.action, d.deferral = MoveToError(r.ep.rules.config.Failed.ErrorQueue), false
		r.ep.log.logReasons(a, f, d)
		return r.giveUp(a, f, d, nil)
	case ActionDiscard:
		return false, r.replace(a, nil)
	default:
		return r.giveUp(a, f, d, u)
	}
}

// sendAgain sends the message to the endpoint's own queue with a delay, without
// the decision trace where that makes it fit (R24).
func (r *runner) sendAgain(a *attempt, f *failure, d *decision) error {
	reason := ReasonDelayedRetry
	if d.deferral {
		reason = ReasonDeferral
	}
	send := func(headers Headers) error {
		out := a.delivery.Incoming().copyTo(r.ep.address, headers, reason)
		out.Delay = d.action.Delay
		return r.replace(a, []Outgoing{out})
	}
	compose := func() Headers {
		if d.deferral {
			return copyForDeferral(f)
		}
		return copyForRetry(f, d.action)
	}
	headers := compose()
	err := send(headers)
	if err != nil && refusedFor(err, f.MessageID, ErrInvalidHeader) {
		f.makeLegible()
		headers = compose()
		err = send(headers)
	}
	if errors.Is(err, ErrTooLarge) && headers.Get(HeaderAttempts) != "" {
		headers.Del(HeaderAttempts)
		err = send(headers)
	}
	return err
}

// giveUp runs HandleFailed and moves the message to an error or dead-letter
// queue unless it was taken over.
func (r *runner) giveUp(a *attempt, f *failure, d *decision, u *undelivered) (takenOver bool, err error) {
	switch {
	case u == nil:
		d.extra, takenOver = r.lastResort(a, f, d)
	case r.isAtomic() && !d.deadLetter: // what it did in the transaction went with the earlier try
		r.prepareRecovery(a, f)
		d.extra, takenOver = r.lastResort(a, f, d)
	}
	if takenOver {
		err := r.replace(a, d.extra)
		if err == nil || errors.Is(err, ErrLockLost) {
			return true, err
		}
		r.dropExtra(a, f, d, err)
	}
	if u == nil {
		r.ep.log.logAction(a, f, d)
	}
	err = r.move(a, f, d)
	if err != nil && slices.ContainsFunc(d.extra, func(out Outgoing) bool { return refusedForGood(err, out.ID) }) {
		r.dropExtra(a, f, d, err)
		err = r.move(a, f, d)
	}
	return false, err
}

// dropExtra lets the move happen without what HandleFailed did and sent (R51).
func (r *runner) dropExtra(a *attempt, f *failure, d *decision, cause error) {
	r.ep.log.recoverability.LogAttrs(a, slog.LevelError, fmt.Sprintf("What HandleFailed sent for message '%s' could not be delivered; the message is moved.", f.MessageID),
		append(failureAttrs(f), slog.Any("send_error", cause))...)
	d.extra = nil
	a.undone = false // so that the move undoes its work too
}

// move moves the message. What HandleFailed sent goes with it as one where the
// mode can, and before it otherwise.
func (r *runner) move(a *attempt, f *failure, d *decision) error {
	if r.lockLost(a) {
		return ErrLockLost
	}
	if (!r.isAtomic() || d.deadLetter) && len(d.extra) > 0 {
		if err := r.ep.transportSend(a.settling(r), d.extra); err != nil {
			return err
		}
		d.extra = nil
	}
	if d.deadLetter {
		return r.deadLetter(a, f)
	}
	return r.moveToError(a, f, d)
}

// refusedFor reports whether err says that a message was refused for the sake
// of target, not merely because of another in the same call.
func refusedFor(err error, id string, target error) bool {
	sent, ok := errors.AsType[*SendError](err)
	if !ok {
		return errors.Is(err, target)
	}
	return slices.ContainsFunc(sent.Results, func(r SendResult) bool {
		return r.ID == id && r.State == SendRefused && errors.Is(r.Err, target)
	})
}

// refusedForGood reports whether sending the message again cannot help.
func refusedForGood(err error, id string) bool {
	for _, target := range []error{ErrQueueNotFound, ErrTooLarge, ErrInvalidHeader, errors.ErrUnsupported} {
		if refusedFor(err, id, target) {
			return true
		}
	}
	return false
}

// abandon gives the message back for its next attempt.
func (r *runner) abandon(a *attempt, f *failure) {
	if err := a.delivery.Abandon(r.settle, f.Err); err != nil {
		r.ep.log.immediate.LogAttrs(a, slog.LevelWarn, "message could not be given back; it comes again when its lock ends",
			append(failureAttrs(f), slog.Any("settle_error", err))...)
	}
}

// replace sends out and consumes the message: as one where the mode can, in
// this order otherwise. The failed handler's work is undone either way.
func (r *runner) replace(a *attempt, out []Outgoing) error {
	if r.lockLost(a) { // while policy or HandleFailed ran: another copy must not leave
		return ErrLockLost
	}
	if r.isAtomic() {
		return r.ep.observedSend(a.settling(r), out, func(ctx context.Context) error {
			if a.undone { // what HandleFailed or the policy did is kept
				return a.delivery.CompleteWith(ctx, out)
			}
			return a.delivery.ReplaceWith(ctx, out)
		})
	}
	if len(out) > 0 {
		if err := r.ep.transportSend(a.settling(r), out); err != nil {
			return err
		}
	}
	r.complete(a)
	return nil
}

// moveToError sends the failed message to the decided error queue. A custom
// queue that does not exist gives way to the default one (R31), headers that do
// not fit give way to the message (R24).
func (r *runner) moveToError(a *attempt, f *failure, d *decision) error {
	send := func(headers Headers) error {
		return r.replace(a, append(slices.Clone(d.extra), a.delivery.Incoming().copyTo(d.action.Queue, headers, ReasonMoveToError)))
	}
	standard := r.ep.rules.config.Failed.ErrorQueue
	err := send(copyForError(f, d.action, r.ep.host, r.ep.caps))
	if err != nil && refusedFor(err, f.MessageID, ErrInvalidHeader) {
		f.makeLegible()
		err = send(copyForError(f, d.action, r.ep.host, r.ep.caps))
	}
	if err != nil && d.action.Queue != standard && refusedFor(err, f.MessageID, ErrQueueNotFound) {
		r.ep.log.moved.LogAttrs(a, slog.LevelError,
			fmt.Sprintf("Error queue '%s' does not exist. Moving message '%s' to '%s' instead. Create it, or name another.", d.action.Queue, f.MessageID, standard),
			failureAttrs(f)...)
		d.action.Queue = standard
		err = send(copyForError(f, d.action, r.ep.host, r.ep.caps))
	}
	if err != nil && refusedFor(err, f.MessageID, ErrTooLarge) {
		if err = send(copyForErrorMinimal(f)); err != nil && refusedFor(err, f.MessageID, ErrTooLarge) {
			err = send(f.Headers)
		}
	}
	return err
}

// deadLetter uses the broker's own queue.
func (r *runner) deadLetter(a *attempt, f *failure) error {
	if r.isAtomic() && !a.undone {
		if err := a.delivery.Reset(r.settle); err != nil {
			return err
		}
	}
	return a.delivery.DeadLetter(r.settle, "Rejected", boundedText(f.Err.Error(), 4<<10))
}

func fallbackOf(a *attempt) func(context.Context, *Message, *Failed) error {
	if handlers := a.message.handledAs().handlers; handlers != nil {
		return handlers.fallback
	}
	return nil
}

// lastResort runs HandleFailed. It returns what is to be sent with the move, or
// instead of it.
func (r *runner) lastResort(a *attempt, f *failure, d *decision) (out []Outgoing, takenOver bool) {
	fallback := fallbackOf(a)
	if fallback == nil || errors.Is(f.Err, ErrUndecodable) || refused(f.Err) {
		return nil, false
	}
	if r.isAtomic() && !a.undone {
		return nil, false // what it did would be undone with the failed work
	}
	m := &Message{scope: "/failed"}
	m.begin(r.ep.env, a.delivery.Incoming(), a.message.handledAs())
	failed := &Failed{Err: f.Err, Queue: d.action.Queue}
	ctx := WithMessage(a, m)
	err := apart(func() error {
		return call(func(ctx context.Context, m *Message) error { return fallback(ctx, m, failed) }, ctx, m)
	})
	out = m.end()
	if err != nil {
		r.ep.log.recoverability.LogAttrs(a, slog.LevelError, fmt.Sprintf("HandleFailed failed for message '%s'; the message is moved.", f.MessageID),
			append(failureAttrs(f), slog.Any("fallback_error", err))...)
		a.undone = false // so that the move undoes what it did
		return nil, false
	}
	return out, failed.takenOver
}

// keep holds a message whose decision cannot be carried out, and gives it back
// after a growing pause; the decision is remembered and tried again without
// running the handler (R25).
func (r *runner) keep(a *attempt, f *failure, d *decision, cause error) {
	in := a.delivery.Incoming()
	if r.ep.mode == TransactionNone {
		r.release(a)
		r.ep.critical(fmt.Errorf("message %s (%d bytes) is lost: it failed (%w), %v could not be carried out (%w), and in transaction mode None it cannot be given back",
			f.MessageID, len(f.Body), f.Err, d.action, cause))
		return
	}
	if r.isAtomic() && !d.deadLetter {
		d.extra = nil // HandleFailed runs again, in the next transaction
	}
	tries := r.ep.memory.rememberPending(in.NativeID, f, d)
	pause := min(time.Second<<min(tries-1, 10), longestUndeliveredHold)
	r.ep.critical(fmt.Errorf("%v of message %s cannot be carried out; trying again in %v: %w", d.action, f.MessageID, pause, cause))
	if r.isAtomic() {
		// The failed work shall not keep its locks during the pause. If it cannot
		// be undone now, the release undoes it.
		_ = a.delivery.Reset(r.settle)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.fetch.Done():
	}
	r.giveBack(held{a.delivery, a.hold})
	r.release(a)
}

// announce tells recovery observers.
func (r *runner) announce(a *attempt, f *failure, d *decision, takenOver bool) {
	if len(r.ep.observers.recovery) == 0 {
		return
	}
	e := Recovery{
		ObservedEndpoint: r.ep.observed,
		MessageID:        f.MessageID, MessageType: f.MessageType, Headers: f.Headers, Err: f.Err,
		Attempt: f.ImmediateProcessingFailures, DelayedRetries: f.DelayedDeliveriesPerformed, Deferrals: f.deferrals,
		Action: d.action, Deferred: d.deferral, DeadLettered: d.deadLetter && !takenOver, TakenOver: takenOver,
		FailedAt: f.FailedAt,
	}
	ctx := r.values
	if a.observed != nil {
		ctx = context.WithoutCancel(a.observed)
	}
	for _, o := range r.ep.observers.recovery {
		r.notifier.notify(func() { o.Recovered(ctx, e) })
	}
}

// terminated counts a message that was moved for good, and stops the endpoint
// at the limit (R50).
func (r *runner) terminated(at time.Time) {
	limit := r.ep.config.Recoverability.UnacceptableMessageLimit
	if limit == 0 {
		return
	}
	r.terminations.mu.Lock()
	defer r.terminations.mu.Unlock()
	r.terminations.times = append(r.terminations.times, at)
	if window := r.ep.config.Recoverability.UnacceptableMessageWindow; window > 0 {
		r.terminations.times = slices.DeleteFunc(r.terminations.times, func(t time.Time) bool { return at.Sub(t) > window })
	}
	if n := len(r.terminations.times); n >= limit {
		r.end(fmt.Errorf("%w: %d messages failed for good", ErrUnacceptableMessageLimit, n))
	}
}

// refused reports a failure for which no handler was asked.
func refused(err error) bool {
	return errors.Is(err, ErrMalformed) || errors.Is(err, ErrDeliveryCountExceeded)
}
