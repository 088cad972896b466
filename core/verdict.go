package core

import (
	"errors"
	"time"
)

// Verdict is an error by which a handler, or middleware, decides about its message instead
// of the [Policy]. [GiveUp], [GiveUpTo], [RetryAfter], [Defer], [Refuse], [Discard] and
// [PutBack] make one of a reason, which errors.Is and errors.As find, or return nil if the
// reason is nil. A verdict may be wrapped. If an error has several, the one counts whose
// Action.Kind comes first; of one kind an outer one, unless it leaves the queue open.
type Verdict struct {
	Action Action
	Err    error // the reason
}

// Reserved names of queues for [GiveUpTo] and [MoveToError]. No transport sees them.
const (
	// DeadLetterQueue stands for [Recoverability.DeadLetterQueue] or, without that, for the
	// broker's own dead-letter queue. Where there is neither, it is as [GiveUp].
	DeadLetterQueue = "reprise:dead-letter"
	// InvalidQueue stands for [Recoverability.InvalidQueue]: only its sender can fix the
	// message. Without that queue it is as [GiveUp].
	InvalidQueue = "reprise:invalid"
)

// GiveUp moves the message to the error queue without a retry. If err is nil, so is the
// result.
func GiveUp(err error) error { return verdict(err, MoveToError("")) }

// GiveUpTo moves the message to another queue without a retry: one of the application,
// [DeadLetterQueue] or [InvalidQueue]. If it cannot take the message, the error queue does.
func GiveUpTo(err error, queue string) error { return verdict(err, MoveToError(queue)) }

// RetryAfter requests one retry with this delay, without immediate retries. A negative
// delay is 0. It is bounded by time: after [Recoverability.RetryAfterLimit] the message
// goes to the error queue. It does not count for [Delayed.NumberOfRetries].
func RetryAfter(err error, delay time.Duration) error { return verdict(err, DelayedRetry(delay)) }

// Defer requests redelivery of the message after delay. It is no failure: deferrals are
// counted separately. A delay of 0 or less means [Recoverability.RequeueDelay]. After
// [Recoverability.RequeueLimit] deferrals the message goes to the error queue.
func Defer(err error, delay time.Duration) error {
	return verdict(err, Action{Kind: ActionDefer, Delay: max(delay, 0)})
}

// Refuse lets the message wait for delay, for middleware that does not let it reach its
// handlers now, as an open circuit does. It is no attempt: no failure, no success, no
// deferral, no new round. A delay that is too long for the transport is shortened. On a
// transport without delayed delivery the endpoint pauses instead, as with [PutBack], for 1
// min at most. Middleware that gets such an error returns it at once. In [TransactionNone]
// the message goes to the error queue.
func Refuse(err error, delay time.Duration) error {
	return verdict(err, Action{Kind: ActionRefuse, Delay: max(delay, 0)})
}

// Discard drops the message: it goes neither to the error queue nor to the audit queue. The
// reason is logged.
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

// VerdictOf returns the verdict in err that counts, or nil. Retry middleware passes it on.
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
