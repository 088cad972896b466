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
var deciders = map[string]func(b *bed, c core.Config, before func(ctx context.Context) error) *core.Endpoint{
	"policy": func(b *bed, c core.Config, before func(context.Context) error) *core.Endpoint {
		c.Recoverability.Policy = func(ctx context.Context, config core.RecoverabilityConfig, f core.ErrorContext) core.Action {
			work(ctx, "policy")
			if before(ctx) != nil {
				return core.Action{}
			}
			return core.DefaultPolicy(ctx, config, f)
		}
		ep := b.endpoint("orders", c)
		b.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		return ep
	},
	"HandleFailed": func(b *bed, c core.Config, before func(context.Context) error) *core.Endpoint {
		ep := b.endpoint("orders", c)
		b.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		core.HandleFailed(ep, "order", func(ctx context.Context, m *core.TypedMessage[[]byte], _ *core.Failed) error {
			work(ctx, "HandleFailed")
			return errors.Join(m.Send("shipping", "sorry", "x"), before(ctx))
		})
		return ep
	},
}

// improper is how a decider that is cut off gives no proper answer.
var improper = map[string]func(ctx context.Context) error{
	"context's error": func(ctx context.Context) error { return ctx.Err() },
	"panic":           func(ctx context.Context) error { panic(ctx.Err()) },
}

func eachDecider(t *testing.T, modes []core.TransactionMode, body func(b *bed, decider func(*bed, core.Config, func(context.Context) error) *core.Endpoint)) {
	t.Helper()
	for name, decider := range deciders {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, locking, modes, func(b *bed) { body(b, decider) })
		})
	}
}

// shipped is what HandleFailed sends with its move.
func shipped(b *bed, want int) {
	b.Helper()
	if containsAll(b.Name(), "HandleFailed") {
		b.holds("shipping", want)
	}
}

func TestR27_CutOffDecisionIsRepeated(t *testing.T) {
	for name, answer := range improper {
		t.Run(name, func(t *testing.T) {
			eachDecider(t, retrying, func(b *bed, decider func(*bed, core.Config, func(context.Context) error) *core.Endpoint) {
				var causes, criticals record[error]
				asked := 0
				ep := decider(b, core.Config{
					DrainTimeout: 7 * time.Second, Recoverability: noRetries,
					OnCriticalError: func(_ context.Context, err error) { criticals.add(err) },
				}, func(ctx context.Context) error {
					if asked++; asked > 1 {
						return nil
					}
					<-ctx.Done()
					causes.add(context.Cause(ctx))
					return answer(ctx)
				})
				run := b.run(ep)
				b.put("m1")
				start := time.Now()
				if err := run.stop(); err != nil {
					b.Errorf("Run returned %v", err)
				}
				equal(b, "time to drain", time.Since(start), 7*time.Second)
				if got := causes.all(); len(got) != 1 || !errors.Is(got[0], core.ErrShutdown) {
					b.Errorf("causes %v, want ErrShutdown", got)
				}
				equal(b, "releases", b.broker.settledAs("Release", "m1"), 1)
				left := b.only("orders")
				equal(b, "delivery count", left.DeliveryCount, 1)
				equal(b, "last error", left.LastError, "")
				b.holds("error", 0)
				b.holds("shipping", 0)
				equal(b, "work committed", b.broker.committed.len(), 0)
				lines := b.logs.about("before the failure of message 'm1' was decided")
				if len(lines) != 1 || lines[0].level != slog.LevelInfo || lines[0].attrs["cause"] == nil {
					b.Errorf("logged %+v", lines)
				}
				for _, line := range b.logs.all() {
					if line.level > slog.LevelInfo {
						b.Errorf("logged %+v", line)
					}
				}

				b.run(ep)
				equal(b, "decisions", asked, 2)
				b.holds("orders", 0)
				equal(b, "moved", b.only("error").ID, "m1")
				shipped(b, 1)
				equal(b, "critical errors", criticals.len(), 0)
			})
		})
	}
}

