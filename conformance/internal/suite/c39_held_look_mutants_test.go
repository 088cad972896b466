package suite

import (
	"context"
	"sync"

	"github.com/reprise-go/reprise/core"
)

// onClose changes the end of a receiver that has unsettled deliveries.
func onClose(change func(r *brokenReceiver, held []core.Delivery, next func() error) error) func() changes {
	return func() changes {
		held, c := recordDeliveries()
		var mu sync.Mutex
		closed := map[*brokenReceiver]bool{}
		c.closeReceiver = func(r *brokenReceiver, next func() error) error {
			mu.Lock()
			first := !closed[r]
			closed[r] = true
			mu.Unlock()
			all := held.all(r)
			if !first || len(all) == 0 {
				return next()
			}
			return change(r, all, next)
		}
		return c
	}
}

// receiveOne lets another receiver take one message of a queue, if there is one.
func receiveOne(r *brokenReceiver, settle func(d core.Delivery)) {
	other, err := r.transport.base.OpenReceiver(ctxBackground, core.ReceiverConfig{Queue: r.cfg.Queue, Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
	if err != nil {
		return
	}
	defer func() { _ = other.Close(ctxBackground) }()
	ended, cancel := context.WithTimeout(ctxBackground, 1)
	defer cancel()
	dst := make([]core.Delivery, 1)
	if n, err := other.Receive(ended, dst); err == nil && n == 1 {
		settle(dst[0])
	}
}

var heldLookMutants = []mutant{
	{rule: "C39", name: "completes a message when its receiver closes", breaks: onClose(func(_ *brokenReceiver, held []core.Delivery, next func() error) error {
		_ = held[0].Complete(ctxBackground)
		return next()
	})},
	{rule: "C39", name: "counts the messages of a closed receiver as failed", breaks: onClose(func(_ *brokenReceiver, held []core.Delivery, next func() error) error {
		for _, d := range held {
			_ = d.Abandon(ctxBackground, nil)
		}
		return next()
	})},
	{rule: "C39", name: "hides the messages of a closed receiver", config: withLocks, breaks: leavesHeld},
	{rule: "C39", name: "puts the messages of a closed receiver behind the others", breaks: onClose(func(r *brokenReceiver, held []core.Delivery, next func() error) error {
		for _, d := range held {
			in := d.Incoming()
			_ = r.transport.base.Send(ctxBackground, core.Outgoing{ID: in.ID, Queue: r.cfg.Queue, Headers: in.Headers, Body: in.Body, GroupKey: in.GroupKey, Properties: in.Properties, Reason: core.ReasonForward})
			_ = d.Complete(ctxBackground)
		}
		return next()
	})},
	{rule: "C39", name: "loses a prefetched message when its receiver closes", breaks: onClose(func(r *brokenReceiver, _ []core.Delivery, next func() error) error {
		err := next()
		receiveOne(r, func(d core.Delivery) { _ = d.Complete(ctxBackground) })
		return err
	})},
}
