package core

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
)

// Fallback handles messages whose handlers failed: with a cheaper result, an apology, or
// a message to an operator. Its method [Fallback.Middleware] makes it a middleware, for
// an endpoint ([Config.Middleware]), for some message types (MessageTypes), or for one
// handler ([HandleOptions.Middleware]). If several surround a handler, the innermost that
// accepts the failure runs. Fallbacks also run in [Endpoint.Invoke].
//
// It runs after the failed work was undone: the messages that the handlers collected are
// dropped, and in SendsAtomicWithReceive the transport's transaction returns to a
// savepoint, so that [New] refuses a fallback on a transport without savepoints
// ([Capabilities.Savepoints]). New also refuses one inside of an inbox, whose transaction
// cannot be undone in part. The messages of the fallback are sent instead. It runs
// before [HandleFailed], which runs only if the fallback fails.
type Fallback struct {
	// On selects the failures that the fallback accepts. It must be set.
	On FallbackOn

	// MessageTypes are the types that the fallback is for; nil means all.
	MessageTypes []string

	// EachAttempt lets it run at the first failure, instead of a retry. Without it the
	// endpoint's retries come first, and it runs in the last attempt: the one after which
	// the message would go to the error queue. With [Endpoint.Invoke], and in transaction
	// mode None, that is the only one. For an open circuit it always runs at once. With a
	// [Recoverability.Policy], whose decision cannot be known beforehand, [New] refuses a
	// Fallback that is to wait for the last attempt.
	EachAttempt bool

	// Name identifies the fallback in logs.
	Name string

	// Handle handles the message after the failure cause. m is the message of the
	// middleware: messages that Handle sends through it are sent if the attempt succeeds.
	// nil means that the message is handled; observers see it ([Success.Fallback]). An
	// error, or a panic, fails the attempt together with cause: a [*FallbackError]. A
	// verdict decides about the message. Handle must be safe for concurrent use.
	Handle func(ctx context.Context, m *Message, cause error) error
}

// FallbackOn selects failures. At least one of its fields must be set.
//
// Some failures reach a fallback only if they are selected explicitly: panics, bodies
// that cannot be decoded, messages without a handler, and verdicts, which are a handler's
// decision. After the end of the context (a shutdown, a lost lock, HandlerTimeout) no
// fallback runs at all. If several independent handlers failed ([HandlersError]), each of
// their failures must be selected.
type FallbackOn struct {
	// Any selects every other failure.
	Any bool

	// OpenCircuit selects [ErrCircuitOpen], also as a verdict ([Refuse]). New refuses a
	// fallback that is listed after the circuit breaker, because it would never see this
	// error there.
	OpenCircuit bool

	// Errors selects the failures that match one of these (errors.Is). [ErrUndecodable],
	// [ErrNoHandler] and [ErrCircuitOpen], which Any leaves out, can be listed.
	Errors []error

	// Func selects the failures for which it returns true.
	Func func(err error) bool

	// Panics selects panics of handlers and inner middleware: errors of the type
	// [*PanicError].
	Panics bool

	// Verdicts selects the errors of [Defer], [Reject] and the other verdicts.
	Verdicts bool
}

