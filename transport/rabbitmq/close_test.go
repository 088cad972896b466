package rabbitmq_test

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// Also where an open delivery with a lower tag keeps acknowledgements from being combined.
func TestClose_KeepsSettlements(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		const messages = 200
		transport := s.provisioned(t, rabbitmq.Config{}, "orders")
		mustSend(t, transport, numbered("orders", 0, messages)...)
		r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "orders", Mode: core.TransactionReceiveOnly, MaxInFlight: messages})
		if err != nil {
			t.Fatal(err)
		}
		var all []core.Delivery
		for len(all) < messages {
			all = append(all, next(t, r, messages)...)
		}
		for _, d := range all[1:] {
			if err := d.Complete(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		ch := s.channel(t)
		if err := ch.Confirm(false); err != nil {
			t.Fatal(err)
		}
		last, err := ch.PublishWithDeferredConfirm("", "orders", false, false, amqp.Publishing{})
		if err != nil {
			t.Fatal(err)
		}
		last.Wait() // comes after the messages that went back when the channel was closed
		if ready, _ := s.depth(t, "orders"); ready != 2 {
			t.Errorf("%d messages are in the queue, want the one that was not settled and the last one", ready)
		}
	})
}
