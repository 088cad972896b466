package suite

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
)

// receiving is the hook for Receive.
type receiving func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(ctx context.Context, dst []core.Delivery) (int, error)) (int, error)

// glance receives messages that are available at once.
func glance(ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
	brief, cancel := context.WithTimeout(ctx, time.Microsecond)
	defer cancel()
	return next(brief, dst)
}

// pass lets time pass, unless ctx ends.
func pass(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

var receiveMutants = []mutant{
	{rule: "C3", name: "looks for messages once in a minute", breaks: func() changes {
		return changes{receive: func(_ *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			for {
				if n, err := glance(ctx, dst, next); n > 0 || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
					return n, err
				}
				pass(ctx, 55*time.Second)
			}
		}}
	}},
	{rule: "C3", name: "waits for a full batch", breaks: func() changes {
		return changes{receive: func(_ *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			n, err := next(ctx, dst)
			for deadline := time.Now().Add(30 * time.Second); err == nil && n < len(dst) && time.Now().Before(deadline) && ctx.Err() == nil; pass(ctx, time.Second) {
				more, _ := glance(ctx, dst[n:], next)
				n += more
			}
			return n, err
		}}
	}},
	{rule: "C3", name: "returns nothing when the broker's long poll ends", breaks: func() changes {
		return changes{receive: func(_ *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			poll, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			n, err := next(poll, dst)
			if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
				err = nil
			}
			return n, err
		}}
	}},
	{rule: "C3", name: "fills its slice to the capacity", breaks: func() changes {
		return changes{receive: func(_ *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			n, err := next(ctx, dst[:cap(dst)])
			return min(n, len(dst)), err
		}}
	}},
	{rule: "C3", name: "fetches ten messages and loses those that have no room", breaks: func() changes {
		return changes{receive: func(_ *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			fetched := make([]core.Delivery, 10)
			n, err := next(ctx, fetched)
			return copy(dst, fetched[:n]), err
		}}
	}},
	{rule: "C3", name: "returns deliveries and an error", breaks: func() changes {
		return changes{receive: func(_ *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			n, err := next(ctx, dst)
			if n > 0 && n < len(dst) {
				err = errors.New("the batch is not full")
			}
			return n, err
		}}
	}},
	{rule: "C3", name: "writes later deliveries to the first slice", breaks: func() changes {
		var mu sync.Mutex
		first := map[*brokenReceiver][]core.Delivery{}
		return changes{receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			n, err := next(ctx, dst)
			mu.Lock()
			defer mu.Unlock()
			if first[r] == nil && len(dst) == 5 { // a call beside which no other runs, so that this is no race
				first[r] = dst
			}
			copy(first[r], dst[:n])
			return n, err
		}}
	}},
	{rule: "C3", name: "returns more than the batch that it claims", breaks: func() changes {
		return changes{capabilities: func(c core.Capabilities) core.Capabilities {
			c.MaxReceiveBatch = 3
			return c
		}}
	}},
	{rule: "C3", name: "waits on after its context has ended", breaks: func() changes {
		return changes{receive: func(_ *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			return next(context.WithoutCancel(ctx), dst)
		}}
	}},
	{rule: "C3", name: "calls the end of a context a broken connection", breaks: func() changes {
		return changes{receive: func(_ *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			n, err := next(ctx, dst)
			if ctx.Err() != nil && err != nil {
				err = errors.New("use of a closed connection")
			}
			return n, err
		}}
	}},
	{rule: "C3", name: "loses the messages of a fetch during which the context ends", breaks: func() changes {
		return changes{receive: fetching(func([]core.Delivery) {})}
	}},
	{rule: "C3", name: "abandons the messages of a fetch during which the context ends", breaks: func() changes {
		return changes{receive: fetching(func(arrived []core.Delivery) {
			for _, d := range arrived {
				_ = d.Abandon(context.Background(), context.Canceled)
			}
		})}
	}},
	{rule: "C3", name: "drops an answer for which no call waits any more", breaks: func() changes {
		var waiting atomic.Int64
		return changes{receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			waiting.Add(1)
			defer waiting.Add(-1)
			alone := make(chan bool, 1)
			n, err := fetching(func(arrived []core.Delivery) {
				if <-alone {
					return
				}
				for _, d := range arrived { // for the others, who wait
					_ = d.Release(context.Background())
				}
			})(r, ctx, dst, next)
			alone <- waiting.Load() == 1
			return n, err
		}}
	}},
	{rule: "C3", name: "completes the messages of a fetch during which the context ends", breaks: func() changes {
		return changes{receive: fetching(func(arrived []core.Delivery) {
			for _, d := range arrived {
				_ = d.Complete(context.Background())
			}
		})}
	}},
	{rule: "C3", name: "loses available messages when the context has already ended", breaks: func() changes {
		return changes{receive: func(_ *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			if err := ctx.Err(); err != nil {
				_, _ = glance(context.WithoutCancel(ctx), dst, next)
				clear(dst)
				return 0, err
			}
			return next(ctx, dst)
		}}
	}},
	{rule: "C3", name: "hands one delivery to two callers", breaks: func() changes {
		var calls atomic.Int64
		var mu sync.Mutex
		last := map[*brokenReceiver]core.Delivery{}
		return changes{receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			mu.Lock()
			if d := last[r]; d != nil && calls.Add(1) == 15 {
				mu.Unlock()
				dst[0] = d
				return 1, nil
			}
			mu.Unlock()
			n, err := next(ctx, dst)
			if n > 0 {
				mu.Lock()
				defer mu.Unlock()
				last[r] = dst[n-1]
			}
			return n, err
		}}
	}},
	{rule: "C3", name: "lets one caller receive at a time, and loses the messages for the others", breaks: func() changes {
		var under atomic.Int64
		return changes{receive: func(_ *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			defer under.Add(-1)
			if under.Add(1) > 1 {
				return 0, errors.New("the connection is busy")
			}
			runtime.Gosched() // an answer takes a while: the others arrive in that time
			return next(ctx, dst)
		}}
	}},
	{rule: "C3", name: "drops messages above the length of a queue", breaks: func() changes {
		var mu sync.Mutex
		length := map[string]int{}
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			mu.Lock()
			defer mu.Unlock()
			return next(ctx, slices.DeleteFunc(slices.Clone(out), func(m core.Outgoing) bool {
				length[m.Queue]++
				return length[m.Queue] > 1999
			})...)
		}}
	}},
	{rule: "C3", name: "receives from the queue of its first receiver", breaks: func() changes {
		var mu sync.Mutex
		first := map[*brokenTransport]string{}
		return changes{
			open: func(t *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
				mu.Lock()
				defer mu.Unlock()
				if first[t] == "" {
					first[t] = cfg.Queue
				}
				cfg.Queue = first[t]
				return next(cfg)
			},
			closeReceiver: func(r *brokenReceiver, next func() error) error {
				mu.Lock()
				defer mu.Unlock()
				delete(first, r.transport)
				return next()
			},
		}
	}},
	{rule: "C3", name: "waits for a queue that does not exist", breaks: func() changes {
		return changes{open: func(_ *brokenTransport, ctx context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			r, err := next(cfg)
			if errors.Is(err, core.ErrQueueNotFound) {
				pass(ctx, time.Hour)
			}
			return r, err
		}}
	}},
	{rule: "C3", name: "creates the queue that it is to receive from", breaks: func() changes {
		return changes{open: func(t *brokenTransport, ctx context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			if err := t.base.Provision(ctx, core.Topology{InputQueue: cfg.Queue, Queues: []string{cfg.Queue}}); err != nil {
				return nil, err
			}
			return next(cfg)
		}}
	}},
	{rule: "C3", name: "takes a default when MaxInFlight is not set", breaks: func() changes {
		return changes{open: func(_ *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			if cfg.MaxInFlight <= 0 {
				cfg.MaxInFlight = 16
			}
			return next(cfg)
		}}
	}},
}

// fetching receives in a request that the end of ctx leaves alone, but handle says
// what becomes of its answer then.
func fetching(handle func([]core.Delivery)) receiving {
	return func(_ *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		type reply struct {
			fetched []core.Delivery
			err     error
		}
		replies := make(chan reply, 1)
		request, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		go func() {
			defer cancel()
			fetched := make([]core.Delivery, len(dst))
			n, err := next(request, fetched)
			for errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
				n, err = next(ctx, fetched)
			}
			replies <- reply{fetched[:n], err}
		}()
		select {
		case r := <-replies:
			return copy(dst, r.fetched), r.err
		case <-ctx.Done():
			go func() { handle((<-replies).fetched) }()
			return 0, ctx.Err()
		}
	}
}
