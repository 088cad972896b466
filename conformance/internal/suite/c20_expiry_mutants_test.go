package suite

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// onExpiry makes changes of a function that changes messages with a time to
// be received.
func onExpiry(change func(t *brokenTransport, o *core.Outgoing)) func() changes {
	return func() changes {
		return changes{send: func(t *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			for i := range out {
				if out[i].TimeToBeReceived > 0 {
					change(t, &out[i])
				}
			}
			return next(ctx, out...)
		}}
	}
}

var expiryMutants = []mutant{
	{rule: "C20", name: "lets no message expire", breaks: onExpiry(func(_ *brokenTransport, o *core.Outgoing) { o.TimeToBeReceived = 0 })},
	{rule: "C20", name: "keeps the expiry among the headers", breaks: onExpiry(func(_ *brokenTransport, o *core.Outgoing) { o.Headers.Set("expiration", o.TimeToBeReceived.String()) })},
	{rule: "C20", name: "counts the time as 32 bits of milliseconds", breaks: onExpiry(func(_ *brokenTransport, o *core.Outgoing) {
		if o.TimeToBeReceived > math.MaxInt32*time.Millisecond {
			o.TimeToBeReceived = 1
		}
	})},
	{rule: "C20", name: "gives all messages of a Send the shortest time", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			shortest := time.Duration(math.MaxInt64)
			for _, o := range out {
				if o.TimeToBeReceived > 0 {
					shortest = min(shortest, o.TimeToBeReceived)
				}
			}
			for i := range out {
				if shortest < math.MaxInt64 {
					out[i].TimeToBeReceived = shortest
				}
			}
			return next(ctx, out...)
		}}
	}},
	{rule: "C20", name: "does not check prefetched messages again", breaks: func() changes {
		var mu sync.Mutex
		fetching := map[string]bool{}
		c := onExpiry(func(_ *brokenTransport, o *core.Outgoing) {
			mu.Lock()
			defer mu.Unlock()
			if fetching[o.Queue] {
				o.TimeToBeReceived = 0
			}
		})()
		c.open = func(_ *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			mu.Lock()
			defer mu.Unlock()
			fetching[cfg.Queue] = true
			return next(cfg)
		}
		return c
	}},
	{rule: "C20", name: "delivers expired messages in mode None", breaks: func() changes {
		return expiresAtReceive(func(r *brokenReceiver) bool { return r.cfg.Mode != core.TransactionNone })
	}},
	{rule: "C20", name: "delivers prefetched messages without a check of their expiry", breaks: func() changes { return prefetching(12).changes() }},
	{rule: "C20", name: "counts the time to be received of messages that are sent with a settlement from the receive", breaks: func() changes {
		return sinceReceive(func(o core.Outgoing, since time.Duration) (changed core.Outgoing, born bool) {
			if o.TimeToBeReceived > 0 {
				o.TimeToBeReceived -= since
				return o, o.TimeToBeReceived > 0
			}
			return o, true
		})
	}},
	{rule: "C20", name: "forgets the time when a message is given back", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation != "Abandon" && operation != "Release" {
				return next()
			}
			if err := d.Delivery.Complete(context.Background()); err != nil {
				return err
			}
			return d.sendSeparately([]core.Outgoing{{ID: d.in.ID, Queue: d.receiver.cfg.Queue, Headers: d.in.Headers, Body: d.in.Body}})
		}}
	}},
	{rule: "C20", name: "drops a message with a time when it is given back", breaks: func() changes {
		var brief sync.Map
		c := onExpiry(func(_ *brokenTransport, o *core.Outgoing) { brief.Store(o.ID, true) })()
		c.settle = func(d *brokenDelivery, operation string, next func() error) error {
			if _, is := brief.Load(d.in.ID); is && (operation == "Abandon" || operation == "Release") {
				return d.Delivery.Complete(context.Background())
			}
			return next()
		}
		return c
	}},
	{rule: "C20", name: "takes the lock of a message that expires", breaks: func() changes {
		var expires sync.Map
		c := onExpiry(func(_ *brokenTransport, o *core.Outgoing) { expires.Store(o.ID, time.Now().Add(o.TimeToBeReceived)) })()
		c.settle = func(d *brokenDelivery, operation string, next func() error) error {
			if at, ok := expires.Load(d.in.ID); ok && operation == "Complete" && time.Now().After(at.(time.Time)) {
				_ = next()
				return core.ErrLockLost
			}
			return next()
		}
		return c
	}},
	{rule: "C20", name: "knows a message's time to be received by its id", breaks: func() changes {
		var mu sync.Mutex
		known := map[string]time.Duration{}
		return outgoing(func(out []core.Outgoing) []core.Outgoing {
			mu.Lock()
			defer mu.Unlock()
			for i, o := range out {
				if o.TimeToBeReceived > 0 {
					known[o.ID] = o.TimeToBeReceived
				}
				out[i].TimeToBeReceived = known[o.ID]
			}
			return out
		})
	}},
	{rule: "C20", name: "does not tell when a message expires", breaks: arriving(func(in *core.Incoming) { in.ExpiresAt = time.Time{} })},
	{rule: "C20", name: "tells an end for messages that do not expire", breaks: arriving(func(in *core.Incoming) {
		if in.ExpiresAt.IsZero() {
			in.ExpiresAt = time.Now().Add(24 * time.Hour)
		}
	})},
	{rule: "C20", name: "tells the time to be received from the delivery on", breaks: func() changes {
		var lives sync.Map // by message id
		c := onExpiry(func(_ *brokenTransport, o *core.Outgoing) { lives.LoadOrStore(o.ID, o.TimeToBeReceived) })()
		c.arrive = func(_ *brokenReceiver, in *core.Incoming) {
			if life, ok := lives.Load(in.ID); ok {
				in.ExpiresAt = time.Now().Add(life.(time.Duration))
			}
		}
		return c
	}},
	{rule: "C20", name: "tells that a message which is delivered has expired", breaks: arriving(func(in *core.Incoming) {
		if !in.ExpiresAt.IsZero() {
			in.ExpiresAt = time.Now()
		}
	})},
	{rule: "C20", name: "gives each copy of a message the whole time", breaks: func() changes {
		var lives sync.Map // by message id
		return onExpiry(func(_ *brokenTransport, o *core.Outgoing) {
			life, _ := lives.LoadOrStore(o.ID, o.TimeToBeReceived)
			o.TimeToBeReceived = life.(time.Duration)
		})()
	}},
	{rule: "C20", name: "ignores the delay of a message that expires", breaks: onExpiry(func(_ *brokenTransport, o *core.Outgoing) { o.Delay = 0 })},
	{rule: "C20", name: "counts the time from when a delayed message is due", breaks: onExpiry(func(_ *brokenTransport, o *core.Outgoing) { o.TimeToBeReceived += o.Delay })},
	{rule: "C20", name: "lets events live for ever", breaks: onExpiry(func(_ *brokenTransport, o *core.Outgoing) {
		if o.Topic != "" {
			o.TimeToBeReceived = 0
		}
	})},
	{rule: "C20", name: "drops the expiry of messages that are sent with a settlement", breaks: onSend(func(d *brokenDelivery, next func() error) error {
		for i := range d.out {
			d.out[i].TimeToBeReceived = 0
		}
		return next()
	})},
}

// expiresAtReceive is a transport that looks at the time to be received when it receives,
// where looks says so.
func expiresAtReceive(looks func(r *brokenReceiver) bool) changes {
	var ends sync.Map // by queue and message id
	c := onExpiry(func(_ *brokenTransport, o *core.Outgoing) {
		if o.Queue != "" {
			ends.Store(o.Queue+" "+o.ID, time.Now().Add(o.TimeToBeReceived))
			o.TimeToBeReceived = 0
		}
	})()
	c.receive = func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
		for {
			n, err := next(ctx, dst)
			if err != nil || !looks(r) {
				return n, err
			}
			kept := 0
			for _, d := range dst[:n] {
				if end, ok := ends.Load(r.cfg.Queue + " " + d.Incoming().ID); ok && time.Now().After(end.(time.Time)) {
					_ = d.Complete(context.Background())
					continue
				}
				dst[kept] = d
				kept++
			}
			if kept > 0 {
				return kept, nil
			}
		}
	}
	return c
}
