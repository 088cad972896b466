package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// This file runs the application's HandleFailed before a message is moved, in
// the same transaction if there is one.

// prepareRecovery undoes the failed work if users' code is about to run in the same
// transaction: a custom policy, or HandleFailed.
func (r *runner) prepareRecovery(a *attempt, f *failure) {
	if !r.isAtomic() || r.ep.rules.policy == nil && handleFailedOf(a) == nil {
		return
	}
	err := a.delivery.Reset(r.settleCtx)
	a.workUndone = err == nil
	if err == nil {
		a.allowCommit()
	}
	if err != nil {
		logFailure(a.decisionContext(), r.ep.log.recoverability, slog.LevelWarn, f, "the failed handler's work could not be undone before the decision; it is undone with the decision, without HandleFailed",
			slog.Any("reset_error", err))
	}
}

// handleFailedOf returns the HandleFailed of the message's type, or nil.
func handleFailedOf(a *attempt) func(context.Context, *Message, *Failed) error {
	if handlers := a.message.handledAs().handlers; handlers != nil {
		return handlers.handleFailed
	}
	return nil
}

// runHandleFailed runs HandleFailed. It returns the messages to send with the move, or
// instead of it. Its error is an *undecidedError: neither is to happen.
func (r *runner) runHandleFailed(a *attempt, f *failure, d *decision) (out []Outgoing, takenOver bool, _ error) {
	handler := handleFailedOf(a)
	if handler == nil || errors.Is(f.Err, ErrUndecodable) || neverHandled(f.Err) {
		return nil, false, nil
	}
	if r.isAtomic() && !a.workUndone {
		return nil, false, nil // its work would be undone with the failed work
	}
	m := &Message{scope: "/failed", attemptValues: a.message.values(true)}
	m.begin(r.ep.deps, a.delivery.Incoming(), a.message.handledAs())
	failed := &Failed{Err: f.Err, Queue: d.action.Queue}
	if d.deadLetter {
		failed.Queue = ""
	}
	ctx := ContextWithMessage(a.decisionContext(), m)
	a.returned.Store(false)
	m.ctx = ctx
	err := HandlerFunc(func(ctx context.Context, m *Message) error { return handler(ctx, m, failed) }).CallRecovered(ctx, m)
	a.returned.Store(true)
	out = m.end()
	if err == nil {
		err = a.commitError()
	}
	if err != nil && r.interruptedByShutdown() {
		return nil, false, &undecidedError{fmt.Errorf("HandleFailed: %w", err)}
	}
	if err != nil {
		logFailure(a.decisionContext(), r.ep.log.recoverability, slog.LevelError, f, "HandleFailed failed; the message is moved",
			withStack([]slog.Attr{slog.Any("handle_failed_error", err)}, "handle_failed_stack", err)...)
		a.workUndone = false // so that the move undoes its work
		return nil, false, nil
	}
	return out, failed.takenOver, nil
}

// sendHandleFailedSends sends the messages of HandleFailed before the move, if the two
// cannot be atomic.
func (r *runner) sendHandleFailedSends(a *attempt, d *decision) error {
	if r.isAtomic() && !d.deadLetter || len(d.handleFailedSends) == 0 {
		return nil
	}
	if r.lockLost(a) {
		return ErrLockLost
	}
	if err := r.ep.transportSend(a.settlementContext(r), d.handleFailedSends); err != nil {
		return err
	}
	d.handleFailedSends = nil
	return nil
}

// dropHandleFailedSends drops the work and the messages of HandleFailed from the move
// (R51).
func (r *runner) dropHandleFailedSends(a *attempt, f *failure, d *decision, cause error) {
	logFailure(a.decisionContext(), r.ep.log.recoverability, slog.LevelError, f, "messages of HandleFailed could not be delivered; the message is moved", slog.Any("send_error", cause))
	d.handleFailedSends = nil
	a.workUndone = false // so that the move undoes its work too
}
