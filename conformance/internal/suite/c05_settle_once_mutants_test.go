package suite

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core"
)

func asItIs(err error) error { return err }

var settleOnceMutants = []mutant{
	{rule: "C5", name: "takes a second settlement for a success", breaks: func() changes { return replaceErr(core.ErrSettled, nil) }},
	{rule: "C5", name: "calls a settled delivery lost", breaks: func() changes { return replaceErr(core.ErrSettled, core.ErrLockLost) }},
	{rule: "C5", name: "forgets settlements in mode None", breaks: func() changes {
		return answering(func(d *brokenDelivery, _ string, err error) error {
			if d.receiver.cfg.Mode == core.TransactionNone {
				return nil
			}
			return err
		})
	}},
	{rule: "C5", name: "counts a second Abandon of a delivery", breaks: func() changes {
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
	{rule: "C5", name: "returns nil for the renewal of a settled delivery's lock", config: withLocks, breaks: func() changes {
		return answering(func(_ *brokenDelivery, operation string, err error) error {
			if operation == "Renew" && errors.Is(err, core.ErrSettled) {
				return nil
			}
			return err
		})
	}},
}
