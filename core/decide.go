package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/internal/delays"
	"github.com/reprise-go/reprise/core/internal/plan"
)

// decision is the next step for a failed message. Only decide makes one, from values alone,
// and nothing changes it.
type decision struct {
	action Action // its delay is possible, its queue that of the configuration
	// errorQueue replaces the queue of a MoveToError that cannot have the message.
	errorQueue string
	as         copyAs     // of a DelayedRetry, and asRefusal of a PutBack
	target     plan.Place // of a MoveToError
	reason     reason
	limit      limitEffect
}

// copyAs is the purpose of a copy of a message in its own queue.
type copyAs uint8

const (
	asRetry      copyAs = iota
	asRetryAfter        // a handler's RetryAfter: NumberOfRetries does not count it
	asDeferral          // a handler's Defer
	asRefusal           // nothing is counted (Refuse)
	asNewCopy           // the count of deliveries begins anew
)

// limitEffect is the effect of a failure on RateLimit (R44).
type limitEffect uint8

const (
	limitUnchanged limitEffect = iota // it says nothing about an outage
	limitFailure                      // it may come from an outage
	limitSuccess                      // the handler ran to a decision about its message
)

// rules has the inputs of a decision besides the failure: the configuration in force and
// the abilities of the transport.
type rules struct {
	config  RecoverabilityConfig
	perType map[string]RecoverabilityConfig
	policy  Policy // nil is DefaultPolicy
	mode    TransactionMode
	caps    Capabilities

	deadLetter        bool     // failed messages go to the dead-letter queue
	customErrorQueues []string // that verdicts and policies name

	// maxDeliveries limits the deliveries of one copy of a message; 0 means no limit.
	maxDeliveries int
	newCopyAfter  int                                // deliveries, see isolationRules
	ownAddress    string                             // of the input queue
	keepsGroups   bool                               // the input queue keeps groups in order
	address       func(queue string) (string, error) // Transport.Address
}

// configFor returns the settings in force for a message type.
func (r *rules) configFor(messageType string) RecoverabilityConfig {
	if c, ok := r.perType[messageType]; ok {
		return c
	}
	return r.config
}

