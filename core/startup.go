package core

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// StartUp is the start of an endpoint as seen by one middleware, which reads the
// endpoint's abilities and describes itself. It is valid until the middleware has
// returned its [HandlerFunc]. The methods of a nil *StartUp return zero values and do
// nothing, so that middleware also works outside an endpoint.
type StartUp struct {
	endpoint       string
	list           string // "Middleware": the field of the configuration that has it
	mode           TransactionMode
	caps           Capabilities
	hasPolicy      bool
	recoverability func(messageType string) RecoverabilityConfig
	retrySpan      func() time.Duration

	position   int              // of the middleware in its list
	ownSteps   steps            // of this middleware
	innerSteps steps            // of the middleware inside it
	problems   validationErrors // why the endpoint cannot start
}

// Step describes middleware for the log lines at the start of an endpoint, and for the
// check of the order. All fields but Kind may be left out.
type Step struct {
	// Kind says in a word or two what the step does: "retry".
	Kind string
	// Name distinguishes the step from others of its kind.
	Name string
	// MessageTypes are the types that it applies to; nil means all.
	MessageTypes []string
	// Tries is the highest number of calls of next; 0 means one.
	Tries int
	// Wait is the longest total wait before and between calls of next.
	Wait time.Duration
	// Limit is the time after which it cancels the context of each call of next; 0 means
	// never.
	Limit time.Duration
	// State returns the state of the step in a word, for Health: that of a circuit breaker,
	// for example. It is called at any time by several goroutines, and must not block. nil
	// means that it has no state.
	State func() string
	// Unique: no other handler of the same message type may have a step of this Kind and
	// Name, because the two would share state that belongs to one handler.
	Unique bool
	// Refuses: it may return a verdict instead of calling next ([Refuse]). Such a step
	// cannot be inside a step that tries several times: a verdict ends the tries.
	Refuses bool
	// OpensCircuit: it may return [ErrCircuitOpen], as a verdict or not, instead of calling
	// next. Its State is "closed" while messages pass.
	OpensCircuit bool
	// TakesOpenCircuit: it handles [ErrCircuitOpen] of steps inside of it. It cannot be
	// inside all steps that open a circuit: it would never see that error.
	TakesOpenCircuit bool
	// BeginsTransaction: it calls next in a transaction of the handlers' database, and commits
	// that when next has succeeded. A step that tries several times, or AnswersFailures, cannot
	// stand inside of it: the transaction would commit the work of handlers that failed.
	BeginsTransaction bool
	// AnswersFailures: it may return nil although next has failed.
	AnswersFailures bool
}

// StartUpOf returns the start of the endpoint that gave next to a [Middleware], or nil if
// next is not of an endpoint. Middleware calls it before it returns its [HandlerFunc]:
//
//	func limited(next core.HandlerFunc) core.HandlerFunc {
//		core.StartUpOf(next).Describe(core.Step{Kind: "limit", Limit: time.Second})
//		return ...
//	}
func StartUpOf(next HandlerFunc) *StartUp {
	if next == nil || reflect.ValueOf(next).Pointer() != codeOfNext {
		return nil // users' code, which must not be called now
	}
	var q startUpQuery
	_ = next(&q, nil)
	return q.answer
}

// startUpQuery is the context with which StartUpOf calls next.
type startUpQuery struct {
	context.Context
	answer *StartUp
}

// Endpoint returns the name of the endpoint, or "" for a nil StartUp.
func (s *StartUp) Endpoint() string {
	if s == nil {
		return ""
	}
	return s.endpoint
}

// RetrySpan returns the longest time for which retries can keep a message, without the
// time of the attempts: the longest of all message types. Deferrals, and a [Policy], may
// keep it for longer.
func (s *StartUp) RetrySpan() time.Duration {
	if s == nil {
		return 0
	}
	return s.retrySpan()
}

// Transactions returns the transaction mode of the endpoint, or [TransactionDefault] for
// a nil StartUp.
func (s *StartUp) Transactions() TransactionMode {
	if s == nil {
		return TransactionDefault
	}
	return s.mode
}

// Capabilities returns those of the transport.
func (s *StartUp) Capabilities() Capabilities {
	if s == nil {
		return Capabilities{}
	}
	return s.caps
}

// CanDefer reports whether [Defer], [Refuse] and [RetryAfter] work: the transport has
// delayed delivery and the transaction mode is not None.
func (s *StartUp) CanDefer() bool {
	return s != nil && s.caps.DelayedDelivery && s.mode != TransactionNone
}

// Recoverability returns the settings in force for a message type, as
// [Endpoint.RecoverabilityConfig] does. It may be called later too.
func (s *StartUp) Recoverability(messageType string) RecoverabilityConfig {
	if s == nil {
		return RecoverabilityConfig{}
	}
	return s.recoverability(messageType)
}

// Describe adds steps of this middleware, the outermost first. [Endpoint.Run] logs them,
// and [New] refuses a wrong order.
func (s *StartUp) Describe(each ...Step) {
	if s == nil {
		return
	}
	for _, step := range each {
		step.MessageTypes = slices.Clone(step.MessageTypes)
		s.ownSteps = append(s.ownSteps, placedStep{step, s.list, s.position})
	}
}

