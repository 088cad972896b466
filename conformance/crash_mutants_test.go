package conformance

import (
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var crashMutants = []mutant{
	{rule: "C9", name: "forgets what it had handed out when it dies", onServer: true, breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) { in.Redelivered = in.DeliveryCount > 1 }}
	}, harness: func(h *Harness) { h.Broker.(*server).faults.forgets = true }},
	{rule: "C9", name: "writes counts 100 ms later, and does not say so", onServer: true, harness: writesCountsLater(100*time.Millisecond, 0)},
	{rule: "C9", name: "writes counts later than it says", onServer: true, harness: writesCountsLater(time.Second, 100*time.Millisecond)},
}

// writesCountsLater lets the broker forget, when it dies, the counts of the newest
// deliveries, and the transports claim that it forgets those that are not older.
func writesCountsLater(later, claimed time.Duration) func(h *Harness) {
	return func(h *Harness) {
		var mu sync.Mutex
		var counted time.Time
		open := h.Open
		h.Open = func(t testing.TB) core.Transport {
			transport := open(t).(*broken)
			mu.Lock()
			counted = time.Time{} // of another case
			mu.Unlock()
			c := *transport.changes
			c.capabilities = func(c core.Capabilities) core.Capabilities {
				c.DeliveryCountLag = claimed
				return c
			}
			c.settle = func(_ *brokenDelivery, operation string, next func() error) error {
				if operation == "Abandon" {
					mu.Lock()
					counted = time.Now()
					mu.Unlock()
				}
				return next()
			}
			transport.changes = &c
			return transport
		}
		atDeath(func(s *server, t *inmemory.Transport) {
			mu.Lock()
			forgets := time.Since(counted) < later
			mu.Unlock()
			if !forgets {
				return
			}
			for queue, all := range s.takeAll(t) {
				for _, in := range all {
					_ = t.Send(ctxBackground, core.Outgoing{ID: in.ID, Queue: queue, Headers: in.Headers, Body: in.Body})
				}
			}
		})(h)
	}
}
