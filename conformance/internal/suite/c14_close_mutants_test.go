package suite

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// receivingClosed changes Receive of a closed receiver.
func receivingClosed(change func(ctx context.Context, err error) error) changes {
	return changes{receive: func(_ *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
		n, err := next(ctx, dst)
		if errors.Is(err, core.ErrClosed) {
			err = change(ctx, err)
		}
		return n, err
	}}
}

// firstCall lets the first call for each key pass, and answers the others.
func firstCall[K comparable](others func() error) func(key K, next func() error) error {
	var mu sync.Mutex
	called := map[K]bool{}
	return func(key K, next func() error) error {
		mu.Lock()
		repeated := called[key]
		called[key] = true
		mu.Unlock()
		if repeated {
			return others()
		}
		return next()
	}
}

// openOnes remembers the transports or receivers that are not closed.
type openOnes[K comparable] struct {
	mu  sync.Mutex
	all map[K]bool
}

func (o *openOnes[K]) add(key K) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil {
		o.all = map[K]bool{}
	}
	o.all[key] = true
}

// take returns all and forgets them.
func (o *openOnes[K]) take() map[K]bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.all
	o.all = nil
	return all
}

// leavesHeld only stops to receive when a receiver is closed.
func leavesHeld() changes {
	var mu sync.Mutex
	shut := map[*brokenReceiver]bool{}
	return changes{
		closeReceiver: func(r *brokenReceiver, _ func() error) error {
			mu.Lock()
			defer mu.Unlock()
			shut[r] = true
			r.Receiver.SetMaxInFlight(0)
			return nil
		},
		receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			mu.Lock()
			closed := shut[r]
			mu.Unlock()
			if closed {
				return 0, core.ErrClosed
			}
			return next(ctx, dst)
		},
	}
}