// What the decider says counts, whatever happened to its context.
func TestR27_DecisionAfterTheCutOffHolds(t *testing.T) {
	eachDecider(t, everyMode, func(b *bed, decider func(*bed, core.Config, func(context.Context) error) *core.Endpoint) {
		ep := decider(b, core.Config{DrainTimeout: time.Second, Recoverability: noRetries}, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
		run := b.run(ep)
		b.put("m1")
		if err := run.stop(); err != nil {
			b.Errorf("Run returned %v", err)
		}
		b.holds("orders", 0)
		equal(b, "moved", b.only("error").ID, "m1")
		shipped(b, 1)
	})
}

// A message that cannot be given back is moved.
func TestR27_InNoneAnUndecidedFailureIsMoved(t *testing.T) {
	for name, answer := range improper {
		t.Run(name, func(t *testing.T) {
			eachDecider(t, everyMode[:1], func(b *bed, decider func(*bed, core.Config, func(context.Context) error) *core.Endpoint) {
				ep := decider(b, core.Config{DrainTimeout: time.Second, Recoverability: noRetries}, func(ctx context.Context) error {
					<-ctx.Done()
					return answer(ctx)
				})
				run := b.run(ep)
				b.put("m1")
				if err := run.stop(); err != nil {
					b.Errorf("Run returned %v", err)
				}
				equal(b, "moved", b.only("error").ID, "m1")
				b.holds("shipping", 0)
			})
		})
	}
}

func TestR27_DeciderThatReturnsInTimeIsNotCutOff(t *testing.T) {
	eachDecider(t, everyMode, func(b *bed, decider func(*bed, core.Config, func(context.Context) error) *core.Endpoint) {
		asked := 0
		ep := decider(b, core.Config{DrainTimeout: time.Minute, Recoverability: noRetries}, func(ctx context.Context) error {
			asked++
			time.Sleep(59 * time.Second)
			return ctx.Err()
		})
		run := b.run(ep)
		b.put("m1")
		start := time.Now()
		if err := run.stop(); err != nil {
			b.Errorf("Run returned %v", err)
		}
		equal(b, "time to drain", time.Since(start), 59*time.Second)
		equal(b, "decisions", asked, 1)
		b.holds("orders", 0)
		equal(b, "moved", b.only("error").ID, "m1")
		shipped(b, 1)
	})
}

// A decision that could not be carried out is tried again without a slot, with
// HandleFailed in the same transaction as the move.
func TestR27_HandleFailedCutOffLaterRunsAgain(t *testing.T) {
	inModesOn(t, locking, everyMode[2:], func(b *bed) {
		reachable := b.unreachable("error", "orders") // so that the message cannot be stored either
		asked := 0
		ep := deciders["HandleFailed"](b, core.Config{Recoverability: noRetries}, func(ctx context.Context) error {
			if asked++; asked == 2 {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		run := b.run(ep)
		b.put("m1")
		b.pass(time.Minute)
		equal(b, "runs of HandleFailed", asked, 2)
		critical := ep.Health().CriticalErrors
		start := time.Now()
		if err := run.stop(); err != nil {
			b.Errorf("Run returned %v", err)
		}
		equal(b, "time to stop", time.Since(start), 0)
		equal(b, "critical errors of the stop", ep.Health().CriticalErrors-critical, 0)
		equal(b, "delivery count", b.only("orders").DeliveryCount, 1)
		reachable()
		b.run(ep)
		b.pass(time.Hour)
		equal(b, "moved", b.only("error").ID, "m1")
		b.holds("orders", 0)
		b.holds("shipping", 1)
	})
}

// It is not the transport that is late.
func TestShutdown_NamesADeciderThatHangs(t *testing.T) {
	eachDecider(t, retrying, func(b *bed, decider func(*bed, core.Config, func(context.Context) error) *core.Endpoint) {
		release := make(chan struct{})
		ep := decider(b, core.Config{DrainTimeout: time.Second, Recoverability: noRetries}, func(context.Context) error {
			<-release
			return nil
		})
		run := b.run(ep)
		b.put("m1")
		err := run.stop()
		if !errors.Is(err, core.ErrHandlersRunning) || !containsAll(err.Error(), "message m1 (order)") {
			b.Errorf("Run returned %v", err)
		}
		close(release)
	})
}