// Fail lets [New] refuse the endpoint, because the middleware cannot work there.
func (s *StartUp) Fail(err error) {
	if s != nil && err != nil {
		s.problems.add("%s[%d]: %w", s.list, s.position, err)
	}
}

// begin is called before middleware is applied, from the innermost to the outermost.
func (s *StartUp) begin(position int) {
	s.innerSteps, s.ownSteps = slices.Concat(s.ownSteps, s.innerSteps), nil
	s.position = position
}

// end returns the steps of all middleware, the outermost first. outer are the steps of
// the middleware around them.
func (s *StartUp) end(outer steps) (steps, error) {
	s.begin(0)
	s.innerSteps.check(outer, &s.problems)
	s.innerSteps.checkCircuits(outer, &s.problems)
	s.innerSteps.checkTransactions(outer, &s.problems)
	return s.innerSteps, errors.Join(s.problems.errs...)
}

// placedStep is a step and the place of its middleware.
type placedStep struct {
	Step
	list     string
	position int
}

// String names the step.
func (s placedStep) String() string {
	text := fmt.Sprintf("%s[%d] (%s", s.list, s.position, s.Kind)
	if s.Name != "" {
		text += fmt.Sprintf(" %q", s.Name)
	}
	return text + ")"
}

// steps are nested steps, the outermost first.
type steps []placedStep

// check refuses a wrong order, also between these steps and the surrounding ones.
func (all steps) check(surrounding steps, errs *validationErrors) {
	for i, outer := range slices.Concat(surrounding, all) {
		for _, inner := range all[max(0, i+1-len(surrounding)):] {
			switch {
			case !outer.overlaps(inner.Step):
			case outer.Kind == inner.Kind && outer.Name != "" && outer.Name == inner.Name:
				errs.add("%v is nested in %v, which is the same; remove one of the two", inner, outer)
			case outer.Tries > 1 && inner.Refuses:
				errs.add("%v stands inside of %v, which would try %d times: but where it refuses a message it answers with a verdict, which is never retried (R53); list it before", inner, outer, outer.Tries)
			}
		}
	}
}

// checkCircuits refuses a step that handles open circuits and is inside all of them.
func (all steps) checkCircuits(surrounding steps, errs *validationErrors) {
	whole := slices.Concat(surrounding, all)
	for i, s := range whole {
		opens := func(other placedStep) bool { return other.OpensCircuit && s.overlaps(other.Step) }
		if i < len(surrounding) || !s.TakesOpenCircuit || slices.ContainsFunc(whole[i+1:], opens) {
			continue
		}
		for _, outer := range slices.Backward(whole[:i]) {
			if opens(outer) {
				errs.add("%v stands inside of %v, which refuses messages before they reach it: but it is there to answer for an open circuit; list it before (for a circuit in the handler itself, let it take core.ErrCircuitOpen among its Errors)", s, outer)
				break
			}
		}
	}
}

// checkTransactions refuses a step inside of a transaction that may succeed although handlers
// inside of it have failed.
func (all steps) checkTransactions(surrounding steps, errs *validationErrors) {
	whole := slices.Concat(surrounding, all)
	for i, outer := range whole {
		for _, inner := range whole[max(i+1, len(surrounding)):] {
			if !outer.BeginsTransaction || inner.Tries <= 1 && !inner.AnswersFailures || !outer.overlaps(inner.Step) {
				continue
			}
			fix := "list it before"
			if outer.list != inner.list {
				fix = fmt.Sprintf("move it to %s before that, or move both to %s", outer.list, inner.list)
			}
			errs.add("%v stands inside of %v, whose transaction would commit the work of failed handlers, too; %s", inner, outer, fix)
		}
	}
}

// checkSiblings refuses steps that another handler of the same message type has as well.
func (all steps) checkSiblings(siblings []steps) error {
	for _, s := range all {
		for i, other := range siblings {
			if s.Unique && slices.ContainsFunc(other, func(o placedStep) bool { return o.Kind == s.Kind && o.Name == s.Name }) {
				return fmt.Errorf("%v has the name of the one of handler %d of this message type; give each handler another name", s, i+1)
			}
		}
	}
	return nil
}

// overlaps reports whether two steps can apply to the same message.
func (s Step) overlaps(other Step) bool {
	return s.MessageTypes == nil || other.MessageTypes == nil ||
		slices.ContainsFunc(s.MessageTypes, func(t string) bool { return slices.Contains(other.MessageTypes, t) })
}

// filter returns the steps around messages of a type.
func (all steps) filter(messageType string) steps {
	return slices.DeleteFunc(slices.Clone(all), func(s placedStep) bool {
		return s.MessageTypes != nil && !slices.Contains(s.MessageTypes, messageType)
	})
}

// describeNesting names the steps in their order, and the handlers within them.
func (all steps) describeNesting(handlers string) string {
	var names []string
	for _, s := range all {
		text := s.Kind
		if s.Name != "" {
			text += fmt.Sprintf(" %q", s.Name)
		}
		var more []string
		if s.Tries > 1 {
			more = append(more, fmt.Sprintf("%d tries", s.Tries))
		}
		if s.Limit > 0 {
			more = append(more, s.Limit.String())
		}
		if len(more) > 0 {
			text += " (" + strings.Join(more, ", ") + ")"
		}
		names = append(names, text)
	}
	return strings.Join(append(names, handlers), " > ")
}
