package core_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

// losing makes the renewal of every lock fail.
func (b *bed) losing() {
	b.broker.provoke(faults{settle: func(operation string, _ *core.Incoming) error {
		if operation == "Renew" {
			return core.ErrLockLost
		}
		return nil
	}})
}

// isCancelled checks a context that has ended with a cause.
func isCancelled(b *bed, what string, ctx context.Context, cause error) {
	b.Helper()
	select {
	case <-ctx.Done():
	default:
		b.Errorf("%s is not done", what)
	}
	if err := ctx.Err(); err != context.Canceled { // compared as code does that was written before errors.Is
		b.Errorf("%s has the error %v", what, err)
	}
	if got := context.Cause(ctx); !errors.Is(got, cause) {
		b.Errorf("the cause of %s is %v, want %v", what, got, cause)
	}
}

type valueKey struct{}

// What a handler can do with its context is the same whether it asked for anything
// before the lock was lost or not.
func TestR27_HandlerContextEndsWithTheLock(t *testing.T) {
	for name, before := range map[string]func(ctx context.Context) context.Context{
		"never asked": func(ctx context.Context) context.Context { return ctx },
		"error asked": func(ctx context.Context) context.Context {
			_ = ctx.Err()
			return ctx
		},
		"done asked": func(ctx context.Context) context.Context {
			select {
			case <-ctx.Done():
			default:
			}
			return ctx
		},
		"child": func(ctx context.Context) context.Context {
			child, cancel := context.WithTimeout(ctx, time.Hour)
			context.AfterFunc(child, cancel)
			return child
		},
		"child with a value": func(ctx context.Context) context.Context { return context.WithValue(ctx, valueKey{}, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, locking, retrying, func(b *bed) {
				b.losing()
				seen := false
				_, run := b.orders(core.Config{}, func(ctx context.Context, _ *core.Message) error {
					if seen {
						return nil
					}
					seen = true
					ctx = before(ctx)
					if ctx.Err() != nil || context.Cause(ctx) != nil {
						b.Errorf("at first its error is %v, its cause %v", ctx.Err(), context.Cause(ctx))
					}
					time.Sleep(6 * time.Second)
					isCancelled(b, "the context", ctx, core.ErrLockLost)
					child, cancel := context.WithCancel(ctx)
					defer cancel()
					isCancelled(b, "a child made afterwards", child, core.ErrLockLost)
					return nil
				})
				b.put("m1")
				time.Sleep(time.Minute)
				equal(b, "handled", seen, true)
				if err := run.stop(); err != nil {
					b.Error(err)
				}
			})
		})
	}
}

// Whoever keeps a handler's context is told that the handler has returned.
func TestHandlerContext_EndsWithTheAttempt(t *testing.T) {
	inModesOn(t, locking, retrying[:1], func(b *bed) {
		var late, early context.Context
		ep := b.endpoint("orders", core.Config{})
		b.handle(ep, "order", func(ctx context.Context, _ *core.Message) error {
			late = ctx
			var cancel context.CancelFunc
			early, cancel = context.WithCancel(ctx)
			context.AfterFunc(early, cancel)
			return nil
		})
		other := b.endpoint("shipping", core.Config{})
		var untouched context.Context
		b.handle(other, "order", func(ctx context.Context, _ *core.Message) error {
			untouched = ctx
			return nil
		})
		r := b.launchUnder(context.WithValue(context.Background(), valueKey{}, "of Run"), ep)
		b.launchUnder(context.WithValue(context.Background(), valueKey{}, "of Run"), other)
		b.put("m1")
		m := order("m2")
		m.Queue = "shipping"
		b.send(m)
		synctest.Wait()
		for what, ctx := range map[string]context.Context{"the context": late, "its child": early, "one never asked": untouched} {
			isCancelled(b, what, ctx, context.Canceled)
			equal(b, "Run's value by "+what, ctx.Value(valueKey{}), any("of Run"))
			if _, ok := ctx.Deadline(); ok {
				b.Errorf("%s has a deadline", what)
			}
		}
		if err := r.stop(); err != nil {
			b.Error(err)
		}
	})
}

func TestHandlerContext_WithALockEndsWithTheDrain(t *testing.T) {
	inModesOn(t, locking, retrying, func(b *bed) {
		var ended context.Context
		_, run := b.orders(core.Config{DrainTimeout: time.Second}, func(ctx context.Context, _ *core.Message) error {
			time.Sleep(3 * time.Second) // asks for nothing until then
			isCancelled(b, "the context", ctx, core.ErrShutdown)
			ended = ctx
			return nil
		})
		b.put("m1")
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		if ended == nil {
			b.Error("the handler was not called")
		}
	})
}

// Package context starts a goroutine for each child of a context that it does not
// know.
func TestHandlerContext_ChildrenNeedNoGoroutine(t *testing.T) {
	inModesOn(t, locking, retrying, func(b *bed) {
		_, run := b.orders(core.Config{}, func(ctx context.Context, _ *core.Message) error {
			child, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			time.Sleep(time.Millisecond)
			if child.Err() != nil {
				b.Error(child.Err())
			}
			stacks := make([]byte, 8<<20)
			if n := strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "propagateCancel"); n > 0 {
				b.Errorf("%d goroutines wait for the context", n)
			}
			return nil
		})
		b.put("m1")
		time.Sleep(time.Second)
		b.holds("orders", 0)
		if err := run.stop(); err != nil {
			b.Error(err)
		}
	})
}

// Sixteen renewals that hang kept all other locks from being renewed.
func TestRenewal_HangingOneDelaysNoOther(t *testing.T) {
	inModesOn(t, locking, retrying, func(b *bed) {
		release := make(chan struct{})
		b.broker.provoke(faults{settle: func(operation string, in *core.Incoming) error {
			if operation == "Renew" && strings.HasPrefix(in.ID, "hangs") {
				<-release
			}
			return nil
		}})
		var lost, runs record[string]
		b.orders(core.Config{Concurrency: 40}, func(ctx context.Context, m *core.Message) error {
			if !strings.HasPrefix(m.ID, "hangs") {
				runs.add(m.ID)
			}
			select {
			case <-time.After(time.Minute):
			case <-ctx.Done():
				lost.add(m.ID)
			}
			return nil
		})
		for i := range 20 {
			b.send(order(fmt.Sprint("hangs", i)))
		}
		for i := range 20 {
			b.send(order(fmt.Sprint("m", i)))
		}
		b.pass(50 * time.Second)
		for _, id := range lost.all() {
			if !strings.HasPrefix(id, "hangs") {
				b.Errorf("the lock of %s was lost", id)
			}
		}
		close(release)
		b.pass(time.Hour)
		b.holds("orders", 0)
		equal(b, "runs of the other messages", runs.len(), 20)
	})
}
