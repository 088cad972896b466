package suite

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var deliveryCountMutants = []mutant{
	{rule: "C9", name: "begins to count at 0", breaks: arriving(func(in *core.Incoming) { in.DeliveryCount-- })},
	{rule: "C9", name: "counts deliveries in mode None", breaks: func() changes {
		return changes{arrive: func(r *brokenReceiver, in *core.Incoming) {
			if r.cfg.Mode == core.TransactionNone {
				in.DeliveryCount++
			}
		}}
	}},
	{rule: "C9", name: "calls everything a redelivery", breaks: arriving(func(in *core.Incoming) { in.Redelivered = true })},
	{rule: "C9", name: "calls nothing a redelivery", breaks: arriving(func(in *core.Incoming) { in.Redelivered = false })},
	{rule: "C9", name: "sets Redelivered only for deliveries that its memory has counted", config: locking(countingAlone()), breaks: arriving(func(in *core.Incoming) { in.Redelivered = in.DeliveryCount > 1 })},
	{rule: "C9", name: "sets Redelivered only for failed messages", breaks: arriving(func(in *core.Incoming) { in.Redelivered = in.DeliveryCount > 1 })},
	{rule: "C9", name: "does not count a delivery whose lock has ended", config: withLocks, breaks: func() changes {
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
	{rule: "C9", name: "calls a count of its memory the broker's", config: countingAlone(), breaks: func() changes {
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
	{rule: "C9", name: "counts no other message once its memory is full", config: countingAlone(), breaks: func() changes {
		return remembersFailures(func(*countMemory) {})
	}},
	{rule: "C9", name: "forgets the deliveries in flight when it is killed", onServer: true, breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) { in.Redelivered = in.DeliveryCount > 1 }}
	}, harness: func(h *Harness) { h.Broker.(*server).faults.forgets = true }},
	{rule: "C9", name: "writes counts 100 ms later, and does not say so", onServer: true, harness: writesCountsLater(100*time.Millisecond, 0)},
	{rule: "C9", name: "writes counts later than it says", onServer: true, harness: writesCountsLater(time.Second, 100*time.Millisecond)},
	{rule: "C9", name: "does not count deliveries that ended with their process", onServer: true, harness: countsNoCrash},
	{rule: "C9", name: "claims a count that it keeps in its process", onServer: true, breaks: countsInMemory},
	{rule: "C9", name: "does not say that a message was delivered before", onServer: true, breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) { in.Redelivered = false }}
	}},
	{rule: "C9", name: "keeps counts in memory, and claims to be durable", onServer: true, harness: atDeath(func(s *server, t *inmemory.Transport) {
		for queue, all := range s.takeAll(t) {
			for _, in := range all {
				_ = t.Send(ctxBackground, core.Outgoing{ID: in.ID, Queue: queue, Headers: in.Headers, Body: in.Body})
			}
		}
	})},
}
