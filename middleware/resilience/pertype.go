package resilience

import (
	"context"
	"errors"
	"fmt"

	"github.com/reprise-go/reprise/core"
)

// Policies has a policy for each of several message types, with separate state.
type Policies struct {
	types  []string
	byType map[string]*Policy
}

// PerType makes a policy for each message type with the configuration that factory returns for
// it. A Config without a Name gets the message type as its name.
func PerType(factory func(messageType string) Config, messageTypes ...string) (*Policies, error) {
	ps := &Policies{byType: map[string]*Policy{}}
	if len(messageTypes) == 0 {
		return nil, errors.New("resilience: PerType was called without message types; name some")
	}
	for _, messageType := range messageTypes {
		if ps.byType[messageType] != nil {
			return nil, fmt.Errorf("resilience: PerType has message type %q twice; remove one", messageType)
		}
		c := factory(messageType)
		orDefault(&c.Name, messageType)
		p, err := New(c)
		if err != nil {
			return nil, err
		}
		ps.types = append(ps.types, messageType)
		ps.byType[messageType] = p
	}
	return ps, nil
}

// Policy returns the policy of a message type, or nil.
func (ps *Policies) Policy(messageType string) *Policy { return ps.byType[messageType] }

// Middleware returns middleware that applies to each message the policy of its type. It
// passes messages of other types on unchanged.
func (ps *Policies) Middleware() core.Middleware { return &perType{ps} }

// perType is the middleware of Policies.
type perType struct{ *Policies }

// Describe implements core.Middleware.
func (w *perType) Describe(scope core.MiddlewareScope) (all []core.MiddlewareFacts, err error) {
	for _, messageType := range w.types {
		facts, refused := w.byType[messageType].For(messageType).Describe(scope)
		all, err = append(all, facts...), errors.Join(err, refused)
	}
	return all, err
}

// Wrap implements core.Middleware.
func (w *perType) Wrap(scope core.MiddlewareScope, next core.HandlerFunc) core.HandlerFunc {
	byType := map[string]core.HandlerFunc{}
	for _, messageType := range w.types {
		byType[messageType] = w.byType[messageType].Middleware().Wrap(scope, next)
	}
	return func(ctx context.Context, m *core.Message) error {
		if guarded, ok := byType[m.Type]; ok {
			return guarded(ctx, m)
		}
		return next(ctx, m)
	}
}
