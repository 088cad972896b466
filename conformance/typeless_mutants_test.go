package conformance

import (
	"context"
	"errors"
	"strings"

	"github.com/reprise-go/reprise/core"
)

var typelessMutants = []mutant{
	{rule: "R6", name: "takes a message without a type for an order", breaks: arriving(func(in *core.Incoming) {
		if strings.Trim(in.Headers.Get(core.HeaderMessageTypes), " ;,") == "" {
			in.Headers.Set(core.HeaderMessageTypes, "order")
		}
	})},
	{rule: "R6", name: "trims the values of headers", breaks: func() changes { return cutsHeaders(strings.TrimSpace) }},
	{rule: "R6", name: "drops a message without a type", breaks: func() changes {
		return outgoing(func(out []core.Outgoing) (typed []core.Outgoing) {
			for _, o := range out {
				if _, ok := o.Headers.Lookup(core.HeaderMessageTypes); ok {
					typed = append(typed, o)
				}
			}
			return typed
		})
	}},
	{rule: "C10", name: "takes a message without a body for one that cannot be parsed", breaks: arriving(func(in *core.Incoming) {
		if len(in.Body) == 0 {
			in.Malformed = errors.New("unexpected end of input")
		}
	})},
	{rule: "C10", name: "keeps control messages to itself", breaks: func() changes {
		return changes{send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			var kept []core.Outgoing
			for _, o := range out {
				if o.Headers.Get(core.HeaderControlMessage) == "" {
					kept = append(kept, o)
				}
			}
			if len(kept) == 0 {
				return nil
			}
			return next(ctx, kept...)
		}}
	}},
}
