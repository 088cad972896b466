package core_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/reprise-go/reprise/core"
)

// The handlers after one that skips them do not run, in this attempt alone.
func TestSkipRemainingHandlers_InThisAttempt(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var ran recorder[string]
		ep := fx.newEndpoint("orders", core.Config{Recoverability: immediateRetries(fx.retriesOfMode())})
		step := func(name string, skip func(m *core.Message) bool, err func(m *core.Message) error) {
			fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
				ran.add(name)
				if skip(m) {
					m.SkipRemainingHandlers()
				}
				fx.noError(m.Send("shipping", core.NewMessageType[string](name).Of("x")))
				return err(m)
			})
		}
		never := func(*core.Message) bool { return false }
		fine := func(*core.Message) error { return nil }
		step("first", never, fine)
		step("second", func(m *core.Message) bool { return m.ID == "m1" }, fine)
		step("third", never, fine)
		fx.run(ep)
		fx.enqueue("m1")
		equal(fx, "ran", fmt.Sprint(ran.all()), "[first second]")
		equal(fx, "sent", fx.shippedTypes(), "first second")
		fx.enqueue("m2")
		equal(fx, "ran for another message", fmt.Sprint(ran.all()[2:]), "[first second third]")
		fx.wantDepth("error", 0)
		fx.wantDepth("orders", 0)
	})
}

// A handler that skips the others and fails is retried as any other: the next attempt
// begins with the first handler, and skips none.
func TestSkipRemainingHandlers_FailureIsRetried(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var ran recorder[string]
		ep := fx.newEndpoint("orders", core.Config{Recoverability: immediateRetries(1), Middleware: []core.Middleware{retryMiddleware(1)}})
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			ran.add("first")
			if m.Attempt == 1 {
				m.SkipRemainingHandlers()
				return errBoom
			}
			return nil
		})
		fx.handle(ep, "order", func(context.Context, *core.Message) error { ran.add("second"); return nil })
		fx.run(ep)
		fx.enqueue("m1")
		equal(fx, "ran", fmt.Sprint(ran.all()), "[first first second]")
	})
}

func (fx *fixture) retriesOfMode() int {
	if fx.mode == core.TransactionNone {
		return 0
	}
	return 1
}
