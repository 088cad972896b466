package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/reprise-go/reprise/core/health"
)

// HandlerFunc handles one message in one attempt. Middleware wraps it.
type HandlerFunc func(ctx context.Context, m *Message) error

// Middleware wraps the handling of every message: decoding and all handlers of the
// message's type. A function is Middleware as a [MiddlewareFunc]. It may return another
// error than next, or a verdict, and call next several times. Each call is a run with a
// separate [Message], which [MessageFromContext] returns in it: the messages of the last
// run that returned nil are sent, if the attempt succeeds. Those that the middleware itself
// collects do not depend on a run.
type Middleware interface {
	// Wrap returns next with the middleware around it. The result is called by several
	// goroutines. One Middleware may be in several places, and in several endpoints.
	Wrap(scope MiddlewareScope, next HandlerFunc) HandlerFunc

	// Describe returns facts about the middleware, or about each of its parts, the
	// outermost first, and an error for an endpoint on which it cannot work, which is
	// refused. It is called before Wrap.
	Describe(scope MiddlewareScope) ([]MiddlewareFacts, error)
}

// MiddlewareFunc is a function as [Middleware], which works on every endpoint.
type MiddlewareFunc func(next HandlerFunc) HandlerFunc

// Wrap calls the function.
func (f MiddlewareFunc) Wrap(_ MiddlewareScope, next HandlerFunc) HandlerFunc { return f(next) }

// Describe returns no facts, and an error for a nil function.
func (f MiddlewareFunc) Describe(MiddlewareScope) ([]MiddlewareFacts, error) {
	if f == nil {
		return nil, errors.New("the MiddlewareFunc is nil; remove it")
	}
	return nil, nil
}

// wrapMiddleware puts the middleware of a list of the configuration around handler, the
// first outermost. sends is the scope of the handler's sends, with which those of the
// middleware begin.
func wrapMiddleware(handler HandlerFunc, list string, middleware []Middleware, scope MiddlewareScope, sends string) (HandlerFunc, error) {
	chain := handler
	for i, each := range slices.Backward(middleware) {
		inner := sends
		if i < len(middleware)-1 {
			inner += middlewareSends(i + 1)
		}
		next := (&runStarter{chain, inner}).handle
		err := recoverMiddleware("panicked when it was given the next handler", func() error {
			if chain = each.Wrap(scope, next); chain == nil {
				return errors.New("returned no handler")
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("%s[%d] %w", list, i, err)
		}
	}
	return chain, nil
}

// applyMiddleware describes and checks the middleware of a list within that around it, and
// puts it around handler.
func applyMiddleware(handler HandlerFunc, list string, middleware []Middleware, scope MiddlewareScope, surrounding nest, sends string) (HandlerFunc, nest, error) {
	if len(middleware) == 0 {
		return handler, nil, nil
	}
	var errs validationErrors
	facts := describeMiddleware(list, middleware, scope, &errs)
	facts.check(surrounding, &errs)
	if err := errors.Join(errs.errs...); err != nil {
		return nil, nil, err
	}
	chain, err := wrapMiddleware(handler, list, middleware, scope, sends)
	return chain, facts, err
}

// recoverMiddleware calls users' code, and returns an error where it panics.
func recoverMiddleware(panicked string, call func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("%s: %w", panicked, newPanicError(value))
		}
	}()
	return call()
}

// middlewareSends makes the ids of messages that middleware sends distinct from those of
// the handlers, which a failed run may have used (SendNow).
func middlewareSends(i int) string { return "/middleware/" + strconv.Itoa(i) }

// runStarter is the next handler that middleware gets: each call starts a run.
type runStarter struct {
	next  HandlerFunc
	scope string
}

func (s *runStarter) handle(ctx context.Context, m *Message) error {
	if m == nil {
		return errors.New("middleware called next without a message (nil)")
	}
	r := &middlewareRun{Context: ctx}
	r.message.beginRun(m, s.scope)
	r.message.ctx = r
	defer r.message.sends.end() // also where next panics
	if err := s.next(r, &r.message); err != nil {
		return err
	}
	m.recordFailingHandler(nil) // whose failure inner middleware hid
	out := r.message.sends.end()
	m.setSkip(r.message.skipsRemaining())
	m.sends.adopt(out)
	return nil
}

// middlewareRun is one call of a middleware's next: its context and its message.
type middlewareRun struct {
	context.Context
	message Message
}

// Value adds the message to the context.
func (r *middlewareRun) Value(key any) any {
	if key == (messageKey{}) {
		return &r.message
	}
	return r.Context.Value(key)
}

// beginRun fills m for one run that by starts.
func (m *Message) beginRun(by *Message, scope string) {
	m.ID, m.Type, m.Headers = by.ID, by.Type, by.Headers
	m.Attempt, m.DelayedRetries, m.Deferrals = by.Attempt, by.DelayedRetries, by.Deferrals
	m.LastError, m.EnqueuedAt = by.LastError, by.EnqueuedAt
	m.incoming, m.replaced, m.deps = by.incoming, by.replaced, by.deps
	m.part, m.parent = by.part, by
	m.sends.message, m.sends.scope = m, scope
	if m.part != nil {
		m.sends.scope += m.part.scope
	}
}

