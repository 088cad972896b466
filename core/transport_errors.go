// For authors of adapters. This file has the errors that an adapter returns.

package core

import (
	"errors"
	"fmt"
	"strings"

	"github.com/reprise-go/reprise/internal/bounded"
)

// Errors that an adapter returns, wrapped with its own context.
var (
	// ErrSettled: the delivery was settled before.
	ErrSettled = errors.New("delivery is settled already")

	// ErrLockLost: the delivery's lock was lost; the message is redelivered. It is also
	// the cause with which the handler's context is then cancelled.
	ErrLockLost = errors.New("lock on the message was lost")

	// ErrUncounted: a message that failed was given back, but the broker could not note the
	// delivery in its count. The error also matches [ErrLockLost], is a critical error,
	// and says why.
	ErrUncounted = errors.New("the failed delivery could not be counted")

	// ErrClosed: the receiver or transport was closed.
	ErrClosed = errors.New("transport or receiver is closed")

	// ErrQueueNotFound: the queue does not exist.
	ErrQueueNotFound = errors.New("queue does not exist")

	// ErrNoSubscriber: an event that requires a subscriber has none
	// ([SendOptions.RequireSubscriber]).
	ErrNoSubscriber = errors.New("the event has no subscriber")

	// ErrUnavailable: the broker cannot be reached, or cannot serve for now: the same call
	// may succeed later without a change by anybody. The error wraps its cause. If the
	// broker has not answered before the deadline of the call's context, the error matches
	// context.DeadlineExceeded too.
	ErrUnavailable = errors.New("broker is unavailable")

	// ErrMessageRefused: the broker refuses the message for its content, such as a value that a
	// constraint of its table forbids. It says nothing about the connection, and the broker
	// may accept another message.
	ErrMessageRefused = errors.New("the broker refuses the message for its content")

	// ErrInvalidHeader: a header's key or value is not UTF-8, or the key is
	// empty.
	ErrInvalidHeader = errors.New("invalid header")
)

// TooLargeError says which limit of the transport a message exceeds.
type TooLargeError struct {
	Limit string // the field of Capabilities, such as "MaxMessageBytes", or a limit of the broker
	Max   int    // its value, in bytes
	Size  int    // the message's, in bytes
}

// Error implements error.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("message is too large: %s is %d, the message has %d", e.Limit, e.Max, e.Size)
}

// Is reports that a *TooLargeError matches [ErrTooLarge].
func (e *TooLargeError) Is(target error) bool { return target == ErrTooLarge }

// ErrTooLarge matches every [*TooLargeError].
var ErrTooLarge = errors.New("message is too large")

// SendState is the outcome of one message of a failed Send.
type SendState int

const (
	// SendUnknown: it may or may not have been accepted (a lost confirm).
	SendUnknown SendState = iota
	// SendRefused: it was not accepted.
	SendRefused
	// SendAccepted: it was durably accepted.
	SendAccepted
)

// String returns the state in lower case.
func (s SendState) String() string {
	switch s {
	case SendUnknown:
		return "unknown"
	case SendRefused:
		return "refused"
	case SendAccepted:
		return "accepted"
	default:
		return fmt.Sprintf("SendState(%d)", int(s))
	}
}

// SendResult is the outcome for one message of a failed Send.
type SendResult struct {
	ID    string // Outgoing.ID
	To    string // its queue or topic
	State SendState
	Err   error // nil when accepted
}

// SendError has the outcome of each message of a Send that did not wholly succeed, in the
// order in which they were given.
type SendError struct {
	Results []SendResult
}

// Error implements error.
func (e *SendError) Error() string {
	var b strings.Builder
	failed := 0
	for _, r := range e.Results {
		if r.State != SendAccepted {
			failed++
		}
	}
	separator := ""
	if len(e.Results) != 1 {
		fmt.Fprintf(&b, "%d of %d messages not accepted", failed, len(e.Results))
		separator = "; "
	}
	shown := 0
	for _, r := range e.Results {
		if r.State == SendAccepted {
			continue
		}
		if shown == 3 {
			b.WriteString("; ...")
			break
		}
		shown++
		b.WriteString(separator)
		fmt.Fprintf(&b, "message %s to %q %s: %v", bounded.Name(r.ID), bounded.Name(r.To), r.State, r.Err)
	}
	return b.String()
}

// Unwrap returns the messages' errors.
func (e *SendError) Unwrap() []error {
	var errs []error
	for _, r := range e.Results {
		if r.Err != nil {
			errs = append(errs, r.Err)
		}
	}
	return errs
}

// permanentErrors are the errors of sends that no repetition of the same call can fix.
var permanentErrors = []error{ErrQueueNotFound, ErrNoSubscriber, ErrTooLarge, ErrInvalidHeader, errors.ErrUnsupported, errName}

// NameError says why a transport does not accept the name of a queue or a topic.
// [Transport.Address] and CheckTopic of a [Subscriber] return it, and the methods that get
// such a name.
type NameError struct {
	Kind   string // "queue" or "topic"
	Name   string
	Max    int    // the limit that the name exceeds, [Limits.MaxQueueName] or [Limits.MaxTopicName]; otherwise 0
	Reason string // the text of the error, with the way to fix it
}

// Error implements error.
func (e *NameError) Error() string { return e.Reason }

// Is reports that a name is a permanent error.
func (e *NameError) Is(target error) bool { return target == errName }

// errName matches every *NameError.
var errName = errors.New("the name is not accepted")

// IsPermanent reports whether the same call of a transport, made again, would fail again:
// the queue does not exist, the message or a name is refused, an ability is not claimed
// (errors.ErrUnsupported), the lock is lost, the delivery is settled, or the transport is
// closed. Of a [*SendError] it reports whether one of the messages was refused for such a
// reason. The engine classifies the errors of sends in this way. All other errors may be
// transient; of those that match [ErrUnavailable] the adapter knows it.
func IsPermanent(err error) bool {
	if sent, ok := errors.AsType[*SendError](err); ok {
		for i := range sent.Results {
			if r := &sent.Results[i]; r.State == SendRefused && IsPermanent(r.Err) {
				return true
			}
		}
		return false
	}
	return matchesAny(err, permanentErrors) || matchesAny(err, []error{ErrLockLost, ErrSettled, ErrClosed})
}

func matchesAny(err error, targets []error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
