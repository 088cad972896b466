package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// lazily carries settlements out later, or never when the receiver is closed
// before.
func lazily(operation string) changes {
	var mu sync.Mutex
	pending := map[*brokenReceiver][]func(){}
	flush := func(r *brokenReceiver) {
		mu.Lock()
		defer mu.Unlock()
		for _, settle := range pending[r] {
			settle()
		}
		pending[r] = nil
	}
	return changes{
		settle: func(d *brokenDelivery, asked string, next func() error) error {
			if asked != operation {
				return next()
			}
			mu.Lock()
			defer mu.Unlock()
			pending[d.receiver] = append(pending[d.receiver], func() { _ = next() })
			return nil
		},
		receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			flush(r)
			return next(ctx, dst)
		},
	}
}

func completeDelivery(d *brokenDelivery) error { return d.Delivery.Complete(ctxBackground) }

// losesWhenClosed completes the unsettled messages of a closed receiver.
func losesWhenClosed() changes {
	held, c := recordDeliveries()
	c.closeReceiver = func(r *brokenReceiver, next func() error) error {
		for _, d := range held.all(r) {
			_ = d.Complete(ctxBackground)
		}
		return next()
	}
	return c
}

// countingAlone is a transport that counts in its memory.
func countingAlone() inmemory.Config {
	return able(func(c *core.Capabilities) { c.NativeDeliveryCount = false })
}

// countMemory is how often messages failed at one transport.
type countMemory struct {
	failures map[string]int
	order    []string // the oldest first
}

// remembersFailures remembers 1,000 messages for each transport. full may make room.
func remembersFailures(full func(*countMemory)) changes {
	var mu sync.Mutex
	memories := map[*brokenTransport]*countMemory{}
	memory := func(r *brokenReceiver) *countMemory {
		m := memories[r.transport]
		if m == nil {
			m = &countMemory{failures: map[string]int{}}
			memories[r.transport] = m
		}
		return m
	}
	c := failing(func(d *brokenDelivery, next func() error) error {
		mu.Lock()
		m, id := memory(d.receiver), d.in.NativeID
		if m.failures[id] == 0 && len(m.failures) == 1000 {
			full(m)
		}
		if m.failures[id] > 0 || len(m.failures) < 1000 {
			if m.failures[id] == 0 {
				m.order = append(m.order, id)
			}
			m.failures[id]++
		}
		mu.Unlock()
		return next()
	})
	c.arrive = func(r *brokenReceiver, in *core.Incoming) {
		mu.Lock()
		defer mu.Unlock()
		in.DeliveryCount = 1 + memory(r).failures[in.NativeID]
	}
	return c
}

// sinceReceive changes what is sent with a settlement by how long its message was held,
// and drops what is born too late.
func sinceReceive(change func(o core.Outgoing, since time.Duration) (changed core.Outgoing, born bool)) changes {
	var received sync.Map // by NativeID
	return changes{
		arrive: func(_ *brokenReceiver, in *core.Incoming) { received.Store(in.NativeID, time.Now()) },
		settle: func(d *brokenDelivery, _ string, next func() error) error {
			at, _ := received.Load(d.in.NativeID)
			var out []core.Outgoing
			for _, o := range d.out {
				if changed, born := change(o, time.Since(at.(time.Time))); born {
					out = append(out, changed)
				}
			}
			d.out = out
			return next()
		},
	}
}

// leaksItsHeaders hands over headers of the broker's own with the message's.
func leaksItsHeaders() changes {
	return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) {
		in.Headers.Set("x-received-by", "node-3")
	}}
}

// swallowsUnroutable sends as RabbitMQ does without the mandatory flag.
func swallowsUnroutable() changes {
	return changes{
		send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			if err := next(ctx, out...); !errors.Is(err, core.ErrQueueNotFound) {
				return err
			}
			return nil
		},
		settle: func(d *brokenDelivery, operation string, next func() error) error {
			err := next()
			if errors.Is(err, core.ErrQueueNotFound) {
				return d.Delivery.Complete(context.Background())
			}
			return err
		},
	}
}

// sendsTwice repeats messages to a queue under a condition.
func sendsTwice(which func(o core.Outgoing) bool) changes {
	return outgoing(func(out []core.Outgoing) (duplicates []core.Outgoing) {
		for _, o := range out {
			duplicates = append(duplicates, o)
			if which(o) {
				duplicates = append(duplicates, o)
			}
		}
		return duplicates
	})
}

func hasFailed(o core.Outgoing) bool { return o.Headers.Get(headers.FailedQ) != "" }

