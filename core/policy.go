package core

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core/internal/delays"
	"github.com/reprise-go/reprise/core/internal/errortype"
)

// Policy decides the next step for a message whose handling failed with an error that is no
// [Verdict]. It may call [DefaultPolicy] and change its answer. It must be safe for
// concurrent use. It answers with [ImmediateRetry], [DelayedRetry], [MoveToError] or
// [DiscardMessage]; an error, a panic and any action that cannot be fulfilled mean
// [MoveToError] with the default error queue. [Recoverability.MaxDeliveries] limits its
// immediate retries; outside a group nothing limits its delayed ones.
//
// ctx has the values that [Observer.HandleStart] gave the attempt's, and
// [MessageFromContext] finds the message in it. In [TransactionSendsAtomicWithReceive] it
// carries the native transaction, without the failed handler's work; the policy's is
// committed with the action, or undone with an ImmediateRetry. A shutdown cancels ctx after
// [Config.DrainTimeout]; a policy that fails then is called again in the next run.
type Policy func(ctx context.Context, config RecoverabilityConfig, failure ErrorContext) (Action, error)

// Action is the decision about a failed message, of a [Policy] or a [Verdict]. The zero
// Action is none.
type Action struct {
	Kind  ActionKind
	Delay time.Duration // before the message is handled again; the pause of a PutBack
	Queue string        // of a MoveToError; "" is the default error queue
}

// ActionKind is the kind of an [Action].
type ActionKind int

// The kinds of action, in the order in which verdicts count.
const (
	ActionDiscard ActionKind = iota + 1
	ActionMoveToError
	ActionPutBack
	ActionRefuse
	ActionDefer
	ActionDelayedRetry
	ActionImmediateRetry
)

var actionNames = [...]string{"None", "Discard", "MoveToError", "PutBack", "Refuse", "Defer", "DelayedRetry", "ImmediateRetry"}

// String returns the kind's name.
func (k ActionKind) String() string {
	if k >= 0 && int(k) < len(actionNames) {
		return actionNames[k]
	}
	return fmt.Sprintf("ActionKind(%d)", int(k))
}

// String returns the action in the form of a function call.
func (a Action) String() string {
	switch a.Kind {
	case ActionImmediateRetry:
		if a.Delay > 0 {
			return fmt.Sprintf("ImmediateRetry after %v", a.Delay)
		}
	case ActionDelayedRetry, ActionDefer, ActionRefuse, ActionPutBack:
		return fmt.Sprintf("%v(%v)", a.Kind, a.Delay)
	case ActionMoveToError:
		return fmt.Sprintf("MoveToError(%q)", a.Queue)
	}
	return a.Kind.String()
}

// ImmediateRetry makes the message available again at once, or after a pause that a
// [Policy] sets in Delay. A pause of more than 1 min, or of more than half of
// [Limits.MaxLockTime] outside a group, is shortened.
func ImmediateRetry() Action { return Action{Kind: ActionImmediateRetry} }

// DelayedRetry sends the message to its own queue with a delay. A negative delay is 0.
func DelayedRetry(delay time.Duration) Action {
	return Action{Kind: ActionDelayedRetry, Delay: max(delay, 0)}
}

// MoveToError moves the message to an error queue: "" is the default one, [DeadLetterQueue]
// and [InvalidQueue] are those of the configuration. If another queue cannot take it, the
// default one does.
func MoveToError(queue string) Action { return Action{Kind: ActionMoveToError, Queue: queue} }

// DiscardMessage drops the message: it goes neither to the error queue nor to the audit
// queue.
func DiscardMessage() Action { return Action{Kind: ActionDiscard} }

// RecoverabilityConfig has a copy of the settings in force for a message. A level of
// retries that is off, or that the transport cannot provide, has MaxNumberOfRetries 0.
type RecoverabilityConfig struct {
	Immediate struct {
		MaxNumberOfRetries int
		Pause, MaxPause    time.Duration // 0: there is none
	}
	Delayed struct {
		MaxNumberOfRetries int
		TimeIncrease       time.Duration
	}
	Failed struct {
		ErrorQueue    string
		Unrecoverable []error
	}

	// MaxRetryAge is [Recoverability.MaxRetryAge]; 0 means no limit.
	MaxRetryAge time.Duration

	schedule delays.Schedule
	settings *TypeRecoverability // in force, never written to: 0 is none; not for the levels of retries
}

// IsUnrecoverable reports whether err is not retried: it matches [ErrUndecodable],
// [ErrMalformed], [ErrNoType], [ErrSendRefused] or an error that Failed.Unrecoverable
// lists, or is the verdict [GiveUp].
func (c RecoverabilityConfig) IsUnrecoverable(err error) bool {
	if errors.Is(err, ErrUndecodable) || errors.Is(err, ErrMalformed) || errors.Is(err, ErrNoType) || errors.Is(err, ErrSendRefused) {
		return true
	}
	if v := VerdictOf(err); v.is(ActionMoveToError) && v.Action.Queue == "" {
		return true
	}
	return slices.ContainsFunc(c.Failed.Unrecoverable, func(target error) bool {
		if t, ok := target.(errortype.Type); ok {
			return t.Matches(err)
		}
		return errors.Is(err, target)
	})
}

// ErrorOfType stands for all errors of a type in [Recoverability.Unrecoverable], and those
// that wrap one: ErrorOfType[*fs.PathError](). If E is an interface, the errors that
// implement it match. errors.Is does not.
func ErrorOfType[E error]() error { return errortype.Of[E]() }

