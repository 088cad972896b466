package suite

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

func nothing(*brokenDelivery) error { return nil }

var giveBackMutants = []mutant{
	{rule: "C8", name: "completes abandoned messages", breaks: acknowledgesAbandoned},
	{rule: "C8", name: "completes released messages", breaks: func() changes { return settling("Release", completeDelivery) }},
	{rule: "C8", name: "waits for the lock's end instead of abandoning", config: withLocks, breaks: func() changes { return settling("Abandon", nothing) }},
	{rule: "C8", name: "waits for the lock's end instead of releasing", config: withLocks, breaks: func() changes { return settling("Release", nothing) }},
	{rule: "C8", name: "lets an abandoned message rest for ten seconds", breaks: func() changes {
		return failing(func(_ *brokenDelivery, next func() error) error {
			time.AfterFunc(10*time.Second, func() { _ = next() })
			return nil
		})
	}},
	{rule: "C8", name: "does not count abandoned deliveries", breaks: func() changes {
		return settling("Abandon", func(d *brokenDelivery) error { return d.Delivery.Release(ctxBackground) })
	}},
	{rule: "C8", name: "counts released deliveries", breaks: func() changes {
		return settling("Release", func(d *brokenDelivery) error { return d.Delivery.Abandon(ctxBackground, nil) })
	}},
	{rule: "C8", name: "forgets all failures with a Release", breaks: func() changes {
		return settling("Release", func(d *brokenDelivery) error {
			resend(d)
			return completeDelivery(d)
		})
	}},
	{rule: "C8", name: "keeps abandoned messages for the same receiver", breaks: func() changes { return lazily("Abandon") }},
	{rule: "C8", name: "loses abandoned messages when their receiver is closed", breaks: losesAbandonedWhenClosed},
	{rule: "C8", name: "needs a cause", breaks: func() changes {
		return failing(func(d *brokenDelivery, next func() error) error {
			d.cause = errors.New(d.cause.Error())
			return next()
		})
	}},
	{rule: "C8", name: "prints a cause that there is not", breaks: func() changes {
		return failing(func(d *brokenDelivery, next func() error) error {
			d.cause = fmt.Errorf("%v", d.cause) //nolint:errorlint // the mistake is to print it
			return next()
		})
	}},
	{rule: "C8", name: "remembers one error for all messages", breaks: func() changes {
		var mu sync.Mutex
		last := ""
		c := failing(func(d *brokenDelivery, next func() error) error {
			mu.Lock()
			defer mu.Unlock()
			if d.cause != nil {
				last = d.cause.Error()
			}
			return next()
		})
		c.arrive = func(_ *brokenReceiver, in *core.Incoming) {
			mu.Lock()
			defer mu.Unlock()
			in.LastError = last
		}
		return c
	}},
	{rule: "C8", name: "refuses causes that do not fit a header", breaks: func() changes {
		return failing(func(d *brokenDelivery, next func() error) error {
			if d.cause != nil && len(d.cause.Error()) > 32<<10 {
				return errors.New("header too long")
			}
			return next()
		})
	}},
	{rule: "C8", name: "drops a message with its tenth failure", breaks: func() changes {
		return failing(func(d *brokenDelivery, next func() error) error {
			if d.in.DeliveryCount == 10 {
				return completeDelivery(d)
			}
			return next()
		})
	}},
	{rule: "C8", name: "counts no further than ten", breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) { in.DeliveryCount = min(in.DeliveryCount, 10) }}
	}},
	{rule: "C8", name: "delivers nothing beside a message that was abandoned", breaks: func() changes {
		return failing(func(d *brokenDelivery, next func() error) error {
			d.receiver.Receiver.SetMaxInFlight(1)
			return next()
		})
	}},
	{rule: "C8", name: "lets an abandoned message wait for a second", breaks: func() changes {
		return settling("Abandon", inBackground(func(d *brokenDelivery) { _ = d.Delivery.Abandon(ctxBackground, d.cause) }))
	}, harness: withSlack},
	{rule: "C8", name: "lets a released message wait for a second", breaks: func() changes {
		return settling("Release", inBackground(func(d *brokenDelivery) { _ = d.Delivery.Release(ctxBackground) }))
	}, harness: withSlack},
}

// losesAbandonedWhenClosed keeps abandoned messages in its memory until the next Receive.
func losesAbandonedWhenClosed() changes {
	c := lazily("Abandon")
	held, recorded := recordDeliveries()
	c.deliver = recorded.deliver
	c.closeReceiver = func(r *brokenReceiver, next func() error) error {
		for _, d := range held.all(r) {
			_ = d.Complete(ctxBackground)
		}
		return next()
	}
	return c
}

func inBackground(do func(d *brokenDelivery)) func(d *brokenDelivery) error {
	return func(d *brokenDelivery) error {
		time.AfterFunc(time.Second, func() { do(d) })
		return nil
	}
}

// withSlack allows the tolerance of a broker.
func withSlack(h *Harness) { h.DelayTolerance = 3 * time.Second }
