package suite

import (
	"context"
	"errors"

	"github.com/reprise-go/reprise/core"
)

var handleFailedMutants = []mutant{
	{rule: "R51", name: "sends the first message alone of those that go with a settlement", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			d.out = d.out[:min(len(d.out), 1)]
			return next()
		}}
	}},
	{rule: "R51", name: "gives up its lock when it undoes a handler's work", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Reset" {
				return d.Delivery.Abandon(context.Background(), context.Canceled)
			}
			return next()
		}}
	}},
	{rule: "R51", name: "takes a queue that does not exist for an outage", breaks: func() changes {
		outage := func(err error) error {
			if errors.Is(err, core.ErrQueueNotFound) {
				return errors.New("the broker closed the channel")
			}
			return err
		}
		return changes{
			send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				return outage(next(ctx, out...))
			},
			settle: func(_ *brokenDelivery, _ string, next func() error) error { return outage(next()) },
		}
	}},
}
