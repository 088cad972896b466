package sqs_test

import (
	"testing"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/sqs"
	"github.com/reprise-go/reprise/transport/sqs"
)

func TestSend_DeduplicationIDIsOfApplicationsAlone(t *testing.T) {
	t.Parallel()
	s := startSite(t, testserver.Config{})
	transport := s.provisioned(t, sqs.Config{}, "orders.fifo")
	for _, reason := range []core.SendReason{
		core.ReasonApplication, core.ReasonApplication, core.ReasonDelayedRetry, core.ReasonDelayedRetry, core.ReasonMoveToError, core.ReasonForward, core.ReasonReturn,
	} {
		out := core.Outgoing{ID: "the same", Queue: "orders.fifo", Reason: reason, Properties: map[string]string{sqs.PropertyDeduplicationID: "payment-4711"}}
		if err := transport.Send(t.Context(), out); err != nil {
			t.Fatal(err)
		}
	}
	if c := s.contents(t, "orders.fifo"); len(c.Ready) != 6 {
		t.Errorf("of two sends and five copies of a message the queue has %d, want 6", len(c.Ready))
	}
}
