package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/reprise-go/reprise/core"
)

var verdictMutants = []mutant{
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
	{rule: "R7", name: "delivers at once what it sends again with a delay", breaks: func() changes {
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
	{rule: "R6", name: "loses the first acknowledgement of each message", breaks: losesAcknowledgements},
	{rule: "C22", name: "acknowledges what it should dead-letter", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "DeadLetter" {
				return d.Delivery.Complete(context.Background())
			}
			return next()
		}}
	}},
	{rule: "R53", name: "keeps of a header's name what is ASCII", breaks: func() changes {
		return changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
			for i := range out {
				var h core.Headers
				for key, value := range out[i].Headers.All() {
					h.Set(strings.Map(func(r rune) rune {
						if r > 127 {
							return -1
						}
						return r
					}, key), value)
				}
				out[i].Headers = h
			}
			return out
		})
	}},
	{rule: "R50", name: "forgets what it had fetched ahead when it is closed", on: receivingOnly, breaks: func() changes {
		p := prefetching(8)
		c := p.changes()
		c.closeReceiver = func(r *brokenReceiver, next func() error) error {
			kept := make([]core.Delivery, p.size)
			for _, d := range kept[:p.take(r, kept)] {
				if err := d.Complete(context.Background()); err != nil {
					return err
				}
			}
			return next()
		}
		return c
	}},
	{rule: "R50", name: "keeps what it has prefetched while it may hold nothing", on: receivingOnly, breaks: func() changes { return prefetching(8).changes() }},
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
			send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				return outage(next(ctx, out...))
			},
			settle: func(_ *brokenDelivery, _ string, next func() error) error { return outage(next()) },
		}
	}},
}

// changesOutgoing changes what is sent, by Send or with a settlement. change may
// write to the slice.
func changesOutgoing(change func(out []core.Outgoing) []core.Outgoing) changes {
	return changes{
		send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			return next(ctx, change(slices.Clone(out))...)
		},
		settle: func(d *brokenDelivery, _ string, next func() error) error {
			d.out = change(slices.Clone(d.out))
			return next()
		},
	}
}

// countsCopiesTogether keys its memory by the message's id instead of the
// copy's.
func countsCopiesTogether() changes {
	var mu sync.Mutex
	seen := map[string]int{}
	return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) {
		mu.Lock()
		defer mu.Unlock()
		seen[in.ID]++
		in.DeliveryCount = seen[in.ID]
	}}
}

func losesAcknowledgements() changes {
	var mu sync.Mutex
	acknowledged := map[string]bool{}
	return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		mu.Lock()
		defer mu.Unlock()
		if operation == "Complete" && !acknowledged[d.in.NativeID] {
			acknowledged[d.in.NativeID] = true
			return d.Delivery.Release(context.Background())
		}
		return next()
	}}
}