var closeMutants = []mutant{
	{rule: "C14", name: "lets Receive wait at a closed receiver", breaks: func() changes {
		return receivingClosed(func(ctx context.Context, _ error) error {
			<-ctx.Done()
			return ctx.Err()
		})
	}},
	{rule: "C14", name: "ends one call of Receive when its receiver is closed", breaks: func() changes {
		first := firstCall[string](func() error { return nil })
		return changes{receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			n, err := next(ctx, dst)
			if !errors.Is(err, core.ErrClosed) {
				return n, err
			}
			told := false
			_ = first(r.cfg.Queue, func() error { told = true; return nil })
			if !told {
				<-ctx.Done()
				err = ctx.Err()
			}
			return 0, err
		}}
	}},
	{rule: "C14", name: "calls a closed receiver cancelled", breaks: func() changes {
		return receivingClosed(func(context.Context, error) error { return context.Canceled })
	}},
	{rule: "C14", name: "goes on to receive when its receiver is closed", breaks: func() changes {
		return changes{closeReceiver: func(*brokenReceiver, func() error) error { return nil }}
	}},
	{rule: "C14", name: "cannot close a receiver again", breaks: func() changes {
		first := firstCall[*brokenReceiver](func() error { return core.ErrClosed })
		return changes{closeReceiver: first}
	}},
	{rule: "C14", name: "closes the channel that all receivers of a transport share", breaks: func() changes {
		var open openOnes[*brokenReceiver]
		return changes{
			receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
				open.add(r)
				return next(ctx, dst)
			},
			closeReceiver: func(r *brokenReceiver, next func() error) error {
				for other := range open.take() {
					if other.transport == r.transport {
						_ = other.Receiver.Close(ctxBackground)
					}
				}
				return next()
			},
		}
	}},
	{rule: "C14", name: "counts messages as failed that are released when their receiver closes", breaks: func() changes {
		held, c := recordDeliveries()
		c.closeReceiver = func(r *brokenReceiver, next func() error) error {
			for _, d := range held.all(r) {
				_ = d.Abandon(ctxBackground, nil)
			}
			return next()
		}
		return c
	}},
	{rule: "C14", name: "loses the unsettled messages of a closed receiver", breaks: losesWhenClosed},
	{rule: "C14", name: "loses the unsettled messages of a closed transport", breaks: func() changes {
		held, c := recordDeliveries()
		c.close = func(t *brokenTransport, next func() error) error {
			held.mu.Lock()
			defer held.mu.Unlock()
			for r, deliveries := range held.byReceiver {
				if r.transport == t {
					for _, d := range deliveries {
						_ = d.Complete(ctxBackground)
					}
				}
			}
			return next()
		}
		return c
	}},
	{rule: "C14", name: "leaves unsettled messages locked when their receiver is closed", config: withLocks, breaks: leavesHeld},
	{rule: "C14", name: "loses prefetched messages when their receiver is closed", breaks: func() changes {
		held, c := recordDeliveries()
		p := prefetching(12)
		c.receive, c.open, c.maxInFlight = p.changes().receive, p.changes().open, p.changes().maxInFlight
		c.closeReceiver = func(r *brokenReceiver, next func() error) error {
			p.mu.Lock()
			prefetched := len(p.kept[r])
			p.mu.Unlock()
			all := held.all(r)
			for _, d := range all[len(all)-prefetched:] {
				_ = d.Complete(ctxBackground)
			}
			return next()
		}
		return c
	}},
	{rule: "C14", name: "writes to a channel that is closed", breaks: func() changes {
		var mu sync.Mutex
		gone := map[*brokenReceiver]bool{}
		return changes{
			closeReceiver: func(r *brokenReceiver, next func() error) error {
				mu.Lock()
				defer mu.Unlock()
				gone[r] = true
				return next()
			},
			maxInFlight: func(r *brokenReceiver, n int, next func(int)) {
				mu.Lock()
				defer mu.Unlock()
				if gone[r] {
					panic("send on closed channel")
				}
				next(n)
			},
		}
	}},
	{rule: "C14", name: "says nothing when it sends after Close", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			if err := next(ctx, out...); !errors.Is(err, core.ErrClosed) {
				return err
			}
			return nil
		}}
	}},
	{rule: "C14", name: "connects again when it is used after Close", breaks: func() changes {
		return changes{check: func(*brokenTransport, core.Topology, func() error) error { return nil }}
	}},
	{rule: "C14", name: "leaves its receivers open when it is closed", breaks: func() changes {
		return changes{close: func(t *brokenTransport, _ func() error) error {
			t.leave()
			return nil
		}}
	}},
	{rule: "C14", name: "cannot be closed again", breaks: func() changes {
		first := firstCall[*brokenTransport](func() error { return core.ErrClosed })
		return changes{close: first}
	}},
	{rule: "C14", name: "shares one connection among all transports, and closes it", breaks: func() changes {
		var open openOnes[*brokenTransport]
		return changes{
			open: func(t *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
				open.add(t)
				return next(cfg)
			},
			close: func(_ *brokenTransport, next func() error) error {
				for other := range open.take() {
					_ = other.base.Close(ctxBackground)
				}
				return next()
			},
		}
	}},
	{rule: "C14", name: "leaves a goroutine behind", breaks: func() changes {
		return changes{close: func(_ *brokenTransport, next func() error) error {
			go time.Sleep(10 * time.Minute) // its keep-alive
			return next()
		}}
	}, harness: looksSeldom},
	{rule: "C14", name: "leaves the goroutine of Open behind, and ends others late", harness: func(h *Harness) {
		h.Synctest = false // which would not end with a goroutine in it
		h.Timeout = 3 * time.Second
		open := h.Open
		h.Open = func(t testing.TB) core.Transport {
			transport := open(t).(*brokenTransport)
			go time.Sleep(time.Minute) // its keep-alive
			c := *transport.changes
			c.close = func(_ *brokenTransport, next func() error) error {
				for range 5 { // those of a client that does not wait for them
					go time.Sleep(500 * time.Millisecond)
				}
				return next()
			}
			transport.changes = &c
			return transport
		}
	}},
	{rule: "C14", name: "leaves a connection behind", breaks: func() changes {
		return changes{close: func(t *brokenTransport, _ func() error) error { return t.base.Close(ctxBackground) }}
	}},
	{rule: "C14", name: "accepts messages while it is closed, and loses them", breaks: func() changes {
		var mu sync.Mutex
		waiting := map[*brokenTransport][]core.Outgoing{}
		flush := func(t *brokenTransport) error {
			out := waiting[t]
			waiting[t] = nil
			return t.base.Send(ctxBackground, out...)
		}
		return changes{
			send: func(t *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				mu.Lock()
				defer mu.Unlock()
				if err := next(ctx); err != nil {
					return next(ctx, out...)
				}
				waiting[t] = append(waiting[t], out...)
				if len(waiting[t]) == len(out) {
					time.AfterFunc(time.Millisecond, func() {
						mu.Lock()
						defer mu.Unlock()
						_ = flush(t)
					})
				}
				return nil
			},
		}
	}},
	{rule: "C14", name: "leaves a goroutine behind when it is closed in an outage", onServer: true, breaks: func() changes {
		return changes{close: func(t *brokenTransport, next func() error) error {
			if _, err := t.base.(*remote).connected(); errors.Is(err, errRefused) {
				go time.Sleep(time.Hour)
			}
			return next()
		}}
	}, harness: looksSeldom},
	{rule: "C14", name: "waits for the broker in Close", onServer: true, breaks: func() changes {
		return changes{close: func(t *brokenTransport, next func() error) error {
			for {
				if _, err := t.base.(*remote).connected(); !errors.Is(err, errRefused) {
					return next()
				}
				time.Sleep(time.Second)
			}
		}}
	}},
	{rule: "C14", name: "leaves a consumer behind that keeps the next one out", breaks: func() changes {
		return changes{open: func(t *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			if t.memory[cfg.Queue]++; t.memory[cfg.Queue] > 1 {
				return nil, errors.New("the queue has an exclusive consumer")
			}
			return next(cfg)
		}}
	}},
}

// looksSeldom lets a case that waits in a bubble for the end of goroutines look for them
// a few times only: each look stops everything that runs beside it.
func looksSeldom(h *Harness) { h.Timeout = 3 * time.Second }
