package conformance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// onPostpone makes changes of a function that replaces Postpone.
func onPostpone(postpone func(d *brokenDelivery, next func() error) error) func() changes {
	return func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Postpone" {
				return postpone(d, next)
			}
			return next()
		}}
	}
}

// sendAnew consumes the message and sends a copy of it.
func (d *brokenDelivery) sendAnew(delay time.Duration) error {
	ctx := context.Background()
	if err := d.Delivery.Complete(ctx); err != nil {
		return err
	}
	return d.receiver.transport.base.Send(ctx, core.Outgoing{
		ID: d.in.ID, Queue: d.receiver.cfg.Queue, Headers: d.in.Headers, Body: d.in.Body,
		GroupKey: d.in.GroupKey, Properties: d.in.Properties, Delay: delay,
	})
}

// withoutGroups makes changes that carry group keys, and keep no order. Postpone
// sends a copy.
func withoutGroups() changes {
	const key = "Mutant.GroupKey"
	return changes{
		send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			for i := range out {
				if out[i].GroupKey != "" {
					out[i].Headers.Set(key, out[i].GroupKey)
					out[i].GroupKey = ""
				}
			}
			return next(ctx, out...)
		},
		arrive: func(_ *brokenReceiver, in *core.Incoming) {
			in.GroupKey = in.Headers.Get(key)
			in.Headers.Del(key)
		},
		settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation != "Postpone" {
				return next()
			}
			d.in.Headers.Set(key, d.in.GroupKey)
			d.in.GroupKey = ""
			return d.sendAnew(d.delay)
		},
	}
}

// holdsAllGroups delivers nothing while a message is postponed.
func holdsAllGroups() changes {
	var mu sync.Mutex
	var due time.Time
	return changes{
		settle: func(d *brokenDelivery, operation string, next func() error) error {
			err := next()
			if operation == "Postpone" && err == nil {
				mu.Lock()
				due = time.Now().Add(d.delay)
				mu.Unlock()
			}
			return err
		},
		receive: func(_ *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			mu.Lock()
			wait := time.Until(due)
			mu.Unlock()
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			return next(ctx, dst)
		},
	}
}

// countsPostponementsTwice raises the count by two with each postponement after a failure.
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

// oneMinute is a limit of MaxLockTime that cases can wait for.
func oneMinute(c *core.Capabilities) { c.MaxLockTime = time.Minute }

