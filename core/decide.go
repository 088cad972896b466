package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core/internal/delays"
)

// decision is the next step for a failed message. It is made once, by decide, from values
// alone; tryDecision carries it out.
type decision struct {
	action      Action
	deferral    bool // a DelayedRetry that is a handler's Defer
	uncounted   bool // a deferral without a call of a handler (Refuse)
	newCopy     bool // a DelayedRetry that begins the count of deliveries anew
	deadLetter  bool // a MoveToError that goes to the broker's own queue
	customQueue bool // a MoveToError to a queue that the handler named
	fromVerdict bool // the handler decided, not the policy

	// reason is that of a MoveToError to a dead-letter or invalid queue, or "".
	reason FailureReason

	// err is the failure to report instead of the handler's error, which it
	// wraps, or nil.
	err error

	// whyReplaced names the requested action and the reason why it cannot be fulfilled (R8),
	// or is "".
	whyReplaced string
	// policyErr is the error of the policy (R12), or nil.
	policyErr error

	// handleFailedSends has the messages that HandleFailed sent; they are sent with the move
	// (R51).
	handleFailedSends []Outgoing
	// committedSends is sent before the message is consumed (Message.Commit); nil: there is
	// none, or it has been sent.
	committedSends *committedSends
}

// rules has the inputs of a decision besides the failure: the configuration in force and
// the abilities of the transport.
type rules struct {
	config  RecoverabilityConfig
	perType map[string]RecoverabilityConfig
	policy  Policy // nil is DefaultPolicy
	mode    TransactionMode
	caps    Capabilities

	deadLetters       DeadLetters
	customErrorQueues []string // that verdicts and policies name

	// maxDeliveries limits the deliveries of one copy of a message; 0 means no limit.
	maxDeliveries int
	ownAddress    string                             // of the input queue
	address       func(queue string) (string, error) // Transport.Address
}

// configFor returns the settings in force for a message type.
func (r *rules) configFor(messageType string) RecoverabilityConfig {
	if c, ok := r.perType[messageType]; ok {
		return c
	}
	return r.config
}

// errorQueues returns the queues of the configuration that failed messages go to.
func (r *rules) errorQueues() []string {
	queues := slices.Concat(r.config.failedQueues(), r.customErrorQueues)
	for _, c := range r.perType {
		queues = append(queues, c.failedQueues()...)
	}
	return queues
}

// failedQueues returns the queues that failed messages of a type go to.
func (c *RecoverabilityConfig) failedQueues() []string {
	queues := []string{c.Failed.ErrorQueue, c.settings.DeadLetterQueue, c.settings.InvalidQueue}
	return slices.DeleteFunc(queues, func(queue string) bool { return queue == "" })
}

// hasTimeouts reports whether an attempt can have a handler timeout.
func (r *rules) hasTimeouts() bool { return r.config.settings.HandlerTimeout > 0 || len(r.perType) > 0 }

// handlerTimeout returns the timeout of an attempt of a message type; 0 means no limit.
func (r *rules) handlerTimeout(messageType string) time.Duration {
	if len(r.perType) == 0 {
		return r.config.settings.HandlerTimeout
	}
	return r.configFor(messageType).settings.HandlerTimeout
}

// failure is an ErrorContext with fields that only verdicts need.
type failure struct {
	ErrorContext
	deferrals     int
	inPlace       bool          // a delayed retry postpones the message, because of its group
	handlerFailed time.Time     // when Handler did, or the zero time
	reason        FailureReason // that of the decision
	generatedID   bool          // the sender gave the message no id

	// The copy for the error queue that EditFailed made of this delivery, or nil, and
	// whether EditFailed was called.
	edited     *editedCopy
	editCalled bool
}

// decide turns a failure into a decision. It has no side effects except those of a custom
// policy.
func (r *rules) decide(ctx context.Context, f failure) decision {
	config := r.configFor(f.MessageType)
	d := r.choose(ctx, config, f)
	d.action.Delay = max(d.action.Delay, 0)
	if reason := r.whyUnsupported(d.action, f); reason != "" && !d.newCopy {
		d.replaceAction(reason)
	}
	if d.action.Kind == ActionMoveToError && !d.customQueue && (d.action.Queue == "" || d.action.Queue == config.Failed.ErrorQueue) {
		r.chooseErrorQueue(config, f, &d)
	}
	return d
}

// replaceAction replaces an action that cannot be fulfilled, and keeps the reason.
func (d *decision) replaceAction(reason string) {
	d.whyReplaced = fmt.Sprintf("%v was asked for, but %s", d.action, reason)
	d.action = MoveToError("")
	d.deferral, d.uncounted, d.newCopy, d.customQueue = false, false, false, false
}

