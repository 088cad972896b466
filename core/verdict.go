package core

import (
	"errors"
	"fmt"
	"time"
)

// Verdict is an error with which a handler decides about its message, instead of leaving
// that to the recoverability policy. [Defer], [Reject] and the other functions below make
// one. It may be wrapped. If an error has several verdicts, the verdict whose Kind comes
// first counts.
type Verdict struct {
	Kind   VerdictKind
	Err    error         // the failure, or nil
	Delay  time.Duration // of Defer and RetryAfter; the pause of PutBack
	Queue  string        // of MoveTo
	Reason string        // of Discard

	// Refused: middleware did not let the message reach its handlers ([Refuse]).
	Refused bool
}

// VerdictKind is the kind of a [Verdict].
type VerdictKind int

// The kinds of verdict, in the order of precedence.
const (
	VerdictDiscard VerdictKind = iota + 1
	VerdictMoveTo
	VerdictReject
	VerdictInvalid
	VerdictUnrecoverable
	VerdictPutBack
	VerdictDefer
	VerdictRetryAfter
)

// Defer requests redelivery of the message after delay. Deferrals are counted separately
// from failures. A delay of 0 or less means the endpoint's RequeueDelay. After
// RequeueLimit deferrals the message goes to the error queue.
func Defer(delay time.Duration) error {
	return &Verdict{Kind: VerdictDefer, Delay: max(delay, 0)}
}

// DeferError is [Defer] with an error as the reason. If err is nil, so is the result.
func DeferError(err error, delay time.Duration) error {
	if err == nil {
		return nil
	}
	return &Verdict{Kind: VerdictDefer, Delay: max(delay, 0), Err: err}
}

// Refuse is [DeferError] for middleware that does not let a message reach its handlers
// now, for example because a circuit is open. The message has not been attempted: Refuse
// counts neither as a failure nor as a success, and not as a deferral, so that
// RequeueLimit does not apply. It does not begin a new round of
// attempts either: earlier failed attempts are not forgotten. A delay that is too long
// for the transport is shortened. If err is nil, so is the result.
//
// On a transport without delayed delivery the endpoint pauses instead, as with [PutBack],
// for 1 min at most. Middleware that gets such an error returns it at once (R53). In
// [TransactionNone] the message goes to the error queue.
func Refuse(err error, delay time.Duration) error {
	if err == nil {
		return nil
	}
	return &Verdict{Kind: VerdictDefer, Delay: max(delay, 0), Err: err, Refused: true}
}

// Reject moves the message to the error queue without a retry, or to the dead-letter
// queue if [Recoverability.DeadLetter] is set. If err is nil, so is the result:
// Reject(check(m)) rejects only messages for which check returns an error.
func Reject(err error) error {
	if err == nil {
		return nil
	}
	return &Verdict{Kind: VerdictReject, Err: err}
}

// Invalid moves the message to the invalid queue without a retry
// ([Recoverability.InvalidQueue]): only its sender can fix it, so it is not to be sent
// back. Without that queue it is [Unrecoverable]. If err is nil, so is the result.
func Invalid(err error) error {
	if err == nil {
		return nil
	}
	return &Verdict{Kind: VerdictInvalid, Err: err}
}

// Unrecoverable moves the message to the error queue without a retry. If err is
// nil, so is the result.
func Unrecoverable(err error) error {
	if err == nil {
		return nil
	}
	return &Verdict{Kind: VerdictUnrecoverable, Err: err}
}

// Discard drops the message: it goes neither to the error queue nor to the
// audit queue. The reason is logged.
func Discard(reason string) error { return &Verdict{Kind: VerdictDiscard, Reason: reason} }

// DiscardError is [Discard] with an error as the cause, which is logged with the reason.
// If err is nil, so is the result.
func DiscardError(err error, reason string) error {
	if err == nil {
		return nil
	}
	return &Verdict{Kind: VerdictDiscard, Reason: reason, Err: err}
}

// MoveTo moves the message to the given queue as a failed message. If the queue cannot
// take it, the message goes to the error queue ([Recoverability.CustomErrorQueues]). If err
// is nil, so is the result: a message is only moved with an error as the reason.
func MoveTo(err error, queue string) error {
	if err == nil {
		return nil
	}
	return &Verdict{Kind: VerdictMoveTo, Queue: queue, Err: err}
}

// RetryAfter requests one delayed retry with this delay, skipping immediate retries. A
// negative delay is 0, so that time.Until may compute it. When the configured number of
// delayed retries has been used up, the message goes to the error queue. If err is nil,
// so is the result.
func RetryAfter(err error, delay time.Duration) error {
	if err == nil {
		return nil
	}
	return &Verdict{Kind: VerdictRetryAfter, Delay: max(delay, 0), Err: err}
}

// IsVerdict reports whether err holds a verdict. Retry middleware must pass
// such an error on instead of running the handler again.
func IsVerdict(err error) bool { return VerdictOf(err) != nil }

// Error implements error.
func (v *Verdict) Error() string {
	switch {
	case v.Kind == VerdictDiscard && v.Err != nil:
		return "message discarded: " + v.Reason + ": " + v.Err.Error()
	case v.Kind == VerdictDiscard:
		return "message discarded: " + v.Reason
	case v.Err != nil:
		return v.Err.Error()
	case v.Kind == VerdictPutBack:
		return "message put back"
	case v.Kind == VerdictDefer && v.Delay == 0:
		return "message deferred"
	case v.Kind == VerdictDefer:
		return fmt.Sprintf("message deferred for %v", v.Delay)
	case v.Kind == VerdictMoveTo:
		return fmt.Sprintf("handler moved the message to %q", v.Queue)
	default:
		return "handler rejected the message"
	}
}

// Unwrap returns the failure.
func (v *Verdict) Unwrap() error { return v.Err }

// VerdictOf returns the verdict in err that counts, or nil.
func VerdictOf(err error) *Verdict {
	var found *Verdict
	for err != nil {
		if v, ok := err.(*Verdict); ok && (found == nil || v.Kind < found.Kind) {
			found = v
		}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, branch := range joined.Unwrap() {
				if v := VerdictOf(branch); v != nil && (found == nil || v.Kind < found.Kind) {
					found = v
				}
			}
			return found
		}
		err = errors.Unwrap(err)
	}
	return found
}
