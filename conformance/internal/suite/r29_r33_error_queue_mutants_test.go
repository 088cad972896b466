package suite

import (
	"context"
	"errors"
	"strings"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// hidesMissingQueue has another error for a queue that does not exist.
func hidesMissingQueue() changes {
	hide := func(out []core.Outgoing, err error) error {
		if !errors.Is(err, core.ErrQueueNotFound) {
			return err
		}
		sent := &core.SendError{}
		for _, o := range out {
			sent.Results = append(sent.Results, core.SendResult{ID: o.ID, To: o.Queue, State: core.SendRefused, Err: errors.New("NOT_FOUND")})
		}
		return sent
	}
	return changes{
		send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			return hide(out, next(ctx, out...))
		},
		settle: func(d *brokenDelivery, _ string, next func() error) error { return hide(d.out, next()) },
	}
}

var errorQueueMutants = []mutant{
	{rule: "R29", name: "replaces the headers of a message", breaks: leaksItsHeaders},
	{rule: "R29", name: "clears the body of a message that it delivers again", breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) {
			if in.Redelivered {
				in.Body = make([]byte, len(in.Body))
			}
		}}
	}},
	{rule: "R30", name: "drops a message whose id it has seen", breaks: dropsKnownIDs},
	{rule: "R30", name: "redelivers messages in mode None that are not completed", breaks: func() changes {
		return changes{receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			n, err := next(ctx, dst)
			if r.cfg.Mode != core.TransactionNone {
				return n, err
			}
			for _, d := range dst[:n] {
				if in := d.Incoming(); in.Headers.Get("x-again") == "" && in.Headers.Get(headers.FailedQ) == "" {
					repeated := core.Outgoing{ID: in.ID, Queue: r.cfg.Queue, Headers: in.Headers, Body: in.Body}
					repeated.Headers.Set("x-again", "true")
					_ = r.transport.base.Send(context.Background(), repeated)
				}
			}
			return n, err
		}}
	}},
	{rule: "R31", name: "accepts messages for a queue that does not exist", breaks: swallowsUnroutable},
	{rule: "R31", name: "does not say that a queue does not exist", breaks: hidesMissingQueue},
	{rule: "R33", name: "cuts long headers", breaks: func() changes {
		return cutsHeaders(func(value string) string { return value[:min(len(value), 128)] })
	}},
	{rule: "R33", name: "carries no header that it does not know", breaks: func() changes {
		return dropsHeaders(func(key string) bool { return strings.HasPrefix(key, "NServiceBus.") })
	}},
}
