package core

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// HandleOptions are the options of a handler's registration. The zero value changes
// nothing.
type HandleOptions struct {
	// Independent makes each handler of a message type run in every attempt, even if an
	// earlier one failed. Either all handlers of a type are independent or none is. If a
	// message has several types, the handlers of one type may be independent and those of
	// another not: the latter stop each other, but no independent one.
	//
	// The attempt fails if one of them failed, and a retry runs all again: their messages
	// are sent only when all have succeeded. Each has a separate [Message]. In
	// SendsAtomicWithReceive each starts from a savepoint, if the transport has them
	// ([Capabilities.Savepoints]), so that the work of a failed handler is undone alone and
	// does not break the transaction for the next. A panic is the failure of its handler.
	// When the context ends, the remaining handlers do not run, and the attempt fails.
	// [Message.SkipRemainingHandlers] skips none of them.
	//
	// If several fail, the attempt fails with a [*HandlersError], and one failure decides
	// about the message, so that no handler ends it for another that requested a retry: a
	// [RetryAfter] comes before an error, an error before a [Defer], and these before
	// [Reject], [Invalid], [Unrecoverable], [MoveTo] and [Discard]. An unrecoverable error,
	// and a RetryAfter or Defer that has reached its limit, count as Unrecoverable. Of
	// several RetryAfter, or Defer, the one with the longest delay decides, of other
	// failures that of the first handler.
	Independent bool

	// Middleware wraps this handler alone, the first outermost, within [Config.Middleware].
	// It runs once a handler is chosen, so that a change of [Message.Type] has no effect.
	// [TypedMiddleware] makes a Middleware that gets the decoded body.
	Middleware []Middleware
}

// TypedHandlerFunc is the function of a handler that takes a T.
type TypedHandlerFunc[T any] func(ctx context.Context, m *TypedMessage[T]) error

// TypedMiddleware makes a [Middleware] of a function that gets the decoded body: it may
// read or change the body, or pass on another one. It is for the [HandleOptions] of a
// handler that takes the same T: the handler gets the body that next was called with, and
// it is decoded once. A body that cannot be decoded does not reach the function. It may
// call next several times, as any Middleware; the calls then share data that the body
// refers to.
func TypedMiddleware[T any](middleware func(next TypedHandlerFunc[T]) TypedHandlerFunc[T]) Middleware {
	return func(next HandlerFunc) HandlerFunc {
		handle := middleware(func(ctx context.Context, m *TypedMessage[T]) error {
			outer, passed := m.replaced, &replacedBody{decoded: &m.Body}
			if outer != nil {
				passed.body = outer.body
			}
			m.replaced = passed
			err := next(ctx, m.Message)
			m.replaced = outer // for the other handlers of the message
			return err
		})
		if handle == nil {
			return nil // which is refused
		}
		return func(ctx context.Context, m *Message) error {
			in, err := decodeTyped[T](m)
			if err != nil {
				return err
			}
			return handle(ctx, in)
		}
	}
}

// DecodeBody returns the decoded body of a message, for middleware that handles messages of
// several types. It decodes at each call, as a handler that takes a T would.
func DecodeBody[T any](m *Message) (T, error) {
	in, err := decodeTyped[T](m)
	return in.Body, err
}

// singleOptions returns the options of one call.
func singleOptions(opts []HandleOptions) (HandleOptions, error) {
	switch len(opts) {
	case 0:
		return HandleOptions{}, nil
	case 1:
		return opts[0], nil
	}
	return HandleOptions{}, fmt.Errorf("%d HandleOptions were given; merge them into one", len(opts))
}

// handlerScope makes the ids of messages distinct that the handlers of a type send in
// separate runs.
func handlerScope(position int) string { return "/handler/" + strconv.Itoa(position+1) }

// wrapHandler puts the middleware of a handler around it, and a separate run for each
// attempt if it is independent.
func (ep *Endpoint) wrapHandler(handler HandlerFunc, messageType string, position int, o HandleOptions) (HandlerFunc, steps, error) {
	if len(o.Middleware) == 0 && !o.Independent {
		return handler, nil, nil
	}
	start := ep.startUp("HandleOptions.Middleware")
	scope := handlerScope(position)
	chain, err := applyMiddleware(handler, o.Middleware, start, scope)
	if err != nil {
		return nil, nil, err
	}
	outer := ep.steps.filter(messageType)
	inner, err := start.end(outer)
	if err != nil {
		return nil, nil, err
	}
	if o.Independent {
		if len(o.Middleware) > 0 {
			scope += middlewareScope(0)
		}
		chain = (&runStarter{chain, scope, start}).handle
	}
	return func(ctx context.Context, m *Message) error {
		err := chain(ctx, m)
		m.keepAdopted() // beside the messages of other handlers
		return err
	}, inner, nil
}

// HandlersError is the failure of several independent handlers
// ([HandleOptions.Independent]). It wraps the error that decides about the message; the
// others are only in Failures.
type HandlersError struct {
	// Failures are in the order in which the handlers ran.
	Failures []HandlerFailure

	deciding error
	handlers int // of the message type
}

// HandlerFailure is the failure of one handler.
type HandlerFailure struct {
	Handler string // the name of its function
	Err     error
}

// Error implements error.
func (e *HandlersError) Error() string {
	failures := make([]string, len(e.Failures))
	for i, f := range e.Failures {
		failures[i] = f.Handler + ": " + f.Err.Error()
	}
	return fmt.Sprintf("%d of %d handlers failed: %s", len(e.Failures), e.handlers, strings.Join(failures, "; "))
}

// Unwrap returns the error of the handler that decides.
func (e *HandlersError) Unwrap() error { return e.deciding }

// errNotRun is the failure of handlers that did not run.
var errNotRun = errors.New("the context ended before this handler ran")

// startUp returns the StartUp for the middleware of a list.
func (ep *Endpoint) startUp(list string) *StartUp {
	return &StartUp{endpoint: ep.name, retrySpan: ep.rules.retrySpan, list: list, mode: ep.mode, caps: ep.caps, hasPolicy: ep.rules.policy != nil, recoverability: ep.RecoverabilityConfig}
}
