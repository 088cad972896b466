package broker

import (
	"errors"
	"fmt"

	"github.com/Azure/go-amqp"
)

// An Error is a refusal with the condition by which clients of Service Bus recognize it.
type Error struct {
	Condition   amqp.ErrCond
	Description string
}

// Error returns the condition and the description.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Condition, e.Description) }

// The conditions of [Error], as in the documentation's page service-bus-amqp-protocol-guide
// and in the table of azservicebus v1.11.0, internal/errors.go.
const (
	CondNotFound            = amqp.ErrCondNotFound
	CondNotAllowed          = amqp.ErrCondNotAllowed
	CondNotImplemented      = amqp.ErrCondNotImplemented
	CondInvalidField        = amqp.ErrCondInvalidField
	CondInternalError       = amqp.ErrCondInternalError
	CondResourceLimit       = amqp.ErrCondResourceLimitExceeded
	CondMessageSize         = amqp.ErrCondMessageSizeExceeded
	CondResourceDeleted     = amqp.ErrCondResourceDeleted
	CondDetachForced        = amqp.ErrCondDetachForced
	CondMessageLockLost     = amqp.ErrCond("com.microsoft:message-lock-lost")
	CondSessionLockLost     = amqp.ErrCond("com.microsoft:session-lock-lost")
	CondSessionCannotLock   = amqp.ErrCond("com.microsoft:session-cannot-be-locked")
	CondMessageNotFound     = amqp.ErrCond("com.microsoft:message-not-found")
	CondSessionNotFound     = amqp.ErrCond("com.microsoft:session-not-found")
	CondEntityDisabled      = amqp.ErrCond("com.microsoft:entity-disabled")
	CondEntityAlreadyExists = amqp.ErrCond("com.microsoft:entity-already-exists")
	CondTimeout             = amqp.ErrCond("com.microsoft:timeout")
	CondArgument            = amqp.ErrCond("com.microsoft:argument-error")
	CondArgumentRange       = amqp.ErrCond("com.microsoft:argument-out-of-range")
)

// Status returns the status code of an error in replies on $management: 410 for a lost lock,
// 404 for an entity, session or message that does not exist, and so on.
func (e *Error) Status() int32 {
	switch e.Condition {
	case CondMessageLockLost, CondSessionLockLost, CondSessionCannotLock, CondResourceDeleted:
		return 410
	case CondNotFound, CondMessageNotFound, CondSessionNotFound:
		return 404
	case CondEntityDisabled, CondNotAllowed, CondResourceLimit, CondMessageSize:
		return 403
	case CondEntityAlreadyExists:
		return 409
	case CondTimeout:
		return 408
	case CondArgument, CondArgumentRange, CondInvalidField:
		return 400
	case CondNotImplemented:
		return 501
	}
	return 500
}

func errorf(condition amqp.ErrCond, format string, args ...any) *Error {
	return &Error{Condition: condition, Description: fmt.Sprintf(format, args...)}
}

// Condition returns the condition of an error of this package, CondInternalError for any other.
func Condition(err error) amqp.ErrCond {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Condition
	}
	return CondInternalError
}
