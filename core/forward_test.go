package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// A forwarded message is the received one: not what middleware made of it, and without
// the history of its retries here.
func TestForward_KeepsTheMessage(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		rules := core.Recoverability{Immediate: core.Immediate{Off: true}, Delayed: core.Delayed{Retries: 2}, RequeueDelay: time.Second}
		changed := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				m.SetBody([]byte("changed"))
				m.Headers.Set("Sender", "changed")
				return next(ctx, m)
			}
		}
		_, running := b.orders(core.Config{Recoverability: rules, Middleware: []core.Middleware{changed}}, func(_ context.Context, m *core.Message) error {
			if m.Deferrals == 0 {
				return core.Defer(0)
			}
			if m.DelayedRetries == 0 {
				return errBoom
			}
			if out := m.Copy(); out.Queue != "" || out.Topic != "" || out.Reason != core.ReasonForward || out.ID != "m1" || string(out.Body) != "body of m1" || out.GroupKey != "g" {
				b.Errorf("the copy is %+v", out)
			}
			return m.Forward("shipping")
		})
		sent := order("m1")
		sent.GroupKey, sent.Properties = "g", map[string]string{"p": "1"}
		sent.Headers.Set(core.HeaderReplyToAddress, "elsewhere")
		sent.Headers.Set(core.HeaderRetryUniqueMessageID, "unique")
		sent.Headers.Set(core.HeaderTimeToBeReceived, "01:00:00")
		b.send(sent)
		b.pass(time.Hour)
		got := b.only("shipping")
		equal(b, "forwarded", fmt.Sprint(got.ID, " ", string(got.Body), " ", got.GroupKey, " ", got.Properties), "m1 body of m1 g map[p:1]")
		want := sent.Headers.Map()
		delete(want, core.HeaderRetryUniqueMessageID)
		delete(want, core.HeaderTimeToBeReceived)
		sameHeaders(b, "headers", got.Headers, want)
		b.must(running.stop())
	})
}

// A collected forward leaves with the handler's success alone; ForwardNow in any case.
func TestForward_LeavesAsSendsDo(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		var after *core.Message
		var seen tracer
		b.must(b.broker.Provision(b.Context(), core.Topology{Queues: []string{"at once"}}))
		b.orders(core.Config{Recoverability: noRetries, Observers: []core.Observer{seen.observer()}}, func(ctx context.Context, m *core.Message) error {
			after = m
			if err := m.Forward(""); err == nil {
				b.Error("forwarded to no queue")
			}
			b.must(errors.Join(m.Forward("shipping"), m.Forward("error"), m.ForwardNow(ctx, "at once")))
			if m.ID == "bad" {
				return errBoom
			}
			return nil
		})
		b.put("bad")
		b.holds("shipping", 0)
		b.holds("at once", 1)
		equal(b, "reasons", fmt.Sprint(seen.all()), "[forwarded copy to at once move to the error queue to error]")
		b.put("good")
		equal(b, "forwarded", b.only("shipping").ID, "good")
		b.holds("error", 2)
		b.holds("at once", 2)
		for what, err := range map[string]error{"Forward": after.Forward("shipping"), "ForwardNow": after.ForwardNow(b.Context(), "shipping")} {
			if !errors.Is(err, core.ErrHandlingEnded) {
				b.Errorf("%s after the handler returned %v", what, err)
			}
		}
	})
}
