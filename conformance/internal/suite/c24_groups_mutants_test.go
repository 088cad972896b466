package suite

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

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
			send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
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
	{rule: "C24", name: "postpones for a second where more than MaxLockTime is asked for", config: able(oneMinute), breaks: onPostpone(func(d *brokenDelivery, next func() error) error {
		d.delay = min(d.delay, time.Second)
		return next()
	})},
	{rule: "C24", name: "abandons a message without a group that it cannot postpone", breaks: onPostpone(func(d *brokenDelivery, next func() error) error {
		if d.in.GroupKey == "" {
			return d.Delivery.Abandon(context.Background(), d.cause)
		}
		return next()
	})},
	{rule: "C24", name: "delivers the next message of a group before one whose lock has ended", config: withLocks, breaks: withoutGroups},
}
