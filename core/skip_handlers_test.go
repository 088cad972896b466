package core_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/reprise-go/reprise/core"
)

// The handlers after one that skips them do not run, in this attempt alone.
func TestSkipRemainingHandlers_InThisAttempt(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		var ran record[string]
		ep := b.endpoint("orders", core.Config{Recoverability: immediate(b.retries())})
		step := func(name string, skip func(m *core.Message) bool, err func(m *core.Message) error) {
			b.handle(ep, "order", func(_ context.Context, m *core.Message) error {
				ran.add(name)
				if skip(m) {
					m.SkipRemainingHandlers()
				}
				b.must(m.Send("shipping", name, "x"))
				return err(m)
			})
		}
		never := func(*core.Message) bool { return false }
		fine := func(*core.Message) error { return nil }
		step("first", never, fine)
		step("second", func(m *core.Message) bool { return m.ID == "m1" }, fine)
		step("third", never, fine)
		b.run(ep)
		b.put("m1")
		equal(b, "ran", fmt.Sprint(ran.all()), "[first second]")
		equal(b, "sent", b.shipped(), "first second")
		b.put("m2")
		equal(b, "ran for another message", fmt.Sprint(ran.all()[2:]), "[first second third]")
		b.holds("error", 0)
		b.holds("orders", 0)
	})
}

// A handler that skips the others and fails is retried as any other: the next attempt
// begins with the first handler, and skips none.
func TestSkipRemainingHandlers_FailureIsRetried(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var ran record[string]
		ep := b.endpoint("orders", core.Config{Recoverability: immediate(1), Middleware: []core.Middleware{tries(1)}})
		b.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			ran.add("first")
			if m.Attempt == 1 {
				m.SkipRemainingHandlers()
				return errBoom
			}
			return nil
		})
		b.handle(ep, "order", func(context.Context, *core.Message) error { ran.add("second"); return nil })
		b.run(ep)
		b.put("m1")
		equal(b, "ran", fmt.Sprint(ran.all()), "[first first second]")
	})
}

func (b *bed) retries() int {
	if b.mode == core.TransactionNone {
		return 0
	}
	return 1
}
