package core

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/reprise-go/reprise/core/internal/plan"
)

// This file runs the application's code that a plan has steps for: HandleFailed and
// EditFailed. A shutdown that interrupts it must not decide about the message: code that
// obeys its cancelled context has made no decision. The message is released uncounted, and
// the next run decides (R27). Only in TransactionNone, which cannot release messages, the
// plan goes on.

// logUndecided logs that a failed message is given back undecided.
func (l *loggers) logUndecided(ctx context.Context, f *failure, cause error) {
	logFailure(ctx, l.recoverability, slog.LevelInfo, f, "the endpoint stopped before the failure was decided; the message is given back", slog.Any("cause", cause))
}

// handleFailedOf returns the HandleFailed of the message's type, or nil.
func handleFailedOf(a *attempt) func(context.Context, *Message, *Failed) error {
	if handlers := a.message.handledAs().handlers; handlers != nil {
		return handlers.handleFailed
	}
	return nil
}

// runHook runs HandleFailed, and collects the messages that it sends.
func (c *carrier) runHook(w *work) (plan.Class, error) {
	a, handler := w.attempt, handleFailedOf(w.attempt)
	m := &Message{attemptValues: a.message.values(true)}
	m.sends.scope = "/failed"
	m.begin(c.ep.deps, a.delivery.Incoming(), a.message.handledAs())
	failed := &Failed{Err: w.failure.Err}
	if target := w.walk.Target(); target != plan.BrokerQueue {
		failed.Queue = w.queueOf(target)
	}
	ctx := contextWithMessage(a.decisionContext(), m)
	a.returned.Store(false)
	m.ctx = ctx
	err := HandlerFunc(func(ctx context.Context, m *Message) error { return handler(ctx, m, failed) }).callRecovered(ctx, m)
	a.returned.Store(true)
	out := m.sends.end()
	if err == nil {
		err = a.commitError()
	}
	switch {
	case err != nil && c.run.interruptedByShutdown():
		c.ep.log.logUndecided(a.decisionContext(), w.failure, fmt.Errorf("HandleFailed: %w", err))
		return plan.Interrupted, err
	case err != nil:
		logFailure(a.decisionContext(), c.ep.log.recoverability, slog.LevelError, w.failure, "HandleFailed failed; the message is moved",
			withStack([]slog.Attr{slog.Any("handle_failed_error", err)}, "handle_failed_stack", err)...)
		return plan.HookFailed, err
	}
	w.hookSends = out
	if failed.takenOver {
		return plan.TakenOver, nil
	}
	return plan.OK, nil
}

// editCopy lets EditFailed edit the headers of the copy, once for a delivery.
func (c *carrier) editCopy(w *work) (plan.Class, error) {
	a, f := w.attempt, w.failure
	standard := headersForError(f, &w.decision, c.ep.host)
	headers := standard
	given := f.ErrorContext
	given.Message = a.failedMessage(a.delivery.Incoming())
	a.returned.Store(false)
	err := recoveredGoexit(func() error {
		c.ep.config.Recoverability.EditFailed(a.decisionContext(), given, &headers)
		return nil
	})
	a.returned.Store(true)
	switch {
	case err != nil && c.run.interruptedByShutdown():
		c.ep.log.logUndecided(a.decisionContext(), f, fmt.Errorf("EditFailed: %w", err))
		return plan.Interrupted, err
	case err != nil:
		logFailure(a.decisionContext(), c.ep.log.recoverability, slog.LevelError, f, "EditFailed failed; the message is moved unedited",
			withStack([]slog.Attr{slog.Any("edit_error", err)}, "edit_stack", err)...)
		return plan.HookFailed, err
	}
	var restored []string
	f.edited, restored = newEditedCopy(standard, headers)
	if len(restored) > 0 {
		logFailure(a.decisionContext(), c.ep.log.recoverability, slog.LevelWarn, f, "EditFailed changed headers by which the message can be sent back; they are restored",
			slog.Any("headers", restored))
	}
	return plan.OK, nil
}
