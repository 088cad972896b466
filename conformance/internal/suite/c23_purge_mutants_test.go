package suite

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/reprise-go/reprise/core"
)

// onPurge makes changes of a function that replaces Purge.
func onPurge(purge func(t *brokenTransport, queue string, next func(queue string) (int, error)) (int, error)) func() changes {
	return func() changes { return changes{purge: purge} }
}

// holding makes changes that know which deliveries of a queue are unsettled.
func holding(purge func(held []core.Delivery, next func() (int, error)) (int, error)) func() changes {
	return func() changes {
		var mu sync.Mutex
		held := map[string]core.Delivery{}
		return changes{
			deliver: func(r *brokenReceiver, d core.Delivery) core.Delivery {
				mu.Lock()
				defer mu.Unlock()
				held[d.Incoming().NativeID] = d
				return d
			},
			purge: func(_ *brokenTransport, queue string, next func(string) (int, error)) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				var list []core.Delivery
				for _, d := range held {
					list = append(list, d)
				}
				return purge(list, func() (int, error) { return next(queue) })
			},
		}
	}
}

var purgeMutants = []mutant{
	{rule: "C23", name: "purges nothing", breaks: onPurge(func(*brokenTransport, string, func(string) (int, error)) (int, error) { return 0, nil })},
	{rule: "C23", name: "does not say how many messages it purged", breaks: onPurge(func(_ *brokenTransport, queue string, next func(string) (int, error)) (int, error) {
		_, err := next(queue)
		return 0, err
	})},
	{rule: "C23", name: "purges as many messages as it receives at once", breaks: onPurge(func(t *brokenTransport, queue string, next func(string) (int, error)) (int, error) {
		depth, err := t.fixture.depth(queue)
		if err != nil {
			return 0, err
		}
		n := 0
		t.fixture.purge(queue, func(*core.Incoming) bool { n++; return n <= 10 })
		return depth.Ready, nil
	})},
	{rule: "C23", name: "purges first deliveries alone", breaks: onPurge(func(t *brokenTransport, queue string, next func(string) (int, error)) (int, error) {
		n := 0
		t.fixture.purge(queue, func(in *core.Incoming) bool {
			if in.DeliveryCount > 1 {
				return false
			}
			n++
			return true
		})
		_, err := t.fixture.depth(queue)
		return n, err
	})},
	{rule: "C23", name: "purges messages in flight", breaks: holding(func(held []core.Delivery, next func() (int, error)) (int, error) {
		for _, d := range held {
			_ = d.Complete(context.Background())
		}
		return next()
	})},
	{rule: "C23", name: "purges delayed messages too", breaks: func() changes {
		var mu sync.Mutex
		purged := map[string]bool{}
		return changes{
			purge: func(_ *brokenTransport, queue string, next func(string) (int, error)) (int, error) {
				mu.Lock()
				purged[queue] = true
				mu.Unlock()
				return next(queue)
			},
			receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
				for {
					n, err := next(ctx, dst)
					if err != nil {
						return n, err
					}
					mu.Lock()
					wasPurged := purged[r.cfg.Queue]
					mu.Unlock()
					left := 0
					for _, d := range dst[:n] {
						if wasPurged && string(d.Incoming().Body) == "delayed" {
							_ = d.Complete(ctx)
							continue
						}
						dst[left] = d
						left++
					}
					if left > 0 {
						return left, nil
					}
				}
			},
		}
	}},
	{rule: "C23", name: "purges all queues", breaks: onPurge(func(t *brokenTransport, queue string, next func(string) (int, error)) (int, error) {
		n, err := next(queue)
		for _, other := range t.fixture.names() {
			t.fixture.purge(other, func(*core.Incoming) bool { return true })
		}
		return n, err
	})},
	{rule: "C23", name: "creates the queue that it purges", breaks: onPurge(func(t *brokenTransport, queue string, next func(string) (int, error)) (int, error) {
		_ = t.base.Provision(context.Background(), core.Topology{InputQueue: queue, Queues: []string{queue}})
		return next(queue)
	})},
	{rule: "C23", name: "takes a queue that does not exist for an empty one", breaks: onPurge(func(_ *brokenTransport, queue string, next func(string) (int, error)) (int, error) {
		n, err := next(queue)
		if errors.Is(err, core.ErrQueueNotFound) {
			return 0, nil
		}
		return n, err
	})}, {rule: "C23", name: "removes nothing", breaks: onRemove(func(*brokenTransport, []string, []string, func([]string, []string) error) error { return nil })},
	{rule: "C23", name: "removes the first queue alone", breaks: onRemove(func(_ *brokenTransport, queues, topics []string, next func([]string, []string) error) error {
		return next(queues[:min(len(queues), 1)], topics)
	})},
	{rule: "C23", name: "removes no topics", breaks: onRemove(func(_ *brokenTransport, queues, _ []string, next func([]string, []string) error) error {
		return next(queues, nil)
	})},
	{rule: "C23", name: "removes all topics", breaks: onRemove(func(t *brokenTransport, queues, topics []string, next func([]string, []string) error) error {
		for _, queue := range t.fixture.names() {
			if len(topics) > 0 {
				_ = t.base.Remove(context.Background(), []string{queue}, nil)
				_ = t.base.Provision(context.Background(), core.Topology{Queues: []string{queue}})
			}
		}
		return next(queues, topics)
	})},
	{rule: "C23", name: "removes other queues too", breaks: onRemove(func(t *brokenTransport, queues, topics []string, next func([]string, []string) error) error {
		if len(queues) > 0 {
			queues = slices.DeleteFunc(t.fixture.names(), func(name string) bool { return strings.HasSuffix(name, "/$deadletter") })
		}
		return next(queues, topics)
	})},
	{rule: "C23", name: "empties the queues that it should remove", breaks: onRemove(func(t *brokenTransport, queues, topics []string, next func([]string, []string) error) error {
		for _, queue := range queues {
			_, _ = t.base.Purge(context.Background(), queue)
		}
		return next(nil, topics)
	})},
	{rule: "C23", name: "keeps the subscriptions of a queue that it removes", breaks: func() changes {
		var mu sync.Mutex
		topicsOf := map[string][]string{}
		return changes{
			subscribe: func(_ *brokenTransport, queue string, topics []string, next func() error) error {
				mu.Lock()
				topicsOf[queue] = append(topicsOf[queue], topics...)
				mu.Unlock()
				return next()
			},
			provision: func(t *brokenTransport, topology core.Topology, next func() error) error {
				err := next()
				for _, queue := range topology.Queues {
					mu.Lock()
					topics := topicsOf[queue]
					mu.Unlock()
					if err == nil && len(topics) > 0 {
						err = t.base.Subscribe(context.Background(), queue, topics...)
					}
				}
				return err
			},
		}
	}},
	{rule: "C23", name: "refuses to remove a queue that does not exist", breaks: onRemove(func(t *brokenTransport, queues, topics []string, next func([]string, []string) error) error {
		for _, queue := range queues {
			if _, err := t.fixture.depth(queue); err != nil {
				return err
			}
		}
		return next(queues, topics)
	})},
}

// onRemove makes changes of a function that replaces Remove.
func onRemove(remove func(t *brokenTransport, queues, topics []string, next func(queues, topics []string) error) error) func() changes {
	return func() changes { return changes{remove: remove} }
}
