package suite

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var capabilityMutants = []mutant{
	{rule: "C1", name: "claims Browse and has none", breaks: onBrowse(func(*brokenTransport, queues.Request, nextPage) (queues.Page, error) {
		return queues.Page{}, errors.ErrUnsupported
	})},
	{rule: "C1", name: "takes messages without claiming it", breaks: func() changes {
		return changes{capabilities: func(c core.Capabilities) core.Capabilities {
			c.Take = false
			return c
		}}
	}},
	{rule: "C1", name: "hands out its own slice of modes", breaks: func() changes {
		modes := inmemory.Everything().Transactions
		return changes{capabilities: func(c core.Capabilities) core.Capabilities {
			c.Transactions = modes
			return c
		}}
	}},
	{rule: "C1", name: "claims a count that rises with every delivery, from its memory",
		config: able(func(c *core.Capabilities) { c.NativeDeliveryCount = false }),
		breaks: func() changes {
			return changes{capabilities: func(c core.Capabilities) core.Capabilities {
				c.CountsReleases = true
				return c
			}}
		}},
	{rule: "C1", name: "opens receivers in a mode that it does not claim",
		config: able(func(c *core.Capabilities) { c.Transactions = []core.TransactionMode{core.TransactionReceiveOnly} }),
		breaks: func() changes {
			return changes{open: func(_ *brokenTransport, _ context.Context, cfg core.ReceiverConfig, next func(core.ReceiverConfig) (core.Receiver, error)) (core.Receiver, error) {
				cfg.Mode = core.TransactionReceiveOnly
				return next(cfg)
			}}
		}},
	{rule: "C1", name: "claims a mode that it cannot open",
		config: able(func(c *core.Capabilities) { c.Transactions = []core.TransactionMode{core.TransactionReceiveOnly} }),
		breaks: func() changes {
			return changes{capabilities: func(c core.Capabilities) core.Capabilities {
				c.Transactions = []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly}
				return c
			}}
		}},
	{rule: "C1", name: "claims dead letters without a way to send them there",
		config: able(func(c *core.Capabilities) { c.DeadLetter = false }),
		breaks: func() changes {
			return changes{capabilities: func(c core.Capabilities) core.Capabilities {
				c.DeadLetter = true
				return c
			}}
		}},
	{rule: "C1", name: "claims a transaction and cannot send in it", breaks: func() changes {
		return pretending("CompleteWith", func(*brokenDelivery) error { return errors.ErrUnsupported })
	}},
	{rule: "C1", name: "sends with a settlement of another mode", config: receivingOnly, breaks: func() changes {
		return pretending("CompleteWith", func(d *brokenDelivery) error {
			return errors.Join(d.receiver.transport.base.Send(ctxBackground, d.out...), errors.ErrUnsupported)
		})
	}},
	{rule: "C1", name: "settles with a settlement of another mode", config: receivingOnly, breaks: func() changes {
		return pretending("ReplaceWith", func(d *brokenDelivery) error {
			return errors.Join(d.Delivery.Complete(ctxBackground), errors.ErrUnsupported)
		})
	}},
	{rule: "C1", name: "pretends to reset without a transaction", config: receivingOnly, breaks: func() changes {
		return pretending("Reset", func(*brokenDelivery) error { return nil })
	}},
	{rule: "C1", name: "pretends to dead-letter when it cannot",
		config: able(func(c *core.Capabilities) { c.DeadLetter = false }),
		breaks: func() changes {
			return pretending("DeadLetter", func(*brokenDelivery) error { return nil })
		}},
	{rule: "C1", name: "gives back when it cannot dead-letter",
		config: able(func(c *core.Capabilities) { c.DeadLetter = false }),
		breaks: func() changes {
			return pretending("DeadLetter", func(d *brokenDelivery) error {
				return errors.Join(d.Delivery.Release(ctxBackground), errors.ErrUnsupported)
			})
		}},
	{rule: "C1", name: "pretends to renew a lock that does not end", breaks: func() changes {
		return pretending("Renew", func(*brokenDelivery) error { return nil })
	}},
	{rule: "C1", name: "binds a context where it has no transaction", config: receivingOnly, breaks: func() changes {
		return changes{bind: func(_ *brokenDelivery, ctx context.Context, _ func(context.Context) context.Context) context.Context {
			return context.WithoutCancel(ctx)
		}}
	}},
	{rule: "C1", name: "tells of a lock on a message that is consumed",
		config: able(func(c *core.Capabilities) { c.Transactions = []core.TransactionMode{core.TransactionNone} }),
		breaks: func() changes {
			return changes{lockedUntil: func(*brokenDelivery, func() time.Time) time.Time { return time.Now().Add(time.Minute) }}
		}},
	{rule: "C1", name: "ignores a delay that it cannot honour",
		config: able(func(c *core.Capabilities) { c.DelayedDelivery = false }),
		breaks: func() changes {
			return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				for i := range out {
					out[i].Delay = 0
				}
				return next(ctx, out...)
			}}
		}},
	{rule: "C1", name: "ignores a time to be received that it cannot honour",
		config: able(func(c *core.Capabilities) { c.TimeToBeReceived = false }),
		breaks: func() changes {
			return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				for i := range out {
					out[i].TimeToBeReceived = 0
				}
				return next(ctx, out...)
			}}
		}},
	{rule: "C1", name: "ignores base topics that it cannot honour",
		config: able(func(c *core.Capabilities) { c.BaseTopics = false }),
		breaks: func() changes {
			return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				out = slices.Clone(out)
				for i := range out {
					out[i].BaseTopics = nil
				}
				return next(ctx, out...)
			}}
		}},
	{rule: "C1", name: "drops published events when it cannot publish",
		config: able(func(c *core.Capabilities) { c.PublishSubscribe = false }),
		breaks: func() changes {
			return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
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
	{rule: "C1", name: "ignores unsupported properties of messages that are sent with a settlement",
		config: able(func(c *core.Capabilities) { c.DelayedDelivery = false }),
		breaks: func() changes {
			return changes{settle: func(d *brokenDelivery, _ string, next func() error) error {
				for i := range d.out {
					d.out[i].Delay = 0
				}
				return next()
			}}
		}},
	{rule: "C1", name: "pretends to subscribe when it cannot",
		config: able(func(c *core.Capabilities) { c.PublishSubscribe = false }),
		breaks: func() changes {
			return changes{subscribe: func(*brokenTransport, string, []string, func() error) error { return nil }}
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
	{rule: "C1", name: "abandons a message that it cannot postpone", config: able(func(c *core.Capabilities) { c.GroupOrder = false }), breaks: onPostpone(func(d *brokenDelivery, _ func() error) error {
		return d.Delivery.Abandon(context.Background(), d.cause)
	})},
	{rule: "C1", name: "makes addresses that it cannot send to", breaks: func() changes {
		return changes{address: func(queue string, next func(string) (string, error)) (string, error) {
			address, err := next(queue)
			if err != nil || strings.HasSuffix(address, "@here") {
				return address, err
			}
			return address + "@here", nil
		}}
	}},
	{rule: "C1", name: "has savepoints that it does not claim", config: withoutSavepoints(), breaks: func() changes {
		return changes{deliver: func(_ *brokenReceiver, d core.Delivery) core.Delivery { return savepointed{d} }}
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

// withoutSavepoints claims none.
func withoutSavepoints() inmemory.Config {
	able := inmemory.Everything()
	able.Savepoints = false
	return inmemory.Config{Capabilities: &able}
}

// savepointed takes savepoints in any mode.
type savepointed struct{ core.Delivery }

func (savepointed) Savepoint(context.Context) (func(context.Context) error, error) {
	return func(context.Context) error { return nil }, nil
}
