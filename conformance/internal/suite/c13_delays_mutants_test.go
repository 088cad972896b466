package suite

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// onDelay makes changes of a function that changes messages with a delay.
func onDelay(change func(o *core.Outgoing)) func() changes {
	return func() changes {
		return changes{
			send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				out = slices.Clone(out)
				for i := range out {
					if out[i].Delay > 0 {
						change(&out[i])
					}
				}
				return next(ctx, out...)
			},
			settle: func(d *brokenDelivery, _ string, next func() error) error {
				for i := range d.out {
					if d.out[i].Delay > 0 {
						change(&d.out[i])
					}
				}
				return next()
			},
		}
	}
}

// dropping sends without those messages.
func dropping(unwanted func(t *brokenTransport, o core.Outgoing) bool) func() changes {
	return func() changes {
		return changes{send: func(t *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			kept := slices.DeleteFunc(slices.Clone(out), func(o core.Outgoing) bool { return unwanted(t, o) })
			return next(ctx, kept...)
		}}
	}
}

var delayMutants = []mutant{
	{rule: "C13", name: "ignores the delay", breaks: onDelay(func(o *core.Outgoing) { o.Delay = 0 })},
	{rule: "C13", name: "cuts the delay off to its precision", breaks: onDelay(func(o *core.Outgoing) { o.Delay = o.Delay.Truncate(10 * time.Millisecond) })},
	{rule: "C13", name: "looks for due messages less often than it says", breaks: onDelay(func(o *core.Outgoing) { o.Delay = o.Delay.Truncate(time.Second) + time.Second })},
	{rule: "C13", name: "counts the delay of messages that are sent with a settlement from the receive", breaks: func() changes {
		return sinceReceive(func(o core.Outgoing, since time.Duration) (changed core.Outgoing, born bool) {
			o.Delay = max(o.Delay-since, 0)
			return o, true
		})
	}},
	{rule: "C13", name: "is early by a millisecond", breaks: onDelay(func(o *core.Outgoing) { o.Delay = max(o.Delay-time.Millisecond, 0) })},
	{rule: "C13", name: "loses delays below its unit", breaks: dropping(func(_ *brokenTransport, o core.Outgoing) bool { return o.Delay > 0 && o.Delay < time.Millisecond })},
	{rule: "C13", name: "delays everything by a tick at least", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			for i := range out {
				out[i].Delay = max(out[i].Delay, time.Second)
			}
			return next(ctx, out...)
		}}
	}},
	{rule: "C13", name: "delivers delayed messages in the order in which they were sent", breaks: func() changes {
		var mu sync.Mutex
		last := map[string]time.Time{}
		return onDelay(func(o *core.Outgoing) {
			mu.Lock()
			defer mu.Unlock()
			o.Delay = max(o.Delay, time.Until(last[o.Queue]))
			last[o.Queue] = time.Now().Add(o.Delay)
		})()
	}},
	{rule: "C13", name: "loses a delayed message now and then", breaks: func() changes {
		var delayed callCounter
		return dropping(func(_ *brokenTransport, o core.Outgoing) bool { return o.Delay > 0 && delayed.isNth(17) })()
	}},
	{rule: "C13", name: "keeps the due time among the headers", breaks: onDelay(func(o *core.Outgoing) { o.Headers.Set("x-delay", o.Delay.String()) })},
	{rule: "C13", name: "says that a delayed message was enqueued when it was sent", breaks: func() changes {
		var sent sync.Map
		return changes{
			send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				for _, o := range out {
					sent.Store(o.ID, time.Now())
				}
				return next(ctx, out...)
			},
			arrive: func(_ *brokenReceiver, in *core.Incoming) {
				if at, ok := sent.Load(in.ID); ok {
					in.EnqueuedAt = at.(time.Time)
				}
			},
		}
	}},
	{rule: "C13", name: "delays for queues alone that it receives from", breaks: func() changes {
		var mu sync.Mutex
		changes := dropping(func(t *brokenTransport, o core.Outgoing) bool {
			mu.Lock()
			defer mu.Unlock()
			return o.Delay > 0 && t.memory[o.Queue] == 0
		})()
		changes.open = func(t *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			mu.Lock()
			t.memory[cfg.Queue] = 1
			mu.Unlock()
			return next(cfg)
		}
		return changes
	}},
	{rule: "C13", name: "takes delayed messages for a queue that does not exist", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			err := next(ctx, out...)
			if errors.Is(err, core.ErrQueueNotFound) && slices.ContainsFunc(out, func(o core.Outgoing) bool { return o.Delay > 0 }) {
				return nil
			}
			return err
		}}
	}},
	{rule: "C13", name: "delays by its longest when it is asked for more", config: able(func(c *core.Capabilities) { c.MaxDelay = time.Hour }),
		breaks: onDelay(func(o *core.Outgoing) { o.Delay = min(o.Delay, time.Hour) })},
	{rule: "C13", name: "refuses the longest delay that it claims", config: able(func(c *core.Capabilities) { c.MaxDelay = time.Hour - 1 }),
		breaks: func() changes {
			return changes{capabilities: func(c core.Capabilities) core.Capabilities {
				c.MaxDelay = time.Hour
				return c
			}}
		}},
	{rule: "C13", name: "counts delays as 32 bits of milliseconds", breaks: onDelay(func(o *core.Outgoing) {
		if o.Delay > math.MaxInt32*time.Millisecond {
			o.Delay = 0
		}
	})},
	{rule: "C13", name: "waits in the process that sent the message", breaks: func() changes {
		var mu sync.Mutex
		waiting := map[*brokenTransport][]*time.Timer{}
		return changes{
			send: func(t *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				mu.Lock()
				defer mu.Unlock()
				for _, o := range out {
					delay := o.Delay
					o.Delay = 0
					if delay == 0 {
						if err := next(ctx, o); err != nil {
							return err
						}
						continue
					}
					waiting[t] = append(waiting[t], time.AfterFunc(delay, func() { _ = t.base.Send(context.Background(), o) }))
				}
				return nil
			},
			close: func(t *brokenTransport, next func() error) error {
				mu.Lock()
				defer mu.Unlock()
				for _, timer := range waiting[t] {
					timer.Stop()
				}
				return next()
			},
		}
	}},
	{rule: "C13", name: "sends without delay with a settlement", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, _ string, next func() error) error {
			for i := range d.out {
				d.out[i].Delay = 0
			}
			return next()
		}}
	}},
	{rule: "C13", name: "passes nothing on behind 32 delayed messages of one queue", breaks: func() changes {
		var mu sync.Mutex
		waiting := map[string]int{}
		return onDelay(func(o *core.Outgoing) {
			mu.Lock()
			defer mu.Unlock()
			waiting[o.Queue]++
			for queue, n := range waiting {
				if n > 32 && queue != o.Queue {
					o.Delay += 3 * time.Minute
				}
			}
		})()
	}},
	{rule: "C13", name: "takes a copy with a known id for a duplicate", breaks: func() changes {
		var known sync.Map
		return dropping(func(_ *brokenTransport, o core.Outgoing) bool {
			_, seen := known.LoadOrStore(o.ID, true)
			return seen
		})()
	}},
	{rule: "C13", name: "waits for delayed messages' time in the sender's process", onServer: true, breaks: delaysItself},
	{rule: "C13", name: "sends messages with a settlement without their delay", breaks: func() changes {
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
	{rule: "C13", name: "keeps delayed messages in memory, and claims to be durable", onServer: true, breaks: func() changes {
		return changes{send: func(t *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			if out[0].Delay == 0 {
				return next(ctx, out...)
			}
			lost, delay := t.base.(*remote).lost(), out[0].Delay
			out[0].Delay = 0
			time.AfterFunc(delay, func() {
				select {
				case <-lost: // and all that the broker had in memory
				default:
					_ = next(ctxBackground, out...)
				}
			})
			return nil
		}}
	}},
}

func delaysItself() changes {
	return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
		for _, o := range out {
			if o.Delay == 0 {
				if err := next(ctx, o); err != nil {
					return err
				}
				continue
			}
			delay := o.Delay
			o.Delay = 0
			time.AfterFunc(delay, func() { _ = next(ctxBackground, o) })
		}
		return nil
	}}
}
