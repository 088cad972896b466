package core

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Errors that an adapter returns, wrapped with its own context.
var (
	// ErrSettled: the delivery was settled before (C5).
	ErrSettled = errors.New("delivery is settled already")

	// ErrLockLost: the delivery's lock was lost; the message is redelivered (C6). It is also
	// the cause with which the handler's context is then cancelled.
	ErrLockLost = errors.New("lock on the message was lost")

	// ErrUncounted: a message that failed was given back, but the broker could not note the
	// delivery in its count (C9). The error also matches [ErrLockLost], is a critical error,
	// and says why.
	ErrUncounted = errors.New("the failed delivery could not be counted")

	// ErrClosed: the receiver or transport was closed.
	ErrClosed = errors.New("transport or receiver is closed")

	// ErrQueueNotFound: the queue does not exist.
	ErrQueueNotFound = errors.New("queue does not exist")

	// ErrUnavailable: the broker cannot be reached, or cannot serve for now: the same call
	// may succeed later without a change by anybody (C15).
	ErrUnavailable = errors.New("broker is unavailable")

	// ErrInvalidHeader: a header's key or value is not UTF-8, or the key is
	// empty (C10).
	ErrInvalidHeader = errors.New("invalid header")
)

// TooLargeError says which limit of the transport a message exceeds (C10).
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
		fmt.Fprintf(&b, "message %s to %q %s: %v", r.ID, r.To, r.State, r.Err)
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

// asSendError returns the SendError in err, if it has this number of messages.
func asSendError(err error, messages int) (*SendError, bool) {
	sent, ok := errors.AsType[*SendError](err)
	return sent, ok && len(sent.Results) == messages
}

// wrapSendError returns the error of an attempt whose sends failed with err.
func wrapSendError(err error, out []Outgoing) error {
	if err == nil {
		return nil
	}
	if slices.ContainsFunc(out, func(o Outgoing) bool { return isRefusedPermanently(err, o.ID) }) {
		return fmt.Errorf("%w: %w", ErrSendRefused, err)
	}
	return err
}

// isRefusedWith reports whether a message was refused with the error target, not merely
// because of another message in the same call.
func isRefusedWith(err error, id string, target error) bool {
	sent, ok := errors.AsType[*SendError](err)
	if !ok {
		return errors.Is(err, target)
	}
	return slices.ContainsFunc(sent.Results, func(r SendResult) bool {
		return r.ID == id && r.State == SendRefused && errors.Is(r.Err, target)
	})
}

// refusalOfType returns the error of that type with which a message was refused.
func refusalOfType[E error](err error, id string) (refusal E, ok bool) {
	sent, isSend := errors.AsType[*SendError](err)
	if !isSend {
		return errors.AsType[E](err)
	}
	for _, r := range sent.Results {
		if r.ID == id && r.State == SendRefused {
			if refusal, ok = errors.AsType[E](r.Err); ok {
				return refusal, true
			}
		}
	}
	return refusal, false
}

// isRefusedPermanently reports whether sending the message again cannot help.
func isRefusedPermanently(err error, id string) bool {
	for _, target := range []error{ErrQueueNotFound, ErrTooLarge, ErrInvalidHeader, errors.ErrUnsupported} {
		if isRefusedWith(err, id, target) {
			return true
		}
	}
	return false
}

// failedByQueue reports whether a send failed because of its queue, not because of the
// message.
func failedByQueue(err error, id string) bool {
	return !isRefusedPermanently(err, id) || isRefusedWith(err, id, ErrQueueNotFound)
}