// middlewareStates returns the states of middleware that has one: first of
// Config.Middleware, then of single handlers, in the order of their message types.
// Middleware with the same kind, name and state is listed once.
func (r *registry) middlewareStates() (states []health.MiddlewareState) {
	add := func(all nest, messageType string, handlers ...string) {
		for _, s := range all {
			if s.State == nil {
				continue
			}
			types := slices.Clone(s.MessageTypes)
			if handlers != nil {
				types = []string{messageType}
			}
			state := health.MiddlewareState{Kind: s.Kind, Name: s.Name, State: s.State(), MessageTypes: types, Handlers: handlers, OpensCircuit: s.isCircuit()}
			i := slices.IndexFunc(states, func(s health.MiddlewareState) bool { return isSameMiddleware(s, state) })
			if i < 0 {
				states = append(states, state)
				continue
			}
			states[i].MessageTypes = unionOrNil(states[i].MessageTypes, state.MessageTypes)
			states[i].Handlers = unionOrNil(states[i].Handlers, state.Handlers)
		}
	}
	add(r.surrounding, "")
	for _, h := range r.middleware() { // without a lock: State is users' code
		add(h.nest, typeLabel(h.messageType), h.name)
	}
	return states
}

// isSameMiddleware reports whether two states belong to the same middleware, as far as
// that can be detected.
func isSameMiddleware(s, other health.MiddlewareState) bool {
	return s.Name != "" && s.Kind == other.Kind && s.Name == other.Name && s.State == other.State
}

// unionOrNil joins two lists of which nil means all.
func unionOrNil(a, b []string) []string {
	if a == nil || b == nil {
		return nil
	}
	for _, text := range b {
		if !slices.Contains(a, text) {
			a = append(a, text)
		}
	}
	return a
}

// handlerMiddleware is the middleware of one handler.
type handlerMiddleware struct {
	messageType, name string
	nest              nest
}

// middleware returns the middleware of all handlers that describes itself.
func (r *registry) middleware() (all []handlerMiddleware) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for messageType, set := range r.handlers {
		for i, described := range set.nests {
			if len(described) > 0 {
				all = append(all, handlerMiddleware{messageType, set.names[i], described})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b handlerMiddleware) int { return cmp.Compare(a.messageType, b.messageType) })
	return all
}

// TypedMiddleware makes a [Middleware] of a function that gets the decoded body and passes
// it, or another one, on, for the [HandleOptions] of a handler that takes the same T. A
// body that cannot be decoded does not reach the function. Several calls of next share data
// that the body refers to.
func TypedMiddleware[T any](middleware func(ctx context.Context, m *Message, body T, next func(ctx context.Context, m *Message, body T) error) error) Middleware {
	if middleware == nil {
		return MiddlewareFunc(nil) // which is refused
	}
	return MiddlewareFunc(func(next HandlerFunc) HandlerFunc {
		passOn := func(ctx context.Context, m *Message, body T) error {
			outer, passed := m.replaced, &replacedBody{decoded: &body}
			if outer != nil {
				passed.body = outer.body
			}
			m.replaced = passed
			err := next(ctx, m)
			m.replaced = outer // for the other handlers of the message
			return err
		}
		return func(ctx context.Context, m *Message) error {
			body, err := decodeBody[T](m)
			if err != nil {
				return err
			}
			return middleware(ctx, m, body, passOn)
		}
	})
}

// handlerScope makes the ids of messages distinct that the handlers of a type send in
// separate runs.
func handlerScope(position int) string { return "/handler/" + strconv.Itoa(position+1) }

// wrapHandler puts the middleware of a handler around it, and a separate run for each
// attempt if it is independent.
func (r *registry) wrapHandler(handler HandlerFunc, messageType string, position int, o HandleOptions) (HandlerFunc, nest, error) {
	if len(o.Middleware) == 0 && !o.Independent {
		return handler, nil, nil
	}
	sends := handlerScope(position)
	chain, facts, err := applyMiddleware(handler, "HandleOptions.Middleware", o.Middleware, r.scope, r.surrounding.filter(messageType), sends)
	if err != nil {
		return nil, nil, err
	}
	if o.Independent {
		if len(o.Middleware) > 0 {
			sends += middlewareSends(0)
		}
		chain = (&runStarter{chain, sends}).handle
	}
	return func(ctx context.Context, m *Message) error {
		err := chain(ctx, m)
		m.sends.keepAdopted() // beside the messages of other handlers
		return err
	}, facts, nil
}

// typeLabel returns a message type as it is shown to people.
func typeLabel(messageType string) string {
	if messageType == anyType {
		return "(others)"
	}
	return messageType
}
