package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/bounded"
)

// This file chooses the handlers of a message and calls them. Of the messages that name
// no type, control messages are consumed, and all others fail.

// isControl reports whether a message is one of NServiceBus's control messages, which
// consist of headers only: an acknowledgement, a subscription.
func isControl(h Headers) bool { return strings.EqualFold(h.Get(headers.ControlMessage), "True") }

// logSkippedControl logs that a control message is consumed without a handler. For a
// subscription it logs a warning: the sender waits for events that never come.
func (deps *messageDeps) logSkippedControl(ctx context.Context, m *Message) {
	switch intent := m.Headers.Get(headers.MessageIntent); intent {
	case intentSubscribe, intentUnsubscribe:
		deps.log.WarnContext(ctx, "a subscription by message is ignored; events go to those who subscribed at the transport: let the subscriber use the same transport's own subscriptions",
			"message_id", m.ID, "intent", intent, "topic", m.Headers.Get(headerSubscriptionType),
			"subscriber", firstNonEmpty(m.Headers.Get(headerSubscriberAddress), m.Headers.Get(headers.ReplyToAddress)))
	default:
		deps.log.DebugContext(ctx, "control message consumed; no handler is asked for one that names no type",
			"message_id", m.ID, "intent", intent, "originating_endpoint", m.Headers.Get(headers.OriginatingEndpoint))
	}
}

// noHandlerError returns the failure of a message that has no handler.
func noHandlerError(messageType string) error {
	if messageType == anyType {
		return fmt.Errorf("%w: its header %s is missing or blank; name the type with Config.MessageType, or register a handler with HandleDefault", ErrNoType, headers.MessageTypes)
	}
	return fmt.Errorf("%w: %q; register one, or check the spelling", ErrNoHandler, bounded.Name(messageType))
}

// dispatch is the innermost handler: it runs the handlers registered for the type, in
// order, and records the one that failed.
func dispatch(ctx context.Context, m *Message) error {
	handlers := m.chooseHandlers()
	if m.Type == anyType && isControl(m.Headers) {
		m.deps.logSkippedControl(ctx, m)
		return nil
	}
	if handlers == nil {
		return noHandlerError(m.Type)
	}
	if handlers.independent {
		return dispatchIndependent(ctx, m, handlers)
	}
	current, began, failed := 0, time.Time{}, true
	defer func() { // also if the handler panics or ends its goroutine
		if failed {
			m.recordFailingHandler(&failingHandler{name: handlers.names[current], began: began, failed: time.Now()})
		}
	}()
	for i, handler := range handlers.handlers {
		current, began = i, time.Now()
		m.part = handlers.partOf(i)
		if err := handler(ctx, m); err != nil {
			return err
		}
		if m.skipsRemaining() {
			break
		}
	}
	failed = false
	return nil
}

// chooseHandlers returns the handlers for m's type, which middleware may have changed,
// and records both, with the body that middleware set.
func (m *Message) chooseHandlers() *handlerSet {
	outermost := m.outermost()
	outermost.mu.Lock()
	defer outermost.mu.Unlock()
	outermost.failing, outermost.handlersChosen = nil, true
	h := &outermost.selected
	if m.Type != h.messageType {
		m.Type, h.handlers = m.deps.registry.lookup(m.Type)
		h.messageType = m.Type
	}
	h.content = nil
	if m.replaced != nil && m.replaced.body != nil {
		h.content = &content{m.replaced.body, m.Headers}
	}
	return h.handlers
}

// dispatchIndependent runs all handlers, and records the deciding failure if several
// fail. If a message has several types, the handlers of one type may not be independent:
// they stop each other, but none of another type.
func dispatchIndependent(ctx context.Context, m *Message, handlers *handlerSet) error {
	var failures []HandlerFailure
	var failing []failingHandler
	useSavepoints := m.deps.composer.caps.Savepoints && m.transaction() != nil
	name, began, failed := "", time.Time{}, true
	defer func() { // also if a handler ends its goroutine
		if failed {
			m.recordFailingHandler(&failingHandler{name: name, began: began, failed: time.Now()})
		}
	}()
	fail := func(err error) {
		failures = append(failures, HandlerFailure{name, err})
		failing = append(failing, failingHandler{name: name, began: began, failed: time.Now()})
	}
	stopped, skipped := 0, false // handlers that are not independent and may not run: those before this index, or all
	for i, handler := range handlers.handlers {
		independent, end := handlers.independentAt(i)
		if !independent {
			if skipped || i < stopped {
				continue
			}
			m.setSkip(false) // which an independent handler has requested
		}
		m.part = handlers.partOf(i)
		name, began = handlers.names[i], time.Now()
		if ctx.Err() != nil {
			fail(fmt.Errorf("%w: %w", errNotRun, context.Cause(ctx)))
			break
		}
		if err, canContinue := runIndependent(ctx, m, handler, useSavepoints); err != nil {
			fail(err)
			if !canContinue {
				break
			}
			stopped = end
		}
		skipped = skipped || !independent && m.skipsRemaining()
	}
	failed = false
	if len(failures) == 0 {
		return nil
	}
	chosen := m.deps.decidingFailure(m, failures)
	m.recordFailingHandler(&failing[chosen])
	if len(failures) == 1 {
		return failures[0].Err
	}
	return &HandlersError{failures, failures[chosen].Err, len(handlers.handlers)}
}

