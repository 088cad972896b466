package suite

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
)

var queueMutants = []mutant{
	{rule: "C36", name: "tells 0 for numbers that it does not know", breaks: counting(func(d *queues.Depth) { d.Delayed, d.Receivers = 0, 0 })},
	{rule: "C36", name: "counts locked messages as ready", breaks: counting(func(d *queues.Depth) { d.Ready, d.Locked = d.Ready+d.Locked, 0 })},
	{rule: "C36", name: "counts delayed messages as ready", breaks: counting(func(d *queues.Depth) { d.Ready, d.Delayed = d.Ready+d.Delayed, 0 })},
	{rule: "C36", name: "counts by receiving", breaks: onDepth(func(t *brokenTransport, queue string, next func() (queues.Depth, error)) (queues.Depth, error) {
		depth, err := next()
		if err != nil || depth.Ready == 0 {
			return depth, err
		}
		view := t.fixture.view()
		r, err := view.OpenReceiver(ctxBackground, core.ReceiverConfig{Queue: queue, Mode: core.TransactionReceiveOnly, MaxInFlight: depth.Ready})
		if err != nil {
			return depth, err
		}
		dst := make([]core.Delivery, depth.Ready)
		ended, cancel := context.WithTimeout(ctxBackground, time.Microsecond)
		defer cancel()
		n, _ := r.Receive(ended, dst)
		for _, d := range dst[:n] {
			_ = d.Abandon(ctxBackground, nil)
		}
		depth.Ready = n
		return depth, view.Close(ctxBackground)
	})},
	{rule: "C36", name: "counts the receivers of one process", breaks: counting(func(d *queues.Depth) { d.Receivers = min(d.Receivers, 1) })},
	{rule: "C36", name: "tells when the newest message was sent", breaks: func() changes {
		var newest sync.Map
		return changes{
			send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				for _, o := range out {
					newest.Store(o.Queue, time.Now())
				}
				return next(ctx, out...)
			},
			depth: func(_ *brokenTransport, queue string, next func() (queues.Depth, error)) (queues.Depth, error) {
				depth, err := next()
				if at, has := newest.Load(queue); has {
					depth.Oldest = at.(time.Time)
				}
				return depth, err
			},
		}
	}},
	{rule: "C36", name: "tells an oldest message of an empty queue", breaks: counting(func(d *queues.Depth) {
		if d.Oldest.IsZero() {
			d.Oldest = time.Unix(0, 0)
		}
	})},
	{rule: "C36", name: "takes a queue that does not exist for an empty one when it counts", breaks: onDepth(func(_ *brokenTransport, _ string, next func() (queues.Depth, error)) (queues.Depth, error) {
		depth, err := next()
		if errors.Is(err, core.ErrQueueNotFound) {
			return queues.Depth{}, nil
		}
		return depth, err
	})},
	{rule: "C36", name: "creates the queue that it counts", breaks: onDepth(func(t *brokenTransport, queue string, next func() (queues.Depth, error)) (queues.Depth, error) {
		depth, err := next()
		_ = t.base.Provision(ctxBackground, core.Topology{Queues: []string{queue}})
		return depth, err
	})},

	{rule: "C37", name: "lists names that cannot be opened", breaks: listing(func(names []string) []string {
		return slices.Sorted(slices.Values(append(slices.Clone(names), "an exchange")))
	})},
	{rule: "C37", name: "does not list the newest queue", breaks: func() changes {
		var mu sync.Mutex
		var newest string
		c := listing(func(names []string) []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.DeleteFunc(names, func(name string) bool { return name == newest })
		})()
		c.provision = func(_ *brokenTransport, topology core.Topology, next func() error) error {
			mu.Lock()
			defer mu.Unlock()
			newest = topology.Queues[0]
			return next()
		}
		return c
	}},
	{rule: "C37", name: "lists queues in any order", breaks: listing(func(names []string) []string {
		slices.Reverse(names)
		return names
	})},
	{rule: "C37", name: "lists a queue twice", breaks: listing(func(names []string) []string {
		return slices.Sorted(slices.Values(slices.Concat(names, names)))
	})},
	{rule: "C37", name: "lists a queue that was removed", breaks: func() changes {
		var mu sync.Mutex
		var removed []string
		c := listing(func(names []string) []string {
			mu.Lock()
			defer mu.Unlock()
			return slices.Sorted(slices.Values(append(slices.Clone(names), removed...)))
		})()
		c.remove = func(_ *brokenTransport, queues, topics []string, next func(queues, topics []string) error) error {
			mu.Lock()
			defer mu.Unlock()
			removed = append(removed, queues...)
			return next(queues, topics)
		}
		return c
	}},
}
