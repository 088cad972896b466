package core

import "errors"

// reason says why a message has its decision. It feeds the header, the log and the
// observers.
type reason struct {
	kind  FailureReason // of a MoveToError
	text  string        // the requested action, and why it cannot be fulfilled (R8), or ""
	err   error         // the failure to report: the handler's, or one that wraps it
	cause error         // the error of the policy (R12), or nil
}

// FailureReason is one word for why a message was given up: the reason of
// [Delivery.DeadLetter], and the header [HeaderFailureReason].
type FailureReason string

// The reasons.
const (
	FailureRejected         FailureReason = "Rejected"         // its handler rejected it (Reject)
	FailureInvalid          FailureReason = "Invalid"          // its handler found it invalid (Invalid)
	FailureUnrecoverable    FailureReason = "Unrecoverable"    // an error that is not retried
	FailureRetriesExhausted FailureReason = "RetriesExhausted" // the retries were used up, or a Policy or MoveTo gave it up
	FailureDeferralLimit    FailureReason = "DeferralLimit"    // RequeueLimit was used up
	FailureDeliveryLimit    FailureReason = "DeliveryLimit"    // MaxDeliveries was used up
	FailureUndecodable      FailureReason = "Undecodable"      // its body cannot be decoded, or it names no type
	FailureMalformed        FailureReason = "Malformed"        // the transport cannot read it
	FailureNoHandler        FailureReason = "NoHandler"        // no handler is registered for its type
	FailureCommitRefused    FailureReason = "CommitRefused"    // messages that its handler has committed were refused (Message.Commit)
)

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
	case errors.Is(d.reason.err, ErrRequeueLimitExceeded):
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
