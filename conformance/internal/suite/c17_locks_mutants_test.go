package suite

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// renewing changes Renew.
func renewing(change func(d *brokenDelivery, next func() error) error) changes {
	return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		if operation == "Renew" {
			return change(d, next)
		}
		return next()
	}}
}

var lockMutants = []mutant{
	{rule: "C17", name: "says when a lock began instead of when it ends", config: withLocks, breaks: func() changes { return claiming(-withLocks.LockDuration) }},
	{rule: "C17", name: "renews without asking the broker", config: withLocks, breaks: func() changes {
		var mu sync.Mutex
		ends := map[*brokenDelivery]time.Time{}
		c := renewing(func(d *brokenDelivery, _ func() error) error {
			mu.Lock()
			defer mu.Unlock()
			ends[d] = time.Now().Add(withLocks.LockDuration)
			return nil
		})
		c.lockedUntil = func(d *brokenDelivery, next func() time.Time) time.Time {
			mu.Lock()
			defer mu.Unlock()
			if renewed := ends[d]; !renewed.IsZero() {
				return renewed
			}
			return next()
		}
		return c
	}},
	{rule: "C17", name: "does not say how far it renewed", config: withLocks, breaks: func() changes {
		var mu sync.Mutex
		first := map[*brokenDelivery]time.Time{}
		return changes{lockedUntil: func(d *brokenDelivery, next func() time.Time) time.Time {
			mu.Lock()
			defer mu.Unlock()
			if first[d].IsZero() {
				first[d] = next()
			}
			return first[d]
		}}
	}},
	{rule: "C17", name: "keeps a delivery for less time than it claims",
		config: locking(able(func(c *core.Capabilities) { c.MaxLockTime = 2 * time.Minute })),
		breaks: func() changes {
			return changes{capabilities: func(c core.Capabilities) core.Capabilities {
				c.MaxLockTime = 5 * time.Minute
				return c
			}}
		}},
	{rule: "C17", name: "renews for a moment only", config: withLocks, breaks: func() changes {
		var mu sync.Mutex
		ends := map[*brokenDelivery]time.Time{}
		c := renewing(func(d *brokenDelivery, next func() error) error {
			mu.Lock()
			defer mu.Unlock()
			ends[d] = time.Now().Add(withLocks.LockDuration / 3)
			return next()
		})
		c.lockedUntil = func(d *brokenDelivery, next func() time.Time) time.Time {
			mu.Lock()
			defer mu.Unlock()
			if renewed := ends[d]; !renewed.IsZero() {
				return renewed
			}
			return next()
		}
		return c
	}},
	{rule: "C17", name: "renews once", config: withLocks, breaks: func() changes {
		var mu sync.Mutex
		renewed := map[*brokenDelivery]bool{}
		return renewing(func(d *brokenDelivery, next func() error) error {
			mu.Lock()
			defer mu.Unlock()
			if renewed[d] {
				return nil
			}
			renewed[d] = true
			return next()
		})
	}},
	{rule: "C17", name: "renews only the first delivery of a receiver", config: withLocks, breaks: func() changes {
		held, c := recordDeliveries()
		c.settle = func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Renew" && held.all(d.receiver)[0] != d.Delivery {
				return nil
			}
			return next()
		}
		return c
	}},
	{rule: "C17", name: "keeps a lock that is not renewed", config: inmemory.Config{LockDuration: time.Hour}, breaks: func() changes { return claiming(-time.Hour + 12*time.Second) }},
	{rule: "C17", name: "loses a lock before LockedUntil", config: withLocks, breaks: func() changes { return claiming(3 * time.Second) }},
	{rule: "C17", name: "renews a lock for ever that was renewed once", config: withLocks, breaks: func() changes {
		return renewing(func(d *brokenDelivery, next func() error) error {
			err := next()
			times := 0
			var repeat func()
			repeat = func() {
				if times++; times < 20 && d.Delivery.Renew(ctxBackground) == nil {
					time.AfterFunc(6*time.Second, repeat)
				}
			}
			time.AfterFunc(6*time.Second, repeat)
			return err
		})
	}},
	{rule: "C17", name: "says nothing when a lock cannot be renewed", config: withLocks, breaks: func() changes {
		return renewing(func(_ *brokenDelivery, next func() error) error {
			_ = next()
			return nil
		})
	}},
	{rule: "C17", name: "calls a lock lost when the context has ended", config: withLocks, breaks: func() changes {
		return renewing(func(_ *brokenDelivery, next func() error) error {
			err := next()
			if errors.Is(err, context.Canceled) {
				return core.ErrLockLost
			}
			return err
		})
	}},
	{rule: "C17", name: "gives a message back when the context of Renew has ended", config: withLocks, breaks: func() changes {
		return renewing(func(d *brokenDelivery, next func() error) error {
			err := next()
			if errors.Is(err, context.Canceled) {
				_ = d.Delivery.Release(ctxBackground)
			}
			return err
		})
	}},
	{rule: "C17", name: "does not say when its locks end", config: withLocks, breaks: func() changes {
		return changes{lockedUntil: func(*brokenDelivery, func() time.Time) time.Time { return time.Time{} }}
	}},
	{rule: "C17", name: "cannot renew locks that end", config: withLocks, breaks: func() changes {
		return pretending("Renew", func(*brokenDelivery) error { return errors.ErrUnsupported })
	}},
	{rule: "C17", name: "cannot settle a delivery while it renews its lock", config: withLocks, breaks: func() changes {
		var mu sync.Mutex
		renewed := map[*brokenDelivery]time.Time{}
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			mu.Lock()
			defer mu.Unlock()
			if operation == "Renew" {
				renewed[d] = time.Now()
			} else if time.Since(renewed[d]) < time.Millisecond {
				return errors.New("the channel is in use")
			}
			return next()
		}}
	}},
	{rule: "C17", name: "says that it has renewed a lock and has not", config: locking(inmemory.Config{}), breaks: func() changes {
		return changes{
			settle: func(_ *brokenDelivery, operation string, next func() error) error {
				if operation == "Renew" {
					return nil
				}
				return next()
			},
			lockedUntil: func(*brokenDelivery, func() time.Time) time.Time { return time.Now().Add(10 * time.Second) },
		}
	}},
}
