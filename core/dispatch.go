package core

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// This file chooses the handlers of a message and calls them. Of the messages that name
// no type, control messages are consumed, and all others fail.

// isControl reports whether a message is one of NServiceBus's control messages, which
// consist of headers only: an acknowledgement, a subscription.
func isControl(h Headers) bool { return strings.EqualFold(h.Get(HeaderControlMessage), "True") }

// logSkippedControl logs that a control message is consumed without a handler. For a
// subscription it logs a warning: the sender waits for events that never come.
func (deps *messageDeps) logSkippedControl(ctx context.Context, m *Message) {
	switch intent := m.Headers.Get(HeaderMessageIntent); intent {
	case intentSubscribe, intentUnsubscribe:
		deps.log.WarnContext(ctx, "a subscription by message is ignored; events go to those who subscribed at the transport: let the subscriber use the same transport's own subscriptions",
			"message_id", m.ID, "intent", intent, "topic", m.Headers.Get(headerSubscriptionType),
			"subscriber", firstNonEmpty(m.Headers.Get(headerSubscriberAddress), m.Headers.Get(HeaderReplyToAddress)))
	default:
		deps.log.DebugContext(ctx, "control message consumed; no handler is asked for one that names no type",
			"message_id", m.ID, "intent", intent, "originating_endpoint", m.Headers.Get(HeaderOriginatingEndpoint))
	}
}

// noHandlerError returns the failure of a message that has no handler.
func noHandlerError(messageType string) error {
	if messageType == anyType {
		return fmt.Errorf("%w: its header %s is missing or blank; name the type with Config.MessageType, or register a handler with HandleDefault", ErrNoType, HeaderMessageTypes)
	}
	return fmt.Errorf("%w: %q; register one, or check the spelling", ErrNoHandler, messageType)
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
		m.typeScope = handlers.scopeOf(i)
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
	h := &outermost.handling
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
