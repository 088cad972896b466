package core

import (
	"context"
	"fmt"
	"strings"
)

// This file handles messages that no handler is called for because they name no type:
// control messages, which are consumed, and all others, which fail.

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