var groupMutants = []mutant{
	{rule: "C24", name: "delivers messages of a group beside each other", breaks: withoutGroups},
	{rule: "C24", name: "cuts group keys after 100 bytes", breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) { in.GroupKey = in.GroupKey[:min(len(in.GroupKey), 100)] }}
	}},
	{rule: "C24", name: "gives an abandoned message its place at the end of its group", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Abandon" && d.in.GroupKey != "" {
				return d.sendAnew(0)
			}
			return next()
		}}
	}},
	{rule: "C24", name: "gives a released message its place at the end of its group", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Release" && d.in.GroupKey != "" {
				return d.sendAnew(0)
			}
			return next()
		}}
	}},
	{rule: "C24", name: "gives the messages of a closed receiver places at the end of their groups", breaks: func() changes {
		var mu sync.Mutex
		held := map[*brokenReceiver][]core.Delivery{}
		return changes{
			deliver: func(r *brokenReceiver, d core.Delivery) core.Delivery {
				mu.Lock()
				defer mu.Unlock()
				held[r] = append(held[r], d)
				return d
			},
			closeReceiver: func(r *brokenReceiver, next func() error) error {
				mu.Lock()
				defer mu.Unlock()
				for _, d := range held[r] {
					if d.Incoming().GroupKey != "" {
						_ = (&brokenDelivery{Delivery: d, receiver: r, in: *d.Incoming()}).sendAnew(0)
					}
				}
				return next()
			},
		}
	}},
	{rule: "C24", name: "lets a group wait when a message of it was dead-lettered", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "DeadLetter" && d.in.GroupKey != "" {
				if err := d.Delivery.Postpone(context.Background(), 24*time.Hour, nil); err != nil {
					return err
				}
				return nil
			}
			return next()
		}}
	}},
	{rule: "C24", name: "takes messages without a group for one group", breaks: func() changes {
		const none = "none"
		return changes{
			send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				out = slices.Clone(out)
				for i := range out {
					if out[i].GroupKey == "" {
						out[i].GroupKey = none
					}
				}
				return next(ctx, out...)
			},
			arrive: func(_ *brokenReceiver, in *core.Incoming) {
				if in.GroupKey == none {
					in.GroupKey = ""
				}
			},
		}
	}},
	{rule: "C24", name: "delivers the messages of one Receive in any order", breaks: func() changes {
		return changes{receive: func(_ *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			n, err := next(ctx, dst)
			slices.Reverse(dst[:n])
			return n, err
		}}
	}},
	{rule: "C24", name: "postpones for half of the delay", breaks: onPostpone(func(d *brokenDelivery, next func() error) error {
		d.delay /= 2
		return next()
	})},
	{rule: "C24", name: "postpones for a minute at least", breaks: onPostpone(func(d *brokenDelivery, next func() error) error {
		d.delay = max(d.delay, time.Minute)
		return next()
	})},
	{rule: "C24", name: "does not count a failure when it postpones", breaks: onPostpone(func(d *brokenDelivery, next func() error) error {
		d.cause = nil
		return next()
	})},
	{rule: "C24", name: "counts each postponement as a failure", breaks: onPostpone(func(d *brokenDelivery, next func() error) error {
		if d.cause == nil {
			d.cause = errHandler
		}
		return next()
	})},
	{rule: "C24", name: "postpones in the memory of its process", breaks: onPostpone(func(d *brokenDelivery, _ func() error) error {
		held, delay, cause := d.Delivery, d.delay, d.cause
		go func() {
			time.Sleep(delay)
			if cause == nil {
				_ = held.Release(context.Background())
				return
			}
			_ = held.Abandon(context.Background(), cause)
		}()
		return nil
	})},
	{rule: "C24", name: "holds all groups while one is postponed", breaks: holdsAllGroups},
	{rule: "C24", name: "says nothing of a settlement after Postpone", breaks: func() changes {
		return changes{settle: func(_ *brokenDelivery, _ string, next func() error) error {
			if err := next(); !errors.Is(err, core.ErrSettled) {
				return err
			}
			return nil
		}}
	}},
	{rule: "C24", name: "postpones for a second where more than MaxLockTime is asked for", on: able(oneMinute), breaks: onPostpone(func(d *brokenDelivery, next func() error) error {
		d.delay = min(d.delay, time.Second)
		return next()
	})},
	{rule: "C24", name: "abandons a message without a group that it cannot postpone", breaks: onPostpone(func(d *brokenDelivery, next func() error) error {
		if d.in.GroupKey == "" {
			return d.Delivery.Abandon(context.Background(), d.cause)
		}
		return next()
	})},
	{rule: "C24", name: "delivers the next message of a group before one whose lock has ended", on: withLocks, breaks: withoutGroups},
	{rule: "C1", name: "abandons a message that it cannot postpone", on: able(func(c *core.Capabilities) { c.GroupOrder = false }), breaks: onPostpone(func(d *brokenDelivery, _ func() error) error {
		return d.Delivery.Abandon(context.Background(), d.cause)
	})},
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
	{rule: "R61", name: "loses the copy that replaces a message", on: able(oneMinute), breaks: losesWhatReplaces},
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
			send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				return next(ctx, ungroup(out)...)
			},
			settle: func(d *brokenDelivery, _ string, next func() error) error {
				d.out = ungroup(d.out)
				return next()
			},
		}
	}},
}
