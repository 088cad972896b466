package suite

import (
	"context"

	"github.com/reprise-go/reprise/core"
)

var rateLimitMutants = []mutant{
	{rule: "R40", name: "completes abandoned messages", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Abandon" {
				return d.Delivery.Complete(context.Background())
			}
			return next()
		}}
	}},
	{rule: "R41", name: "keeps prefetched messages while an endpoint waits", config: receivingOnly, breaks: func() changes { return prefetching(8).changes() }},
	{rule: "R41", name: "counts released deliveries", config: prefetchingHolds, breaks: releasesByAbandoning},
	{rule: "R41", name: "does not go on after it was to hold nothing", breaks: func() changes {
		return changes{maxInFlight: keepsLowest(0)}
	}},
	{rule: "R42", name: "does not leave the one message in flight to which it was reduced", breaks: func() changes {
		return changes{maxInFlight: keepsLowest(1)}
	}},
	{rule: "R45", name: "counts released deliveries", config: prefetchingHolds, breaks: releasesByAbandoning},
	{rule: "R45", name: "completes released messages", config: prefetchingHolds, breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Release" {
				return d.Delivery.Complete(context.Background())
			}
			return next()
		}}
	}},
}

// prefetchingHolds lets the engine hold messages that it has not started.
var prefetchingHolds = able(func(c *core.Capabilities) { c.Prefetch = true })
