package suite

import (
	"context"
	"errors"
	"sync"

	"github.com/reprise-go/reprise/core"
)

var engineSendMutants = []mutant{
	{rule: "R68", name: "aborts the handler's transaction when it refuses a message", breaks: onOperation(func(d *brokenDelivery, next func() error) error {
		err := next()
		if err != nil && d.work != nil {
			d.work.db.mu.Lock()
			d.work.broken = true
			d.work.db.mu.Unlock()
		}
		return err
	}, "CompleteWith")},
	{rule: "R68", name: "undoes the handler's work when it refuses a message", breaks: onOperation(func(d *brokenDelivery, next func() error) error {
		err := next()
		if err != nil {
			d.work.undo()
		}
		return err
	}, "CompleteWith")},
	{rule: "R68", name: "sends nothing more once a queue has refused a message", breaks: func() changes {
		return afterRefusals(func(_ []core.Outgoing, refusal error) error { return refusal })
	}},
	{rule: "R68", name: "does not say which message a queue has refused", breaks: func() changes {
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			err := next(ctx, out...)
			if err != nil {
				return errors.New("a message of the call was refused")
			}
			return nil
		}}
	}},
	{rule: "R68", name: "takes a queue that is gone for one that can be reached later", breaks: func() changes {
		known := map[string]bool{}
		var mu sync.Mutex
		return changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			err := next(ctx, out...)
			mu.Lock()
			defer mu.Unlock()
			for i := range out {
				if err == nil {
					known[out[i].Queue] = true
				} else if known[out[i].Queue] {
					return core.ErrUnavailable
				}
			}
			return err
		}}
	}},
}

// afterRefusals replaces the sends after the first refusal.
func afterRefusals(answer func(out []core.Outgoing, refusal error) error) changes {
	var mu sync.Mutex
	var refusal error
	do := func(out []core.Outgoing, next func() error) error {
		mu.Lock()
		before := refusal
		mu.Unlock()
		if before != nil && len(out) > 0 {
			return answer(out, before)
		}
		err := next()
		if errors.Is(err, core.ErrQueueNotFound) {
			mu.Lock()
			refusal = err
			mu.Unlock()
		}
		return err
	}
	return changes{
		send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
			return do(out, func() error { return next(ctx, out...) })
		},
		settle: func(d *brokenDelivery, operation string, next func() error) error {
			if !isSend(operation) {
				return next()
			}
			return do(d.out, next)
		},
	}
}