// choose decides by the verdict or the policy, and handles panics of users' code: of a
// policy, UnrecoverableFunc, or a method of the error itself.
func (r *rules) choose(ctx context.Context, config RecoverabilityConfig, f failure) (d decision) {
	defer func() {
		if value := recover(); value != nil {
			d = decision{
				action:    MoveToError(""),
				policyErr: fmt.Errorf("recoverability policy: %w", newPanicError(value)),
			}
		}
	}()
	if neverHandled(f.Err) {
		if r.mayBeUnhandled(f) {
			return decision{action: DelayedRetry(r.newCopyDelay(f.MessageID)), newCopy: true}
		}
		if r.policy == nil || !errors.Is(f.Err, ErrMalformed) {
			return decision{action: MoveToError("")}
		}
		d.action, d.policyErr = r.callPolicy(ctx, config, f.ErrorContext)
		if kind := d.action.Kind; kind == ActionImmediateRetry || kind == ActionDelayedRetry {
			d.replaceAction("the transport cannot read the message, and no retry changes that")
		}
		return d
	}
	v := VerdictOf(f.Err)
	if v == nil {
		action, err := r.callPolicy(ctx, config, f.ErrorContext)
		return decision{action: action, policyErr: err}
	}
	d.fromVerdict = true
	switch v.Kind {
	case VerdictDiscard:
		d.action = DiscardMessage(v.Reason)
	case VerdictMoveTo:
		d.action, d.customQueue = MoveToError(v.Queue), v.Queue != ""
	case VerdictPutBack: // the error is none of this message's
		d.action, d.uncounted = Action{Kind: ActionPutBack, Delay: v.Delay}, true
	case VerdictDefer:
		switch {
		case v.Refused && !r.caps.DelayedDelivery && !f.inPlace: // the message cannot wait alone
			d.action, d.uncounted = Action{Kind: ActionPutBack, Delay: min(cmp.Or(max(v.Delay, 0), config.settings.RequeueDelay), maxRefusalPause)}, true
		case v.Refused: // the error is none of this message's
			d.action = DelayedRetry(r.possibleDelay(cmp.Or(max(v.Delay, 0), config.settings.RequeueDelay), f))
			d.deferral, d.uncounted = true, true
		case config.isUnrecoverableWith(v, f.Err):
			d.action = MoveToError("")
		case config.settings.RequeueLimit > 0 && f.deferrals >= config.settings.RequeueLimit:
			d.action, d.err = MoveToError(""), newRequeueLimitError(config.settings.RequeueLimit, f.Err)
		case v.Delay <= 0:
			d.action, d.deferral = DelayedRetry(config.settings.RequeueDelay), true
		default:
			d.action, d.deferral = DelayedRetry(v.Delay), true
		}
	case VerdictRetryAfter:
		switch {
		case config.isUnrecoverableWith(v, f.Err):
			d.action = MoveToError("")
		case config.delayedReduced != "":
			d.action = DelayedRetry(v.Delay)
			d.replaceAction(config.delayedReduced)
		case f.DelayedDeliveriesPerformed < config.Delayed.MaxNumberOfRetries:
			d.action = DelayedRetry(v.Delay)
		default:
			d.action = MoveToError("")
		}
	default: // VerdictReject, VerdictInvalid, VerdictUnrecoverable
		d.action = MoveToError("")
	}
	return d
}

// mayBeUnhandled reports whether a message that was delivered too often may have reached
// a handler less often, or never: the broker also counts deliveries that were lost with
// their connection or process, or released at a shutdown, before a handler began. It gets
// a new copy, once (R34).
func (r *rules) mayBeUnhandled(f failure) bool {
	return r.caps.CountsReleases && r.mode != TransactionNone && !f.inPlace &&
		errors.Is(f.Err, ErrDeliveryCountExceeded) && f.Headers.Get(HeaderDeliveries) == ""
}

// newCopyDelay separates messages that were delivered together, as far as the transport
// can: one of them may have ended the process each time.
func (r *rules) newCopyDelay(messageID string) time.Duration {
	if !r.caps.DelayedDelivery {
		return 0
	}
	delay := delays.Schedule{Increase: newCopyDelay, Jitter: newCopyJitter}.Delay(0, messageID)
	if longest := r.caps.MaxDelay; longest > 0 {
		delay = min(delay, longest)
	}
	return delay
}