// copyLists returns the settings with lists that users' code may write to.
func (c RecoverabilityConfig) copyLists() RecoverabilityConfig {
	c.Failed.Unrecoverable = slices.Clone(c.Failed.Unrecoverable)
	return c
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

// failure is an ErrorContext, whose Message only a policy needs, with the facts of the message
// that a decision needs, and its carrying out.
type failure struct {
	ErrorContext
	messageID     string
	messageType   string // as which it was handled
	headers       Headers
	body          []byte // not to be written
	groupKey      string
	properties    map[string]string // not to be written
	native        any
	expiresAt     time.Time
	deferrals     int
	inPlace       bool      // a delayed retry postpones the message, because of its group
	isNewCopy     bool      // of a message that was delivered too often
	handlerBegan  time.Time // when Handler did, or the zero time
	handlerFailed time.Time // the same
	generatedID   bool      // the sender gave the message no id
	replay        replay
	refused       *refusal // of the decision before, or nil

	// The copy for the error queue that EditFailed made of this delivery, or nil, and
	// whether EditFailed was called.
	edited     *editedCopy
	editCalled bool
}

// describe collects the facts for the decision and the failure headers.
func (r *rules) describe(a *attempt, err error) *failure {
	in, now := a.delivery.Incoming(), time.Now()
	handler := a.message.failingHandler()
	f := &failure{
		ErrorContext: ErrorContext{
			Err:                         err,
			ReceiveQueue:                r.ownAddress,
			ImmediateProcessingFailures: in.attempt(),
			DelayedDeliveriesPerformed:  in.delayedRetries(),
			FailedAt:                    now,
			LastDelayedRetry:            parseTimeOrZero(in.Headers.Get(headers.RetriesTimestamp)),
			FirstFailure:                in.firstFailure(now),
			Handler:                     handler.name,
		},
		messageID:     in.ID,
		messageType:   a.message.handledAs().messageType,
		deferrals:     in.deferrals(),
		inPlace:       r.retriesInPlace(in),
		isNewCopy:     in.earlierDeliveries(r.newCopyAfter) > 0,
		handlerBegan:  handler.began,
		handlerFailed: handler.failed,
	}
	f.setMessage(in)
	if r.policy != nil {
		f.Message = a.failedMessage(in)
	}
	return f
}

// failedMessage returns the message of a failed attempt as it was received, which can no
// longer send: for a policy, EditFailed and observers.
func (a *attempt) failedMessage(in *Incoming) *Message {
	m := &Message{attemptValues: a.message.values(true)}
	m.begin(a.message.deps, in, selection{messageType: a.message.handledAs().messageType})
	m.sends.end()
	return m
}

// refusal is a decision that can never be carried out.
type refusal struct {
	decision decision
	err      error
}

// decide turns a failure into a decision. It has no side effects except those of a custom
// policy.
func (r *rules) decide(ctx context.Context, f failure) decision {
	config := r.configFor(f.messageType)
	var d decision
	if f.refused != nil {
		d = decideRefused(f)
	} else {
		d = r.choose(ctx, config, f)
		d.limit = limitEffectOf(f.Err)
	}
	if f.replay.once {
		d.giveUpRetry()
	}
	d.action.Delay = max(d.action.Delay, 0)
	if reason := r.whyUnsupported(d.action, f); reason != "" && d.as != asNewCopy {
		d.replaceAction(reason)
	}
	if d.reason.err == nil {
		d.reason.err = f.Err
	}
	switch d.action.Kind {
	case ActionImmediateRetry:
		d.action.Delay = r.possiblePause(d.action.Delay, f)
	case ActionMoveToError:
		r.chooseErrorQueue(config, f, &d)
	}
	return d
}

// isLastAttempt makes the decision in advance.
func (r *rules) isLastAttempt(a *attempt, err error) bool {
	if r.policy != nil { // which would be called twice
		return false
	}
	kind := r.decide(a, *r.describe(a, err)).action.Kind
	return kind == ActionMoveToError || kind == ActionDiscard
}

// decideRefused decides about a message whose decision the transport, or another queue, has
// refused for good (R8).
func decideRefused(f failure) decision {
	before := f.refused.decision
	d := decision{action: before.action, reason: reason{err: before.reason.err}}
	if before.action.Kind == ActionDiscard {
		d.replaceAction(fmt.Sprintf("messages that a handler has committed cannot be sent: %v", f.refused.err))
		d.reason.kind, d.reason.err = headers.FailureCommitRefused, f.refused.err
		return d
	}
	d.replaceAction(fmt.Sprintf("the transport refused it: %v", f.refused.err))
	return d
}

// replaceAction replaces an action that cannot be fulfilled, and keeps the reason.
func (d *decision) replaceAction(why string) {
	d.reason.text = fmt.Sprintf("%v was asked for, but %s", d.action, why)
	d.action, d.as, d.target = MoveToError(""), asRetry, plan.ErrorQueue
}

// limitEffectOf returns the effect of an error on rate limiting, which is for outages.
// RetryAfter is the handler's answer to a service that is unavailable, and GiveUp says only
// that no retry helps. Any other verdict is the handler's decision about its message. A
// message that middleware refused or put back says nothing new, nor does one that no handler
// got.
func limitEffectOf(err error) (effect limitEffect) {
	defer func() {
		if recover() != nil { // a method of the error panicked
			effect = limitFailure
		}
	}()
	if isUnhandled(err) {
		return limitUnchanged
	}
	v := VerdictOf(err)
	switch {
	case v == nil && errors.Is(err, ErrNoType):
		return limitUnchanged
	case v == nil, v.is(ActionDelayedRetry), v.is(ActionMoveToError) && v.Action.Queue == "":
		return limitFailure
	case v.is(ActionPutBack), v.is(ActionRefuse):
		return limitUnchanged
	}
	return limitSuccess
}

// choose decides by the verdict or the policy, and handles panics of users' code: of a
// policy, or a method of the error itself.
func (r *rules) choose(ctx context.Context, config RecoverabilityConfig, f failure) (d decision) {
	defer func() {
		if value := recover(); value != nil {
			d = decision{action: MoveToError(""), reason: reason{cause: fmt.Errorf("recoverability policy: %w", newPanicError(value))}}
		}
	}()
	if isUnhandled(f.Err) {
		if r.mayBeUnhandled(f) {
			return decision{action: DelayedRetry(r.newCopyDelay(f.messageID)), as: asNewCopy}
		}
		if r.policy == nil || !errors.Is(f.Err, ErrMalformed) {
			return decision{action: MoveToError("")}
		}
		d.action, d.reason.cause = r.callPolicy(ctx, config, f)
		if kind := d.action.Kind; kind == ActionImmediateRetry || kind == ActionDelayedRetry {
			d.replaceAction("the transport cannot read the message, and no retry changes that")
		}
		return d
	}
	v := VerdictOf(f.Err)
	if v == nil {
		action, err := r.callPolicy(ctx, config, f)
		return decision{action: action, reason: reason{cause: err}}
	}
	d.action = v.Action
	switch delay := max(v.Action.Delay, 0); v.Action.Kind {
	case ActionDiscard, ActionImmediateRetry:
	case ActionMoveToError:
		if v.Action.Queue != "" && !isReservedQueue(v.Action.Queue) {
			d.target = plan.CustomQueue // also if the name is that of the error queue
		}
	case ActionPutBack: // the error is none of this message's
		d.as = asRefusal
	case ActionRefuse: // nor is this one
		d.as = asRefusal
		delay = cmp.Or(delay, config.settings.RequeueDelay)
		if !r.caps.DelayedDelivery && !f.inPlace { // the message cannot wait alone
			d.action = Action{Kind: ActionPutBack, Delay: min(delay, maxRefusalPause)}
		} else {
			d.action.Delay = r.possibleDelay(delay, f)
		}
	case ActionDefer:
		switch limit := config.settings.RequeueLimit; {
		case config.IsUnrecoverable(f.Err):
			d.action = MoveToError("")
		case limit > 0 && f.deferrals >= limit:
			d.action, d.reason.err = MoveToError(""), newRequeueLimitError(limit, f.Err)
		default:
			d.action.Delay, d.as = cmp.Or(delay, config.settings.RequeueDelay), asDeferral
		}
	case ActionDelayedRetry:
		switch {
		case config.IsUnrecoverable(f.Err):
			d.action = MoveToError("")
		case !config.grantsRetryAfter(f.ErrorContext):
			d.action = MoveToError("")
		default:
			d.as = asRetryAfter
		}
	default:
		d.action, d.reason.cause = MoveToError(""), fmt.Errorf("a verdict has the action %v, which is none", v.Action)
	}
	return d
}

// mayBeUnhandled reports whether a message that was delivered too often may have reached
// a handler less often, or never: the broker also counts deliveries that were lost with
// their connection or process, or released at a shutdown, before a handler began. It gets
// a new copy, once (R34).
func (r *rules) mayBeUnhandled(f failure) bool {
	return r.caps.CountsReleases && r.mode != TransactionNone && !f.inPlace &&
		errors.Is(f.Err, ErrDeliveryCountExceeded) && !f.isNewCopy
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

// possiblePause shortens the pause before an immediate retry to the longest possible one:
// the message is kept for it and its lock renewed, unless it waits in its group.
func (r *rules) possiblePause(pause time.Duration, f failure) time.Duration {
	pause = min(pause, maxImmediatePause)
	if longest := r.caps.MaxLockTime; longest > 0 && !f.inPlace {
		pause = min(pause, longest/2)
	}
	return pause
}

const (
	newCopyDelay  = time.Second
	newCopyJitter = 4 // times as long, at most, is added
)

// callPolicy calls the policy, or the default one, with copies of the values that it could
// change, and decides for a policy that returns no action.
func (r *rules) callPolicy(ctx context.Context, config RecoverabilityConfig, f failure) (Action, error) {
	if r.policy == nil {
		return config.defaultAction(f.ErrorContext, f.messageID), nil
	}
	config = config.copyLists()
	var action Action
	err := recovered(func() (err error) {
		action, err = r.policy(ctx, config, f.ErrorContext)
		return err
	})
	if err != nil {
		return MoveToError(""), fmt.Errorf("recoverability policy: %w", err)
	}
	switch action.Kind {
	case ActionImmediateRetry, ActionDelayedRetry, ActionMoveToError, ActionDiscard:
		return action, nil
	case ActionDefer, ActionRefuse, ActionPutBack:
		return MoveToError(""), fmt.Errorf("recoverability policy returned %v, which only a verdict can; return DelayedRetry", action)
	}
	return MoveToError(""), fmt.Errorf("recoverability policy returned %v, which is no action", action)
}

// chooseErrorQueue chooses the queue of a message, unless a verdict or a policy has named
// one (R62, R63).
func (r *rules) chooseErrorQueue(config RecoverabilityConfig, f failure, d *decision) {
	standard := config.Failed.ErrorQueue
	d.errorQueue = standard
	if d.reason.kind == "" {
		d.reason.kind = r.failureReason(config, f, d)
	}
	isNamed := d.target == plan.CustomQueue || d.action.Queue != "" && d.action.Queue != standard
	deadLettered, invalid := r.deadLetter, isInvalid(d.reason.kind)
	switch d.action.Queue {
	case DeadLetterQueue:
		isNamed, invalid, deadLettered = false, false, config.settings.DeadLetterQueue != "" || r.caps.DeadLetter
	case InvalidQueue:
		isNamed, invalid = false, true
	}
	switch {
	case isNamed && d.action.Queue != standard:
		d.target = plan.CustomQueue
	case isNamed:
		d.target = plan.ErrorQueue
	case config.settings.InvalidQueue != "" && invalid:
		d.action.Queue, d.target = config.settings.InvalidQueue, plan.NamedQueue
	case deadLettered && config.settings.DeadLetterQueue != "":
		d.action.Queue, d.target = config.settings.DeadLetterQueue, plan.NamedQueue
	case deadLettered:
		d.action.Queue, d.target = standard, plan.BrokerQueue
	default:
		d.action.Queue, d.target = standard, plan.ErrorQueue
	}
}

// isReservedQueue reports whether a name stands for a queue of the configuration.
func isReservedQueue(queue string) bool { return queue == DeadLetterQueue || queue == InvalidQueue }

// isInvalid reports whether a message with that reason belongs in the invalid queue: no
// retry and no other version of its data would help, only another sender.
func isInvalid(reason headers.Failure) bool {
	return reason == headers.FailureMalformed || reason == headers.FailureUndecodable || reason == headers.FailureInvalid
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
			return fmt.Sprintf("this was delivery %d and MaxDeliveries is %d, so no handler would get the next one; raise Recoverability.MaxDeliveries, or set it to core.Off",
				f.ImmediateProcessingFailures, r.maxDeliveries)
		}
	case ActionMoveToError:
		if a.Queue == "" || isReservedQueue(a.Queue) { // a configured one, which has been checked
			return ""
		}
		address, err := r.address(a.Queue)
		switch {
		case err != nil:
			return fmt.Sprintf("that cannot be a queue's name: %v", err)
		case address == r.ownAddress:
			return "that is the endpoint's own queue, which the message would never leave"
		}
	case ActionDelayedRetry, ActionDefer, ActionRefuse:
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

// isUnhandled reports whether a failure came before any handler was called.
func isUnhandled(err error) bool {
	return errors.Is(err, ErrMalformed) || errors.Is(err, ErrDeliveryCountExceeded)
}

// setMessage sets the fields of f that come from this delivery of its message.
func (f *failure) setMessage(in *Incoming) {
	f.headers, f.body, f.Message = in.Headers, in.Body, nil
	f.headers.Del(headers.Undelivered) // a sender's: store writes the endpoint's own
	f.replay = replayOf(in.Headers)
	f.groupKey, f.properties, f.native = in.GroupKey, in.Properties, in.Native
	f.expiresAt = in.ExpiresAt
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
