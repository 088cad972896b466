package suite

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// writesCountsLater lets the broker forget, when it dies, the counts of the newest
// deliveries, and the transports claim that it forgets those that are not older.
func writesCountsLater(delay, claimed time.Duration) func(h *Harness) {
	return func(h *Harness) {
		var mu sync.Mutex
		var counted time.Time
		open := h.Open
		h.Open = func(t testing.TB) core.Transport {
			transport := open(t).(*brokenTransport)
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
			forgets := time.Since(counted) < delay
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

func givesUp(h *Harness) { h.Broker.(*server).faults.attempts = 3 }

// forgetful claims not to be durable.
func forgetful() changes {
	return changes{capabilities: func(c core.Capabilities) core.Capabilities {
		c.Durable = false
		return c
	}}
}

// completesFetches completes a fetch whose connection was lost on a new connection, also
// if the context of Receive has ended (C3). The new connection keeps the message locked.
func completesFetches() changes {
	return changes{receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
		transport := r.transport.base.(*remote)
		lost := transport.lost()
		time.Sleep(time.Millisecond) // longer than a settlement, so that the broker dies during a fetch
		n, err := next(ctx, dst)
		if n > 0 || ctx.Err() == nil {
			return n, err
		}
		select {
		case <-lost:
		default:
			return n, err
		}
		fetching, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		cfg := r.cfg
		cfg.MaxInFlight = 1
		reopened, failed := transport.OpenReceiver(fetching, cfg)
		if failed != nil {
			return n, err
		}
		if n, _ = reopened.Receive(fetching, dst[:1]); n == 0 {
			return 0, err
		}
		dst[0] = r.deliver(dst[0])
		return n, nil
	}}
}

// asOutage makes an error match core.ErrUnavailable.
func asOutage(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", core.ErrUnavailable, err)
}

// countingEvery is a transport whose count rises with every delivery.
var countingEvery = able(func(c *core.Capabilities) { c.CountsReleases, c.Prefetch = true, true })

func countsNoCrash(h *Harness) { h.Broker.(*server).faults.released = true }

func countsInMemory() changes {
	return changes{arrive: func(r *brokenReceiver, in *core.Incoming) {
		r.transport.memory[in.NativeID]++
		in.DeliveryCount = r.transport.memory[in.NativeID]
	}}
}

// atDeath lets something happen to what the broker holds when it is killed, by a
// separate transport.
func atDeath(do func(s *server, t *inmemory.Transport)) func(h *Harness) {
	return func(h *Harness) {
		h.Broker.(*server).faults.killed = func(s *server) {
			t, err := inmemory.New(inmemory.Config{Broker: s.fixture.broker})
			if err != nil {
				panic(err)
			}
			do(s, t)
			_ = t.Close(ctxBackground)
		}
	}
}

// takeAll takes the waiting messages of every queue.
func (s *server) takeAll(t *inmemory.Transport) map[string][]*core.Incoming {
	taken := map[string][]*core.Incoming{}
	names, _ := t.ListQueues(ctxBackground)
	for _, queue := range names {
		depth, err := t.Depth(ctxBackground, queue)
		if err != nil || depth.Ready == 0 {
			continue
		}
		r, err := t.OpenReceiver(ctxBackground, core.ReceiverConfig{Queue: queue, Mode: core.TransactionNone, MaxInFlight: 1})
		if err != nil {
			continue
		}
		got := make([]core.Delivery, depth.Ready)
		n, _ := r.Receive(ctxBackground, got)
		for _, d := range got[:n] {
			taken[queue] = append(taken[queue], d.Incoming())
		}
		_ = r.Close(ctxBackground)
	}
	return taken
}
