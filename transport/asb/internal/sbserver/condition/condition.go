// Package condition has the errors of Service Bus, which clients recognize by their conditions.
package condition

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
	NotFound            = amqp.ErrCondNotFound
	NotAllowed          = amqp.ErrCondNotAllowed
	NotImplemented      = amqp.ErrCondNotImplemented
	InvalidField        = amqp.ErrCondInvalidField
	InternalError       = amqp.ErrCondInternalError
	ResourceLimit       = amqp.ErrCondResourceLimitExceeded
	MessageSize         = amqp.ErrCondMessageSizeExceeded
	ResourceDeleted     = amqp.ErrCondResourceDeleted
	DetachForced        = amqp.ErrCondDetachForced
	MessageLockLost     = amqp.ErrCond("com.microsoft:message-lock-lost")
	SessionLockLost     = amqp.ErrCond("com.microsoft:session-lock-lost")
	SessionCannotLock   = amqp.ErrCond("com.microsoft:session-cannot-be-locked")
	MessageNotFound     = amqp.ErrCond("com.microsoft:message-not-found")
	SessionNotFound     = amqp.ErrCond("com.microsoft:session-not-found")
	EntityDisabled      = amqp.ErrCond("com.microsoft:entity-disabled")
	EntityAlreadyExists = amqp.ErrCond("com.microsoft:entity-already-exists")
	Timeout             = amqp.ErrCond("com.microsoft:timeout")
	Argument            = amqp.ErrCond("com.microsoft:argument-error")
	ArgumentRange       = amqp.ErrCond("com.microsoft:argument-out-of-range")
)

// Status returns the status code of an error in replies on $management: 410 for a lost lock,
// 404 for an entity, session or message that does not exist, and so on.
func (e *Error) Status() int32 {
	switch e.Condition {
	case MessageLockLost, SessionLockLost, SessionCannotLock, ResourceDeleted:
		return 410
	case NotFound, MessageNotFound, SessionNotFound:
		return 404
	case EntityDisabled, NotAllowed, ResourceLimit, MessageSize:
		return 403
	case EntityAlreadyExists:
		return 409
	case Timeout:
		return 408
	case Argument, ArgumentRange, InvalidField:
		return 400
	case NotImplemented:
		return 501
	}
	return 500
}

// Errorf returns an error with a condition.
func Errorf(condition amqp.ErrCond, format string, args ...any) *Error {
	return &Error{Condition: condition, Description: fmt.Sprintf(format, args...)}
}

// Of returns the condition of an error of this package, InternalError for any other.
func Of(err error) amqp.ErrCond {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Condition
	}
	return InternalError
}
