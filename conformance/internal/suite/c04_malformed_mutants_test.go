package suite

import (
	"context"
	"fmt"

	"github.com/reprise-go/reprise/core"
)

var malformedMutants = []mutant{
	{rule: "C4", name: "fails Receive with a message that it cannot parse", breaks: func() changes {
		return changes{receive: func(_ *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			n, err := next(ctx, dst)
			for _, d := range dst[:n] {
				if problem := d.Incoming().Malformed; problem != nil {
					return 0, fmt.Errorf("receive: %w", problem)
				}
			}
			return n, err
		}}
	}},
	{rule: "C4", name: "drops malformed messages", breaks: func() changes {
		return changes{receive: func(_ *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			for {
				n, err := next(ctx, dst)
				kept := 0
				for _, d := range dst[:n] {
					if d.Incoming().Malformed != nil {
						_ = d.Complete(context.Background())
						continue
					}
					dst[kept] = d
					kept++
				}
				if kept > 0 || err != nil {
					return kept, err
				}
			}
		}}
	}},
	{rule: "C4", name: "drops the batch of a malformed message", breaks: func() changes {
		return changes{receive: func(_ *brokenReceiver, ctx context.Context, dst []core.Delivery, next func(context.Context, []core.Delivery) (int, error)) (int, error) {
			n, err := next(ctx, dst)
			for i, d := range dst[:n] {
				if d.Incoming().Malformed == nil {
					continue
				}
				for j, other := range dst[:n] {
					if i != j {
						_ = other.Complete(context.Background())
					}
				}
				dst[0] = d
				return 1, nil
			}
			return n, err
		}}
	}},
	{rule: "C4", name: "delivers a malformed message as if it could be parsed", breaks: arriving(func(in *core.Incoming) { in.Malformed = nil })},
	{rule: "C4", name: "delivers a malformed message without its body", breaks: arriving(func(in *core.Incoming) {
		if in.Malformed != nil {
			in.Body = nil
		}
	})},
	{rule: "C4", name: "delivers a malformed message without a native id", breaks: arriving(func(in *core.Incoming) {
		if in.Malformed != nil {
			in.NativeID = ""
		}
	})},
	{rule: "C4", name: "consumes a malformed message when it delivers it", breaks: func() changes {
		return changes{
			deliver: func(_ *brokenReceiver, d core.Delivery) core.Delivery {
				if d.Incoming().Headers.Get(headerCorrupt) != "" {
					_ = d.Complete(context.Background())
				}
				return d
			},
			settle: func(d *brokenDelivery, _ string, next func() error) error {
				if d.in.Malformed != nil {
					return nil
				}
				return next()
			},
		}
	}},
	{rule: "C4", name: "completes a malformed message with any settlement", breaks: onMalformed(func(d *brokenDelivery, _ string, _ func() error) error {
		return d.Delivery.Complete(context.Background())
	})},
	{rule: "C4", name: "does not count the failures of a malformed message", breaks: onMalformed(func(d *brokenDelivery, operation string, next func() error) error {
		if operation == "Abandon" {
			return d.Delivery.Release(context.Background())
		}
		return next()
	})},
	{rule: "C4", name: "counts the release of a malformed message as a failure", breaks: onMalformed(func(d *brokenDelivery, operation string, next func() error) error {
		if operation == "Release" {
			return d.Delivery.Abandon(context.Background(), errCorrupt)
		}
		return next()
	})},
	{rule: "C4", name: "settles a malformed message and sends its replacement separately", breaks: onMalformed(func(d *brokenDelivery, operation string, next func() error) error {
		if !isSend(operation) {
			return next()
		}
		if err := d.Delivery.Complete(context.Background()); err != nil {
			return err
		}
		return d.receiver.transport.base.Send(context.Background(), d.out...)
	})},
}