// ErrorContext describes one failure.
type ErrorContext struct {
	// Err is the handler's error.
	Err error

	// Message is the message that failed, as it was received. Its methods that send return
	// [ErrHandlingEnded].
	Message *Message

	// ReceiveQueue is the address that the message was received from.
	ReceiveQueue string

	// ImmediateProcessingFailures is the number of failed attempts of this round, including
	// this one.
	ImmediateProcessingFailures int

	// DelayedDeliveriesPerformed is the number of earlier delayed retries, without those that
	// handlers requested ([RetryAfter]).
	DelayedDeliveriesPerformed int

	// FailedAt is the time of this failure.
	FailedAt time.Time

	// Handler is the function of the handler that failed, with its package:
	// "example.com/shop/billing.charge". It is "" if no handler was called, or if all
	// handlers succeeded and another part of the attempt failed (middleware, a send).
	Handler string

	// LastDelayedRetry is when the last of these delayed retries was scheduled, or the zero
	// time.
	LastDelayedRetry time.Time

	// FirstFailure is when the first round of attempts ended, or the zero time
	// if this is the first.
	FirstFailure time.Time
}

// DefaultPolicy is the policy of an endpoint without one. Its result depends only on its
// arguments, and its error is nil.
func DefaultPolicy(_ context.Context, config RecoverabilityConfig, failure ErrorContext) (Action, error) {
	id := ""
	if failure.Message != nil { // a test may leave it out
		id = failure.Message.ID
	}
	return config.defaultAction(failure, id), nil
}

// defaultAction is [DefaultPolicy] for the message with the id.
func (c RecoverabilityConfig) defaultAction(f ErrorContext, id string) Action {
	switch {
	case c.IsUnrecoverable(f.Err):
		return MoveToError(c.Failed.ErrorQueue)
	case f.ImmediateProcessingFailures <= c.Immediate.MaxNumberOfRetries:
		retry := ImmediateRetry()
		retry.Delay = c.immediatePause(f, id)
		return retry
	case f.DelayedDeliveriesPerformed < c.Delayed.MaxNumberOfRetries && c.isWithinAge(f):
		return DelayedRetry(c.delay(f, id))
	}
	return MoveToError(c.Failed.ErrorQueue)
}

// isWithinAge checks the limits of 24 hours between delayed retries and of MaxRetryAge
// (R5).
func (c RecoverabilityConfig) isWithinAge(f ErrorContext) bool {
	if !f.LastDelayedRetry.IsZero() && f.FailedAt.Sub(f.LastDelayedRetry) > maxRetryDelay {
		return false
	}
	return c.MaxRetryAge == 0 || f.FirstFailure.IsZero() || f.FailedAt.Sub(f.FirstFailure) <= c.MaxRetryAge
}

// grantsRetryAfter reports whether a [RetryAfter] is within RetryAfterLimit. If the time of
// the first failure is unknown, because it did not fit into the message (R24), another
// instance knows it (R61), or a sender forged it, the delayed retries are the limit.
func (c RecoverabilityConfig) grantsRetryAfter(f ErrorContext) bool {
	limit := c.settings.RetryAfterLimit
	switch {
	case limit < 0:
		return true
	case f.FirstFailure.IsZero(), !f.FirstFailure.Before(f.FailedAt):
		return f.DelayedDeliveriesPerformed == 0 || f.DelayedDeliveriesPerformed < c.Delayed.MaxNumberOfRetries
	}
	return f.FailedAt.Sub(f.FirstFailure) <= limit
}

// delay computes the delay from the exported fields, so that a policy can change them in
// its copy.
func (c RecoverabilityConfig) delay(f ErrorContext, id string) time.Duration {
	s := c.schedule
	s.Increase = c.Delayed.TimeIncrease
	return s.Delay(f.DelayedDeliveriesPerformed, id)
}

// immediatePause returns the pause before the retry that follows a failure.
func (c RecoverabilityConfig) immediatePause(f ErrorContext, id string) time.Duration {
	if c.Immediate.Pause <= 0 {
		return 0
	}
	return c.pauses().Delay(f.ImmediateProcessingFailures-1, id)
}

// pauses is the schedule of the pauses in one round. It uses the exported fields, so that
// a policy can change them in its copy.
func (c RecoverabilityConfig) pauses() delays.Schedule {
	return delays.Schedule{Increase: c.Immediate.Pause, Factor: 2, Ceiling: c.Immediate.MaxPause, Jitter: pauseJitter}
}

const (
	defaultMaxPause = 10 * time.Second
	// maxImmediatePause limits a pause: for a longer wait use a delayed retry, which takes
	// neither memory nor a lock.
	maxImmediatePause = time.Minute
	// pauseJitter is the largest part of a pause by which it is lengthened.
	pauseJitter = 0.5
)

// delays returns the longest time that a message waits for its retries, all together.
func (c RecoverabilityConfig) delays() time.Duration {
	sum := c.schedule.Total(c.Delayed.MaxNumberOfRetries)
	if c.Immediate.Pause == 0 || c.Immediate.MaxNumberOfRetries == 0 {
		return sum
	}
	pauses := c.pauses().Total(c.Immediate.MaxNumberOfRetries) // of one round
	return delays.Add(sum, delays.Add(pauses, delays.Multiply(pauses, c.Delayed.MaxNumberOfRetries)))
}
