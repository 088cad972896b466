package suite

import (
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

var actionMutants = []mutant{
	{rule: "R7", name: "drops a message with an id that it has seen in the queue", breaks: func() changes {
		var mu sync.Mutex
		seen := map[string]bool{}
		return changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
			mu.Lock()
			defer mu.Unlock()
			return slices.DeleteFunc(out, func(o core.Outgoing) bool {
				before := seen[o.Queue+o.ID]
				seen[o.Queue+o.ID] = true
				return before
			})
		})
	}},
	{rule: "R7", name: "counts the deliveries of all copies of a message together", breaks: countsCopiesTogether},
	{rule: "R7", name: "delivers delayed copies at once", breaks: func() changes {
		return changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
			for i := range out {
				out[i].Delay = 0
			}
			return out
		})
	}},
	{rule: "R7", name: "does nothing where a message is replaced by nothing", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "ReplaceWith" && len(d.out) == 0 {
				return nil
			}
			return next()
		}}
	}},
	{rule: "R7", name: "loses the first acknowledgement of each message", breaks: losesAcknowledgements},
	{rule: "R7", name: "drops headers that it does not know", breaks: dropsOwnHeaders},
	{rule: "R7", name: "completes abandoned messages", breaks: acknowledgesAbandoned},
	{rule: "R7", name: "delivers delayed messages at once", breaks: func() changes {
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
}
