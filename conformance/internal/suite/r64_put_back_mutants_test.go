package suite

import (
	"context"

	"github.com/reprise-go/reprise/core"
)

// countingEach counts every delivery, so that a copy replaces a message that is put back.
var countingEach = able(func(c *core.Capabilities) { c.CountsReleases = true })

var putBackMutants = []mutant{
	{rule: "R64", name: "counts released deliveries", breaks: releasesByAbandoning},
	{rule: "R64", name: "completes released messages", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Release" {
				return d.Delivery.Complete(context.Background())
			}
			return next()
		}}
	}},
	{rule: "R64", name: "stores a second copy of a released message", breaks: arriving(func(in *core.Incoming) {
		if in.Redelivered && in.DeliveryCount == 1 {
			in.NativeID += "-copy"
		}
	})},
	{rule: "R64", name: "does not go on after it was to hold nothing", breaks: func() changes {
		return changes{maxInFlight: keepsLowest(0)}
	}},
	{rule: "R64", name: "loses the copy that replaces a message", config: countingEach, breaks: losesReplacements},
	{rule: "R64", name: "delivers the copy that replaces a message at once", config: countingEach, breaks: func() changes {
		return changes{
			send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				for i := range out {
					out[i].Delay = 0
				}
				return next(ctx, out...)
			},
			settle: func(d *brokenDelivery, _ string, next func() error) error {
				for i := range d.out {
					d.out[i].Delay = 0
				}
				return next()
			},
		}
	}},
	{rule: "R64", name: "postpones at once", config: countingEach, breaks: onPostpone(func(d *brokenDelivery, next func() error) error {
		d.delay = 0
		return next()
	})},
	{rule: "R64", name: "delivers messages of a group beside each other", breaks: withoutGroups},
}
