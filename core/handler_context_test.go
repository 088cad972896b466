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

// failRenewals makes the renewal of every lock fail.
func (fx *fixture) failRenewals() {
	fx.broker.setFaults(faults{settle: func(operation string, _ *core.Incoming) error {
		if operation == "Renew" {
			return core.ErrLockLost
		}
		return nil
	}})
}

// wantCancelled checks a context that has ended with a cause.
func wantCancelled(fx *fixture, subject string, ctx context.Context, cause error) {
	fx.Helper()
	select {
	case <-ctx.Done():
	default:
		fx.Errorf("%s is not done", subject)
	}
	if err := ctx.Err(); err != context.Canceled { // compared as code does that was written before errors.Is
		fx.Errorf("%s has the error %v", subject, err)
	}
	if got := context.Cause(ctx); !errors.Is(got, cause) {
		fx.Errorf("the cause of %s is %v, want %v", subject, got, cause)
	}
}

type valueKey struct{}

// Rule R27.
// What a handler can do with its context is the same whether it asked for anything
// before the lock was lost or not.
func TestLostLock_EndsTheHandlersContext(t *testing.T) {
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
			inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
				fx.failRenewals()
				seen := false
				_, run := fx.runOrders(core.Config{}, func(ctx context.Context, _ *core.Message) error {
					if seen {
						return nil
					}
					seen = true
					ctx = before(ctx)
					if ctx.Err() != nil || context.Cause(ctx) != nil {
						fx.Errorf("at first its error is %v, its cause %v", ctx.Err(), context.Cause(ctx))
					}
					time.Sleep(6 * time.Second)
					wantCancelled(fx, "the context", ctx, core.ErrLockLost)
					child, cancel := context.WithCancel(ctx)
					defer cancel()
					wantCancelled(fx, "a child made afterwards", child, core.ErrLockLost)
					return nil
				})
				fx.enqueue("m1")
				time.Sleep(time.Minute)
				equal(fx, "handled", seen, true)
				if err := run.stop(); err != nil {
					fx.Error(err)
				}
			})
		})
	}
}

// A goroutine that keeps a handler's context learns that the handler has returned.
func TestHandlerContext_EndsWithTheAttempt(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes[:1], func(fx *fixture) {
		var late, early context.Context
		ep := fx.newEndpoint("orders", core.Config{})
		fx.handle(ep, "order", func(ctx context.Context, _ *core.Message) error {
			late = ctx
			var cancel context.CancelFunc
			early, cancel = context.WithCancel(ctx)
			context.AfterFunc(early, cancel)
			return nil
		})
		other := fx.newEndpoint("shipping", core.Config{})
		var untouched context.Context
		fx.handle(other, "order", func(ctx context.Context, _ *core.Message) error {
			untouched = ctx
			return nil
		})
		r := fx.startWithContext(context.WithValue(context.Background(), valueKey{}, "of Run"), ep)
		fx.startWithContext(context.WithValue(context.Background(), valueKey{}, "of Run"), other)
		fx.enqueue("m1")
		m := order("m2")
		m.Queue = "shipping"
		fx.send(m)
		synctest.Wait()
		for name, ctx := range map[string]context.Context{"the context": late, "its child": early, "one never asked": untouched} {
			wantCancelled(fx, name, ctx, context.Canceled)
			equal(fx, "Run's value by "+name, ctx.Value(valueKey{}), any("of Run"))
			if _, ok := ctx.Deadline(); ok {
				fx.Errorf("%s has a deadline", name)
			}
		}
		if err := r.stop(); err != nil {
			fx.Error(err)
		}
	})
}

func TestHandlerContext_WithALockEndsWithTheDrain(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
		var ended context.Context
		_, run := fx.runOrders(core.Config{DrainTimeout: time.Second}, func(ctx context.Context, _ *core.Message) error {
			time.Sleep(3 * time.Second) // asks for nothing until then
			wantCancelled(fx, "the context", ctx, core.ErrShutdown)
			ended = ctx
			return nil
		})
		fx.enqueue("m1")
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		if ended == nil {
			fx.Error("the handler was not called")
		}
	})
}

// Package context starts a goroutine for each child of a context that it does not
// know.
func TestHandlerContext_ChildrenNeedNoGoroutine(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
		_, run := fx.runOrders(core.Config{}, func(ctx context.Context, _ *core.Message) error {
			child, cancel := context.WithTimeout(ctx, time.Hour)
			defer cancel()
			time.Sleep(time.Millisecond)
			if child.Err() != nil {
				fx.Error(child.Err())
			}
			stacks := make([]byte, 8<<20)
			if n := strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "propagateCancel"); n > 0 {
				fx.Errorf("%d goroutines wait for the context", n)
			}
			return nil
		})
		fx.enqueue("m1")
		time.Sleep(time.Second)
		fx.wantDepth("orders", 0)
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
	})
}

// Sixteen renewals that hang kept all other locks from being renewed.
func TestRenewal_HangingOneDelaysNoOther(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
		release := make(chan struct{})
		fx.broker.setFaults(faults{settle: func(operation string, in *core.Incoming) error {
			if operation == "Renew" && strings.HasPrefix(in.ID, "hangs") {
				<-release
			}
			return nil
		}})
		var lost, runs recorder[string]
		fx.runOrders(core.Config{Concurrency: 40}, func(ctx context.Context, m *core.Message) error {
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
			fx.send(order(fmt.Sprint("hangs", i)))
		}
		for i := range 20 {
			fx.send(order(fmt.Sprint("m", i)))
		}
		fx.advance(50 * time.Second)
		for _, id := range lost.all() {
			if !strings.HasPrefix(id, "hangs") {
				fx.Errorf("the lock of %s was lost", id)
			}
		}
		close(release)
		fx.advance(time.Hour)
		fx.wantDepth("orders", 0)
		equal(fx, "runs of the other messages", runs.len(), 20)
	})
}
