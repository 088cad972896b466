package suite

import (
	"context"
	"strings"
	"sync"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

var attemptMutants = []mutant{
	{rule: "R1", name: "counts by the message id, which the delayed copy has too", breaks: countsByID},
	{rule: "R1", name: "completes abandoned messages", breaks: acknowledgesAbandoned},
	{rule: "R1", name: "does not count abandoned deliveries", breaks: func() changes {
		return settling("Abandon", func(d *brokenDelivery) error { return d.Delivery.Release(context.Background()) })
	}},
	{rule: "R1", name: "drops a message whose id it has seen", breaks: dropsKnownIDs},
	{rule: "R1", name: "carries no retry headers", breaks: func() changes {
		return dropsHeaders(func(key string) bool { return !strings.HasPrefix(key, headers.Retries) })
	}},
	{rule: "R1", name: "counts every message twice", breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) { in.DeliveryCount *= 2 }}
	}},
	{rule: "R1", name: "loses a message at its third failure", config: withoutDelays, breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Abandon" && d.in.DeliveryCount == 3 {
				return d.Delivery.Complete(context.Background())
			}
			return next()
		}}
	}},
	{rule: "R1", name: "forgets the oldest count when its memory is full", config: countingAlone(), breaks: func() changes {
		return remembersFailures(func(m *countMemory) {
			delete(m.failures, m.order[0])
			m.order = m.order[1:]
		})
	}},
	{rule: "R1", name: "now and then loses a message that it gets back", breaks: func() changes {
		var mu sync.Mutex
		n := 0
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			mu.Lock()
			defer mu.Unlock()
			if operation == "Abandon" {
				if n++; n%50 == 0 {
					return d.Delivery.Complete(context.Background())
				}
			}
			return next()
		}}
	}},
	{rule: "R1", name: "takes the counts of its process for those of the broker",
		config: able(func(c *core.Capabilities) { c.NativeDeliveryCount = false }),
		breaks: func() changes {
			return changes{capabilities: func(c core.Capabilities) core.Capabilities {
				c.NativeDeliveryCount = true
				return c
			}}
		}},
	{rule: "R1", name: "counts the deliveries of all copies of a message together", breaks: countsCopiesTogether},
}
