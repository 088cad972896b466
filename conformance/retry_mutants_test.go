package conformance

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// outgoing changes everything that is sent, by whatever call.
func outgoing(change func(out []core.Outgoing) []core.Outgoing) changes {
	return changes{
		send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			return next(ctx, change(out)...)
		},
		settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "CompleteWith" || operation == "ReplaceWith" {
				d.out = change(d.out)
			}
			return next()
		},
	}
}

// settling carries another settlement out than was asked for.
func settling(asked string, instead func(d *brokenDelivery) error) changes {
	return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		if operation == asked {
			return instead(d)
		}
		return next()
	}}
}

// dropsKnownIDs takes a copy of a message for the same message once more, as
// duplicate detection by the message id does.
func dropsKnownIDs() changes {
	var mu sync.Mutex
	known := map[string]bool{}
	return outgoing(func(out []core.Outgoing) (unknown []core.Outgoing) {
		mu.Lock()
		defer mu.Unlock()
		for _, o := range out {
			if !known[o.ID] {
				unknown = append(unknown, o)
			}
			known[o.ID] = true
		}
		return unknown
	})
}

// countsByID keeps its counts by the message id, which a delayed copy shares
// with its original.
func countsByID() changes {
	var mu sync.Mutex
	delivered := map[string]int{}
	return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) {
		mu.Lock()
		defer mu.Unlock()
		delivered[in.ID]++
		in.DeliveryCount = delivered[in.ID]
	}}
}

// changesDelay does something to every delay.
func changesDelay(change func(time.Duration) time.Duration) changes {
	return outgoing(func(out []core.Outgoing) []core.Outgoing {
		for i := range out {
			out[i].Delay = change(out[i].Delay)
		}
		return out
	})
}

func acknowledgesAbandoned() changes {
	return settling("Abandon", func(d *brokenDelivery) error { return d.Delivery.Complete(context.Background()) })
}

func forgetsToAcknowledge() changes {
	return settling("Complete", func(*brokenDelivery) error { return nil })
}

// dropsHeaders carries none of the headers that it does not know.
func dropsHeaders(known func(key string) bool) changes {
	return outgoing(func(out []core.Outgoing) []core.Outgoing {
		for i := range out {
			var kept core.Headers
			for key, value := range out[i].Headers.All() {
				if known(key) {
					kept.Set(key, value)
				}
			}
			out[i].Headers = kept
		}
		return out
	})
}

// cutsHeaders does something to every header's value.
func cutsHeaders(cut func(value string) string) changes {
	return outgoing(func(out []core.Outgoing) []core.Outgoing {
		for i := range out {
			for key, value := range out[i].Headers.All() {
				out[i].Headers.Set(key, cut(value))
			}
		}
		return out
	})
}

// givesBackReplaced sends what replaces a message, and keeps the message too.
func givesBackReplaced() changes {
	return settling("ReplaceWith", func(d *brokenDelivery) error {
		if err := d.receiver.transport.base.Send(context.Background(), d.out...); err != nil {
			return err
		}
		return d.Delivery.Release(context.Background())
	})
}

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

var withoutDelays = able(func(c *core.Capabilities) { c.DelayedDelivery = false })

var retryMutants = []mutant{
	{rule: "R1", name: "counts by the message id, which the delayed copy has too", breaks: countsByID},
	{rule: "R1", name: "acknowledges what is abandoned", breaks: acknowledgesAbandoned},
	{rule: "R1", name: "does not count what is abandoned", breaks: func() changes {
		return settling("Abandon", func(d *brokenDelivery) error { return d.Delivery.Release(context.Background()) })
	}},
	{rule: "R1", name: "drops a message whose id it has seen", breaks: dropsKnownIDs},
	{rule: "R1", name: "carries no retry headers", breaks: func() changes {
		return dropsHeaders(func(key string) bool { return !strings.HasPrefix(key, core.HeaderRetries) })
	}},
	{rule: "R1", name: "counts every message twice", breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) { in.DeliveryCount *= 2 }}
	}},
	{rule: "R1", name: "loses what fails once a third time", on: withoutDelays, breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Abandon" && d.in.DeliveryCount == 3 {
				return d.Delivery.Complete(context.Background())
			}
			return next()
		}}
	}},
	{rule: "R2", name: "counts from 0", breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) { in.DeliveryCount-- }}
	}},
	{rule: "R2", name: "counts by the message id, which the delayed copy has too", breaks: countsByID},
	{rule: "R3", name: "carries no retry headers", breaks: func() changes {
		return dropsHeaders(func(key string) bool { return !strings.HasPrefix(key, core.HeaderRetries) })
	}},
	{rule: "R3", name: "delivers a delayed message as it was first sent", breaks: sendsDelayedAsFirstSent},
	{rule: "R4", name: "delivers at once what is delayed", breaks: func() changes {
		return changesDelay(func(time.Duration) time.Duration { return 0 })
	}},
	{rule: "R4", name: "cuts a delay to whole seconds", on: able(func(c *core.Capabilities) { c.DelayPrecision = time.Second }), breaks: func() changes {
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
	{rule: "R6", name: "gives back what it replaced", breaks: givesBackReplaced},
	{rule: "R6", name: "forgets to acknowledge", breaks: forgetsToAcknowledge},
	{rule: "R6", name: "gives a message that it cannot parse a header that it cannot send", breaks: func() changes {
		return changes{
			arrive: func(_ *brokenReceiver, in *core.Incoming) {
				if in.Malformed != nil {
					in.Headers.Set("x-parsing", "failed")
				}
			},
			send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				for _, o := range out {
					if o.Headers.Get("x-parsing") != "" {
						return core.ErrClosed
					}
				}
				return next(ctx, out...)
			},
		}
	}},
}
