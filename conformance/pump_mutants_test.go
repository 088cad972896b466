package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var pumpMutants = []mutant{
	{rule: "C3", name: "keeps the number of messages in flight with which it was opened", breaks: func() changes {
		return changes{maxInFlight: func(*brokenReceiver, int, func(int)) {}}
	}},
	{rule: "C3", name: "has one message in flight whatever it is told", breaks: func() changes {
		return changes{
			open: func(_ *broken, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
				cfg.MaxInFlight = 1
				return next(cfg)
			},
			maxInFlight: func(_ *brokenReceiver, n int, next func(int)) { next(min(n, 1)) },
		}
	}},
	{rule: "C3", name: "keeps what it fetched ahead when it is paused", on: receivingOnly, breaks: func() changes { return prefetching(4).changes() }},
	{rule: "C3", name: "takes a pause for the end", breaks: func() changes {
		var mu sync.Mutex
		paused := map[*brokenReceiver]bool{}
		return changes{maxInFlight: func(r *brokenReceiver, n int, next func(int)) {
			mu.Lock()
			defer mu.Unlock()
			paused[r] = paused[r] || n == 0
			if paused[r] {
				n = 0
			}
			next(n)
		}}
	}},
	{rule: "C16", name: "reads messages without locking them", breaks: func() changes {
		var mu sync.Mutex
		var seen *core.Incoming
		var by *broken
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
	{rule: "C14", name: "leaves a consumer behind that keeps the next one out", breaks: func() changes {
		return changes{open: func(t *broken, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			if t.memory[cfg.Queue]++; t.memory[cfg.Queue] > 1 {
				return nil, errors.New("the queue has an exclusive consumer")
			}
			return next(cfg)
		}}
	}},
	{rule: "R27", name: "takes the end of Receive's context for its own", breaks: func() changes {
		return changes{receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			n, err := next(ctx, dst)
			if ctx.Err() != nil {
				_ = r.Receiver.Close(context.WithoutCancel(ctx))
			}
			return n, err
		}}
	}},
	{rule: "R27", name: "keeps what it fetched ahead until it is closed", on: receivingOnly, breaks: func() changes { return prefetching(8).changes() }},
	{rule: "R27", name: "counts what is released", breaks: releasesByAbandoning},
	{rule: "R27", name: "loses what is released", breaks: losesReleased},
	{rule: "C17", name: "says that it has renewed a lock and has not", on: locking(inmemory.Config{}), breaks: func() changes {
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
	{rule: "C1", name: "makes addresses that it cannot send to", breaks: func() changes {
		return changes{address: func(queue string, next func(string) (string, error)) (string, error) {
			address, err := next(queue)
			if err != nil || strings.HasSuffix(address, "@here") {
				return address, err
			}
			return address + "@here", nil
		}}
	}},
	{rule: "C19", name: "makes a subscription for each instance", breaks: func() changes {
		var mu sync.Mutex
		subscriptions := map[string][]string{} // queues by topic
		return changes{
			subscribe: func(_ *broken, queue string, topics []string, next func() error) error {
				mu.Lock()
				defer mu.Unlock()
				for _, topic := range topics {
					subscriptions[topic] = append(subscriptions[topic], queue)
				}
				return next()
			},
			send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				mu.Lock()
				defer mu.Unlock()
				for _, o := range out {
					seen := map[string]bool{}
					for _, queue := range subscriptions[o.Topic] {
						if again := o; seen[queue] {
							again.Topic, again.Queue = "", queue
							out = append(out, again)
						}
						seen[queue] = true
					}
				}
				return next(ctx, out...)
			},
		}
	}},
	{rule: "C19", name: "ends the subscriptions of an endpoint when one of its instances stops", breaks: func() changes {
		var mu sync.Mutex
		subscriptions := map[string][]string{} // topics by queue
		return changes{
			subscribe: func(_ *broken, queue string, topics []string, next func() error) error {
				mu.Lock()
				defer mu.Unlock()
				subscriptions[queue] = append(subscriptions[queue], topics...)
				return next()
			},
			closeReceiver: func(r *brokenReceiver, next func() error) error {
				mu.Lock()
				defer mu.Unlock()
				if topics := subscriptions[r.cfg.Queue]; len(topics) > 0 {
					if err := r.transport.Unsubscribe(context.Background(), r.cfg.Queue, topics...); err != nil {
						return err
					}
				}
				return next()
			},
		}
	}},
	{rule: "C10", name: "carries ten headers at most", breaks: func() changes {
		return changes{send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			for i := range out {
				n := 0
				for key := range out[i].Headers.All() {
					if n++; n > 10 {
						out[i].Headers.Del(key)
					}
				}
			}
			return next(ctx, out...)
		}}
	}},
	{rule: "C10", name: "has a column of 65,535 bytes for bodies", breaks: func() changes {
		return changes{send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			for i := range out {
				out[i].Body = out[i].Body[:min(len(out[i].Body), 65535)]
			}
			return next(ctx, out...)
		}}
	}},
	{rule: "C13", name: "sends what goes with a settlement without its delay", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "CompleteWith" {
				d.out = slices.Clone(d.out)
				for i := range d.out {
					d.out[i].Delay = 0
				}
			}
			return next()
		}}
	}},
	{rule: "R1", name: "now and then loses a message that it gets back", breaks: func() changes {
		var mu sync.Mutex
		n := 0
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			mu.Lock()
			defer mu.Unlock()
			if operation == "Abandon" {
				if n++; n%50 == 0 {
					return d.Delivery.Complete(context.Background())
				}
			}
			return next()
		}}
	}},
}

