package suite

import (
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// sendsDelayedAsFirstSent keeps the envelope of a message by its id, and uses it
// again.
func sendsDelayedAsFirstSent() changes {
	var mu sync.Mutex
	envelopes := map[string]core.Headers{}
	return outgoing(func(out []core.Outgoing) []core.Outgoing {
		mu.Lock()
		defer mu.Unlock()
		for i, o := range out {
			if headers, known := envelopes[o.ID]; known && o.Delay > 0 {
				out[i].Headers = headers
			}
			envelopes[o.ID] = out[i].Headers
		}
		return out
	})
}

var retryMutants = []mutant{
	{rule: "R2", name: "counts from 0", breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) { in.DeliveryCount-- }}
	}},
	{rule: "R2", name: "counts by the message id, which the delayed copy has too", breaks: countsByID},
	{rule: "R3", name: "carries no retry headers", breaks: func() changes {
		return dropsHeaders(func(key string) bool { return !strings.HasPrefix(key, headers.Retries) })
	}},
	{rule: "R3", name: "delivers a delayed message as it was first sent", breaks: sendsDelayedAsFirstSent},
	{rule: "R4", name: "delivers delayed messages at once", breaks: func() changes {
		return changesDelay(func(time.Duration) time.Duration { return 0 })
	}},
	{rule: "R4", name: "cuts a delay to whole seconds", config: able(func(c *core.Capabilities) { c.DelayPrecision = time.Second }), breaks: func() changes {
		return changesDelay(func(d time.Duration) time.Duration { return d.Truncate(time.Second) })
	}},
	{rule: "R4", name: "delays each message as long as the one before it", breaks: func() changes {
		var mu sync.Mutex
		first := time.Duration(0)
		return changesDelay(func(d time.Duration) time.Duration {
			mu.Lock()
			defer mu.Unlock()
			if first == 0 {
				first = d
			}
			return min(d, first)
		})
	}},
	{rule: "R4", name: "polls for due messages once in a while", breaks: func() changes {
		return changesDelay(func(d time.Duration) time.Duration {
			if d > 0 {
				d += time.Second
			}
			return d
		})
	}},
}
