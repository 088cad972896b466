package suite

import (
	"context"
	"errors"
	"sync"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// enlistsSends takes what is sent under the context of a native transaction into
// the transaction.
func enlistsSends() changes {
	type enlisting struct{}
	var mu sync.Mutex
	enlisted := map[*brokenDelivery][]core.Outgoing{}
	return changes{
		bind: func(d *brokenDelivery, ctx context.Context, next func(context.Context) context.Context) context.Context {
			return context.WithValue(next(ctx), enlisting{}, d)
		},
		send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			d, ok := ctx.Value(enlisting{}).(*brokenDelivery)
			if !ok {
				return next(ctx, out...)
			}
			mu.Lock()
			defer mu.Unlock()
			enlisted[d] = append(enlisted[d], out...)
			return nil
		},
		settle: func(d *brokenDelivery, operation string, next func() error) error {
			mu.Lock()
			defer mu.Unlock()
			if operation == "CompleteWith" {
				d.out = append(d.out, enlisted[d]...)
			}
			return next()
		},
	}
}

// keepsWork commits the handler's work when it should undo it.
func keepsWork(asked string) changes {
	return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		if operation == asked {
			d.work.commit()
		}
		return next()
	}}
}

// releasesUncommitted gives a message back without counting it where the settlement
// before did not succeed, as one does whose count is part of the transaction.
func releasesUncommitted() changes {
	var mu sync.Mutex
	uncommitted := map[*brokenDelivery]bool{}
	note := func(d *brokenDelivery) {
		mu.Lock()
		defer mu.Unlock()
		uncommitted[d] = true
	}
	return changes{
		// What sends may be kept from being carried out before it comes to CompleteWith.
		bind: func(d *brokenDelivery, ctx context.Context, next func(context.Context) context.Context) context.Context {
			note(d)
			return next(ctx)
		},
		settle: func(d *brokenDelivery, operation string, next func() error) error {
			mu.Lock()
			failed := uncommitted[d]
			mu.Unlock()
			if operation == "Abandon" && failed && d.cause != nil && !errors.Is(d.cause, errHandler) {
				return d.Delivery.Release(context.Background())
			}
			return next()
		},
	}
}

var handlerSendMutants = []mutant{
	{rule: "R20", name: "sends messages of SendNow with the transaction", breaks: enlistsSends},
	{rule: "R20", name: "sends a handler's messages twice", breaks: func() changes {
		return sendsTwice(func(o core.Outgoing) bool { return o.Headers.Get(headers.RelatedTo) != "" && !hasFailed(o) })
	}},
	{rule: "R20", name: "drops a message whose id it has seen", breaks: dropsKnownIDs},
	{rule: "R20", name: "gives every message a new id", breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) { in.ID = in.NativeID }}
	}},
	{rule: "R20", name: "accepts messages for a queue that does not exist", breaks: swallowsUnroutable},
	{rule: "R20", name: "sends some messages of a Send that fails as a whole", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation != "CompleteWith" {
				return next()
			}
			out := d.out
			if err := d.receiver.transport.base.Send(context.Background(), out...); err != nil {
				return err
			}
			d.out = nil
			return next()
		}}
	}},
	{rule: "R20", name: "sends at once no message that it sent before in the same delivery", breaks: func() changes {
		type sending struct{}
		var mu sync.Mutex
		sent := map[*brokenDelivery]map[string]bool{}
		return changes{
			bind: func(d *brokenDelivery, ctx context.Context, next func(context.Context) context.Context) context.Context {
				return context.WithValue(next(ctx), sending{}, d)
			},
			send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				d, ok := ctx.Value(sending{}).(*brokenDelivery)
				if !ok {
					return next(ctx, out...)
				}
				mu.Lock()
				defer mu.Unlock()
				if sent[d] == nil {
					sent[d] = map[string]bool{}
				}
				for _, o := range out {
					if sent[d][o.ID] {
						continue
					}
					if err := next(ctx, o); err != nil {
						return err
					}
					sent[d][o.ID] = true
				}
				return nil
			},
		}
	}},
	{rule: "R20", name: "commits the handler's last work alone", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "CompleteWith" {
				d.work.forgetAllButLast()
			}
			return next()
		}}
	}},
	{rule: "R20", name: "keeps the work of a handler whose fallback answered", breaks: onOperation(func(*brokenDelivery, func() error) error { return nil }, "Rollback")},
	{rule: "R20", name: "undoes all handlers' work for a fallback", breaks: onOperation(func(d *brokenDelivery, next func() error) error {
		err := next()
		d.work.undo()
		return err
	}, "Rollback")},
	{rule: "R20", name: "counts deliveries from three, so that a fallback answers in the first attempt", breaks: arriving(func(in *core.Incoming) { in.DeliveryCount += 2 })},
	{rule: "R20", name: "sends the messages of a failed handler beside those of its fallback", breaks: func() changes {
		return changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
			for _, o := range out {
				if string(o.Body) == "of the fallback" {
					o.ID, o.Body = o.ID+"-failed", []byte("of the handler")
					out = append(out, o)
				}
			}
			return out
		})
	}},
	{rule: "R20", name: "does not count a message whose commit failed", breaks: releasesUncommitted},
	{rule: "R20", name: "commits the handler's work when a message is abandoned", breaks: func() changes { return keepsWork("Abandon") }},
	{rule: "R20", name: "commits the handler's work when a message is replaced", breaks: func() changes { return keepsWork("ReplaceWith") }},
}
