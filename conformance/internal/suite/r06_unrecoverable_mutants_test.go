package suite

import (
	"context"
	"strings"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

var unrecoverableMutants = []mutant{
	{rule: "R6", name: "releases a message that it replaced", breaks: givesBackReplaced},
	{rule: "R6", name: "forgets to acknowledge", breaks: forgetsToAcknowledge},
	{rule: "R6", name: "gives a message that it cannot parse a header that it cannot send", breaks: func() changes {
		return changes{
			arrive: func(_ *brokenReceiver, in *core.Incoming) {
				if in.Malformed != nil {
					in.Headers.Set("x-parsing", "failed")
				}
			},
			send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				for _, o := range out {
					if o.Headers.Get("x-parsing") != "" {
						return core.ErrClosed
					}
				}
				return next(ctx, out...)
			},
		}
	}},
	{rule: "R6", name: "delivers a malformed message as if it could be parsed", breaks: arriving(func(in *core.Incoming) { in.Malformed = nil })},
	{rule: "R6", name: "delivers a malformed message without its body", breaks: arriving(func(in *core.Incoming) {
		if in.Malformed != nil {
			in.Body = nil
		}
	})},
	{rule: "R6", name: "takes a message without a type for an order", breaks: arriving(func(in *core.Incoming) {
		if strings.Trim(in.Headers.Get(headers.MessageTypes), " ;,") == "" {
			in.Headers.Set(headers.MessageTypes, "order")
		}
	})},
	{rule: "R6", name: "trims the values of headers", breaks: func() changes { return cutsHeaders(strings.TrimSpace) }},
	{rule: "R6", name: "drops a message without a type", breaks: func() changes {
		return outgoing(func(out []core.Outgoing) (typed []core.Outgoing) {
			for _, o := range out {
				if _, ok := o.Headers.Lookup(headers.MessageTypes); ok {
					typed = append(typed, o)
				}
			}
			return typed
		})
	}},
	{rule: "R6", name: "loses the first acknowledgement of each message", breaks: losesAcknowledgements},
}
