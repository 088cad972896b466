// Package fallback is middleware that answers for handlers that failed: with a cheaper
// result, an apology, or a message to an operator.
//
//	apology := fallback.Middleware{On: fallback.On{Any: true}, Handle: apologize}
//	config.Middleware = []core.Middleware{apology}
package fallback

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/messagekit"
)

// Middleware handles messages whose handlers failed. It is for an endpoint
// (core.Config.Middleware), for some message types (MessageTypes), or for one handler
// (core.HandleOptions.Middleware). If several surround a handler, the innermost that accepts
// the failure runs. They also run in core.Endpoint.Invoke.
//
// It runs after the failed work was undone: the messages that the handlers collected are
// dropped, and in SendsAtomicWithReceive the transport's transaction returns to a
// savepoint, so that core.New refuses a fallback on a transport without savepoints
// (core.Capabilities.Savepoints). New also refuses one inside of an inbox, whose transaction
// cannot be undone in part. The messages of the fallback are sent instead. It runs
// before core.HandleFailed, which runs only if the fallback fails.
type Middleware struct {
	// On selects the failures that the fallback accepts. It must be set.
	On On

	// MessageTypes are the types that the fallback is for; nil means all.
	MessageTypes []string

	// EachAttempt lets it run at the first failure, instead of a retry. Without it the
	// endpoint's retries come first, and it runs in the last attempt: the one after which
	// the message would go to the error queue. With core.Endpoint.Invoke, and in transaction
	// mode None, that is the only one. For an open circuit it always runs at once. With a
	// core.Policy, whose decision cannot be known beforehand, New refuses a fallback that is
	// to wait for the last attempt.
	EachAttempt bool

	// Name identifies the fallback in logs.
	Name string

	// Handle handles the message after the failure cause. m is the message of the
	// middleware: messages that Handle sends through it are sent if the attempt succeeds.
	// nil means that the message is handled; [Cause] tells observers. An error, or a panic,
	// fails the attempt together with cause: an [*Error]. A verdict decides about the
	// message. Handle must be safe for concurrent use.
	Handle func(ctx context.Context, m *core.Message, cause error) error
}

// On selects failures. At least one of its fields must be set.
//
// Some failures reach a fallback only if they are selected explicitly: panics, bodies
// that cannot be decoded, messages without a handler, and verdicts, which are a handler's
// decision. After the end of the context (a shutdown, a lost lock, HandlerTimeout) no
// fallback runs at all. If several independent handlers failed (core.HandlersError), each
// of their failures must be selected.
type On struct {
	// Any selects every other failure.
	Any bool

	// OpenCircuit selects core.ErrCircuitOpen, also as a verdict (core.Refuse). New refuses
	// a fallback that is listed after the circuit breaker, because it would never see this
	// error there.
	OpenCircuit bool

	// Errors selects the failures that match one of these (errors.Is). core.ErrUndecodable,
	// core.ErrNoHandler and core.ErrCircuitOpen, which Any leaves out, can be listed.
	Errors []error

	// Func selects the failures for which it returns true.
	Func func(err error) bool

	// Panics selects panics of handlers and inner middleware: errors of the type
	// *core.PanicError.
	Panics bool

	// Verdicts selects the errors of core.Defer, core.GiveUp and the other verdicts.
	Verdicts bool
}

// Error is the failure of a fallback. It wraps both errors, but not a verdict of
// the cause, which the fallback has replaced: the failure of the fallback counts, as that
// of any handler. If the fallback's error is a verdict, that alone decides.
type Error struct {
	Err   error // the fallback's
	Cause error // the failure that it was to handle
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("%v; the fallback failed: %v", e.Cause, e.Err)
}

// Unwrap returns the errors.
func (e *Error) Unwrap() []error {
	switch {
	case core.VerdictOf(e.Err) != nil:
		return []error{e.Err}
	case core.VerdictOf(e.Cause) != nil:
		return []error{e.Err, &formerVerdict{e.Cause}}
	}
	return []error{e.Err, e.Cause}
}

type causeKey struct{}

// Cause returns the failure that a fallback handled in this attempt of m, or nil. It is for
// observers, whose core.Handling has the message. Where middleware around
// the fallback tries again, it is that of any of its runs.
func Cause(m *core.Message) error {
	cause, _ := m.Value(causeKey{}).(error)
	return cause
}

// Describe implements core.Middleware. It refuses a fallback that is invalid, or cannot
// work on the endpoint.
func (f Middleware) Describe(scope core.MiddlewareScope) ([]core.MiddlewareFacts, error) {
	facts := core.MiddlewareFacts{Kind: "fallback", Name: f.Name, MessageTypes: f.MessageTypes, HidesFailures: true}
	if f.On.OpenCircuit {
		facts.Check = checkCircuits
	}
	return []core.MiddlewareFacts{facts}, f.check(scope)
}

// checkCircuits refuses a fallback for open circuits that is inside all of them.
func checkCircuits(outer, inner []core.MiddlewareFacts) error {
	if slices.ContainsFunc(inner, isCircuit) {
		return nil
	}
	for _, f := range slices.Backward(outer) {
		if isCircuit(f) {
			return fmt.Errorf("stands inside of %v, which refuses messages before they reach it: but the fallback is there to answer for an open circuit; list it before (for a circuit in the handler itself, let it take core.ErrCircuitOpen among its Errors)", f)
		}
	}
	return nil
}

// isCircuit reports whether middleware refuses messages because a circuit is open.
func isCircuit(f core.MiddlewareFacts) bool {
	return slices.ContainsFunc(f.Refusals, func(err error) bool { return errors.Is(err, core.ErrCircuitOpen) })
}

