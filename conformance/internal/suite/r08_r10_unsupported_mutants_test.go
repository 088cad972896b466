package suite

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
)

// learnsCapabilities knows the capabilities of its broker only after the first Send.
func learnsCapabilities(change func(c *core.Capabilities)) changes {
	var sent atomic.Bool
	return changes{
		capabilities: func(c core.Capabilities) core.Capabilities {
			if !sent.Load() {
				change(&c)
			}
			return c
		},
		send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			sent.Store(true)
			return next(ctx, out...)
		},
	}
}

var unsupportedMutants = []mutant{
	{rule: "R8", name: "drops a message whose id it has seen", breaks: dropsKnownIDs},
	{rule: "R8", name: "drops a message whose id it has seen, and cannot delay", config: withoutDelays, breaks: dropsKnownIDs},
	{rule: "R8", name: "drops a message whose id it has seen, and delays up to a minute",
		config: able(func(c *core.Capabilities) { c.MaxDelay = time.Minute }), breaks: dropsKnownIDs},
	{rule: "R10", name: "finds out that it can delay when it first sends", breaks: func() changes {
		return learnsCapabilities(func(c *core.Capabilities) { c.DelayedDelivery = false })
	}},
	{rule: "R10", name: "finds out its longest delay when it first sends", config: able(func(c *core.Capabilities) { c.MaxDelay = 15 * time.Minute }), breaks: func() changes {
		return learnsCapabilities(func(c *core.Capabilities) { c.MaxDelay = 0 })
	}},
	{rule: "R10", name: "completes abandoned messages, and cannot delay", config: withoutDelays, breaks: acknowledgesAbandoned},
}
