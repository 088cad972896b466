package conformance

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// countingAlone is a transport that counts in its memory.
func countingAlone() inmemory.Config {
	return able(func(c *core.Capabilities) { c.NativeDeliveryCount = false })
}

var countMutants = []mutant{
	{rule: "C9", name: "begins to count at 0", breaks: arriving(func(in *core.Incoming) { in.DeliveryCount-- })},
	{rule: "C9", name: "counts what it hands out in mode None", breaks: func() changes {
		return changes{arrive: func(r *brokenReceiver, in *core.Incoming) {
			if r.cfg.Mode == core.TransactionNone {
				in.DeliveryCount++
			}
		}}
	}},
	{rule: "C9", name: "calls everything a redelivery", breaks: arriving(func(in *core.Incoming) { in.Redelivered = true })},
	{rule: "C9", name: "calls nothing a redelivery", breaks: arriving(func(in *core.Incoming) { in.Redelivered = false })},
	{rule: "C9", name: "calls a redelivery only what its own memory counted", on: locking(countingAlone()), breaks: arriving(func(in *core.Incoming) { in.Redelivered = in.DeliveryCount > 1 })},
	{rule: "C9", name: "calls a redelivery only what failed", breaks: arriving(func(in *core.Incoming) { in.Redelivered = in.DeliveryCount > 1 })},
	{rule: "C9", name: "does not count a delivery whose lock has ended", on: withLocks, breaks: func() changes {
		var mu sync.Mutex
		failures := map[string]int{}
		c := failing(func(d *brokenDelivery, next func() error) error {
			mu.Lock()
			defer mu.Unlock()
			failures[d.in.NativeID]++
			return next()
		})
		c.arrive = func(_ *brokenReceiver, in *core.Incoming) {
			mu.Lock()
			defer mu.Unlock()
			in.DeliveryCount = 1 + failures[in.NativeID]
		}
		return c
	}},
	{rule: "C9", name: "counts by the message id, which copies share", breaks: countsByID},
	{rule: "C9", name: "takes the message id for the NativeID", breaks: arriving(func(in *core.Incoming) { in.NativeID = in.ID })},
	{rule: "C9", name: "takes the delivery tag for the NativeID", breaks: func() changes {
		var tag atomic.Int64
		return arriving(func(in *core.Incoming) { in.NativeID = fmt.Sprint(tag.Add(1)) })()
	}},
	{rule: "C9", name: "counts all failures of a queue together", breaks: func() changes {
		var mu sync.Mutex
		failures := map[string]int{}
		c := failing(func(d *brokenDelivery, next func() error) error {
			mu.Lock()
			defer mu.Unlock()
			failures[d.receiver.cfg.Queue]++
			return next()
		})
		c.arrive = func(r *brokenReceiver, in *core.Incoming) {
			mu.Lock()
			defer mu.Unlock()
			in.DeliveryCount = 1 + failures[r.cfg.Queue]
		}
		return c
	}},
	{rule: "C9", name: "calls a count of its memory the broker's", on: countingAlone(), breaks: func() changes {
		return changes{capabilities: func(c core.Capabilities) core.Capabilities {
			c.NativeDeliveryCount = true
			return c
		}}
	}},
	{rule: "C9", name: "does not say that the broker counts", breaks: func() changes {
		return changes{capabilities: func(c core.Capabilities) core.Capabilities {
			c.NativeDeliveryCount = false
			return c
		}}
	}},
	{rule: "C9", name: "counts no other message once its memory is full", on: countingAlone(), breaks: func() changes {
		return remembersFailures(func(*countMemory) {})
	}},
	{rule: "R1", name: "forgets the oldest count when its memory is full", on: countingAlone(), breaks: func() changes {
		return remembersFailures(func(m *countMemory) {
			delete(m.failures, m.order[0])
			m.order = m.order[1:]
		})
	}},
}

// countMemory is how often messages failed at one transport.
type countMemory struct {
	failures map[string]int
	order    []string // the oldest first
}

// remembersFailures remembers 1,000 messages for each transport. full may make room.
func remembersFailures(full func(*countMemory)) changes {
	var mu sync.Mutex
	memories := map[*broken]*countMemory{}
	memory := func(r *brokenReceiver) *countMemory {
		m := memories[r.transport]
		if m == nil {
			m = &countMemory{failures: map[string]int{}}
			memories[r.transport] = m
		}
		return m
	}
	c := failing(func(d *brokenDelivery, next func() error) error {
		mu.Lock()
		m, id := memory(d.receiver), d.in.NativeID
		if m.failures[id] == 0 && len(m.failures) == 1000 {
			full(m)
		}
		if m.failures[id] > 0 || len(m.failures) < 1000 {
			if m.failures[id] == 0 {
				m.order = append(m.order, id)
			}
			m.failures[id]++
		}
		mu.Unlock()
		return next()
	})
	c.arrive = func(r *brokenReceiver, in *core.Incoming) {
		mu.Lock()
		defer mu.Unlock()
		in.DeliveryCount = 1 + memory(r).failures[in.NativeID]
	}
	return c
}
