package conformance

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
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

// settlingAt does something else with every n-th settlement of a kind.
func settlingAt(n int64, asked string, instead func(d *brokenDelivery) error) changes {
	var count atomic.Int64
	return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		if operation == asked && count.Add(1)%n == 0 {
			return instead(d)
		}
		return next()
	}}
}

func complete(d *brokenDelivery) error { return d.Delivery.Complete(ctxBackground) }

// losesWhenClosed completes what a closed receiver holds.
func losesWhenClosed() changes {
	held, c := recording()
	c.closeReceiver = func(r *brokenReceiver, next func() error) error {
		for _, d := range held.all(r) {
			_ = d.Complete(ctxBackground)
		}
		return next()
	}
	return c
}

// onEnded does something when a settlement was refused because its context had
// ended.
func onEnded(do func(d *brokenDelivery)) changes {
	var mu sync.Mutex
	settled := map[*brokenDelivery]bool{}
	return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		mu.Lock()
		defer mu.Unlock()
		if settled[d] {
			return core.ErrSettled
		}
		err := next()
		if errors.Is(err, context.Canceled) && operation == "Complete" {
			settled[d] = true
			do(d)
		}
		return err
	}}
}

var completionMutants = []mutant{
	{rule: "C7", name: "gives back what is completed", breaks: func() changes {
		return settling("Complete", func(d *brokenDelivery) error { return d.Delivery.Release(ctxBackground) })
	}},
	{rule: "C7", name: "acknowledges later, and forgets it when its receiver is closed", breaks: func() changes { return lazily("Complete") }},
	{rule: "C7", name: "forgets to acknowledge", on: withLocks, breaks: forgetsToAcknowledge},
	{rule: "C7", name: "acknowledges every delivery up to the one that is completed, without knowing it", breaks: func() changes { return acknowledgesUpTo(notSettled) }},
	{rule: "C7", name: "acknowledges an Abandon now and then", breaks: func() changes { return settlingAt(7, "Abandon", complete) }},
	{rule: "C7", name: "acknowledges a Release now and then", breaks: func() changes { return settlingAt(7, "Release", complete) }},
	{rule: "C7", name: "acknowledges what a closed receiver holds", breaks: losesWhenClosed},
	{rule: "C7", name: "settles a delivery and says that the context ended", breaks: func() changes {
		return onEnded(func(d *brokenDelivery) { _ = complete(d) })
	}},
	{rule: "C7", name: "takes a settlement whose context ended for done", breaks: func() changes { return onEnded(func(*brokenDelivery) {}) }},
	{rule: "C7", name: "says that it settled though the context ended", breaks: func() changes {
		return answering(func(_ *brokenDelivery, _ string, err error) error {
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		})
	}},
	{rule: "C7", name: "consumes after handing out in mode None", breaks: consumesLate},
	{rule: "C7", name: "lets locks end in mode None", on: withLocks, breaks: consumesLate},
}

// consumesLate opens receivers in mode None as in ReceiveOnly.
func consumesLate() changes {
	return changes{open: func(_ *broken, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
		if cfg.Mode == core.TransactionNone {
			cfg.Mode = core.TransactionReceiveOnly
		}
		return next(cfg)
	}}
}
