package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// tracer gives each message that the application sends a separate trace, and notes
// why messages were sent.
type tracer struct{ recorder[string] }

func (tr *tracer) SendStart(ctx context.Context, e core.Sending) context.Context {
	for i := range e.Messages {
		m := &e.Messages[i]
		tr.add(fmt.Sprint(m.Reason, " to ", m.Queue))
		if m.Reason == core.ReasonApplication {
			m.Headers.Set("traceparent", "of "+m.ID)
		}
	}
	return ctx
}

func (tr *tracer) observer() core.Observer { return core.Observer{SendStart: tr.SendStart} }

// TestSendReason_TellsCopiesFromSends also shows that an observer can keep the
// trace context of a message's creation.
func TestSendReason_TellsCopiesFromSends(t *testing.T) {
	for name, c := range map[string]struct {
		outcome func(m *core.Message) error
		want    []string
		in      string // the queue that has the copy at the end
	}{
		"handled": {
			func(m *core.Message) error { return m.Send("shipping", shipType.Of("x")) },
			[]string{"send to shipping", "acknowledgement to acks", "audit copy to audit"}, "audit",
		},
		"retried, then moved": {
			func(*core.Message) error { return errBoom },
			[]string{"delayed retry to orders", "move to the error queue to error"}, "error",
		},
		"deferred, then moved": {
			func(m *core.Message) error {
				if m.Deferrals == 0 {
					return core.Defer(errors.New("not yet"), time.Minute)
				}
				return core.GiveUp(errBoom)
			},
			[]string{"deferral to orders", "move to the error queue to error"}, "error",
		},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				var seen tracer
				if err := fx.broker.Provision(fx.Context(), core.Topology{Queues: []string{"audit", "acks"}}); err != nil {
					fx.Fatal(err)
				}
				rules := core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 1}}
				fx.runOrders(core.Config{Observers: []core.Observer{seen.observer()}, AuditQueue: "audit", RetryAckQueues: []string{"acks"}, Recoverability: rules}, func(_ context.Context, m *core.Message) error {
					return c.outcome(m)
				})
				m := order("m1")
				m.Headers.Set("traceparent", "of its creation")
				if c.in == "audit" {
					m.Headers.Set(headers.RetryAckQueue, "acks")
					m.Headers.Set(headers.RetryUniqueMessageID, "campaign")
				}
				fx.send(m)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				equal(fx, "reasons", fmt.Sprint(seen.all()), fmt.Sprint(c.want))
				equal(fx, "trace of the copy", fx.onlyMessage(c.in).Headers.Get("traceparent"), "of its creation")
			})
		})
	}
}

func TestSendReason_String(t *testing.T) {
	for reason := core.ReasonApplication; reason <= core.ReasonReturn; reason++ {
		if text := reason.String(); text == "" || text == fmt.Sprintf("SendReason(%d)", int(reason)) {
			t.Errorf("reason %d is called %q", int(reason), text)
		}
	}
	if text := core.SendReason(-1).String(); text != "SendReason(-1)" {
		t.Errorf("-1 is called %q", text)
	}
}
