package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
)

// Fallback answers for handlers that failed: with a cheaper result, an apology, or a message
// to somebody who helps. Middleware makes it a middleware, for an endpoint
// (Config.Middleware), for some message types (MessageTypes), or for one handler
// (HandleOptions.Middleware). Where several stand around a handler the innermost that takes
// the failure answers. The same holds for Invoke.
//
// It runs after the failed work was undone: the messages that the handlers collected are
// dropped, and in SendsAtomicWithReceive the transport's transaction returns to a savepoint,
// so that New refuses a fallback where the transport has none (Capabilities.Savepoints). New
// also refuses one inside of an inbox, whose transaction cannot be undone in part.
// What it sends leaves instead. It runs before HandleFailed, which runs only if the fallback
// fails.
type Fallback struct {
	// On says which failures it takes. It must be chosen.
	On FallbackOn

	// MessageTypes are those for which it is; nil is all.
	MessageTypes []string

	// EachAttempt lets it run at the first failure, instead of a retry. Without it the
	// endpoint's retries come first, and it runs in the last attempt: the one after which
	// the message would go to the error queue. With Invoke, and in transaction mode None,
	// that is the only one. An open circuit is answered at once in any case. With a
	// Recoverability.Policy, which cannot be asked beforehand, New refuses a Fallback
	// that is to wait for the last attempt.
	EachAttempt bool

	// Name tells it from others in logs.
	Name string

	// Handle answers. cause is the failure. It has the message of the middleware: what it
	// sends leaves if the attempt succeeds. nil means that the message is handled; observers
	// are told so (Success.Fallback). An error, or a panic, is the failure of the attempt
	// together with cause: a *FallbackError. A verdict decides what happens to the message.
	// It is called by each goroutine that handles messages.
	Handle func(ctx context.Context, m *Message, cause error) error
}

// FallbackOn chooses failures. At least one of its fields must be set.
//
// Some failures reach no fallback unless they are asked for by name: panics, bodies that
// cannot be decoded and messages without a handler, and verdicts, with which a handler has
// decided. After the end of the context (a shutdown, a lost lock, HandlerTimeout) no fallback
// runs at all. Where several independent handlers failed (HandlersError), each of the failures
// must be one that is chosen.
type FallbackOn struct {
	// Any takes every other failure.
	Any bool

	// OpenCircuit takes ErrCircuitOpen, also as a verdict (Refuse). New refuses a fallback
	// that is listed after the circuit breaker, within which it would never see one.
	OpenCircuit bool

	// Errors takes the failures that match one of these (errors.Is). ErrUndecodable,
	// ErrNoHandler and ErrCircuitOpen among them name what Any leaves out.
	Errors []error

	// Func takes the failures for which it returns true.
	Func func(err error) bool

	// Panics takes panics of handlers and inner middleware: errors of the type *PanicError.
	Panics bool

	// Verdicts takes the errors of Defer, Reject and the others.
	Verdicts bool
}

// FallbackError is the failure of a fallback. It wraps both errors, but of the cause no
// verdict, which was taken: the failure of the fallback counts, as that of any handler. Where
// the fallback's error is a verdict that decides alone.
type FallbackError struct {
	Err   error // the fallback's
	Cause error // the failure that it was to answer for
}

// Error implements error.
func (e *FallbackError) Error() string {
	return fmt.Sprintf("%v; the fallback failed: %v", e.Cause, e.Err)
}

// Unwrap returns the errors.
func (e *FallbackError) Unwrap() []error {
	switch {
	case IsVerdict(e.Err):
		return []error{e.Err}
	case IsVerdict(e.Cause):
		return []error{e.Err, &formerVerdict{e.Cause}}
	}
	return []error{e.Err, e.Cause}
}

// Middleware returns the fallback as a middleware. What is wrong with it is the error of New,
// or of the handler's registration.
func (f Fallback) Middleware() Middleware {
	f.On.Errors, f.MessageTypes = slices.Clone(f.On.Errors), slices.Clone(f.MessageTypes)
	return func(next HandlerFunc) HandlerFunc {
		start := StartUpOf(next)
		err := f.check(start)
		if err != nil {
			start.Fail(err)
		}
		start.Describe(Step{Kind: "fallback", Name: f.Name, MessageTypes: f.MessageTypes, TakesOpenCircuit: f.On.OpenCircuit, AnswersFailures: true})
		return func(ctx context.Context, m *Message) error {
			switch {
			case err != nil: // outside of an endpoint
				return err
			case f.MessageTypes != nil && !slices.Contains(f.MessageTypes, m.Type):
				return next(ctx, m)
			}
			return f.around(ctx, m, next)
		}
	}
}

