package core_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// deciders are the user code that decides about a failed message. Each runs before
// every decision; an error means that the decider gives no proper answer.
var deciders = map[string]func(fx *fixture, c core.Config, before func(ctx context.Context) error) *core.Endpoint{
	"policy": func(fx *fixture, c core.Config, before func(context.Context) error) *core.Endpoint {
		c.Recoverability.Policy = func(ctx context.Context, config core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
			doWork(ctx, "policy")
			if before(ctx) != nil {
				return core.Action{}, nil
			}
			return core.DefaultPolicy(ctx, config, f)
		}
		ep := fx.newEndpoint("orders", c)
		fx.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		return ep
	},
	"HandleFailed": func(fx *fixture, c core.Config, before func(context.Context) error) *core.Endpoint {
		ep := fx.newEndpoint("orders", c)
		fx.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		core.HandleFailed(ep, orderType, func(ctx context.Context, m *core.Message, _ []byte, _ *core.Failed) error {
			doWork(ctx, "HandleFailed")
			return errors.Join(m.Send("shipping", sorryType.Of("x")), before(ctx))
		})
		return ep
	},
}

// undecidedAnswers is how a decider that is cut off gives no proper answer.
var undecidedAnswers = map[string]func(ctx context.Context) error{
	"context's error": func(ctx context.Context) error { return ctx.Err() },
	"panic":           func(ctx context.Context) error { panic(ctx.Err()) },
}

func onEachDecider(t *testing.T, modes []core.TransactionMode, body func(fx *fixture, decider func(*fixture, core.Config, func(context.Context) error) *core.Endpoint)) {
	t.Helper()
	for name, decider := range deciders {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, expiringLocks, modes, func(fx *fixture) { body(fx, decider) })
		})
	}
}

// wantShipped is the message that HandleFailed sends with its move.
func wantShipped(fx *fixture, want int) {
	fx.Helper()
	if containsAll(fx.Name(), "HandleFailed") {
		fx.wantDepth("shipping", want)
	}
}

// Rule R27.
func TestShutdown_CutOffDecisionIsRepeated(t *testing.T) {
	for name, answer := range undecidedAnswers {
		t.Run(name, func(t *testing.T) {
			onEachDecider(t, retryModes, func(fx *fixture, decider func(*fixture, core.Config, func(context.Context) error) *core.Endpoint) {
				var causes, criticals recorder[error]
				asked := 0
				ep := decider(fx, core.Config{
					DrainTimeout: 7 * time.Second, Recoverability: noRetries,
					Observers: []core.Observer{{CriticalError: func(_ context.Context, _ *core.Endpoint, err error) { criticals.add(err) }}},
				}, func(ctx context.Context) error {
					if asked++; asked > 1 {
						return nil
					}
					<-ctx.Done()
					causes.add(context.Cause(ctx))
					return answer(ctx)
				})
				run := fx.run(ep)
				fx.enqueue("m1")
				start := time.Now()
				if err := run.stop(); err != nil {
					fx.Errorf("Run returned %v", err)
				}
				equal(fx, "time to drain", time.Since(start), 7*time.Second)
				if got := causes.all(); len(got) != 1 || !errors.Is(got[0], core.ErrShutdown) {
					fx.Errorf("causes %v, want ErrShutdown", got)
				}
				equal(fx, "releases", fx.broker.countSettled("Release", "m1"), 1)
				left := fx.onlyMessage("orders")
				equal(fx, "delivery count", left.DeliveryCount, 1)
				equal(fx, "last error", left.LastError, "")
				fx.wantDepth("error", 0)
				fx.wantDepth("shipping", 0)
				equal(fx, "work committed", fx.broker.committed.len(), 0)
				lines := fx.logs.find("stopped before the failure was decided", "message_id", "m1")
				if len(lines) != 1 || lines[0].level != slog.LevelInfo || lines[0].attrs["cause"] == nil {
					fx.Errorf("logged %+v", lines)
				}
				for _, line := range fx.logs.all() {
					if line.level > slog.LevelInfo {
						fx.Errorf("logged %+v", line)
					}
				}

				fx.run(ep)
				equal(fx, "decisions", asked, 2)
				fx.wantDepth("orders", 0)
				equal(fx, "moved", fx.onlyMessage("error").ID, "m1")
				wantShipped(fx, 1)
				equal(fx, "critical errors", criticals.len(), 0)
			})
		})
	}
}