// dropsOwnHeaders drops the headers whose names begin like the product's.
func dropsOwnHeaders() changes {
	return changesOutgoing(func(out []core.Outgoing) []core.Outgoing {
		for i := range out {
			for key := range out[i].Headers.All() {
				if strings.HasPrefix(key, "Reprise.") {
					out[i].Headers.Del(key)
				}
			}
		}
		return out
	})
}

// withoutGroups makes changes that carry group keys, and keep no order. Postpone
// sends a copy.
func withoutGroups() changes {
	const key = "Mutant.GroupKey"
	return changes{
		send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			for i := range out {
				if out[i].GroupKey != "" {
					out[i].Headers.Set(key, out[i].GroupKey)
					out[i].GroupKey = ""
				}
			}
			return next(ctx, out...)
		},
		arrive: func(_ *brokenReceiver, in *core.Incoming) {
			in.GroupKey = in.Headers.Get(key)
			in.Headers.Del(key)
		},
		settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation != "Postpone" {
				return next()
			}
			d.in.Headers.Set(key, d.in.GroupKey)
			d.in.GroupKey = ""
			return d.sendAnew(d.delay)
		},
	}
}

// holdsAllGroups delivers nothing while a message is postponed.
func holdsAllGroups() changes {
	var mu sync.Mutex
	var due time.Time
	return changes{
		settle: func(d *brokenDelivery, operation string, next func() error) error {
			err := next()
			if operation == "Postpone" && err == nil {
				mu.Lock()
				due = time.Now().Add(d.delay)
				mu.Unlock()
			}
			return err
		},
		receive: func(_ *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			mu.Lock()
			wait := time.Until(due)
			mu.Unlock()
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return 0, ctx.Err()
			}
			return next(ctx, dst)
		},
	}
}

// oneMinute is a limit of MaxLockTime that cases can wait for.
func oneMinute(c *core.Capabilities) { c.MaxLockTime = time.Minute }

// namesDeliveries takes the receipt of a delivery for the name of the stored
// copy.
func namesDeliveries() changes {
	var receipts atomic.Int64
	return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) {
		in.NativeID = fmt.Sprintf("receipt-%d", receipts.Add(1))
	}}
}

func losesReleased() changes {
	return settling("Release", func(d *brokenDelivery) error { return d.Delivery.Complete(context.Background()) })
}

// refusingCopies holds the engine's copies with these reasons against its limit.
func refusingCopies(reasons ...core.SendReason) changes {
	return failingSends(func(out []core.Outgoing) error {
		for _, o := range out {
			if size := len(o.Body) + o.Headers.Bytes(); size > lowLimit && slices.Contains(reasons, o.Reason) {
				return refusingAll(out, &core.TooLargeError{Limit: "MaxMessageBytes", Max: lowLimit, Size: size})
			}
		}
		return nil
	})
}

// failingSends lets every call fail whose messages are not as they should be.
func failingSends(check func(out []core.Outgoing) error) changes {
	return changes{
		send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			if err := check(out); err != nil {
				return err
			}
			return next(ctx, out...)
		},
		settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "CompleteWith" || operation == "ReplaceWith" {
				if err := check(d.out); err != nil {
					return err
				}
			}
			return next()
		},
	}
}

// refusingAll is the error of a Send that was refused as a whole.
func refusingAll(out []core.Outgoing, cause error) error {
	refused := &core.SendError{}
	for _, o := range out {
		refused.Results = append(refused.Results, core.SendResult{ID: o.ID, To: o.Queue + o.Topic, State: core.SendRefused, Err: cause})
	}
	return refused
}

// keepsLostPlaces frees the place of a delivery by its settlement alone.
func keepsLostPlaces() changes {
	var mu sync.Mutex
	taken := map[*brokenReceiver]int{}
	places := map[*brokenReceiver]int{}
	closed := map[*brokenReceiver]bool{}
	free := func(r *brokenReceiver) (n int, is bool) {
		mu.Lock()
		defer mu.Unlock()
		if _, set := places[r]; !set {
			places[r] = r.cfg.MaxInFlight
		}
		n = places[r] - taken[r]
		return n, n > 0 || closed[r] || r.cfg.Mode == core.TransactionNone
	}
	return changes{
		receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			for {
				if _, is := free(r); is {
					break
				}
				select {
				case <-ctx.Done():
					return 0, ctx.Err()
				case <-time.After(10 * time.Millisecond):
				}
			}
			n, err := next(ctx, dst)
			mu.Lock()
			defer mu.Unlock()
			taken[r] += n
			return n, err
		},
		maxInFlight: func(r *brokenReceiver, n int, next func(int)) {
			mu.Lock()
			places[r] = n
			mu.Unlock()
			next(n)
		},
		settle: func(d *brokenDelivery, operation string, next func() error) error {
			err := next()
			if err == nil && operation != "Renew" && operation != "Reset" {
				mu.Lock()
				taken[d.receiver]--
				mu.Unlock()
			}
			return err
		},
		closeReceiver: func(r *brokenReceiver, next func() error) error {
			mu.Lock()
			closed[r] = true
			mu.Unlock()
			return next()
		},
	}
}