// receivingOnly has the mode ReceiveOnly alone.
var receivingOnly = able(func(c *core.Capabilities) { c.Transactions = []core.TransactionMode{core.TransactionReceiveOnly} })

// locking adds locks of 10 s.
func locking(cfg inmemory.Config) inmemory.Config {
	cfg.LockDuration = 10 * time.Second
	return cfg
}

// releasesByAbandoning makes no difference between what failed and what did not.
func releasesByAbandoning() changes {
	return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		if operation == "Release" {
			return d.Delivery.Abandon(context.Background(), context.Canceled)
		}
		return next()
	}}
}

// unlocked is a delivery of a message that somebody else has as well.
type unlocked struct {
	transport.UnsupportedDelivery
	in *core.Incoming
}

func (u unlocked) Incoming() *core.Incoming           { return u.in }
func (unlocked) Complete(context.Context) error       { return nil }
func (unlocked) Abandon(context.Context, error) error { return nil }
func (unlocked) Release(context.Context) error        { return nil }

// prefetch is what a client has whose broker pushes messages: more of them than
// were asked for. This one is careless: it keeps them whatever it is told.
type prefetch struct {
	size int
	mu   sync.Mutex
	kept map[*brokenReceiver][]core.Delivery
}

func prefetching(size int) *prefetch {
	return &prefetch{size: size, kept: map[*brokenReceiver][]core.Delivery{}}
}

func (p *prefetch) changes() changes {
	return changes{
		open: func(_ *broken, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			cfg.MaxInFlight += p.size
			return next(cfg)
		},
		maxInFlight: func(_ *brokenReceiver, n int, next func(int)) { next(n + p.size) },
		receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			if n := p.take(r, dst); n > 0 {
				return n, nil
			}
			many := make([]core.Delivery, p.size)
			n, err := next(ctx, many)
			p.mu.Lock()
			p.kept[r] = append(p.kept[r], many[:n]...)
			p.mu.Unlock()
			return p.take(r, dst), err
		},
	}
}

func (p *prefetch) take(r *brokenReceiver, dst []core.Delivery) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := copy(dst, p.kept[r])
	p.kept[r] = p.kept[r][n:]
	return n
}