// possibleDelay shortens a delay to the longest possible one.
func (r *rules) possibleDelay(delay time.Duration, f failure) time.Duration {
	longest := r.caps.MaxDelay
	if f.inPlace {
		longest = r.caps.MaxLockTime
	}
	if longest > 0 {
		delay = min(delay, longest)
	}
	return delay
}

const (
	newCopyDelay  = time.Second
	newCopyJitter = 4 // times as long, at most, is added
)

// callPolicy calls the policy with copies of the values that it could change, and decides
// for a policy that returns no action.
func (r *rules) callPolicy(ctx context.Context, config RecoverabilityConfig, f ErrorContext) (Action, error) {
	if r.policy == nil {
		return DefaultPolicy(ctx, config, f), nil
	}
	config.Failed.Unrecoverable, config.Failed.UnrecoverableTypes = slices.Clone(config.Failed.Unrecoverable), slices.Clone(config.Failed.UnrecoverableTypes)
	f.Body, f.Properties = slices.Clone(f.Body), maps.Clone(f.Properties)
	var action Action
	if err := recovered(func() error { action = r.policy(ctx, config, f); return nil }); err != nil {
		return MoveToError(""), fmt.Errorf("recoverability policy: %w", err)
	}
	switch action.Kind {
	case ActionImmediateRetry, ActionDelayedRetry, ActionMoveToError, ActionDiscard:
		return action, nil
	}
	return MoveToError(""), fmt.Errorf("recoverability policy returned %v, which is no action", action)
}

// whyUnsupported returns the reason why an action cannot be fulfilled (R8), or "".
func (r *rules) whyUnsupported(a Action, f failure) string {
	switch a.Kind {
	case ActionPutBack:
		if r.mode == TransactionNone {
			return "transaction mode None cannot give a message back"
		}
	case ActionImmediateRetry:
		switch {
		case r.mode == TransactionNone:
			return "transaction mode None cannot give a message back"
		case r.maxDeliveries > 0 && f.ImmediateProcessingFailures >= r.maxDeliveries:
			return fmt.Sprintf("this was delivery %d and MaxDeliveries is %d, so no handler would get the next one; raise Recoverability.MaxDeliveries.Count, or set Off",
				f.ImmediateProcessingFailures, r.maxDeliveries)
		}
	case ActionMoveToError:
		if a.Queue == "" { // the configured one, which has been checked
			return ""
		}
		address, err := r.address(a.Queue)
		switch {
		case err != nil:
			return fmt.Sprintf("that cannot be a queue's name: %v", err)
		case address == r.ownAddress:
			return "that is the endpoint's own queue, which the message would never leave"
		}
	case ActionDelayedRetry:
		switch {
		case r.mode == TransactionNone:
			return "transaction mode None allows no retries"
		case f.inPlace:
			return r.whyNotPostponable(a.Delay)
		case !r.caps.DelayedDelivery:
			return "the transport has no delayed delivery"
		case r.caps.MaxDelay > 0 && a.Delay > r.caps.MaxDelay:
			return fmt.Sprintf("the transport's longest delay is %v", r.caps.MaxDelay)
		}
	}
	return ""
}

// neverHandled reports whether a failure came before any handler was called.
func neverHandled(err error) bool {
	return errors.Is(err, ErrMalformed) || errors.Is(err, ErrDeliveryCountExceeded)
}

// setMessage sets the fields of f that come from this delivery of its message.
func (f *failure) setMessage(in *Incoming) {
	f.Headers, f.Body = in.Headers, in.Body
	f.NativeID, f.GroupKey, f.Properties = in.NativeID, in.GroupKey, in.Properties
	f.generatedID = !in.hasSentID()
	f.edited, f.editCalled = nil, false
}

// whyNotPostponable returns the reason why a message of a group cannot be retried after a
// delay, or "".
func (r *rules) whyNotPostponable(delay time.Duration) string {
	if limit := r.caps.MaxLockTime; limit > 0 && delay > limit {
		return fmt.Sprintf("the transport holds a message of a group for %v at most, and a copy of it would come after those that follow it", limit)
	}
	return ""
}

// RecoverabilityConfig returns the settings in force for a message type, as a [Policy]
// gets them. A test can pass them to [DefaultPolicy] with an [ErrorContext], to see how a
// failure would end.
func (ep *Endpoint) RecoverabilityConfig(messageType string) RecoverabilityConfig {
	c := ep.rules.configFor(messageType)
	c.Failed.Unrecoverable, c.Failed.UnrecoverableTypes = slices.Clone(c.Failed.Unrecoverable), slices.Clone(c.Failed.UnrecoverableTypes)
	return c
}
