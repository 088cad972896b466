// Package condition has the errors of Service Bus, which clients recognize by their conditions.
package condition

import (
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
)

// An Error is a refusal with the condition by which clients of Service Bus recognize it.
type Error struct {
	Condition   amqp10.Symbol
	Description string
}

// Error returns the condition and the description.
func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Condition, e.Description) }

// The conditions of [Error], as in the documentation's page service-bus-amqp-protocol-guide
// and in the table of azservicebus v1.11.0, internal/errors.go.
const (
	NotFound            = amqp10.ErrNotFound
	NotAllowed          = amqp10.ErrNotAllowed
	NotImplemented      = amqp10.ErrNotImplemented
	InvalidField        = amqp10.ErrInvalidField
	InternalError       = amqp10.ErrInternal
	ResourceLimit       = amqp10.ErrResourceLimitExceeded
	MessageSize         = amqp10.ErrMessageSizeExceeded
	ResourceDeleted     = amqp10.ErrResourceDeleted
	DetachForced        = amqp10.ErrDetachForced
	MessageLockLost     = amqp10.Symbol("com.microsoft:message-lock-lost")
	SessionLockLost     = amqp10.Symbol("com.microsoft:session-lock-lost")
	SessionCannotLock   = amqp10.Symbol("com.microsoft:session-cannot-be-locked")
	MessageNotFound     = amqp10.Symbol("com.microsoft:message-not-found")
	SessionNotFound     = amqp10.Symbol("com.microsoft:session-not-found")
	EntityDisabled      = amqp10.Symbol("com.microsoft:entity-disabled")
	EntityAlreadyExists = amqp10.Symbol("com.microsoft:entity-already-exists")
	Timeout             = amqp10.Symbol("com.microsoft:timeout")
	Argument            = amqp10.Symbol("com.microsoft:argument-error")
	ArgumentRange       = amqp10.Symbol("com.microsoft:argument-out-of-range")
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
func Errorf(condition amqp10.Symbol, format string, args ...any) *Error {
	return &Error{Condition: condition, Description: fmt.Sprintf(format, args...)}
}

// Of returns the condition of an error of this package, InternalError for any other.
func Of(err error) amqp10.Symbol {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Condition
	}
	return InternalError
}
