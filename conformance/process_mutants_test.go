package conformance

import (
	"context"
	"time"

	"github.com/reprise-go/reprise/core"
)

var processMutants = []mutant{
	{rule: "C7", name: "consumes messages before it hands them out, in every mode", onServer: true, breaks: consumesEarly},
	{rule: "C7", name: "consumes messages in None when they are completed", onServer: true, breaks: func() changes {
		return changes{open: func(_ *broken, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			if cfg.Mode == core.TransactionNone {
				cfg.Mode = core.TransactionReceiveOnly
			}
			return next(cfg)
		}}
	}},
	{rule: "C12", name: "consumes messages before it hands them out, and sends when they are completed", onServer: true, breaks: consumesEarly},
	{rule: "C12", name: "sends, and commits the receive afterwards", onServer: true, breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "CompleteWith" && len(d.out) > 0 {
				if err := d.receiver.transport.base.Send(ctxBackground, d.out...); err != nil {
					return err
				}
				d.out = nil
			}
			return next()
		}}
	}},
	{rule: "C2", name: "accepts messages, and sends them a moment later", onServer: true, breaks: func() changes {
		return changes{send: func(_ *broken, _ context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			time.AfterFunc(time.Millisecond, func() { _ = next(ctxBackground, out...) })
			return nil
		}}
	}},
	{rule: "R34", name: "does not count deliveries that ended with their process", onServer: true, harness: countsNoCrash},
	{rule: "C9", name: "does not count deliveries that ended with their process", onServer: true, harness: countsNoCrash},
	{rule: "C9", name: "claims a count that it keeps in its process", onServer: true, breaks: countsInMemory},
	{rule: "R34", name: "claims a count that it keeps in its process", onServer: true, breaks: countsInMemory},
	{rule: "R35", name: "keeps more than MaxInFlight", onServer: true, breaks: func() changes { return prefetching(40).changes() }},
	{rule: "R35", name: "has an engine that does not isolate suspects, and counts every delivery", onServer: true, on: countingEvery, harness: neverIsolates},
	{rule: "C9", name: "does not say that a message was delivered before", onServer: true, breaks: func() changes {
		return changes{arrive: func(_ *brokenReceiver, in *core.Incoming) { in.Redelivered = false }}
	}},
	{rule: "C13", name: "waits for delayed messages' time in the sender's process", onServer: true, breaks: delaysItself},
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
				again := core.Outgoing{ID: in.ID, Queue: d.receiver.cfg.Queue, Headers: in.Headers, Body: in.Body}
				return d.receiver.transport.base.Send(ctxBackground, again)
			default:
				return nil
			}
		},
	}
}

// countingEvery is a transport whose count rises with every delivery.
var countingEvery = able(func(c *core.Capabilities) { c.CountsReleases, c.Prefetch = true, true })

func neverIsolates(h *Harness) {
	start := h.process
	h.process = func(t *trial, j job) process {
		j.IsolateAfter = core.Off
		return start(t, j)
	}
}

func countsNoCrash(h *Harness) { h.Broker.(*server).faults.released = true }

func countsInMemory() changes {
	return changes{arrive: func(r *brokenReceiver, in *core.Incoming) {
		r.transport.memory[in.NativeID]++
		in.DeliveryCount = r.transport.memory[in.NativeID]
	}}
}

func delaysItself() changes {
	return changes{send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
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
