package core

import (
	"errors"

	"github.com/reprise-go/reprise/core/headers"
)

// reason says why a message has its decision. It feeds the header, the log and the
// observers.
type reason struct {
	kind  headers.Failure // of a MoveToError
	text  string          // the requested action, and why it cannot be fulfilled (R8), or ""
	err   error           // the failure to report: the handler's, or one that wraps it
	cause error           // the error of the policy (R12), or nil
}

// failureReason returns the reason why a message is given up.
func (r *rules) failureReason(config RecoverabilityConfig, f failure, d *decision) (reason headers.Failure) {
	defer func() {
		if recover() != nil { // a method of the error panicked
			reason = headers.FailureRetriesExhausted
		}
	}()
	v := VerdictOf(f.Err)
	switch {
	case errors.Is(f.Err, ErrMalformed):
		return headers.FailureMalformed
	case errors.Is(f.Err, ErrDeliveryCountExceeded):
		return headers.FailureDeliveryLimit
	case errors.Is(d.reason.err, ErrRequeueLimitExceeded):
		return headers.FailureRequeueLimit
	case v.is(ActionMoveToError) && v.Action.Queue == DeadLetterQueue:
		return headers.FailureRejected
	case v.is(ActionMoveToError) && v.Action.Queue == InvalidQueue:
		return headers.FailureInvalid
	case v.is(ActionMoveToError) && v.Action.Queue != "":
		return headers.FailureMovedByHandler
	case errors.Is(f.Err, ErrUndecodable), errors.Is(f.Err, ErrNoType):
		return headers.FailureUndecodable
	case errors.Is(f.Err, ErrNoHandler):
		return headers.FailureNoHandler
	case config.IsUnrecoverable(f.Err):
		return headers.FailureUnrecoverable
	default:
		return headers.FailureRetriesExhausted
	}
}
