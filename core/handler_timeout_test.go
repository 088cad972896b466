package core_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

func TestHandlerTimeout(t *testing.T) {
	hang := func(ctx context.Context, _ *core.Message) error {
		<-ctx.Done()
		return ctx.Err()
	}
	t.Run("fails the attempt", func(t *testing.T) {
		inModes(t, everyMode, func(b *bed) {
			start := time.Now()
			var causes record[error]
			b.orders(core.Config{HandlerTimeout: time.Minute, Recoverability: noRetries}, func(ctx context.Context, m *core.Message) error {
				defer func() { causes.add(context.Cause(ctx)) }()
				return hang(ctx, m)
			})
			b.put("m1")
			b.pass(time.Minute)
			failed := b.only("error")
			equal(b, "time", time.Since(start), time.Minute)
			if text := failed.Headers.Get(core.HeaderExceptionMessage); !containsAll(text, "handler timeout of 1m0s", "deadline exceeded") {
				b.Errorf("the error queue tells %q", text)
			}
			if got := causes.all(); !errors.Is(got[0], core.ErrHandlerTimeout) {
				b.Errorf("the context's cause is %v", got)
			}
		})
	})
	t.Run("is retried like any failure", func(t *testing.T) {
		inModes(t, retrying, func(b *bed) {
			runs := 0
			b.orders(core.Config{HandlerTimeout: time.Second, Recoverability: immediate(2)}, func(ctx context.Context, m *core.Message) error {
				runs++
				return hang(ctx, m)
			})
			b.put("m1")
			b.pass(time.Minute)
			equal(b, "runs", runs, 3)
			b.only("error")
		})
	})
	t.Run("of a message type", func(t *testing.T) {
		inModes(t, retrying, func(b *bed) {
			recover := noRetries
			recover.MessageTypes = map[string]core.TypeRecoverability{"order": {HandlerTimeout: time.Second}}
			start := time.Now()
			b.orders(core.Config{HandlerTimeout: time.Hour, Recoverability: recover}, hang)
			b.put("m1")
			b.pass(2 * time.Second)
			b.only("error")
			if time.Since(start) > time.Minute {
				b.Error("the endpoint's timeout was in force")
			}
		})
	})
	t.Run("does not concern a success, nor the policy and HandleFailed that follow", func(t *testing.T) {
		inModes(t, retrying, func(b *bed) {
			var after record[error]
			recover := noRetries
			recover.Policy = func(ctx context.Context, c core.RecoverabilityConfig, f core.ErrorContext) core.Action {
				after.add(ctx.Err())
				return core.DefaultPolicy(ctx, c, f)
			}
			ep := b.endpoint("orders", core.Config{HandlerTimeout: time.Second, Recoverability: recover})
			b.handle(ep, "order", func(ctx context.Context, m *core.Message) error {
				<-ctx.Done()
				if m.ID == "succeeds" {
					return nil
				}
				return ctx.Err()
			})
			core.HandleFailed(ep, "order", func(ctx context.Context, _ *core.TypedMessage[[]byte], _ *core.Failed) error {
				after.add(ctx.Err())
				return nil
			})
			b.run(ep)
			b.put("succeeds", "fails")
			b.pass(time.Minute)
			equal(b, "failed", b.only("error").ID, "fails")
			b.holds("orders", 0)
			for _, err := range after.all() {
				if err != nil {
					b.Errorf("context after the timeout: %v", err)
				}
			}
			equal(b, "calls after the timeout", after.len(), 2)
		})
	})
}

// A handler that hangs is told of once, and its age is in Health.
func TestSlowHandler(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		release := make(chan struct{})
		ep, _ := b.orders(core.Config{SlowHandler: time.Minute}, func(_ context.Context, m *core.Message) error {
			if m.ID == "slow" {
				<-release
			}
			return nil
		})
		equal(b, "oldest attempt of none", ep.Health().OldestAttempt, 0)
		b.put("slow", "quick")
		for range 59 {
			b.pass(time.Second)
			b.put("quick")
		}
		equal(b, "lines after 59 s", len(b.logs.about("handler is slow")), 0)
		equal(b, "oldest attempt", ep.Health().OldestAttempt, 59*time.Second)
		b.pass(24 * time.Hour)
		lines := b.logs.about("handler is slow")
		if len(lines) != 1 || lines[0].level != slog.LevelWarn || lines[0].attrs["message_id"] != "slow" || lines[0].attrs["message_type"] != "order" || lines[0].attrs["running_for"] != time.Minute {
			b.Errorf("logged %+v", lines)
		}
		for range 180 {
			b.pass(time.Second)
			b.put("quick")
		}
		equal(b, "lines, while others are handled", len(b.logs.about("handler is slow")), 1)
		if age := ep.Health().OldestAttempt; age < 24*time.Hour {
			b.Errorf("oldest attempt %v", age)
		}
		close(release)
		synctest.Wait()
		equal(b, "oldest attempt after it", ep.Health().OldestAttempt, 0)
		b.put("slow")
		b.pass(time.Hour)
		equal(b, "lines", len(b.logs.about("handler is slow")), 1)
	})
}