// givesBackReset rolls the receive back with the work.
func givesBackReset() changes {
	return settling("Reset", func(d *brokenDelivery) error { return d.Delivery.Release(context.Background()) })
}

// losesReplacements consumes a message without sending its replacement.
func losesReplacements() changes {
	return settling("ReplaceWith", func(d *brokenDelivery) error { return d.Delivery.Complete(context.Background()) })
}

func consumesEarly() changes {
	return changes{
		deliver: func(_ *brokenReceiver, d core.Delivery) core.Delivery {
			_ = d.Complete(ctxBackground)
			return d
		},
		settle: func(d *brokenDelivery, operation string, _ func() error) error {
			switch operation {
			case "CompleteWith", "ReplaceWith":
				return d.receiver.transport.base.Send(ctxBackground, d.out...)
			case "Abandon", "Release":
				in := d.Delivery.Incoming()
				repeated := core.Outgoing{ID: in.ID, Queue: d.receiver.cfg.Queue, Headers: in.Headers, Body: in.Body}
				return d.receiver.transport.base.Send(ctxBackground, repeated)
			default:
				return nil
			}
		},
	}
}

// receivingOnly has the mode ReceiveOnly alone.
var receivingOnly = able(func(c *core.Capabilities) { c.Transactions = []core.TransactionMode{core.TransactionReceiveOnly} })

// releasesByAbandoning makes no difference between failed and released messages.
func releasesByAbandoning() changes {
	return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		if operation == "Release" {
			return d.Delivery.Abandon(context.Background(), context.Canceled)
		}
		return next()
	}}
}

// keepsLowest follows MaxInFlight down to a limit and never up from there.
func keepsLowest(limit int) func(r *brokenReceiver, n int, next func(int)) {
	var mu sync.Mutex
	stuck := map[*brokenReceiver]bool{}
	return func(r *brokenReceiver, n int, next func(int)) {
		mu.Lock()
		defer mu.Unlock()
		stuck[r] = stuck[r] || n == limit
		if stuck[r] {
			n = min(n, limit)
		}
		next(n)
	}
}

// dropsKnownIDs takes a copy of a message for the same message once more, as
// duplicate detection by the message id does.
func dropsKnownIDs() changes {
	var mu sync.Mutex
	known := map[string]bool{}
	return outgoing(func(out []core.Outgoing) (unknown []core.Outgoing) {
		mu.Lock()
		defer mu.Unlock()
		for _, o := range out {
			if !known[o.ID] {
				unknown = append(unknown, o)
			}
			known[o.ID] = true
		}
		return unknown
	})
}

// countsByID keeps its counts by the message id, which a delayed copy shares
// with its original.
func countsByID() changes {
	var mu sync.Mutex
	delivered := map[string]int{}
	return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) {
		mu.Lock()
		defer mu.Unlock()
		delivered[in.ID]++
		in.DeliveryCount = delivered[in.ID]
	}}
}

func acknowledgesAbandoned() changes {
	return settling("Abandon", func(d *brokenDelivery) error { return d.Delivery.Complete(context.Background()) })
}

func forgetsToAcknowledge() changes {
	return settling("Complete", func(*brokenDelivery) error { return nil })
}

// givesBackReplaced sends the replacement of a message, and keeps the message too.
func givesBackReplaced() changes {
	return settling("ReplaceWith", func(d *brokenDelivery) error {
		if err := d.receiver.transport.base.Send(context.Background(), d.out...); err != nil {
			return err
		}
		return d.Delivery.Release(context.Background())
	})
}

var withoutDelays = able(func(c *core.Capabilities) { c.DelayedDelivery = false })

// countsCopiesTogether keys its memory by the message's id instead of the
// copy's.
func countsCopiesTogether() changes {
	var mu sync.Mutex
	seen := map[string]int{}
	return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) {
		mu.Lock()
		defer mu.Unlock()
		seen[in.ID]++
		in.DeliveryCount = seen[in.ID]
	}}
}

func losesAcknowledgements() changes {
	var mu sync.Mutex
	acknowledged := map[string]bool{}
	return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		mu.Lock()
		defer mu.Unlock()
		if operation == "Complete" && !acknowledged[d.in.NativeID] {
			acknowledged[d.in.NativeID] = true
			return d.Delivery.Release(context.Background())
		}
		return next()
	}}
}
