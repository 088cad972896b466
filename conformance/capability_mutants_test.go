package conformance

import (
	"context"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var capabilityMutants = []mutant{
	{rule: "C1", name: "hands out its own slice of modes", breaks: func() changes {
		modes := inmemory.Everything().Transactions
		return changes{capabilities: func(c core.Capabilities) core.Capabilities {
			c.Transactions = modes
			return c
		}}
	}},
	{rule: "C1", name: "claims a count that rises with every delivery, of its own memory",
		on: able(func(c *core.Capabilities) { c.NativeDeliveryCount = false }),
		breaks: func() changes {
			return changes{capabilities: func(c core.Capabilities) core.Capabilities {
				c.CountsEveryDelivery = true
				return c
			}}
		}},
	{rule: "C1", name: "opens receivers in a mode that it does not claim",
		on: able(func(c *core.Capabilities) { c.Transactions = []core.TransactionMode{core.TransactionReceiveOnly} }),
		breaks: func() changes {
			return changes{open: func(_ *broken, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
				cfg.Mode = core.TransactionReceiveOnly
				return next(cfg)
			}}
		}},
	{rule: "C1", name: "claims a mode that it cannot open",
		on: able(func(c *core.Capabilities) { c.Transactions = []core.TransactionMode{core.TransactionReceiveOnly} }),
		breaks: func() changes {
			return changes{capabilities: func(c core.Capabilities) core.Capabilities {
				c.Transactions = []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly}
				return c
			}}
		}},
	{rule: "C1", name: "claims dead letters without a way to send them there",
		on: able(func(c *core.Capabilities) { c.DeadLetter = false }),
		breaks: func() changes {
			return changes{capabilities: func(c core.Capabilities) core.Capabilities {
				c.DeadLetter = true
				return c
			}}
		}},
	{rule: "C1", name: "ignores a delay that it cannot honour",
		on: able(func(c *core.Capabilities) { c.DelayedDelivery = false }),
		breaks: func() changes {
			return changes{send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				for i := range out {
					out[i].Delay = 0
				}
				return next(ctx, out...)
			}}
		}},
	{rule: "C1", name: "ignores a time to be received that it cannot honour",
		on: able(func(c *core.Capabilities) { c.TimeToBeReceived = false }),
		breaks: func() changes {
			return changes{send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				for i := range out {
					out[i].TimeToBeReceived = 0
				}
				return next(ctx, out...)
			}}
		}},
	{rule: "C1", name: "drops what is published when it cannot publish",
		on: able(func(c *core.Capabilities) { c.PublishSubscribe = false }),
		breaks: func() changes {
			return changes{send: func(_ *broken, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				for _, o := range out {
					if o.Topic == "" {
						if err := next(ctx, o); err != nil {
							return err
						}
					}
				}
				return nil
			}}
		}},
	{rule: "C1", name: "ignores with a settlement what it cannot honour",
		on: able(func(c *core.Capabilities) { c.DelayedDelivery = false }),
		breaks: func() changes {
			return changes{settle: func(d *brokenDelivery, _ string, next func() error) error {
				for i := range d.out {
					d.out[i].Delay = 0
				}
				return next()
			}}
		}},
	{rule: "C1", name: "pretends to subscribe when it cannot",
		on: able(func(c *core.Capabilities) { c.PublishSubscribe = false }),
		breaks: func() changes {
			return changes{subscribe: func(*broken, string, []string, func() error) error { return nil }}
		}},
	{rule: "C1", name: "claims to publish without a way to subscribe", breaks: func() changes { return changes{} },
		harness: func(h *Harness) { h.Open = withoutSubscriber(h.Open) }},
	{rule: "C1", name: "makes another address of an address", breaks: func() changes {
		return changes{address: func(queue string, next func(string) (string, error)) (string, error) {
			address, err := next(queue)
			return address + "@here", err
		}}
	}},
	{rule: "C1", name: "gives its delay a precision of nothing", breaks: func() changes {
		return changes{capabilities: func(c core.Capabilities) core.Capabilities {
			c.DelayPrecision = 0
			return c
		}}
	}},
}

// withoutSubscriber hides that a transport is a core.Subscriber.
func withoutSubscriber(open func(t testing.TB) core.Transport) func(t testing.TB) core.Transport {
	return func(t testing.TB) core.Transport {
		transport := open(t).(base)
		return struct {
			core.Transport
			core.Provisioner
			core.Checker
		}{transport, transport, transport}
	}
}
