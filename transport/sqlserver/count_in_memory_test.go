package sqlserver_test

import (
	"errors"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// TestCount_InMemoryIsForgottenWithTheMessage looks into the log of failures of a queue
// whose table has no column for them.
func TestCount_InMemoryIsForgottenWithTheMessage(t *testing.T) {
	t.Parallel()
	transport := open(t, sqlserver.Config{URL: server.PasswordURL(server.NewDatabase(t)), NServiceBusTables: true})
	provision(t, transport, "orders", "billing")
	for name, c := range map[string]struct {
		mode   core.TransactionMode
		settle func(d core.Delivery) error
	}{
		"Complete":     {core.TransactionReceiveOnly, func(d core.Delivery) error { return d.Complete(t.Context()) }},
		"CompleteWith": {core.TransactionSendsAtomicWithReceive, func(d core.Delivery) error { return d.CompleteWith(t.Context(), nil) }},
		"ReplaceWith": {core.TransactionSendsAtomicWithReceive, func(d core.Delivery) error {
			return d.ReplaceWith(t.Context(), []core.Outgoing{{ID: "moved", Queue: "billing"}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "orders", Mode: c.mode, MaxInFlight: 1})
			if err != nil {
				t.Fatal(err)
			}
			if err := transport.Send(t.Context(), message("fails once")); err != nil {
				t.Fatal(err)
			}
			dst := make([]core.Delivery, 1)
			for delivery := 1; delivery <= 2; delivery++ {
				if _, err := r.Receive(t.Context(), dst); err != nil {
					t.Fatal(err)
				}
				if n := dst[0].Incoming().DeliveryCount; n != delivery {
					t.Fatalf("DeliveryCount is %d, want %d", n, delivery)
				}
				if delivery == 1 {
					err = dst[0].Abandon(t.Context(), errors.New("no"))
				} else {
					err = c.settle(dst[0])
				}
				if err != nil {
					t.Fatal(err)
				}
				if n, want := sqlserver.Failures(r), 2-delivery; n != want {
					t.Errorf("the log has %d entries after delivery %d, want %d", n, delivery, want)
				}
			}
			if err := r.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
