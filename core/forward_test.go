package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/messagekit"
)

// A forwarded message is the received one: not the one that middleware changed, and without
// the history of its retries here.
func TestForward_KeepsTheMessage(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		rules := core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 2}, RequeueDelay: time.Second}
		changed := func(next core.HandlerFunc) core.HandlerFunc {
			return func(ctx context.Context, m *core.Message) error {
				m.SetBody([]byte("changed"))
				m.Headers.Set("Sender", "changed")
				return next(ctx, m)
			}
		}
		_, running := fx.runOrders(core.Config{Recoverability: rules, Middleware: []core.Middleware{core.MiddlewareFunc(changed)}}, func(_ context.Context, m *core.Message) error {
			if m.Deferrals == 0 {
				return core.Defer(errors.New("not yet"), 0)
			}
			if m.DelayedRetries == 0 {
				return errBoom
			}
			if out := messagekit.Copy(m); out.Queue != "" || out.Topic != "" || out.Reason != core.ReasonForward || out.ID != "m1" || string(out.Body) != "body of m1" || out.GroupKey != "g" {
				fx.Errorf("the copy is %+v", out)
			}
			return m.Forward("shipping")
		})
		sent := order("m1")
		sent.GroupKey, sent.Properties = "g", map[string]string{"p": "1"}
		sent.Headers.Set(headers.ReplyToAddress, "elsewhere")
		sent.Headers.Set(headers.RetryUniqueMessageID, "unique")
		sent.Headers.Set(headers.TimeToBeReceived, "01:00:00")
		fx.send(sent)
		fx.advance(time.Hour)
		got := fx.onlyMessage("shipping")
		equal(fx, "forwarded", fmt.Sprint(got.ID, " ", string(got.Body), " ", got.GroupKey, " ", got.Properties), "m1 body of m1 g map[p:1]")
		want := sent.Headers.Map()
		delete(want, headers.RetryUniqueMessageID)
		equalHeaders(fx, "headers", got.Headers, want)
		fx.noError(running.stop())
	})
}

// A collected forward leaves with the handler's success alone; ForwardNow in any case.
func TestForward_LeavesAsSendsDo(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var after *core.Message
		var seen tracer
		fx.noError(fx.broker.Provision(fx.Context(), core.Topology{Queues: []string{"at once"}}))
		fx.runOrders(core.Config{Recoverability: noRetries, Observers: []core.Observer{seen.observer()}}, func(ctx context.Context, m *core.Message) error {
			after = m
			if err := m.Forward(""); err == nil {
				fx.Error("forwarded to no queue")
			}
			fx.noError(errors.Join(m.Forward("shipping"), m.Forward("error"), m.ForwardNow(ctx, "at once")))
			if m.ID == "bad" {
				return errBoom
			}
			return nil
		})
		fx.enqueue("bad")
		fx.wantDepth("shipping", 0)
		fx.wantDepth("at once", 1)
		equal(fx, "reasons", fmt.Sprint(seen.all()), "[forwarded copy to at once move to the error queue to error]")
		fx.enqueue("good")
		equal(fx, "forwarded", fx.onlyMessage("shipping").ID, "good")
		fx.wantDepth("error", 2)
		fx.wantDepth("at once", 2)
		for name, err := range map[string]error{"Forward": after.Forward("shipping"), "ForwardNow": after.ForwardNow(fx.Context(), "shipping")} {
			if !errors.Is(err, core.ErrHandlingEnded) {
				fx.Errorf("%s after the handler returned %v", name, err)
			}
		}
	})
}
