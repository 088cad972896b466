package suite

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var nativeTransactionMutants = []mutant{
	{rule: "C12", name: "forgets the handler's work by Complete", breaks: onOperation(undoing, "Complete")},
	{rule: "C12", name: "forgets the handler's work by CompleteWith", breaks: onOperation(undoing, "CompleteWith")},
	{rule: "C12", name: "commits the handler's work before it sends", breaks: onOperation(committing, "CompleteWith")},
	{rule: "C12", name: "commits the handler's work by Abandon", breaks: onOperation(committing, "Abandon")},
	{rule: "C12", name: "commits the handler's work by Release", breaks: onOperation(committing, "Release")},
	{rule: "C12", name: "commits the handler's work by ReplaceWith", breaks: onOperation(committing, "ReplaceWith")},
	{rule: "C12", name: "commits the handler's work by Reset", breaks: onOperation(committing, "Reset")},
	{rule: "C12", name: "has nothing to undo in Reset", breaks: onOperation(func(*brokenDelivery, func() error) error { return nil }, "Reset")},
	{rule: "C12", name: "commits the handler's work after its messages are sent", breaks: onOperation(func(d *brokenDelivery, next func() error) error {
		copied := *d.work
		d.work.undo()
		err := next()
		if err == nil {
			time.Sleep(time.Millisecond)
			copied.commit()
		}
		return err
	}, "CompleteWith")},
	{rule: "C12", name: "hands out a connection instead of the transaction", breaks: func() changes {
		return changes{bind: func(d *brokenDelivery, ctx context.Context, next func(context.Context) context.Context) context.Context {
			d.work.auto = true
			return next(ctx)
		}}
	}},
	{rule: "C12", name: "begins a new transaction by Reset, which the context does not know", breaks: onOperation(func(d *brokenDelivery, next func() error) error {
		err := next()
		d.afresh()
		return err
	}, "Reset")},
	{rule: "C12", name: "loses its transaction by a refusal", breaks: onOperation(func(d *brokenDelivery, next func() error) error {
		err := next()
		if err != nil {
			d.afresh()
		}
		return err
	}, "CompleteWith")},
	{rule: "C12", name: "undoes the handler's work by a refusal", breaks: onOperation(func(d *brokenDelivery, next func() error) error {
		err := next()
		if err != nil {
			d.work.undo()
		}
		return err
	}, "CompleteWith")},
	{rule: "C12", name: "begins a new transaction with each BindContext", breaks: func() changes {
		return changes{bind: func(d *brokenDelivery, ctx context.Context, next func(context.Context) context.Context) context.Context {
			d.afresh()
			return next(ctx)
		}}
	}},
	{rule: "C12", name: "cannot go on when the handler has broken the transaction", breaks: onOperation(func(d *brokenDelivery, next func() error) error {
		if d.work.isBroken() {
			return errAborted
		}
		return next()
	}, "Abandon", "Release", "Reset", "ReplaceWith")},
	{rule: "C12", name: "takes the rollback of a broken transaction for a commit", breaks: onOperation(func(d *brokenDelivery, next func() error) error {
		if d.work.isBroken() {
			_ = d.Delivery.Release(context.Background())
			return nil
		}
		return next()
	}, "Complete", "CompleteWith")},
	{rule: "C12", name: "commits without the work that it cannot commit", breaks: onOperation(func(d *brokenDelivery, next func() error) error {
		if d.work.isBroken() {
			d.work.undo()
		}
		return next()
	}, "Complete", "CompleteWith")},
	{rule: "C12", name: "leaves broken transactions open when the receiver is closed", breaks: func() changes {
		var mu sync.Mutex
		bound := map[*brokenReceiver][]*brokenDelivery{}
		return changes{
			bind: func(d *brokenDelivery, ctx context.Context, next func(context.Context) context.Context) context.Context {
				mu.Lock()
				defer mu.Unlock()
				bound[d.receiver] = append(bound[d.receiver], d)
				return next(ctx)
			},
			closeReceiver: func(r *brokenReceiver, next func() error) error {
				mu.Lock()
				defer mu.Unlock()
				if slices.ContainsFunc(bound[r], func(d *brokenDelivery) bool { return d.work.isBroken() }) {
					return nil
				}
				return next()
			},
		}
	}},
	{rule: "C12", name: "has one transaction for all deliveries of a receiver", breaks: func() changes {
		var mu sync.Mutex
		shared := map[*brokenReceiver]*transaction{}
		return changes{bind: func(d *brokenDelivery, ctx context.Context, next func(context.Context) context.Context) context.Context {
			mu.Lock()
			defer mu.Unlock()
			if shared[d.receiver] == nil {
				shared[d.receiver] = d.work
			}
			d.work = shared[d.receiver]
			return next(ctx)
		}}
	}},
	{rule: "C12", name: "commits the handler's work although the lock is lost", config: inmemory.Config{LockDuration: 10 * time.Second},
		breaks: onOperation(func(d *brokenDelivery, next func() error) error {
			err := next()
			if errors.Is(err, core.ErrLockLost) {
				d.work.commit()
			}
			return err
		}, "CompleteWith")},
	{rule: "C12", name: "rolls back when the handler's context ends, and sends all the same", breaks: func() changes {
		var bound sync.Map
		return changes{
			bind: func(d *brokenDelivery, ctx context.Context, next func(context.Context) context.Context) context.Context {
				bound.Store(d, ctx)
				return next(ctx)
			},
			settle: func(d *brokenDelivery, _ string, next func() error) error {
				if ctx, ok := bound.Load(d); ok && ctx.(context.Context).Err() != nil {
					d.work.undo()
				}
				return next()
			},
		}
	}},
}
