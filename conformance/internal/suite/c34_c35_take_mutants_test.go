package suite

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
)

var takeMutants = []mutant{
	{rule: "C34", name: "consumes a message, then sends its replacements", breaks: onTake(func(t *brokenTransport, ctx context.Context, _ string, take queues.Take, next nextTake) queues.TakeResult {
		out := take.Out
		take.Out = nil
		r := next.result(take)
		if r.State == queues.TakeDone {
			if err := t.base.Send(ctx, out...); err != nil {
				return queues.TakeResult{State: queues.TakeRefused, Err: err}
			}
		}
		return r
	})},
	{rule: "C34", name: "sends the replacements, then consumes the message", breaks: onTake(func(t *brokenTransport, ctx context.Context, _ string, take queues.Take, next nextTake) queues.TakeResult {
		if err := t.base.Send(ctx, take.Out...); err != nil {
			return queues.TakeResult{State: queues.TakeRefused, Err: err}
		}
		take.Out = nil
		return next.result(take)
	})},
	{rule: "C34", name: "consumes and sends in two requests, of which the second may be lost", onServer: true, breaks: onTake(func(t *brokenTransport, ctx context.Context, _ string, take queues.Take, next nextTake) queues.TakeResult {
		out := take.Out
		take.Out = nil
		r := next.result(take)
		if r.State == queues.TakeDone {
			if err := t.base.Send(ctx, out...); err != nil {
				return queues.TakeResult{}
			}
		}
		return r
	})},
	{rule: "C34", name: "sends the replacements and keeps the message", breaks: onTake(func(t *brokenTransport, ctx context.Context, _ string, take queues.Take, _ nextTake) queues.TakeResult {
		if err := t.base.Send(ctx, take.Out...); err != nil {
			return queues.TakeResult{State: queues.TakeRefused, Err: err}
		}
		return queues.TakeResult{State: queues.TakeDone}
	})},
	{rule: "C34", name: "consumes a message whose replacement it refuses", breaks: changingResult(func(t *brokenTransport, r *queues.TakeResult, take queues.Take) {
		if r.State == queues.TakeRefused {
			for _, queue := range t.fixture.names() {
				_, _ = t.base.Take(ctxBackground, queue, []queues.Take{{Key: take.Key}})
			}
		}
	})},
	{rule: "C34", name: "sends the first replacement alone", breaks: onTake(func(_ *brokenTransport, _ context.Context, _ string, take queues.Take, next nextTake) queues.TakeResult {
		take.Out = take.Out[:min(len(take.Out), 1)]
		return next.result(take)
	})},
	{rule: "C34", name: "replaces a message that a receiver has", breaks: replacesLocked},

	{rule: "C35", name: "takes a message that a receiver has", breaks: replacesLocked},
	{rule: "C35", name: "says done of a message that has left", breaks: changingResult(func(_ *brokenTransport, r *queues.TakeResult, _ queues.Take) {
		if r.State == queues.TakeGone {
			r.State = queues.TakeDone
		}
	})},
	{rule: "C35", name: "refuses all messages of a Take if it refuses one", breaks: func() changes {
		return changes{take: func(t *brokenTransport, _ context.Context, _ string, takes []queues.Take, next func(...queues.Take) ([]queues.TakeResult, error)) ([]queues.TakeResult, error) {
			for _, take := range takes {
				for _, out := range take.Out {
					if _, err := t.fixture.depth(out.Queue); err != nil {
						results := make([]queues.TakeResult, len(takes))
						for i := range results {
							results[i] = queues.TakeResult{State: queues.TakeRefused, Err: err}
						}
						return results, nil
					}
				}
			}
			return next(takes...)
		}}
	}},
	{rule: "C35", name: "takes a newer copy than it was asked for", breaks: onTake(func(_ *brokenTransport, _ context.Context, _ string, take queues.Take, next nextTake) queues.TakeResult {
		take.NativeID = ""
		return next.result(take)
	})},
	{rule: "C35", name: "waits for the receiver that has a message", breaks: func() changes {
		return changes{take: func(_ *brokenTransport, ctx context.Context, _ string, takes []queues.Take, next func(...queues.Take) ([]queues.TakeResult, error)) ([]queues.TakeResult, error) {
			var results []queues.TakeResult
			for _, take := range takes {
				for {
					got, err := next(take)
					if err != nil {
						return nil, err
					}
					if got[0].State != queues.TakeLocked {
						results = append(results, got...)
						break
					}
					select {
					case <-ctx.Done():
						return results, ctx.Err()
					case <-time.After(time.Second):
					}
				}
			}
			_, err := next()
			return results, err
		}}
	}},
	{rule: "C35", name: "has no results for messages that have left", breaks: func() changes {
		return changes{take: func(_ *brokenTransport, _ context.Context, _ string, takes []queues.Take, next func(...queues.Take) ([]queues.TakeResult, error)) ([]queues.TakeResult, error) {
			all, err := next(takes...)
			var results []queues.TakeResult
			for _, r := range all {
				if r.State != queues.TakeGone {
					results = append(results, r)
				}
			}
			return results, err
		}}
	}},
	{rule: "C35", name: "keeps a message that was given back locked", breaks: func() changes {
		var back sync.Map
		c := changingResult(func(*brokenTransport, *queues.TakeResult, queues.Take) {})()
		c.take = func(_ *brokenTransport, _ context.Context, _ string, takes []queues.Take, next func(...queues.Take) ([]queues.TakeResult, error)) ([]queues.TakeResult, error) {
			var results []queues.TakeResult
			for _, take := range takes {
				if _, has := back.Load(take.Key); has {
					results = append(results, queues.TakeResult{State: queues.TakeLocked})
					continue
				}
				got, err := next(take)
				if err != nil {
					return results, err
				}
				results = append(results, got...)
			}
			_, err := next()
			return results, err
		}
		c.settle = func(d *brokenDelivery, operation string, next func() error) error {
			if operation == "Release" || operation == "Abandon" {
				back.Store(d.in.NativeID, true)
			}
			return next()
		}
		return c
	}},
	{rule: "C35", name: "finds no message in a queue that does not exist", breaks: func() changes {
		return changes{take: func(_ *brokenTransport, _ context.Context, _ string, takes []queues.Take, next func(...queues.Take) ([]queues.TakeResult, error)) ([]queues.TakeResult, error) {
			results, err := next(takes...)
			if errors.Is(err, core.ErrQueueNotFound) {
				results, err = make([]queues.TakeResult, len(takes)), nil
				for i := range results {
					results[i].State = queues.TakeGone
				}
			}
			return results, err
		}}
	}},
}

// replacesLocked sends the replacements of locked messages, which it cannot consume.
func replacesLocked() changes {
	return onTake(func(t *brokenTransport, ctx context.Context, _ string, take queues.Take, next nextTake) queues.TakeResult {
		r := next.result(take)
		if r.State == queues.TakeLocked {
			_ = t.base.Send(ctx, take.Out...)
			r.State = queues.TakeDone
		}
		return r
	})()
}
