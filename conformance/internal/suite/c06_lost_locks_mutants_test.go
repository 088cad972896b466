package suite

import (
	"errors"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// lateFor does something to the present holder's delivery when a settlement came
// too late.
func lateFor(asked string, do func(holder core.Delivery)) changes {
	var mu sync.Mutex
	holders := map[string]core.Delivery{}
	c := onRefusal(core.ErrLockLost, func(d *brokenDelivery, operation string) {
		mu.Lock()
		holder := holders[d.in.NativeID]
		mu.Unlock()
		if operation == asked && holder != nil {
			do(holder)
		}
	})
	c.deliver = func(_ *brokenReceiver, d core.Delivery) core.Delivery {
		mu.Lock()
		defer mu.Unlock()
		holders[d.Incoming().NativeID] = d
		return d
	}
	return c
}

var lostLockMutants = []mutant{
	{rule: "C6", name: "takes a settlement that came too late for a success", config: withLocks, breaks: func() changes { return replaceErr(core.ErrLockLost, nil) }},
	{rule: "C6", name: "calls a lost delivery settled", config: withLocks, breaks: func() changes { return replaceErr(core.ErrLockLost, core.ErrSettled) }},
	{rule: "C6", name: "says only that the receiver is closed", breaks: func() changes {
		return replaceErr(core.ErrLockLost, core.ErrClosed)
	}},
	{rule: "C6", name: "deletes a message by its id, also from another receiver", config: withLocks, breaks: func() changes {
		return lateFor("Complete", func(holder core.Delivery) { _ = holder.Complete(ctxBackground) })
	}},
	{rule: "C6", name: "makes a message available by its id, also while another receiver has it", config: withLocks, breaks: func() changes {
		return lateFor("Release", func(holder core.Delivery) { _ = holder.Release(ctxBackground) })
	}},
	{rule: "C6", name: "takes a message of a closed receiver from who holds it now", breaks: func() changes {
		return lateFor("Abandon", func(holder core.Delivery) { _ = holder.Release(ctxBackground) })
	}},
	{rule: "C6", name: "counts an Abandon that came too late", config: withLocks, breaks: func() changes {
		return countingMore(func(more func(*brokenDelivery)) changes {
			return onRefusal(core.ErrLockLost, func(d *brokenDelivery, operation string) {
				if operation == "Abandon" {
					more(d)
				}
			})
		})
	}},
	{rule: "C6", name: "sends with a settlement that came too late", config: withLocks, breaks: func() changes {
		return onRefusal(core.ErrLockLost, func(d *brokenDelivery, operation string) {
			if operation == "ReplaceWith" {
				_ = d.receiver.transport.base.Send(ctxBackground, d.out...)
			}
		})
	}},
	{rule: "C6", name: "has one lock for all that was received together, which ends like the first", config: withLocks, breaks: func() changes {
		return settling("Renew", func(*brokenDelivery) error { return nil })
	}},
	{rule: "C6", name: "completes lost deliveries", config: withLocks, breaks: func() changes {
		return lateComplete()
	}},
	{rule: "C6", name: "settles without a connection", onServer: true, breaks: func() changes {
		return changes{settle: func(_ *brokenDelivery, _ string, next func() error) error {
			if err := next(); err != nil && !errors.Is(err, core.ErrLockLost) {
				return err
			}
			return nil
		}}
	}},
	{rule: "C6", name: "loses the messages in flight in an outage", onServer: true, breaks: consumesEarly},
	{rule: "C6", name: "keeps the places of deliveries that were lost with its connection", onServer: true, breaks: keepsLostPlaces},
	{rule: "C6", name: "has more places after an outage than before", onServer: true, breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, _ string, next func() error) error {
			err := next()
			if errors.Is(err, core.ErrLockLost) {
				d.receiver.Receiver.SetMaxInFlight(d.receiver.cfg.MaxInFlight + 1)
			}
			return err
		}}
	}},
	{rule: "C6", name: "makes a return again that had no answer, by the message's id", onServer: true, breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			err := next()
			if operation == "Abandon" && errors.Is(err, errNoAnswer) {
				s, id := d.receiver.transport.base.(*remote).server, d.in.NativeID
				time.AfterFunc(time.Second, func() { s.requeue(id) })
			}
			return err
		}}
	}},
}

// lateComplete completes a message although the lock has ended, if no other
// receiver has it yet, as a DELETE without a look at the lease does.
func lateComplete() changes {
	return answering(func(d *brokenDelivery, operation string, err error) error {
		if operation == "Complete" && errors.Is(err, core.ErrLockLost) {
			deleteByNativeID(d)
		}
		return err
	})
}

// requeue returns the message, also if another receiver has it in flight.
func (s *server) requeue(nativeID string) {
	s.mu.Lock()
	connections := s.all()
	s.mu.Unlock()
	for _, c := range connections {
		c.mu.Lock()
		for d := range c.held {
			if d.Incoming().NativeID == nativeID {
				_ = d.Release(ctxBackground)
				delete(c.held, d)
			}
		}
		c.mu.Unlock()
	}
}