// FallbackError is the failure of a fallback. It wraps both errors, but not a verdict of
// the cause, which the fallback has replaced: the failure of the fallback counts, as that
// of any handler. If the fallback's error is a verdict, that alone decides.
type FallbackError struct {
	Err   error // the fallback's
	Cause error // the failure that it was to handle
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

// Middleware returns the fallback as a middleware. If it is invalid, [New] or the
// handler's registration returns the error.
func (f Fallback) Middleware() Middleware {
	f.On.Errors, f.MessageTypes = slices.Clone(f.On.Errors), slices.Clone(f.MessageTypes)
	return &fallbackMiddleware{f}
}

// fallbackMiddleware is a Fallback as middleware.
type fallbackMiddleware struct{ Fallback }

// Describe implements [Middleware].
func (f *fallbackMiddleware) Describe(scope MiddlewareScope) ([]MiddlewareFacts, error) {
	facts := MiddlewareFacts{Kind: "fallback", Name: f.Name, MessageTypes: f.MessageTypes, HidesFailures: true}
	if f.On.OpenCircuit {
		facts.Check = checkCircuits
	}
	return []MiddlewareFacts{facts}, f.check(scope)
}

// checkCircuits refuses a fallback for open circuits that is inside all of them.
func checkCircuits(outer, inner []MiddlewareFacts) error {
	if slices.ContainsFunc(inner, MiddlewareFacts.isCircuit) {
		return nil
	}
	for _, f := range slices.Backward(outer) {
		if f.isCircuit() {
			return fmt.Errorf("stands inside of %v, which refuses messages before they reach it: but it is there to answer for an open circuit; list it before (for a circuit in the handler itself, let it take core.ErrCircuitOpen among its Errors)", f)
		}
	}
	return nil
}

// Wrap implements [Middleware].
func (f *fallbackMiddleware) Wrap(scope MiddlewareScope, next HandlerFunc) HandlerFunc {
	err := f.check(scope) // outside of an endpoint
	return func(ctx context.Context, m *Message) error {
		switch {
		case err != nil:
			return err
		case f.MessageTypes != nil && !slices.Contains(f.MessageTypes, m.Type):
			return next(ctx, m)
		}
		return f.around(ctx, m, next)
	}
}

// check returns an error if the fallback is invalid, or cannot work on the endpoint.
func (f *Fallback) check(scope MiddlewareScope) error {
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
	case scope.Transactions == TransactionSendsAtomicWithReceive && !scope.Capabilities.Savepoints:
		return fmt.Errorf("the Fallback cannot undo the work of failed handlers in transaction mode SendsAtomicWithReceive, because the transport has no savepoints (Capabilities.Savepoints); "+
			"use ReceiveOnly, or HandleFailed: %w", errors.ErrUnsupported)
	case waits && !f.EachAttempt && scope.HasPolicy:
		return errors.New("the Fallback is to run in the last attempt, which only Recoverability.Policy knows; set EachAttempt, or limit it to OpenCircuit, or use HandleFailed")
	}
	return nil
}

// around runs the handlers, and the fallback if it accepts their failure.
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
	if err := callRecovered(func(ctx context.Context, m *Message) error { return f.Handle(ctx, m, cause) }, ctx, m); err != nil {
		return &FallbackError{outermostVerdict(err), cause}
	}
	m.recordFailingHandler(&failingHandler{handledByFallback: cause})
	if log := m.deps.log; log != nil {
		log.LogAttrs(ctx, slog.LevelInfo, "a fallback handled the message", slog.String("message_id", m.ID), slog.String("message_type", m.Type),
			slog.String("fallback", f.Name), slog.Any("error", cause))
	}
	return nil
}

// outermostVerdict lets the fallback's verdict decide if it wraps a cause that is a
// verdict too, as RetryAfter(cause, delay) after Refuse.
func outermostVerdict(err error) error {
	v, ok := errors.AsType[*Verdict](err)
	if !ok || !IsVerdict(v.Err) {
		return err
	}
	outermost := *v
	outermost.Err = &formerVerdict{v.Err}
	return &outermost
}

// formerVerdict is an error whose verdict no longer counts.
type formerVerdict struct{ err error }

func (e *formerVerdict) Error() string        { return e.err.Error() }
func (e *formerVerdict) Is(target error) bool { return errors.Is(e.err, target) }

// As finds the errors that are wrapped beside the verdict.
func (e *formerVerdict) As(target any) bool {
	_, asksForVerdict := target.(**Verdict)
	return !asksForVerdict && errors.As(e.err, target)
}

// run calls next, and turns a panic into an error if the fallback accepts panics.
func (f *Fallback) run(ctx context.Context, m *Message, next HandlerFunc) error {
	if f.On.Panics {
		return callRecovered(next, ctx, m)
	}
	return next(ctx, m)
}

// takes reports whether the fallback handles a failure now. If several independent handlers
// failed, it must take each failure: otherwise the message would count as handled, and the
// other failures would be lost.
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

// selects reports whether a failure is selected, except by OpenCircuit.
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
	return a == nil || a.delivery == nil || m.deps.isLast(ctx, a, err)
}

// isLastAttempt makes the decision in advance. There is no Policy, which would be called
// twice: New refuses it together with such a fallback.
func (ep *Endpoint) isLastAttempt(ctx context.Context, a *attempt, err error) bool {
	kind := ep.rules.decide(ctx, *ep.describe(a, err)).action.Kind
	return kind == ActionMoveToError || kind == ActionDiscard
}