// runIndependent runs one handler. canContinue is false if the next one cannot run.
func runIndependent(ctx context.Context, m *Message, handler HandlerFunc, useSavepoint bool) (err error, canContinue bool) {
	if !useSavepoint {
		return handler.callRecovered(ctx, m), true
	}
	savepoint, err := m.Savepoint(ctx)
	if err != nil {
		return err, false
	}
	if err = handler.callRecovered(ctx, m); err == nil {
		return nil, true
	}
	if rollbackErr := savepoint.Rollback(ctx); rollbackErr != nil {
		return &rollbackError{err, rollbackErr}, false
	}
	return err, true
}

// rollbackError is the failure of a handler whose work could not be undone alone.
type rollbackError struct{ err, rollback error }

func (e *rollbackError) Error() string { return e.err.Error() + "; " + e.rollback.Error() }
func (e *rollbackError) Unwrap() error { return e.err }

// decidingFailure returns the position of the failure that decides about the message.
func (deps *messageDeps) decidingFailure(m *Message, failures []HandlerFailure) int {
	config := deps.rules.configFor(m.Type)
	chosen, best := 0, precedence{}
	for i, f := range failures {
		if p := precedenceOf(f.Err, config, m); i == 0 || p.compare(best) < 0 {
			chosen, best = i, p
		}
	}
	return chosen
}

// precedence orders the failures of independent handlers. The lowest decides.
type precedence struct {
	rank  int
	delay time.Duration
}

// The ranks: first the failures that request another try, then those that end the
// message.
const (
	rankRetryAfter = iota
	rankError
	rankDefer
	rankRefused
	rankPutBack
	rankDeadLetter
	rankInvalid
	rankGiveUp
	rankGiveUpTo
	rankDiscard
)

func (p precedence) compare(other precedence) int {
	return cmp.Or(cmp.Compare(p.rank, other.rank), cmp.Compare(other.delay, p.delay))
}

// precedenceOf also handles errors whose methods panic.
func precedenceOf(err error, config RecoverabilityConfig, m *Message) (p precedence) {
	defer func() {
		if recover() != nil {
			p = precedence{rank: rankError}
		}
	}()
	v := VerdictOf(err)
	unrecoverable := func() bool { return config.IsUnrecoverable(err) }
	if v == nil {
		if unrecoverable() {
			return precedence{rank: rankGiveUp}
		}
		return precedence{rank: rankError}
	}
	switch a := v.Action; a.Kind {
	case ActionDelayedRetry:
		now := time.Now()
		failure := ErrorContext{FailedAt: now, FirstFailure: m.incoming.firstFailure(now), DelayedDeliveriesPerformed: m.DelayedRetries}
		if !config.grantsRetryAfter(failure) || unrecoverable() {
			return precedence{rank: rankGiveUp}
		}
		return precedence{rankRetryAfter, a.Delay}
	case ActionDefer:
		if config.settings.RequeueLimit > 0 && m.Deferrals >= config.settings.RequeueLimit || unrecoverable() {
			return precedence{rank: rankGiveUp}
		}
		return precedence{rankDefer, cmp.Or(a.Delay, config.settings.RequeueDelay)}
	case ActionRefuse:
		return precedence{rankRefused, a.Delay}
	case ActionPutBack:
		return precedence{rank: rankPutBack}
	case ActionDiscard:
		return precedence{rank: rankDiscard}
	}
	switch v.Action.Queue {
	case "":
		return precedence{rank: rankGiveUp}
	case DeadLetterQueue:
		return precedence{rank: rankDeadLetter}
	case InvalidQueue:
		return precedence{rank: rankInvalid}
	}
	return precedence{rank: rankGiveUpTo}
}

// HandlersError is the failure of several independent handlers
// ([HandleOptions.Independent]). It wraps the error that decides about the message; the
// others are only in Failures.
type HandlersError struct {
	// Failures are in the order in which the handlers ran.
	Failures []HandlerFailure

	deciding error
	handlers int // of the message type
}

// HandlerFailure is the failure of one handler.
type HandlerFailure struct {
	Handler string // the name of its function
	Err     error
}

// Error implements error.
func (e *HandlersError) Error() string {
	failures := make([]string, len(e.Failures))
	for i, f := range e.Failures {
		failures[i] = f.Handler + ": " + f.Err.Error()
	}
	return fmt.Sprintf("%d of %d handlers failed: %s", len(e.Failures), e.handlers, strings.Join(failures, "; "))
}

// Unwrap returns the error of the handler that decides.
func (e *HandlersError) Unwrap() error { return e.deciding }

// errNotRun is the failure of handlers that did not run.
var errNotRun = errors.New("the context ended before this handler ran")
