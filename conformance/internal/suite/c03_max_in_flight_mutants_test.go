package suite

import (
	"context"
	"errors"
	"sync"

	"github.com/reprise-go/reprise/core"
)

// openWith opens a receiver with another MaxInFlight than it was asked for.
func openWith(maxInFlight int) func(*brokenTransport, context.Context, core.ReceiverConfig, func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
	return func(_ *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
		if cfg.MaxInFlight >= 1 {
			cfg.MaxInFlight = maxInFlight
		}
		return next(cfg)
	}
}

var maxInFlightMutants = []mutant{
	{rule: "C3", name: "delivers every message of the queue at once", breaks: func() changes {
		return changes{open: openWith(1 << 20), maxInFlight: func(*brokenReceiver, int, func(int)) {}}
	}},
	{rule: "C3", name: "holds each call to MaxInFlight by itself", breaks: func() changes {
		return changes{
			open: openWith(1 << 20),
			receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
				return next(ctx, dst[:min(len(dst), r.cfg.MaxInFlight)])
			},
		}
	}},
	{rule: "C3", name: "hands out MaxInFlight once, and never more", breaks: func() changes {
		var mu sync.Mutex
		out := map[*brokenReceiver]int{}
		return changes{
			open: openWith(1 << 20),
			receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
				mu.Lock()
				room := r.cfg.MaxInFlight - out[r]
				mu.Unlock()
				if room <= 0 && r.cfg.Mode != core.TransactionNone {
					<-ctx.Done()
					return 0, ctx.Err()
				}
				n, err := next(ctx, dst[:max(1, min(len(dst), room))])
				mu.Lock()
				defer mu.Unlock()
				out[r] += n
				return n, err
			},
		}
	}},
	{rule: "C3", name: "does not change MaxInFlight while it receives", breaks: func() changes {
		return changes{maxInFlight: func(*brokenReceiver, int, func(int)) {}}
	}},
	{rule: "C3", name: "never lowers MaxInFlight", breaks: func() changes {
		return changes{maxInFlight: func(r *brokenReceiver, n int, next func(int)) {
			r.cfg.MaxInFlight = max(r.cfg.MaxInFlight, n)
			next(r.cfg.MaxInFlight)
		}}
	}},
	{rule: "C3", name: "never raises MaxInFlight above the first", breaks: func() changes {
		return changes{maxInFlight: func(r *brokenReceiver, n int, next func(int)) { next(min(n, r.cfg.MaxInFlight)) }}
	}},
	{rule: "C3", name: "adds each new MaxInFlight to the one before", breaks: func() changes {
		return changes{maxInFlight: func(r *brokenReceiver, n int, next func(int)) {
			r.cfg.MaxInFlight += n
			next(r.cfg.MaxInFlight)
		}}
	}},
	{rule: "C3", name: "changes MaxInFlight at the next Receive", breaks: func() changes {
		var mu sync.Mutex
		wanted := map[*brokenReceiver]int{}
		return changes{
			maxInFlight: func(r *brokenReceiver, n int, _ func(int)) {
				mu.Lock()
				defer mu.Unlock()
				wanted[r] = n
			},
			receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
				mu.Lock()
				if n, ok := wanted[r]; ok {
					r.Receiver.SetMaxInFlight(n)
				}
				mu.Unlock()
				return next(ctx, dst)
			},
		}
	}},
	{rule: "C3", name: "takes a MaxInFlight of 0 for no limit", breaks: func() changes {
		return changes{maxInFlight: func(_ *brokenReceiver, n int, next func(int)) {
			if n == 0 {
				n = 1 << 20
			}
			next(n)
		}}
	}},
	{rule: "C3", name: "does not release its prefetched messages when it is paused", breaks: func() changes {
		return prefetchWith(false, func([]core.Delivery) bool { return false })
	}},
	{rule: "C3", name: "delivers prefetched messages although it is paused", breaks: func() changes {
		return prefetchWith(true, func([]core.Delivery) bool { return false })
	}},
	{rule: "C3", name: "abandons prefetched messages", breaks: func() changes {
		return prefetchWith(false, func(prefetched []core.Delivery) bool {
			for _, d := range prefetched {
				_ = d.Abandon(context.Background(), nil)
			}
			return true
		})
	}},
	{rule: "C3", name: "holds no more than 1,000 messages", breaks: func() changes {
		return changes{
			open: func(_ *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
				cfg.MaxInFlight = min(cfg.MaxInFlight, 1000)
				return next(cfg)
			},
			maxInFlight: func(_ *brokenReceiver, n int, next func(int)) { next(min(n, 1000)) },
		}
	}},
	{rule: "C3", name: "keeps the messages of an open request whose caller has gone", breaks: keepsLateAnswers},
	{rule: "C3", name: "keeps the place of a delivery whose lock has ended", config: withLocks, breaks: keepsLostPlaces},
	{rule: "C3", name: "frees the place of a lost delivery once more when it is settled late", config: withLocks, breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, _ string, next func() error) error {
			err := next()
			if errors.Is(err, core.ErrLockLost) {
				d.receiver.Receiver.SetMaxInFlight(d.receiver.cfg.MaxInFlight + 1)
			}
			return err
		}}
	}},
	{rule: "C3", name: "keeps the number of messages in flight with which it was opened", breaks: func() changes {
		return changes{maxInFlight: func(*brokenReceiver, int, func(int)) {}}
	}},
	{rule: "C3", name: "has one message in flight with any MaxInFlight", breaks: func() changes {
		return changes{
			open: func(_ *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
				cfg.MaxInFlight = 1
				return next(cfg)
			},
			maxInFlight: func(_ *brokenReceiver, n int, next func(int)) { next(min(n, 1)) },
		}
	}},
	{rule: "C3", name: "keeps its prefetched messages when it is paused", config: receivingOnly, breaks: func() changes { return prefetching(4).changes() }},
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
}

