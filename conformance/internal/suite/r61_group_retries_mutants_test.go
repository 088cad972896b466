package suite

import (
	"context"
	"slices"
	"sync"

	"github.com/reprise-go/reprise/core"
)

// countsPostponementsTwice raises the count by two with each postponement after a
// failure.
func countsPostponementsTwice() changes {
	var mu sync.Mutex
	extra := map[string]int{}
	return changes{
		arrive: func(_ *brokenReceiver, in *core.Incoming) {
			mu.Lock()
			defer mu.Unlock()
			in.DeliveryCount += extra[in.NativeID]
		},
		settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Postpone" && d.cause != nil {
				mu.Lock()
				extra[d.in.NativeID]++
				mu.Unlock()
			}
			return next()
		},
	}
}

var groupRetryMutants = []mutant{
	{rule: "R61", name: "delivers messages of a group beside each other", breaks: withoutGroups},
	{rule: "R61", name: "postpones at once", breaks: onPostpone(func(d *brokenDelivery, next func() error) error {
		d.delay = 0
		return next()
	})},
	{rule: "R61", name: "begins the count of a postponed message anew", breaks: func() changes {
		var mu sync.Mutex
		before := map[string]int{}
		return changes{
			arrive: func(_ *brokenReceiver, in *core.Incoming) {
				mu.Lock()
				defer mu.Unlock()
				in.DeliveryCount -= before[in.NativeID]
			},
			settle: func(d *brokenDelivery, operation string, next func() error) error {
				if operation == "Postpone" {
					mu.Lock()
					before[d.in.NativeID] += d.in.DeliveryCount
					mu.Unlock()
				}
				return next()
			},
		}
	}},
	{rule: "R61", name: "holds all groups while one is postponed", breaks: holdsAllGroups},
	{rule: "R61", name: "counts two deliveries when it postpones a failed message", breaks: countsPostponementsTwice},
	{rule: "R61", name: "counts each postponement as a failure", breaks: onPostpone(func(d *brokenDelivery, next func() error) error {
		if d.cause == nil {
			d.cause = errHandler
		}
		return next()
	})},
	{rule: "R61", name: "loses the copy that replaces a message", config: able(oneMinute), breaks: losesReplacements},
	{rule: "R61", name: "sends failed messages without their group", breaks: func() changes {
		ungroup := func(out []core.Outgoing) []core.Outgoing {
			out = slices.Clone(out)
			for i := range out {
				if hasFailed(out[i]) {
					out[i].GroupKey = ""
				}
			}
			return out
		}
		return changes{
			send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				return next(ctx, ungroup(out)...)
			},
			settle: func(d *brokenDelivery, _ string, next func() error) error {
				d.out = ungroup(d.out)
				return next()
			},
		}
	}},
}
