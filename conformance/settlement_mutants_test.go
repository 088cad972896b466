package conformance

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// withLocks is a transport that can do everything, and whose locks end.
var withLocks = inmemory.Config{LockDuration: 12 * time.Second}

// answering changes what settlements return.
func answering(change func(d *brokenDelivery, operation string, err error) error) changes {
	return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		return change(d, operation, next())
	}}
}

// instead answers one error of all settlements with another, or with success.
func instead(of, with error) changes {
	return answering(func(_ *brokenDelivery, operation string, err error) error {
		if errors.Is(err, of) && operation != "Renew" && operation != "Reset" {
			return with
		}
		return err
	})
}

// onRefusal does something after settlements that were refused with an error.
func onRefusal(with error, do func(d *brokenDelivery, operation string)) changes {
	return answering(func(d *brokenDelivery, operation string, err error) error {
		if errors.Is(err, with) {
			do(d, operation)
		}
		return err
	})
}

// resend puts a copy of a delivery's message into its queue.
func resend(d *brokenDelivery) {
	in := d.Delivery.Incoming()
	_ = d.receiver.transport.base.Send(ctxBackground, core.Outgoing{ID: in.ID, Queue: d.receiver.cfg.Queue, Headers: in.Headers, Body: in.Body})
}

// countingMore lets something raise the counts of messages.
func countingMore(when func(more func(d *brokenDelivery)) changes) changes {
	var mu sync.Mutex
	extra := map[string]int{}
	c := when(func(d *brokenDelivery) {
		mu.Lock()
		defer mu.Unlock()
		extra[d.in.NativeID]++
	})
	c.arrive = func(_ *brokenReceiver, in *core.Incoming) {
		mu.Lock()
		defer mu.Unlock()
		in.DeliveryCount += extra[in.NativeID]
	}
	return c
}

// holdings remember what receivers were delivered, in that order.
type holdings struct {
	mu sync.Mutex
	of map[*brokenReceiver][]core.Delivery
}

// recording returns changes that write down what is delivered.
func recording() (*holdings, changes) {
	h := &holdings{of: map[*brokenReceiver][]core.Delivery{}}
	return h, changes{deliver: func(r *brokenReceiver, d core.Delivery) core.Delivery {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.of[r] = append(h.of[r], d)
		return d
	}}
}

// all returns what a receiver was delivered.
func (h *holdings) all(r *brokenReceiver) []core.Delivery {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.of[r])
}

// upTo returns what a delivery's receiver was delivered until then.
func (h *holdings) upTo(d *brokenDelivery) []core.Delivery {
	all := h.all(d.receiver)
	return all[:slices.Index(all, d.Delivery)+1]
}

// acknowledgesUpTo settles more than was asked for, as basic.ack with multiple
// does, and answers for the others as told.
func acknowledgesUpTo(answer func(err error) error) changes {
	held, c := recording()
	c.settle = func(d *brokenDelivery, operation string, next func() error) error {
		if operation != "Complete" {
			return answer(next())
		}
		err := next()
		for _, earlier := range held.upTo(d) {
			_ = earlier.Complete(ctxBackground)
		}
		return answer(err)
	}
	return c
}

func asItIs(err error) error { return err }

func notSettled(err error) error {
	if errors.Is(err, core.ErrSettled) {
		return nil
	}
	return err
}

var settlementMutants = slices.Concat([]mutant{
	{rule: "C5", name: "takes a second settlement for a success", breaks: func() changes { return instead(core.ErrSettled, nil) }},
	{rule: "C5", name: "calls a settled delivery lost", breaks: func() changes { return instead(core.ErrSettled, core.ErrLockLost) }},
	{rule: "C5", name: "forgets in mode None what was settled", breaks: func() changes {
		return answering(func(d *brokenDelivery, _ string, err error) error {
			if d.receiver.cfg.Mode == core.TransactionNone {
				return nil
			}
			return err
		})
	}},
	{rule: "C5", name: "counts an Abandon of what was abandoned before", breaks: func() changes {
		return countingMore(func(more func(*brokenDelivery)) changes {
			return onRefusal(core.ErrSettled, func(d *brokenDelivery, operation string) {
				if operation == "Abandon" {
					more(d)
				}
			})
		})
	}},
	{rule: "C5", name: "sends a message again when it is abandoned after it was completed", breaks: func() changes {
		return onRefusal(core.ErrSettled, func(d *brokenDelivery, operation string) {
			if operation == "Abandon" {
				resend(d)
			}
		})
	}},
	{rule: "C5", name: "deletes a message by its id, though it was abandoned before", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			err := next()
			if operation == "Complete" && errors.Is(err, core.ErrSettled) {
				deleteByNativeID(d)
			}
			return err
		}}
	}},
	{rule: "C5", name: "sends with a settlement that it refuses", breaks: func() changes {
		return onRefusal(core.ErrSettled, func(d *brokenDelivery, operation string) {
			if operation == "CompleteWith" {
				_ = d.receiver.transport.base.Send(ctxBackground, d.out...)
			}
		})
	}},
	{rule: "C5", name: "acknowledges every delivery up to the one that is completed", breaks: func() changes { return acknowledgesUpTo(asItIs) }},
	{rule: "C5", name: "settles one delivery at a time, and refuses the others", breaks: func() changes {
		var busy atomic.Bool
		return changes{settle: func(_ *brokenDelivery, _ string, next func() error) error {
			if !busy.CompareAndSwap(false, true) {
				return errors.New("the channel is in use")
			}
			defer busy.Store(false)
			time.Sleep(time.Millisecond) // the way to the broker
			return next()
		}}
	}},
	{rule: "C5", name: "pretends to renew the lock of what is settled", on: withLocks, breaks: func() changes {
		return answering(func(_ *brokenDelivery, operation string, err error) error {
			if operation == "Renew" && errors.Is(err, core.ErrSettled) {
				return nil
			}
			return err
		})
	}},
}, lostLockMutants, completionMutants, giveBackMutants)

// deleteByNativeID takes a message out of its queue if it is there.
func deleteByNativeID(d *brokenDelivery) {
	r, err := d.receiver.transport.base.OpenReceiver(ctxBackground, core.ReceiverConfig{Queue: d.receiver.cfg.Queue, Mode: core.TransactionReceiveOnly, MaxInFlight: 100})
	if err != nil {
		return // the transport is closed
	}
	ended, cancel := context.WithTimeout(ctxBackground, time.Millisecond)
	defer cancel()
	dst := make([]core.Delivery, 100)
	n, _ := r.Receive(ended, dst)
	for _, other := range dst[:n] {
		if other.Incoming().NativeID == d.in.NativeID {
			_ = other.Complete(ctxBackground)
		}
	}
	_ = r.Close(ctxBackground)
}
