package core

import "errors"

// For authors of adapters. This file has the errors that an adapter returns.

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
