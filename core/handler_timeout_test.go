package core_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

func TestHandlerTimeout(t *testing.T) {
	hang := func(ctx context.Context, _ *core.Message) error {
		<-ctx.Done()
		return ctx.Err()
	}
	t.Run("fails the attempt", func(t *testing.T) {
		inModes(t, allModes, func(fx *fixture) {
			start := time.Now()
			var causes recorder[error]
			fx.runOrders(core.Config{HandlerTimeout: time.Minute, Recoverability: noRetries}, func(ctx context.Context, m *core.Message) error {
				defer func() { causes.add(context.Cause(ctx)) }()
				return hang(ctx, m)
			})
			fx.enqueue("m1")
			fx.advance(time.Minute)
			failed := fx.onlyMessage("error")
			equal(fx, "time", time.Since(start), time.Minute)
			if text := failed.Headers.Get(headers.ExceptionMessage); !containsAll(text, "handler timeout of 1m0s", "deadline exceeded") {
				fx.Errorf("the error queue tells %q", text)
			}
			if got := causes.all(); !errors.Is(got[0], core.ErrHandlerTimeout) {
				fx.Errorf("the context's cause is %v", got)
			}
		})
	})
	t.Run("is retried like any failure", func(t *testing.T) {
		inModes(t, retryModes, func(fx *fixture) {
			runs := 0
			fx.runOrders(core.Config{HandlerTimeout: time.Second, Recoverability: immediateRetries(2)}, func(ctx context.Context, m *core.Message) error {
				runs++
				return hang(ctx, m)
			})
			fx.enqueue("m1")
			fx.advance(time.Minute)
			equal(fx, "runs", runs, 3)
			fx.onlyMessage("error")
		})
	})
	t.Run("of a message type", func(t *testing.T) {
		inModes(t, retryModes, func(fx *fixture) {
			recover := noRetries
			recover.MessageTypes = map[string]core.TypeRecoverability{"order": {HandlerTimeout: time.Second}}
			start := time.Now()
			fx.runOrders(core.Config{HandlerTimeout: time.Hour, Recoverability: recover}, hang)
			fx.enqueue("m1")
			fx.advance(2 * time.Second)
			fx.onlyMessage("error")
			if time.Since(start) > time.Minute {
				fx.Error("the endpoint's timeout was in force")
			}
		})
	})
	t.Run("does not concern a success, nor the policy and HandleFailed that follow", func(t *testing.T) {
		inModes(t, retryModes, func(fx *fixture) {
			var after recorder[error]
			recover := noRetries
			recover.Policy = func(ctx context.Context, c core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
				after.add(ctx.Err())
				return core.DefaultPolicy(ctx, c, f)
			}
			ep := fx.newEndpoint("orders", core.Config{HandlerTimeout: time.Second, Recoverability: recover})
			fx.handle(ep, "order", func(ctx context.Context, m *core.Message) error {
				<-ctx.Done()
				if m.ID == "succeeds" {
					return nil
				}
				return ctx.Err()
			})
			core.HandleFailed(ep, orderType, func(ctx context.Context, _ *core.Message, _ []byte, _ *core.Failed) error {
				after.add(ctx.Err())
				return nil
			})
			fx.run(ep)
			fx.enqueue("succeeds", "fails")
			fx.advance(time.Minute)
			equal(fx, "failed", fx.onlyMessage("error").ID, "fails")
			fx.wantDepth("orders", 0)
			for _, err := range after.all() {
				if err != nil {
					fx.Errorf("context after the timeout: %v", err)
				}
			}
			equal(fx, "calls after the timeout", after.len(), 2)
		})
	})
}

// A handler that hangs is told of once, and its age is in Health.
func TestSlowHandler(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		release := make(chan struct{})
		ep, _ := fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
			if m.ID == "slow" {
				<-release
			}
			return nil
		})
		equal(fx, "oldest attempt of none", ep.Health().OldestAttempt, 0)
		fx.enqueue("slow", "quick")
		for range 59 {
			fx.advance(time.Second)
			fx.enqueue("quick")
		}
		equal(fx, "lines after 59 s", len(fx.logs.find("handler is slow")), 0)
		equal(fx, "oldest attempt", ep.Health().OldestAttempt, 59*time.Second)
		fx.advance(24 * time.Hour)
		lines := fx.logs.find("handler is slow")
		if len(lines) != 1 || lines[0].level != slog.LevelWarn || lines[0].attrs["message_id"] != "slow" || lines[0].attrs["message_type"] != "order" || lines[0].attrs["running_for"] != time.Minute {
			fx.Errorf("logged %+v", lines)
		}
		for range 180 {
			fx.advance(time.Second)
			fx.enqueue("quick")
		}
		equal(fx, "lines, while others are handled", len(fx.logs.find("handler is slow")), 1)
		if age := ep.Health().OldestAttempt; age < 24*time.Hour {
			fx.Errorf("oldest attempt %v", age)
		}
		close(release)
		synctest.Wait()
		equal(fx, "oldest attempt after it", ep.Health().OldestAttempt, 0)
		fx.enqueue("slow")
		fx.advance(time.Hour)
		equal(fx, "lines", len(fx.logs.find("handler is slow")), 1)
	})
}