// prefetchWith fetches four at a time. paused says what becomes of those that
// were not handed out, and reports whether they are given back.
func prefetchWith(handsOut bool, paused func(prefetched []core.Delivery) bool) changes {
	var mu sync.Mutex
	prefetched := map[*brokenReceiver][]core.Delivery{}
	stopped := map[*brokenReceiver]bool{}
	buffered := func(r *brokenReceiver, dst []core.Delivery) int {
		mu.Lock()
		defer mu.Unlock()
		if stopped[r] && !handsOut {
			return 0
		}
		n := copy(dst, prefetched[r])
		prefetched[r] = prefetched[r][n:]
		return n
	}
	return changes{
		receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			if n := buffered(r, dst); n > 0 {
				return n, nil
			}
			fetched := make([]core.Delivery, 4)
			n, err := next(ctx, fetched)
			mu.Lock()
			prefetched[r] = append(prefetched[r], fetched[:n]...)
			mu.Unlock()
			if err != nil {
				return 0, err
			}
			return buffered(r, dst), nil
		},
		maxInFlight: func(r *brokenReceiver, n int, next func(int)) {
			mu.Lock()
			defer mu.Unlock()
			stopped[r] = n == 0
			if n == 0 && paused(prefetched[r]) {
				prefetched[r] = nil
			}
			next(n)
		},
	}
}

// keepsLateAnswers leaves the request open when the context of a Receive ends. The next
// Receive gets what it brings, and a pause does not end it.
func keepsLateAnswers() changes {
	type result struct {
		deliveries []core.Delivery
		err        error
	}
	var mu sync.Mutex
	open := map[*brokenReceiver]chan result{}
	return changes{
		receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			if r.cfg.Mode == core.TransactionNone {
				return next(ctx, dst)
			}
			mu.Lock()
			pending := open[r]
			if pending == nil {
				pending = make(chan result, 1)
				open[r] = pending
				room := len(dst)
				go func() {
					fetched := make([]core.Delivery, room)
					n, err := next(ctxBackground, fetched)
					pending <- result{fetched[:n], err}
				}()
			}
			mu.Unlock()
			select {
			case got := <-pending:
				mu.Lock()
				defer mu.Unlock()
				n := copy(dst, got.deliveries)
				if rest := got.deliveries[n:]; len(rest) > 0 || got.err != nil {
					pending <- result{rest, got.err}
				} else {
					delete(open, r)
				}
				if n > 0 {
					return n, nil
				}
				return 0, got.err
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		},
	}
}
