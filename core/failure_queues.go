package core

import (
	"errors"
	"fmt"
)

// This file is about the queues besides the error queue: the queue that a failed message
// goes to, and the reason in its header.

// DeadLetters selects the failed messages that go to a dead-letter queue instead of the
// error queue (R62).
type DeadLetters int

// The messages that are dead-lettered.
const (
	// DeadLettersNone: no message is. The default.
	DeadLettersNone DeadLetters = iota
	// DeadLettersRejected: messages that a handler rejected ([Reject]).
	DeadLettersRejected
	// DeadLettersAll: every message that would go to the error queue. Messages that [MoveTo]
	// or a [Policy] moves to a named queue go to that queue.
	DeadLettersAll
)

// deadLettersNames are the names in a configuration file.
var deadLettersNames = [...]string{DeadLettersNone: "None", DeadLettersRejected: "Rejected", DeadLettersAll: "All"}

// String returns the name as a configuration file writes it.
func (d DeadLetters) String() string {
	if d >= 0 && int(d) < len(deadLettersNames) {
		return deadLettersNames[d]
	}
	return fmt.Sprintf("DeadLetters(%d)", int(d))
}

// FailureReason is one word for why a message is in a dead-letter or invalid queue: the
// reason of [Delivery.DeadLetter], and the header [HeaderFailureReason].
type FailureReason string

// The reasons.
const (
	FailureRejected         FailureReason = "Rejected"         // its handler rejected it (Reject)
	FailureInvalid          FailureReason = "Invalid"          // its handler found it invalid (Invalid)
	FailureUnrecoverable    FailureReason = "Unrecoverable"    // an error that is not retried
	FailureRetriesExhausted FailureReason = "RetriesExhausted" // the retries were used up, or a Policy gave it up
	FailureDeferralLimit    FailureReason = "DeferralLimit"    // RequeueLimit was used up
	FailureDeliveryLimit    FailureReason = "DeliveryLimit"    // MaxDeliveries was used up
	FailureUndecodable      FailureReason = "Undecodable"      // its body cannot be decoded, or it names no type
	FailureMalformed        FailureReason = "Malformed"        // the transport cannot read it
	FailureNoHandler        FailureReason = "NoHandler"        // no handler is registered for its type
)

// DeadLetter has the reason and headers with which a message is dead-lettered.
type DeadLetter struct {
	// Reason is one word, and Description a text of at most 4 KiB.
	Reason      FailureReason
	Description string

	// Headers are all headers of the dead letter: those of the message and those of its
	// failure. A broker that can only add headers to a message keeps the headers that are
	// not among them. If Headers is empty, the message keeps its own.
	Headers Headers
}

// failureReason returns the reason why a message is given up.
func (r *rules) failureReason(config RecoverabilityConfig, f failure, d *decision) (reason FailureReason) {
	defer func() {
		if recover() != nil { // a method of the error panicked
			reason = FailureRetriesExhausted
		}
	}()
	v := VerdictOf(f.Err)
	switch {
	case errors.Is(f.Err, ErrMalformed):
		return FailureMalformed
	case errors.Is(f.Err, ErrDeliveryCountExceeded):
		return FailureDeliveryLimit
	case errors.Is(d.err, ErrRequeueLimitExceeded):
		return FailureDeferralLimit
	case v != nil && v.Kind == VerdictReject:
		return FailureRejected
	case v != nil && v.Kind == VerdictInvalid:
		return FailureInvalid
	case errors.Is(f.Err, ErrUndecodable), errors.Is(f.Err, ErrNoType):
		return FailureUndecodable
	case errors.Is(f.Err, ErrNoHandler):
		return FailureNoHandler
	case config.isUnrecoverableWith(v, f.Err):
		return FailureUnrecoverable
	default:
		return FailureRetriesExhausted
	}
}

// chooseErrorQueue chooses the queue of a message if neither a verdict nor a policy has
// named one (R62, R63).
func (r *rules) chooseErrorQueue(config RecoverabilityConfig, f failure, d *decision) {
	reason := r.failureReason(config, f, d)
	d.action.Queue, d.deadLetter = config.Failed.ErrorQueue, false
	switch {
	case config.settings.InvalidQueue != "" && isInvalid(reason):
		d.action.Queue, d.reason = config.settings.InvalidQueue, reason
	case r.deadLetters == DeadLettersAll, r.deadLetters == DeadLettersRejected && reason == FailureRejected:
		d.reason = reason
		if config.settings.DeadLetterQueue != "" {
			d.action.Queue = config.settings.DeadLetterQueue
		} else {
			d.deadLetter = true
		}
	}
}

// isInvalid reports whether a message with that reason belongs in the invalid queue: no retry and no other version of its data
// would help, only another sender.
func isInvalid(reason FailureReason) bool {
	return reason == FailureMalformed || reason == FailureUndecodable || reason == FailureInvalid
}
