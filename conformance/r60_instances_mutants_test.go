package conformance

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
)

// shared returns the queue of all instances for that of one.
func shared(queue string) string {
	before, _, _ := strings.Cut(queue, "-instance")
	return before
}

// sendElsewhere changes the destination of messages to queues.
func sendElsewhere(change func(out *core.Outgoing)) func() changes {
	return func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			out = slices.Clone(out)
			for i := range out {
				change(&out[i])
			}
			return next(ctx, out...)
		}, settle: func(d *brokenDelivery, _ string, next func() error) error {
			for i := range d.out {
				change(&d.out[i])
			}
			return next()
		}}
	}
}

var instanceMutants = []mutant{
	{rule: "R60", name: "sends to the queue that all instances share", breaks: sendElsewhere(func(out *core.Outgoing) { out.Queue = shared(out.Queue) })},
	{rule: "R60", name: "sends delayed messages to the queue that all instances share", breaks: sendElsewhere(func(out *core.Outgoing) {
		if out.Delay > 0 {
			out.Queue = shared(out.Queue)
		}
	})},
	{rule: "R60", name: "receives from the queues of all instances", breaks: func() changes {
		return changes{open: func(_ *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			if shared(cfg.Queue) != cfg.Queue {
				cfg.Queue = shared(cfg.Queue) + "-instance0"
			}
			return next(cfg)
		}}
	}},
	{rule: "R60", name: "has one receiver for an endpoint", breaks: func() changes {
		return changes{open: func(_ *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			cfg.Queue = shared(cfg.Queue)
			return next(cfg)
		}}
	}},
	{rule: "R60", name: "does not create the queues of instances", breaks: func() changes {
		return changes{provision: func(t *brokenTransport, topology core.Topology, _ func() error) error {
			topology.Queues = slices.DeleteFunc(slices.Clone(topology.Queues), func(queue string) bool { return queue == topology.InstanceQueue })
			return t.base.Provision(context.Background(), topology)
		}}
	}},
	{rule: "R60", name: "empties the queue of an instance that leaves it", breaks: func() changes {
		return changes{open: func(t *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
			if shared(cfg.Queue) != cfg.Queue {
				t.fixture.purge(cfg.Queue, func(*core.Incoming) bool { return true })
			}
			return next(cfg)
		}}
	}},
	{rule: "R60", name: "loses messages of a call of Receive beside another receiver's", breaks: func() changes {
		var receives atomic.Int64
		return changes{receive: func(r *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			n, err := next(ctx, dst)
			if n > 0 && shared(r.cfg.Queue) != r.cfg.Queue && receives.Add(1) == 3 {
				for _, d := range dst[:n] {
					_ = d.Complete(context.Background())
				}
				<-ctx.Done()
				return 0, ctx.Err()
			}
			return n, err
		}}
	}},
}
