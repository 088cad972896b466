package asb_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/transport/asb"
)

// An identity without the right to send to the queues that an operator's tool and the audit have.
func TestEngineSends_ForbiddenOnesDoNotDecide(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.provisioned(t, asb.Config{}, "q", "error", "shop", "acks", "audit")
	const n = 20
	runs := make(chan string, 10*n)
	ep := runConfigured(t, transport, core.Config{
		RetryAckQueues: []string{"acks"}, AuditQueue: "audit",
		Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 2}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
	}, func(m *core.Message) error {
		runs <- m.ID
		return m.Send("shop", core.NewMessageType[string]("ship").Of(m.ID))
	})
	select {
	case <-ep.Ready():
	case <-time.After(patience):
		t.Fatal("the endpoint is not ready")
	}
	for _, queue := range []string{"acks", "audit"} {
		s.Inject(sbserver.Fault{
			Ops: []sbserver.Op{sbserver.OpAttachSender}, Entity: queue, Times: -1, Action: sbserver.Refuse,
			Error: &amqp10.Error{Condition: amqp10.ErrUnauthorizedAccess, Description: "Unauthorized access. 'Send' claim(s) are required."},
		})
	}
	s.CutConnections() // the check of the audit queue has attached a sender
	sender := s.open(t, asb.Config{})
	for i := range n {
		out := core.Outgoing{ID: fmt.Sprint(i), Queue: "q", Body: []byte("body")}
		for key, value := range map[string]string{headers.MessageTypes: "job", headers.RetryAckQueue: "acks", headers.RetryUniqueMessageID: "unique " + out.ID} {
			out.Headers.Set(key, value)
		}
		if err := sender.Send(t.Context(), out); err != nil {
			t.Fatal(err)
		}
	}
	await(t, "the handlers' messages are sent", func() bool { return s.length(t, "shop") >= n })
	if got := s.length(t, "shop"); got != n || s.length(t, "error") > 0 {
		t.Errorf("of %d handlers' messages %d were sent, and %d messages are in the error queue", n, got, s.length(t, "error"))
	}
	for _, queue := range []string{"acks", "audit"} {
		if got := s.length(t, queue); got > 0 {
			t.Errorf("%s has %d messages without the right to send there", queue, got)
		}
	}
	if len(runs) != n {
		t.Errorf("%d messages were handled %d times", n, len(runs))
	}
}
