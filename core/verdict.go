package core

import (
	"errors"
	"time"
)

// Verdict is an error by which a handler, or middleware, decides about its message instead
// of the recoverability policy. [GiveUp], [GiveUpTo], [RetryAfter], [Defer], [Refuse],
// [Discard] and [PutBack] make one. It has the text of its reason, which errors.Is and
// errors.As find in it. A verdict may be wrapped. If an error has several, the one counts
// whose Action.Kind comes first; among those of one kind an outer one, unless it leaves the
// queue open.
type Verdict struct {
	Action Action
	Err    error // the reason
}

// Reserved names of queues for [GiveUpTo] and [MoveToError]. No transport sees them.
const (
	// DeadLetterQueue stands for [Recoverability.DeadLetterQueue] or, without that, for the
	// broker's own dead-letter queue. Where there is neither, the error queue has the message.
	DeadLetterQueue = "reprise:dead-letter"
	// InvalidQueue stands for [Recoverability.InvalidQueue]: only its sender can fix the
	// message, so it is not to be sent back. Without that queue it is as [GiveUp].
	InvalidQueue = "reprise:invalid"
)

// GiveUp moves the message to the error queue without a retry. If err is nil, so is the
// result: GiveUp(check(m)) gives up only messages for which check returns an error.
func GiveUp(err error) error { return verdict(err, MoveToError("")) }

// GiveUpTo is [GiveUp] to another queue: one of the application, [DeadLetterQueue] or
// [InvalidQueue]. If the queue cannot take the message, the error queue does
// ([Recoverability.CustomErrorQueues]). If err is nil, so is the result.
func GiveUpTo(err error, queue string) error { return verdict(err, MoveToError(queue)) }

// RetryAfter requests one delayed retry with this delay, skipping immediate retries. A
// negative delay is 0, so that time.Until may compute it. It is bounded by time, not by
// [Delayed.NumberOfRetries]: after [Recoverability.RetryAfterLimit] the message goes to the
// error queue. If err is nil, so is the result.
func RetryAfter(err error, delay time.Duration) error { return verdict(err, DelayedRetry(delay)) }

// Defer requests redelivery of the message after delay. It is no failure: deferrals are
// counted separately. A delay of 0 or less means the endpoint's RequeueDelay. After
// RequeueLimit deferrals the message goes to the error queue. If err is nil, so is the
// result.
func Defer(err error, delay time.Duration) error {
	return verdict(err, Action{Kind: ActionDefer, Delay: max(delay, 0)})
}

// Refuse is [Defer] for middleware that does not let a message reach its handlers now, for
// example because a circuit is open. The message has not been attempted: Refuse counts
// neither as a failure nor as a success, and not as a deferral, so that RequeueLimit does
// not apply. It does not begin a new round of attempts either: earlier failed attempts are
// not forgotten. A delay that is too long for the transport is shortened. If err is nil, so
// is the result.
//
// On a transport without delayed delivery the endpoint pauses instead, as with [PutBack],
// for 1 min at most. Middleware that gets such an error returns it at once. In
// [TransactionNone] the message goes to the error queue.
func Refuse(err error, delay time.Duration) error {
	return verdict(err, Action{Kind: ActionRefuse, Delay: max(delay, 0)})
}

// Discard drops the message: it goes neither to the error queue nor to the audit queue. The
// reason is logged. If err is nil, so is the result.
func Discard(err error) error { return verdict(err, DiscardMessage()) }

func verdict(err error, action Action) error {
	if err == nil {
		return nil
	}
	return &Verdict{action, err}
}

// Error implements error: it returns the text of the reason.
func (v *Verdict) Error() string {
	if v.Err == nil { // no function of this package makes one
		return v.Action.String()
	}
	return v.Err.Error()
}

// Unwrap returns the reason.
func (v *Verdict) Unwrap() error { return v.Err }

// before reports whether v counts instead of other, which is further out or nil.
func (v *Verdict) before(other *Verdict) bool {
	if other == nil || v.Action.Kind != other.Action.Kind {
		return other == nil || v.Action.Kind < other.Action.Kind
	}
	return other.Action.Queue == "" && v.Action.Queue != ""
}

// is reports whether v, which may be nil, has an action of this kind.
func (v *Verdict) is(kind ActionKind) bool { return v != nil && v.Action.Kind == kind }

// VerdictOf returns the verdict in err that counts, or nil. Retry middleware must pass on an
// error with a verdict instead of running the handler again.
func VerdictOf(err error) *Verdict {
	var found *Verdict
	for err != nil {
		if v, ok := err.(*Verdict); ok && v.before(found) {
			found = v
		}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, branch := range joined.Unwrap() {
				if v := VerdictOf(branch); v != nil && v.before(found) {
					found = v
				}
			}
			return found
		}
		err = errors.Unwrap(err)
	}
	return found
}
