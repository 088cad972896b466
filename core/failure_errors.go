package core

import (
	"errors"
	"fmt"
)

// Errors with which messages fail.
var (
	// ErrNoHandler: no handler is registered for the message's type. It is an
	// ordinary failure, so that an instance of a newer version can still take
	// the message; put it in [Recoverability.Unrecoverable] to change that.
	ErrNoHandler = errors.New("no handler for the message type")

	// ErrNoType: the message names no type (no header NServiceBus.EnclosedMessageTypes, or a
	// blank one), [Config.MessageType] and middleware gave it none, and there is no default
	// handler. It is unrecoverable (R6): no instance can choose a handler for it.
	ErrNoType = errors.New("the message names no type")

	// ErrUndecodable matches a body that its codec could not decode.
	// It is unrecoverable (R6).
	ErrUndecodable = errors.New("body cannot be decoded")

	// ErrMalformed matches a message that the transport could not parse.
	// It is unrecoverable (R6).
	ErrMalformed = errors.New("message cannot be parsed")

	// ErrDeliveryCountExceeded: the message was delivered more often than [MaxDeliveries],
	// for example because it kills its process (R34).
	ErrDeliveryCountExceeded = errors.New("delivered more often than MaxDeliveries")

	// ErrRequeueLimitExceeded matches the failure of a message that its handler
	// deferred more often than RequeueLimit allows: a [*RequeueLimitError].
	ErrRequeueLimitExceeded = errors.New("deferred more often than RequeueLimit")

	// ErrCircuitOpen matches the error with which middleware refuses a message because a
	// circuit breaker is open: no handler was called.
	ErrCircuitOpen = errors.New("the circuit is open")

	// ErrSendRefused matches the failure of an attempt whose sends the transport refused for
	// a permanent reason: the queue does not exist, the message is too large, the transport
	// lacks the ability. It is unrecoverable (R6): another run of the handler would repeat
	// its effects and fail again.
	ErrSendRefused = errors.New("a message that the handler sent was refused")

	// ErrNoReplyAddress: Reply was called for a message without a reply address.
	ErrNoReplyAddress = errors.New("message has no reply address; its sender must have a queue or set SendOptions.ReplyTo")

	// ErrHandlingEnded: a method of a [Message] was called after its handling had ended.
	ErrHandlingEnded = errors.New("handling of the message has ended; send before the handler returns, or with Endpoint.Send")
)

// Errors of Run, and causes of a handler's cancelled context.
var (
	// ErrShutdown is the cause with which handlers' contexts are cancelled when
	// the drain took too long.
	ErrShutdown = errors.New("endpoint is shutting down")

	// ErrHandlersRunning: handlers, a policy or [HandleFailed] did not return after their
	// contexts had been cancelled. Their messages were not settled and are redelivered.
	ErrHandlersRunning = errors.New("handlers are still running")

	// ErrHandlerTimeout is the cause with which a handler's context is cancelled when
	// [Config.HandlerTimeout] ended, and matches the failure of such an attempt.
	ErrHandlerTimeout = errors.New("handler timeout")

	// ErrUnacceptableMessageLimit: [Recoverability.UnacceptableMessageLimit] messages failed
	// permanently (R50). [Endpoint.Run] returns it, and may be called again; if the endpoint
	// is parked it is a critical error.
	ErrUnacceptableMessageLimit = errors.New("unacceptable message limit reached")
)

// PanicError is the failure of a handler that panicked (R26).
type PanicError struct {
	Value any    // the argument of panic
	Stack []byte // of the goroutine, from the code that panicked on, without frames of this package below it
}

// Error implements error.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// panicIn returns the panic in err, or nil. Of several independent handlers it may be that of
// one that does not decide.
func panicIn(err error) *PanicError {
	if p, ok := errors.AsType[*PanicError](err); ok {
		return p
	}
	if several, ok := errors.AsType[*HandlersError](err); ok {
		for _, failure := range several.Failures {
			if p, ok := errors.AsType[*PanicError](failure.Err); ok {
				return p
			}
		}
	}
	return nil
}

// MalformedError is the failure of a message that the transport could not parse.
type MalformedError struct {
	Err error // Incoming.Malformed
}

// Error implements error.
func (e *MalformedError) Error() string { return fmt.Sprintf("%v: %v", ErrMalformed, e.Err) }

// Unwrap returns the transport's error.
func (e *MalformedError) Unwrap() error { return e.Err }

// Is reports that a *MalformedError matches [ErrMalformed].
func (e *MalformedError) Is(target error) bool { return target == ErrMalformed }

// DecodeError is the failure of a message whose body could not be decoded.
type DecodeError struct {
	MessageType string
	ContentType string
	Err         error
}

// Error implements error.
func (e *DecodeError) Error() string {
	return fmt.Sprintf("decode %q from %s: %v", e.MessageType, e.ContentType, e.Err)
}

// Unwrap returns the codec's error.
func (e *DecodeError) Unwrap() error { return e.Err }

// Is reports that a *DecodeError matches [ErrUndecodable].
func (e *DecodeError) Is(target error) bool { return target == ErrUndecodable }

// RequeueLimitError is the failure of a message that its handler deferred more
// often than RequeueLimit allows.
type RequeueLimitError struct {
	Limit int   // the RequeueLimit in force
	Err   error // the handler's error
}

// Error implements error.
func (e *RequeueLimitError) Error() string {
	return fmt.Sprintf("%v (%d): %v", ErrRequeueLimitExceeded, e.Limit, e.Err)
}

// Unwrap returns the handler's error.
func (e *RequeueLimitError) Unwrap() error { return e.Err }

// Is reports that a *RequeueLimitError matches [ErrRequeueLimitExceeded].
func (e *RequeueLimitError) Is(target error) bool { return target == ErrRequeueLimitExceeded }
