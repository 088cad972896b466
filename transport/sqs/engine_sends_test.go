package sqs_test

import (
	"fmt"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

// A role without the right to send to the queues that an operator's tool and the audit have.
func TestEngineSends_ForbiddenOnesDoNotDecide(t *testing.T) {
	t.Parallel()
	for _, mode := range []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			s := startSite(t, testserver.Config{})
			transport := s.provisioned(t, sqs.Config{}, "billing", "error", "shop", "acks", "audit")
			for _, queue := range []string{"acks", "audit"} {
				s.Reject(testserver.Match{Operation: "SendMessageBatch", Name: queue, Times: -1}, testserver.AccessDenied)
			}
			retries := 2
			if mode == core.TransactionNone {
				retries = core.Off
			}
			const n = 20
			runs := make(chan string, 10*n)
			runMessages(t, transport, "billing", core.Config{
				Transactions: mode, RetryAckQueues: []string{"acks"}, AuditQueue: "audit",
				Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: retries}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
			}, func(m *core.Message) error {
				runs <- m.ID
				return m.Send("shop", core.NewMessageType[string]("ship").Of(m.ID))
			})
			for i := range n {
				id := fmt.Sprint(i)
				out := core.Outgoing{ID: id, Queue: "billing", Body: []byte("body"), Headers: headersOf(
					headers.MessageID, id, headers.MessageTypes, "job", headers.RetryAckQueue, "acks", headers.RetryUniqueMessageID, "unique "+id,
				)}
				if err := transport.Send(t.Context(), out); err != nil {
					t.Fatal(err)
				}
			}
			for range n {
				s.get(t, "shop")
			}
			for _, queue := range []string{"shop", "error"} {
				if c := s.contents(t, queue); len(c.Ready)+len(c.InFlight) > 0 {
					t.Errorf("%s has %v", queue, c)
				}
			}
			if len(runs) != n {
				t.Errorf("%d messages were handled %d times", n, len(runs))
			}
		})
	}
}