// check returns an error if the fallback is invalid, or cannot work on the endpoint.
func (f Middleware) check(scope core.MiddlewareScope) error {
	on := &f.On
	waits := on.Any || len(on.Errors) > 0 || on.Func != nil || on.Panics || on.Verdicts // unless EachAttempt
	switch {
	case !waits && !on.OpenCircuit:
		return errors.New("fallback: it takes no failures; choose some with On: OpenCircuit, Errors, Func or Any")
	case slices.Contains(on.Errors, nil):
		return errors.New("fallback: On.Errors has a nil; remove it")
	case f.Handle == nil:
		return errors.New("fallback: Handle is nil; set it")
	case f.MessageTypes != nil && len(f.MessageTypes) == 0:
		return errors.New("fallback: MessageTypes is empty; name some, or leave it nil for all")
	case scope.Transactions == core.TransactionSendsAtomicWithReceive && !scope.Capabilities.Savepoints:
		return fmt.Errorf("fallback: it cannot undo the work of failed handlers in transaction mode SendsAtomicWithReceive, because the transport has no savepoints (Capabilities.Savepoints); "+
			"use ReceiveOnly, or HandleFailed: %w", errors.ErrUnsupported)
	case waits && !f.EachAttempt && scope.HasPolicy:
		return errors.New("fallback: it is to run in the last attempt, which only Recoverability.Policy knows; set EachAttempt, or limit it to OpenCircuit, or use HandleFailed")
	}
	return nil
}

// Wrap implements core.Middleware.
func (f Middleware) Wrap(scope core.MiddlewareScope, next core.HandlerFunc) core.HandlerFunc {
	if err := f.check(scope); err != nil { // outside of an endpoint
		return func(context.Context, *core.Message) error { return err }
	}
	f.On.Errors, f.MessageTypes = slices.Clone(f.On.Errors), slices.Clone(f.MessageTypes)
	g := &guard{f, scope, next}
	return g.handle
}

// guard is a fallback around the handlers of one endpoint.
type guard struct {
	Middleware
	scope core.MiddlewareScope // of the endpoint
	next  core.HandlerFunc
}

// handle runs the handlers, and the fallback if it accepts their failure.
func (g *guard) handle(ctx context.Context, m *core.Message) error {
	if g.MessageTypes != nil && !slices.Contains(g.MessageTypes, m.Type) {
		return g.next(ctx, m)
	}
	var savepoint *core.Savepoint
	if g.scope.Transactions == core.TransactionSendsAtomicWithReceive {
		var err error
		if savepoint, err = m.Savepoint(ctx); err != nil {
			return err
		}
	}
	cause := g.run(ctx, m)
	if cause == nil || ctx.Err() != nil || !g.takes(m, cause) {
		return cause
	}
	if savepoint != nil {
		if err := savepoint.Rollback(ctx); err != nil {
			return &Error{err, cause}
		}
	}
	answer := func(ctx context.Context, m *core.Message) error { return g.Handle(ctx, m, cause) }
	if err := messagekit.CallRecovered(ctx, m, answer); err != nil {
		return &Error{outermostVerdict(err), cause}
	}
	m.SetValue(causeKey{}, cause)
	g.scope.Logger().InfoContext(ctx, "a fallback handled the message", "message_id", m.ID, "message_type", m.Type, "fallback", g.Name, "error", cause)
	return nil
}

// outermostVerdict lets the fallback's verdict decide if it wraps a cause that is a
// verdict too, as RetryAfter(cause, delay) after Refuse.
func outermostVerdict(err error) error {
	v, ok := errors.AsType[*core.Verdict](err)
	if !ok || core.VerdictOf(v.Err) == nil {
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
	_, asksForVerdict := target.(**core.Verdict)
	return !asksForVerdict && errors.As(e.err, target)
}

// run calls the handlers, and turns a panic into an error if the fallback accepts panics.
func (g *guard) run(ctx context.Context, m *core.Message) error {
	if g.On.Panics {
		return messagekit.CallRecovered(ctx, m, g.next)
	}
	return g.next(ctx, m)
}

// takes reports whether the fallback handles a failure now. If several independent handlers
// failed, it must take each failure: otherwise the message would count as handled, and the
// other failures would be lost.
func (g *guard) takes(m *core.Message, cause error) bool {
	failures := []core.HandlerFailure{{Err: cause}}
	if several, ok := errors.AsType[*core.HandlersError](cause); ok {
		failures = several.Failures
	}
	waits := false // for the last attempt
	for _, failure := range failures {
		switch {
		case g.On.OpenCircuit && errors.Is(failure.Err, core.ErrCircuitOpen):
		case g.On.selects(failure.Err):
			waits = true
		default:
			return false
		}
	}
	return !waits || g.EachAttempt || m.IsLastAttempt(cause)
}

// selects reports whether a failure is selected, except by OpenCircuit.
func (on *On) selects(cause error) bool {
	named := slices.ContainsFunc(on.Errors, func(target error) bool { return errors.Is(cause, target) })
	special := func(target error) bool { return errors.Is(cause, target) && !slices.Contains(on.Errors, target) }
	_, panicked := errors.AsType[*core.PanicError](cause)
	switch {
	case panicked:
		return on.Panics
	case special(core.ErrUndecodable), special(core.ErrNoHandler), special(core.ErrNoType):
		return false
	case core.VerdictOf(cause) != nil:
		return on.Verdicts || errors.Is(cause, core.ErrCircuitOpen) && slices.Contains(on.Errors, core.ErrCircuitOpen)
	}
	return on.Any || named || on.Func != nil && on.Func(cause)
}
