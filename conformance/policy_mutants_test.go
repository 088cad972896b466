package conformance

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
)

// givesBackReset rolls the receive back with the work.
func givesBackReset() changes {
	return settling("Reset", func(d *brokenDelivery) error { return d.Delivery.Release(context.Background()) })
}

// headersInLowerCase carries headers as HTTP/2 does.
func headersInLowerCase() changes {
	return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) {
		var lower core.Headers
		for key, value := range in.Headers.All() {
			if !strings.HasPrefix(key, "NServiceBus.") {
				key = strings.ToLower(key)
			}
			lower.Set(key, value)
		}
		in.Headers = lower
	}}
}

// losesWhatReplaces consumes a message without sending what replaces it.
func losesWhatReplaces() changes {
	return settling("ReplaceWith", func(d *brokenDelivery) error { return d.Delivery.Complete(context.Background()) })
}

// learnsCapabilities knows what its broker can do only after the first Send.
func learnsCapabilities(change func(c *core.Capabilities)) changes {
	var sent atomic.Bool
	return changes{
		capabilities: func(c core.Capabilities) core.Capabilities {
			if !sent.Load() {
				change(&c)
			}
			return c
		},
		send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			sent.Store(true)
			return next(ctx, out...)
		},
	}
}

var policyMutants = []mutant{
	{rule: "R7", name: "acknowledges what is abandoned", breaks: acknowledgesAbandoned},
	{rule: "R7", name: "delivers at once what is delayed", breaks: func() changes {
		return changesDelay(func(time.Duration) time.Duration { return 0 })
	}},
	{rule: "R7", name: "drops a message whose id it has seen", breaks: dropsKnownIDs},
	{rule: "R7", name: "does nothing where a message is replaced by none", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "ReplaceWith" && len(d.out) == 0 || operation == "CompleteWith" && len(d.out) == 0 {
				return nil
			}
			return next()
		}}
	}},
	{rule: "R7", name: "gives a message back when its work is undone", breaks: givesBackReset},
	{rule: "R8", name: "drops a message whose id it has seen", breaks: dropsKnownIDs},
	{rule: "R8", name: "drops a message whose id it has seen, and cannot delay", on: withoutDelays, breaks: dropsKnownIDs},
	{rule: "R8", name: "drops a message whose id it has seen, and delays up to a minute",
		on: able(func(c *core.Capabilities) { c.MaxDelay = time.Minute }), breaks: dropsKnownIDs},
	{rule: "R10", name: "finds out that it can delay when it first sends", breaks: func() changes {
		return learnsCapabilities(func(c *core.Capabilities) { c.DelayedDelivery = false })
	}},
	{rule: "R10", name: "finds out its longest delay when it first sends", on: able(func(c *core.Capabilities) { c.MaxDelay = 15 * time.Minute }), breaks: func() changes {
		return learnsCapabilities(func(c *core.Capabilities) { c.MaxDelay = 0 })
	}},
	{rule: "R10", name: "acknowledges what is abandoned, and cannot delay", on: withoutDelays, breaks: acknowledgesAbandoned},
	{rule: "R11", name: "hands over headers in lower case", breaks: headersInLowerCase},
	{rule: "R11", name: "counts by the message id, which the delayed copy has too", breaks: countsByID},
	{rule: "R11", name: "counts from 0", breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) { in.DeliveryCount-- }}
	}},
	{rule: "R11", name: "takes a semicolon for the end of a header", breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) {
			var cut core.Headers
			for key, value := range in.Headers.All() {
				value, _, _ = strings.Cut(value, ";")
				cut.Set(key, value)
			}
			in.Headers = cut
		}}
	}},
	{rule: "R11", name: "cannot mend a broken transaction", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Reset" {
				return nil
			}
			return next()
		}}
	}},
	{rule: "R11", name: "undoes all work when it sends", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "CompleteWith" {
				d.work.undo()
			}
			return next()
		}}
	}},
	{rule: "R12", name: "gives a message back when its work is undone", breaks: givesBackReset},
	{rule: "R12", name: "drops a message whose id it has seen", breaks: dropsKnownIDs},
}
