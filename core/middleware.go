package core

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
)

// HandlerFunc handles one message in one attempt. Middleware wraps it.
type HandlerFunc func(ctx context.Context, m *Message) error

// Middleware wraps the handling of every message: decoding and all handlers of
// the message's type. It sees the message before and the error after, and may
// return another error or a verdict instead (R53).
//
// It may call next several times, or replace next's error. Each call of next is a run
// with a separate [Message]: the messages that a run collected are sent if it is the last
// run that returned nil, and the attempt succeeds. The messages that the middleware
// itself collects, before or after, do not depend on a run. In each context
// [MessageFromContext] returns the Message of that run.
//
// It can take part in the endpoint's start with [StartUpOf]: describe itself, and
// refuse an endpoint on which it cannot work.
type Middleware func(next HandlerFunc) HandlerFunc

// applyMiddleware puts middleware around handler, the first outermost. scopes is that of
// the handler, with which those of the middleware begin.
func applyMiddleware(handler HandlerFunc, middleware []Middleware, start *StartUp, scopes string) (HandlerFunc, error) {
	chain := handler
	for i, each := range slices.Backward(middleware) {
		scope := scopes
		if i < len(middleware)-1 {
			scope += middlewareScope(i + 1)
		}
		start.begin(i)
		var err error
		if chain, err = applyOne(each, (&runStarter{chain, scope, start}).handle); err != nil {
			return nil, fmt.Errorf("%s[%d] %w", start.list, i, err)
		}
	}
	return chain, nil
}

// applyOne returns an error for middleware that panics or returns nil.
func applyOne(each Middleware, next HandlerFunc) (wrapped HandlerFunc, err error) {
	defer func() {
		if value := recover(); value != nil {
			err = fmt.Errorf("panicked when it was given the next handler: %w", newPanicError(value))
		}
	}()
	if wrapped = each(next); wrapped == nil {
		return nil, errors.New("returned no handler")
	}
	return wrapped, nil
}

// middlewareScope makes the ids of messages that middleware sends distinct from those of
// the handlers, which a failed run may have used (SendNow).
func middlewareScope(i int) string { return "/middleware/" + strconv.Itoa(i) }

// runStarter is the next of a middleware: each call is a run.
type runStarter struct {
	next  HandlerFunc
	scope string
	start *StartUp
}

func (s *runStarter) handle(ctx context.Context, m *Message) error {
	if m == nil {
		return s.answerStartUp(ctx)
	}
	r := &middlewareRun{Context: ctx}
	r.message.beginRun(m, s.scope)
	r.message.ctx = r
	defer r.message.end() // also where next panics
	if err := s.next(r, &r.message); err != nil {
		return err
	}
	m.adopt(r.message.end(), r.message.skipsRemaining())
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
	m.scope, m.typeScope, m.parent = scope+by.typeScope, by.typeScope, by
}

// adopt replaces the messages of an earlier run by those of a run that succeeded. skips
// is whether this run skips the remaining handlers.
func (m *Message) adopt(out []Outgoing, skips bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skipsRest = skips
	m.outgoing = slices.Delete(m.outgoing, int(m.adoptedAt), int(m.adoptedAt+m.adopted))
	m.adoptedAt, m.adopted = int32(len(m.outgoing)), int32(len(out))
	m.outgoing = append(m.outgoing, out...)
}

// keepAdopted makes later runs keep the messages that earlier runs have collected.
func (m *Message) keepAdopted() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.adopted = 0
}

// codeOfNext is the code of the next that endpoints give to middleware.
var codeOfNext = reflect.ValueOf((&runStarter{}).handle).Pointer()

// answerStartUp handles the call of StartUpOf, which has no message.
func (s *runStarter) answerStartUp(ctx context.Context) error {
	q, ok := ctx.(*startUpQuery)
	if !ok {
		return errors.New("middleware called next without a message (nil)")
	}
	q.answer = s.start
	return nil
}

// MiddlewareState is the state of middleware at one moment ([Step.State]).
type MiddlewareState struct {
	Kind, Name string // of the Step
	State      string
	// MessageTypes are the types that it applies to; nil means all. "(others)" are the types
	// of [HandleDefault].
	MessageTypes []string
	// Handlers are the names of the handlers in whose [HandleOptions.Middleware] it is; nil
	// means [Config.Middleware].
	Handlers []string
	// OpensCircuit is that of the [Step]: State is that of a circuit, which lets messages
	// pass while it is "closed".
	OpensCircuit bool
}

// middlewareStates returns the states of middleware that has one: first of
// Config.Middleware, then of single handlers, in the order of their message types.
// Middleware with the same kind, name and state is listed once.
func (ep *Endpoint) middlewareStates() (states []MiddlewareState) {
	add := func(all steps, messageType string, handlers ...string) {
		for _, s := range all {
			if s.State == nil {
				continue
			}
			types := slices.Clone(s.MessageTypes)
			if handlers != nil {
				types = []string{messageType}
			}
			state := MiddlewareState{Kind: s.Kind, Name: s.Name, State: s.State(), MessageTypes: types, Handlers: handlers, OpensCircuit: s.OpensCircuit}
			i := slices.IndexFunc(states, state.isSame)
			if i < 0 {
				states = append(states, state)
				continue
			}
			states[i].MessageTypes = unionOrNil(states[i].MessageTypes, state.MessageTypes)
			states[i].Handlers = unionOrNil(states[i].Handlers, state.Handlers)
		}
	}
	add(ep.steps, "")
	for _, h := range ep.registry.middleware() { // without a lock: State is users' code
		add(h.steps, typeLabel(h.messageType), h.name)
	}
	return states
}

// isSame reports whether two states belong to the same middleware, as far as that can be
// detected.
func (s MiddlewareState) isSame(other MiddlewareState) bool {
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
	steps             steps
}

// middleware returns the middleware of all handlers that describes itself.
func (r *registry) middleware() (all []handlerMiddleware) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for messageType, set := range r.handlers {
		for i, described := range set.steps {
			if len(described) > 0 {
				all = append(all, handlerMiddleware{messageType, set.names[i], described})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b handlerMiddleware) int { return cmp.Compare(a.messageType, b.messageType) })
	return all
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

// startUp returns the StartUp for the middleware of a list.
func (ep *Endpoint) startUp(list string) *StartUp {
	return &StartUp{endpoint: ep.name, retrySpan: ep.rules.retrySpan, list: list, mode: ep.mode, caps: ep.caps, hasPolicy: ep.rules.policy != nil, recoverability: ep.RecoverabilityConfig}
}