// check says what is wrong, or why it cannot work on an endpoint.
func (f *Fallback) check(start *StartUp) error {
	on := &f.On
	waits := on.Any || len(on.Errors) > 0 || on.Func != nil || on.Panics || on.Verdicts // unless EachAttempt
	switch {
	case !waits && !on.OpenCircuit:
		return errors.New("the Fallback takes no failures; choose some with FallbackOn: OpenCircuit, Errors, Func or Any")
	case slices.Contains(on.Errors, nil):
		return errors.New("FallbackOn.Errors has a nil")
	case f.Handle == nil:
		return errors.New("Fallback.Handle is nil")
	case f.MessageTypes != nil && len(f.MessageTypes) == 0:
		return errors.New("Fallback.MessageTypes is empty; name some, or leave it nil for all")
	case start == nil:
		return nil
	case start.mode == TransactionSendsAtomicWithReceive && !start.caps.Savepoints:
		return fmt.Errorf("the Fallback cannot undo the work of failed handlers in transaction mode SendsAtomicWithReceive, because the transport has no savepoints (Capabilities.Savepoints); "+
			"use ReceiveOnly, or HandleFailed: %w", errors.ErrUnsupported)
	case waits && !f.EachAttempt && start.hasPolicy:
		return errors.New("the Fallback is to run in the last attempt, which only Recoverability.Policy knows; set EachAttempt, or limit it to OpenCircuit, or use HandleFailed")
	}
	return nil
}

// around runs the handlers, and the fallback where it takes their failure.
func (f *Fallback) around(ctx context.Context, m *Message, next HandlerFunc) error {
	var savepoint *Savepoint
	if m.transaction() != nil {
		var err error
		if savepoint, err = m.Savepoint(ctx); err != nil {
			return err
		}
	}
	cause := f.run(ctx, m, next)
	if cause == nil || ctx.Err() != nil || !f.takes(ctx, m, cause) {
		return cause
	}
	if savepoint != nil {
		if err := savepoint.Rollback(ctx); err != nil {
			return &FallbackError{err, cause}
		}
	}
	if err := call(func(ctx context.Context, m *Message) error { return f.Handle(ctx, m, cause) }, ctx, m); err != nil {
		return &FallbackError{outermostVerdict(err), cause}
	}
	m.noteFailing(&failingHandler{fallback: cause})
	if log := m.env.log; log != nil {
		log.LogAttrs(ctx, slog.LevelInfo, "a fallback handled the message", slog.String("message_id", m.ID), slog.String("message_type", m.Type),
			slog.String("fallback", f.Name), slog.Any("error", cause))
	}
	return nil
}

// outermostVerdict lets the verdict of a fallback decide that was made with a cause which is
// one too, as RetryAfter(cause, delay) after Refuse.
func outermostVerdict(err error) error {
	v, ok := errors.AsType[*Verdict](err)
	if !ok || !IsVerdict(v.Err) {
		return err
	}
	outermost := *v
	outermost.Err = &formerVerdict{v.Err}
	return &outermost
}

// formerVerdict is an error whose verdict does not count any more.
type formerVerdict struct{ err error }

func (e *formerVerdict) Error() string        { return e.err.Error() }
func (e *formerVerdict) Is(target error) bool { return errors.Is(e.err, target) }

// As finds what the error wraps beside the verdict.
func (e *formerVerdict) As(target any) bool {
	_, asksForVerdict := target.(**Verdict)
	return !asksForVerdict && errors.As(e.err, target)
}

// run calls next, and makes an error of a panic that it is to take.
func (f *Fallback) run(ctx context.Context, m *Message, next HandlerFunc) error {
	if f.On.Panics {
		return call(next, ctx, m)
	}
	return next(ctx, m)
}

// takes reports whether the fallback answers for a failure now. Of several independent handlers it
// must take each failure: the message would be handled, and the others forgotten.
func (f *Fallback) takes(ctx context.Context, m *Message, cause error) bool {
	failures := []HandlerFailure{{Err: cause}}
	if several, ok := errors.AsType[*HandlersError](cause); ok {
		failures = several.Failures
	}
	waits := false // for the last attempt
	for _, failure := range failures {
		switch {
		case f.On.OpenCircuit && errors.Is(failure.Err, ErrCircuitOpen):
		case f.On.selects(failure.Err):
			waits = true
		default:
			return false
		}
	}
	return !waits || f.EachAttempt || m.isLastAttempt(ctx, cause)
}

// selects reports whether a failure is one of those chosen, but for the open circuit.
func (on *FallbackOn) selects(cause error) bool {
	named := slices.ContainsFunc(on.Errors, func(target error) bool { return errors.Is(cause, target) })
	special := func(target error) bool { return errors.Is(cause, target) && !slices.Contains(on.Errors, target) }
	_, panicked := errors.AsType[*PanicError](cause)
	switch {
	case panicked:
		return on.Panics
	case special(ErrUndecodable), special(ErrNoHandler), special(ErrNoType):
		return false
	case IsVerdict(cause):
		return on.Verdicts || errors.Is(cause, ErrCircuitOpen) && slices.Contains(on.Errors, ErrCircuitOpen)
	}
	return on.Any || named || on.Func != nil && on.Func(cause)
}

// isLastAttempt reports whether the message would go to the error queue, or be discarded, if
// this attempt failed with err.
func (m *Message) isLastAttempt(ctx context.Context, err error) bool {
	a := m.attempt()
	return a == nil || a.delivery == nil || m.env.isLast(ctx, a, err)
}

// isLastAttempt decides as it will be decided. There is no Policy, which would be asked twice:
// New refuses the two together.
func (ep *Endpoint) isLastAttempt(ctx context.Context, a *attempt, err error) bool {
	kind := ep.rules.decide(ctx, *ep.describe(a, err)).action.Kind
	return kind == ActionMoveToError || kind == ActionDiscard
}