// Rule R27.
// The decision of the policy counts, also when its context has ended.
func TestShutdown_DecisionAfterTheCutOffHolds(t *testing.T) {
	onEachDecider(t, allModes, func(fx *fixture, decider func(*fixture, core.Config, func(context.Context) error) *core.Endpoint) {
		ep := decider(fx, core.Config{DrainTimeout: time.Second, Recoverability: noRetries}, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
		run := fx.run(ep)
		fx.enqueue("m1")
		if err := run.stop(); err != nil {
			fx.Errorf("Run returned %v", err)
		}
		fx.wantDepth("orders", 0)
		equal(fx, "moved", fx.onlyMessage("error").ID, "m1")
		wantShipped(fx, 1)
	})
}

// Rule R27.
// A message that cannot be given back is moved.
func TestNone_UndecidedFailureIsMoved(t *testing.T) {
	for name, answer := range undecidedAnswers {
		t.Run(name, func(t *testing.T) {
			onEachDecider(t, allModes[:1], func(fx *fixture, decider func(*fixture, core.Config, func(context.Context) error) *core.Endpoint) {
				ep := decider(fx, core.Config{DrainTimeout: time.Second, Recoverability: noRetries}, func(ctx context.Context) error {
					<-ctx.Done()
					return answer(ctx)
				})
				run := fx.run(ep)
				fx.enqueue("m1")
				if err := run.stop(); err != nil {
					fx.Errorf("Run returned %v", err)
				}
				equal(fx, "moved", fx.onlyMessage("error").ID, "m1")
				fx.wantDepth("shipping", 0)
			})
		})
	}
}

// Rule R27.
func TestShutdown_DeciderThatReturnsInTimeIsNotCutOff(t *testing.T) {
	onEachDecider(t, allModes, func(fx *fixture, decider func(*fixture, core.Config, func(context.Context) error) *core.Endpoint) {
		asked := 0
		ep := decider(fx, core.Config{DrainTimeout: time.Minute, Recoverability: noRetries}, func(ctx context.Context) error {
			asked++
			time.Sleep(59 * time.Second)
			return ctx.Err()
		})
		run := fx.run(ep)
		fx.enqueue("m1")
		start := time.Now()
		if err := run.stop(); err != nil {
			fx.Errorf("Run returned %v", err)
		}
		equal(fx, "time to drain", time.Since(start), 59*time.Second)
		equal(fx, "decisions", asked, 1)
		fx.wantDepth("orders", 0)
		equal(fx, "moved", fx.onlyMessage("error").ID, "m1")
		wantShipped(fx, 1)
	})
}

// Rule R27.
// A decision that could not be carried out is tried again without a slot, with
// HandleFailed in the same transaction as the move.
func TestHandleFailed_CutOffLaterRunsAgain(t *testing.T) {
	inModesWith(t, expiringLocks, allModes[2:], func(fx *fixture) {
		reachable := fx.failSendsTo("error", "orders") // so that the message cannot be stored either
		asked := 0
		ep := deciders["HandleFailed"](fx, core.Config{Recoverability: noRetries}, func(ctx context.Context) error {
			if asked++; asked == 2 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		run := fx.run(ep)
		fx.enqueue("m1")
		fx.advance(time.Minute)
		equal(fx, "runs of HandleFailed", asked, 2)
		critical := ep.Health().CriticalErrors
		start := time.Now()
		if err := run.stop(); err != nil {
			fx.Errorf("Run returned %v", err)
		}
		equal(fx, "time to stop", time.Since(start), 0)
		equal(fx, "critical errors of the stop", ep.Health().CriticalErrors-critical, 0)
		equal(fx, "delivery count", fx.onlyMessage("orders").DeliveryCount, 1)
		reachable()
		fx.run(ep)
		fx.advance(time.Hour)
		equal(fx, "moved", fx.onlyMessage("error").ID, "m1")
		fx.wantDepth("orders", 0)
		fx.wantDepth("shipping", 1)
	})
}

// It is not the transport that is late.
func TestShutdown_NamesADeciderThatHangs(t *testing.T) {
	onEachDecider(t, retryModes, func(fx *fixture, decider func(*fixture, core.Config, func(context.Context) error) *core.Endpoint) {
		release := make(chan struct{})
		ep := decider(fx, core.Config{DrainTimeout: time.Second, Recoverability: noRetries}, func(context.Context) error {
			<-release
			return nil
		})
		run := fx.run(ep)
		fx.enqueue("m1")
		err := run.stop()
		if !errors.Is(err, core.ErrHandlersRunning) || !containsAll(err.Error(), "message m1 (order)") {
			fx.Errorf("Run returned %v", err)
		}
		close(release)
	})
}
