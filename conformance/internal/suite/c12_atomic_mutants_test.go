package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var atomicMutants = []mutant{
	{rule: "C12", name: "sends the messages of a settlement one after the other, then consumes", breaks: onSend(func(d *brokenDelivery, _ func() error) error {
		for _, o := range d.out {
			if err := d.sendSeparately([]core.Outgoing{o}); err != nil {
				return err
			}
		}
		return d.Delivery.Complete(context.Background())
	})},
	{rule: "C12", name: "consumes, and sends with the next settlement only", breaks: onSend(func(d *brokenDelivery, next func() error) error {
		d.out = nil
		return next()
	})},
	{rule: "C12", name: "does nothing in a settlement without messages", breaks: onSend(func(d *brokenDelivery, next func() error) error {
		if len(d.out) == 0 {
			return nil
		}
		return next()
	})},
	{rule: "C12", name: "adds a header to messages that are sent with a settlement", breaks: onSend(func(d *brokenDelivery, next func() error) error {
		for i := range d.out {
			d.out[i].Headers.Set("x-transaction", "1")
		}
		return next()
	})},
	{rule: "C12", name: "consumes the message although the messages to be sent were refused", breaks: onSend(func(d *brokenDelivery, next func() error) error {
		err := next()
		if _, refused := errors.AsType[*core.SendError](err); refused {
			_ = d.Delivery.Complete(context.Background())
		}
		return err
	})},
	{rule: "C12", name: "rolls everything back when a message is refused, the lock too", breaks: onSend(func(d *brokenDelivery, next func() error) error {
		err := next()
		if _, refused := errors.AsType[*core.SendError](err); refused {
			_ = d.Delivery.Release(context.Background())
		}
		return err
	})},
	{rule: "C12", name: "takes a message for its own queue for the message that is consumed", breaks: onSend(func(d *brokenDelivery, next func() error) error {
		d.out = slices.DeleteFunc(d.out, func(o core.Outgoing) bool { return o.Queue == d.receiver.cfg.Queue })
		return next()
	})},
	{rule: "C12", name: "sends at most ten messages with a settlement", breaks: onSend(func(d *brokenDelivery, next func() error) error {
		d.out = d.out[:min(len(d.out), 10)]
		return next()
	})},
	{rule: "C12", name: "sends without delay with a settlement", breaks: onSend(func(d *brokenDelivery, next func() error) error {
		for i := range d.out {
			d.out[i].Delay = 0
		}
		return next()
	})},
	{rule: "C12", name: "schedules delayed messages outside of the settlement", breaks: onSend(func(d *brokenDelivery, next func() error) error {
		for _, o := range d.out {
			if o.Delay > 0 {
				_ = d.sendSeparately([]core.Outgoing{o})
			}
		}
		all := d.out
		d.out = slices.DeleteFunc(slices.Clone(all), func(o core.Outgoing) bool { return o.Delay > 0 })
		return resized(next(), all)
	})},
	{rule: "C12", name: "publishes events outside of the settlement", breaks: onSend(func(d *brokenDelivery, next func() error) error {
		for _, o := range d.out {
			if o.Topic != "" {
				_ = d.sendSeparately([]core.Outgoing{o})
			}
		}
		all := d.out
		d.out = slices.DeleteFunc(slices.Clone(all), func(o core.Outgoing) bool { return o.Topic != "" })
		return resized(next(), all)
	})},
	{rule: "C12", name: "sends although the delivery was lost with its receiver or lock", config: inmemory.Config{LockDuration: 10 * time.Second},
		breaks: onSend(func(d *brokenDelivery, next func() error) error {
			err := next()
			if errors.Is(err, core.ErrLockLost) {
				_ = d.sendSeparately(d.out)
			}
			return err
		})},
	{rule: "C12", name: "does not notice that the delivery is lost", config: inmemory.Config{LockDuration: 10 * time.Second},
		breaks: onSend(func(_ *brokenDelivery, next func() error) error {
			if err := next(); !errors.Is(err, core.ErrLockLost) {
				return err
			}
			return nil
		})},
	{rule: "C12", name: "sends with a delivery that was settled before", breaks: onSend(func(d *brokenDelivery, next func() error) error {
		err := next()
		if errors.Is(err, core.ErrSettled) {
			_ = d.sendSeparately(d.out)
		}
		return err
	})},
	{rule: "C12", name: "sends in an ended context, and then fails to consume", breaks: onSend(func(d *brokenDelivery, next func() error) error {
		err := next()
		if errors.Is(err, context.Canceled) {
			_ = d.sendSeparately(d.out)
		}
		return err
	})},
	{rule: "C12", name: "loses messages that are sent with a settlement now and then", breaks: func() changes {
		var sent callCounter
		return onSend(func(d *brokenDelivery, next func() error) error {
			if sent.isNth(97) {
				d.out = nil
			}
			return next()
		})()
	}},
	{rule: "C12", name: "gives the message back by Reset", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Reset" {
				return d.Delivery.Release(context.Background())
			}
			return next()
		}}
	}},
	{rule: "C12", name: "can Reset a delivery once", breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Reset" && d.cause != nil {
				return errAborted
			}
			d.cause = errAborted
			return next()
		}}
	}},
	{rule: "C12", name: "binds its transaction to a new context", breaks: func() changes {
		return changes{bind: func(_ *brokenDelivery, _ context.Context, next func(context.Context) context.Context) context.Context {
			return next(context.Background())
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
	{rule: "C12", name: "sends although the receive can no longer be committed", onServer: true, breaks: func() changes {
		return changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
			err := next()
			if operation == "CompleteWith" && errors.Is(err, core.ErrLockLost) {
				_ = d.receiver.transport.base.Send(ctxBackground, d.out...)
			}
			return err
		}}
	}},
}

// resized brings the results of a refusal to the number of messages.
func resized(err error, all []core.Outgoing) error {
	sent, ok := errors.AsType[*core.SendError](err)
	if !ok {
		return err
	}
	whole := &core.SendError{}
	cause := errors.Join(sent.Unwrap()...)
	for _, o := range all {
		whole.Results = append(whole.Results, core.SendResult{ID: o.ID, To: o.Queue + o.Topic, State: core.SendRefused, Err: cause})
	}
	return fmt.Errorf("settle: %w", whole)
}
