package core

import (
	"errors"
	"fmt"
	"time"
)

// A verdict is an error with which a handler decides what happens to its
// message, instead of leaving it to the recoverability policy. It is found
// through any wrapping. Where an error holds several, the first of these holds:
// Discard, MoveTo, Reject, Unrecoverable, Defer, RetryAfter.
type verdict struct {
	kind   verdictKind
	err    error // the failure, or nil
	delay  time.Duration
	queue  string
	reason string
}

type verdictKind int

// In the order of precedence.
const (
	verdictNone verdictKind = iota
	verdictDiscard
	verdictMoveTo
	verdictReject
	verdictUnrecoverable
	verdictDefer
	verdictRetryAfter
)

// Defer asks for the message to come again after delay, counted apart from
// failures. 0 is the endpoint's RequeueDelay. After RequeueLimit deferrals the
// message goes to the error queue.
func Defer(delay time.Duration) error { return &verdict{kind: verdictDefer, delay: delay} }

// DeferError is Defer with the error that was the reason. If err is nil, so is
// the result.
func DeferError(err error, delay time.Duration) error {
	if err == nil {
		return nil
	}
	return &verdict{kind: verdictDefer, delay: delay, err: err}
}

// Reject moves the message to the error queue without a retry, or to the
// broker's own dead-letter queue where Recoverability.DeadLetter is set.
func Reject(err error) error { return &verdict{kind: verdictReject, err: err} }

// Unrecoverable moves the message to the error queue without a retry. If err is
// nil, so is the result.
func Unrecoverable(err error) error {
	if err == nil {
		return nil
	}
	return &verdict{kind: verdictUnrecoverable, err: err}
}

// Discard drops the message: it goes neither to the error queue nor to the
// audit queue. The reason is logged.
func Discard(reason string) error { return &verdict{kind: verdictDiscard, reason: reason} }

// MoveTo moves the message to the given queue as a failed one. The queue must
// exist; where it does not, the message goes to the error queue.
func MoveTo(queue string, err error) error {
	return &verdict{kind: verdictMoveTo, queue: queue, err: err}
}

// RetryAfter asks for one delayed retry with this delay, skipping immediate
// retries. When the configured number of delayed retries has been used up, the
// message goes to the error queue. If err is nil, so is the result.
func RetryAfter(err error, delay time.Duration) error {
	if err == nil {
		return nil
	}
	return &verdict{kind: verdictRetryAfter, delay: delay, err: err}
}

// IsVerdict reports whether err holds a verdict. Retry middleware must pass
// such an error on instead of running the handler again.
func IsVerdict(err error) bool { return findVerdict(err) != nil }

// Error implements error.
func (v *verdict) Error() string {
	switch {
	case v.kind == verdictDiscard:
		return "message discarded: " + v.reason
	case v.err != nil:
		return v.err.Error()
	case v.kind == verdictDefer && v.delay == 0:
		return "message deferred"
	case v.kind == verdictDefer:
		return fmt.Sprintf("message deferred for %v", v.delay)
	case v.kind == verdictMoveTo:
		return fmt.Sprintf("handler moved the message to %q", v.queue)
	default:
		return "handler rejected the message"
	}
}

// Unwrap returns the failure.
func (v *verdict) Unwrap() error { return v.err }

// findVerdict returns the verdict of highest precedence in err's tree, or nil.
func findVerdict(err error) *verdict {
	var found *verdict
	for err != nil {
		if v, ok := err.(*verdict); ok && (found == nil || v.kind < found.kind) {
			found = v
		}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, branch := range joined.Unwrap() {
				if v := findVerdict(branch); v != nil && (found == nil || v.kind < found.kind) {
					found = v
				}
			}
			return found
		}
		err = errors.Unwrap(err)
	}
	return found
}
