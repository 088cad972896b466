package suite

import (
	"context"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var competingReceiverMutants = []mutant{
	{rule: "C16", name: "reads messages without locking them", breaks: func() changes {
		var mu sync.Mutex
		var seen *core.Incoming
		var by *brokenTransport
		return changes{receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			if r.cfg.Mode == core.TransactionReceiveOnly && seen != nil && by != r.transport {
				dst[0], seen = unlocked{in: seen}, nil
				return 1, nil
			}
			mu.Unlock()
			n, err := next(ctx, dst)
			mu.Lock()
			if n > 0 {
				seen, by = dst[0].Incoming(), r.transport
			}
			return n, err
		}}
	}},
	{rule: "C16", name: "receives messages that another receiver has in flight", breaks: readsWithoutLocking},
	{rule: "C16", name: "has shorter locks than it says", config: inmemory.Config{LockDuration: time.Millisecond}, breaks: func() changes { return claiming(12 * time.Second) }},
	{rule: "C16", name: "delivers a message again as soon as its handler takes a while", config: inmemory.Config{LockDuration: 4 * time.Second}, breaks: func() changes { return claiming(20 * time.Second) }},
}

// unlocked is a delivery of a message that somebody else has as well.
type unlocked struct {
	transport.UnsupportedDelivery
	in *core.Incoming
}

func (u unlocked) Incoming() *core.Incoming { return u.in }

func (unlocked) Complete(context.Context) error { return nil }

func (unlocked) Abandon(context.Context, error) error { return nil }

func (unlocked) Release(context.Context) error { return nil }

// readsWithoutLocking delivers messages to one receiver that another one has in flight.
func readsWithoutLocking() changes {
	var mu sync.Mutex
	var seen *core.Incoming
	var by *brokenReceiver
	read := func(r *brokenReceiver) *core.Incoming {
		mu.Lock()
		defer mu.Unlock()
		if seen == nil || by == r {
			return nil
		}
		in := seen
		seen = nil
		return in
	}
	return changes{
		deliver: func(r *brokenReceiver, d core.Delivery) core.Delivery {
			mu.Lock()
			defer mu.Unlock()
			if _, ghost := d.(unlocked); !ghost {
				seen, by = d.Incoming(), r
			}
			return d
		},
		receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			if in := read(r); in != nil {
				dst[0] = r.deliver(unlocked{in: in})
				return 1, nil
			}
			return next(ctx, dst)
		},
	}
}
