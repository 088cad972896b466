package core

import (
	"cmp"
	"slices"
)

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
