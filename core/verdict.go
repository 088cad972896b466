package core

import (
	"errors"
	"fmt"
	"time"
)

// Verdict is an error with which a handler decides what happens to its message,
// instead of leaving it to the recoverability policy. Defer, Reject and the
// other functions below make one. It is found through any wrapping. Where an
// error holds several, the one whose Kind comes first holds.
type Verdict struct {
	Kind   VerdictKind
	Err    error         // the failure, or nil
	Delay  time.Duration // of Defer and RetryAfter
	Queue  string        // of MoveTo
	Reason string        // of Discard
	Pause  Pause         // of PutBack

	// Refused: middleware did not let the message reach its handlers (Refuse).
	Refused bool
}

// VerdictKind tells verdicts apart.
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

// Defer asks for the message to be redelivered after delay, which is counted
// apart from failures. A delay of 0 or less is the endpoint's RequeueDelay.
// After RequeueLimit deferrals the message goes to the error queue.
func Defer(delay time.Duration) error {
	return &Verdict{Kind: VerdictDefer, Delay: max(delay, 0)}
}

// DeferError is Defer with the error that was the reason. If err is nil, so is
// the result.
func DeferError(err error, delay time.Duration) error {
	if err == nil {
		return nil
	}
	return &Verdict{Kind: VerdictDefer, Delay: max(delay, 0), Err: err}
}

// Refuse is DeferError for middleware that does not let a message reach its
// handlers now, because a circuit is open for example. The message has not been
// tried: this counts neither as a failure nor as a success, not for RateLimit, and
// not as a deferral, so that RequeueLimit does not bound it. Nor does it begin a new round
// of attempts: attempts that failed before are not forgotten. A delay that is longer than
// the transport can have is shortened. If err is nil, so is the result.
//
// Middleware that is given such an error answers with it at once (R53). Like each
// deferral it needs a transport with delayed delivery (StartUp.CanDefer).
func Refuse(err error, delay time.Duration) error {
	if err == nil {
		return nil
	}
	return &Verdict{Kind: VerdictDefer, Delay: max(delay, 0), Err: err, Refused: true}
}

// Reject moves the message to the error queue without a retry, or to the
// dead-letter queue where Recoverability.DeadLetter is set. If err is nil, so is
// the result: Reject(check(m)) rejects the messages alone that check finds wrong.
func Reject(err error) error {
	if err == nil {
		return nil
	}
	return &Verdict{Kind: VerdictReject, Err: err}
}

// Invalid moves the message to the invalid queue without a retry
// (Recoverability.InvalidQueue): only its sender can fix it, so it is not to be sent
// back. Without that queue it is Unrecoverable. If err is nil, so is
// the result.
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

// DiscardError is Discard with the error that was the cause, which is logged
// with the reason. If err is nil, so is the result.
func DiscardError(err error, reason string) error {
	if err == nil {
		return nil
	}
	return &Verdict{Kind: VerdictDiscard, Reason: reason, Err: err}
}

// MoveTo moves the message to the given queue as a failed one. The queue must
// exist; if it does not, the message goes to the error queue. If err is nil, so
// is the result: a message is only moved with an error that says why.
func MoveTo(err error, queue string) error {
	if err == nil {
		return nil
	}
	return &Verdict{Kind: VerdictMoveTo, Queue: queue, Err: err}
}

// RetryAfter asks for one delayed retry with this delay, skipping immediate
// retries. A negative delay is 0, so that time.Until may compute it. When the
// configured number of delayed retries has been used up, the message goes to
// the error queue. If err is nil, so is the result.
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

// VerdictOf returns the verdict that holds in err, or nil.
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
