package rabbitmq_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// The broker closes the channel after a send that it does not allow, on which the messages of
// handlers are sent too; a queue that is full refuses one message.
func TestEngineSends_RefusedOnesDoNotDecide(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		admin := s.provisioned(t, s.beside(t), "billing", "error", "shop", "acks", "audit", "other")
		s.queue(t, "full", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 100000, "x-max-length": 1, "x-overflow": "reject-publish"})
		awaitTrue(t, "the queue is full", func() bool { return admin.Send(t.Context(), numbered("full", 1, 1)...) != nil })

		restricted := s.beside(t)
		restricted.URLs = []string{s.user(t, "restricted", ".*", "^(?!(acks|audit)$).*", ".*")}
		for name, c := range map[string]struct {
			transport              *rabbitmq.Transport
			queue, ackQueue, audit string
		}{
			"forbidden": {s.open(t, restricted), "billing", "acks", ""},
			"both":      {s.open(t, restricted), "other", "acks", "audit"},
			"full":      {admin, "billing", "full", ""},
		} {
			t.Run(name, func(t *testing.T) {
				var handled atomic.Int64
				ep, err := core.New(c.queue, c.transport, core.Config{
					Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Provision: core.ProvisionNever,
					RetryAckQueues: []string{c.ackQueue}, AuditQueue: c.audit,
					Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 2}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
				})
				if err != nil {
					t.Fatal(err)
				}
				core.Handle(ep, placedType, func(_ context.Context, m *core.Message, _ order) error {
					handled.Add(1)
					return m.Send("shop", placedType.Of(order{}))
				})
				runs(t, ep)
				const n = 20
				for range n {
					mustSend(t, admin, returned(c.queue, c.ackQueue))
				}
				s.awaits(t, "shop", n)
				if c.audit == "" { // else copies wait in the endpoint's queue
					awaitTrue(t, "all messages are consumed", func() bool { ready, unacked := s.depth(t, c.queue); return ready+unacked == 0 })
				}
				if got := handled.Load(); got != n {
					t.Errorf("%d messages were handled %d times", n, got)
				}
				for _, queue := range []string{"shop", "error"} {
					if left := s.take(t, queue); len(left) != 0 {
						t.Errorf("%s has %v", queue, left)
					}
				}
			})
		}
	})
}

// returned is a message that an operator's tool returned.
func returned(queue, ackQueue string) core.Outgoing {
	out := core.Outgoing{ID: "returned", Queue: queue, Body: []byte("{}")}
	for key, value := range map[string]string{
		headers.MessageTypes: placedType.Name(), headers.ContentType: "application/json", headers.RetryAckQueue: ackQueue, headers.RetryUniqueMessageID: "unique",
	} {
		out.Headers.Set(key, value)
	}
	return out
}

// Each try to move a failed message closes its channel, and so does a reply to the address that a
// sender has forged. The messages of other handlers are sent once.
func TestSend_ForbiddenExchangeAffectsNoOthers(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		admin := s.provisioned(t, s.beside(t), "moves", "replies", "error", "others", "shop")
		restricted := s.beside(t)
		restricted.URLs = []string{s.user(t, "restricted", ".*", "^(?!(error|others)$).*", ".*")}
		for queue, fail := range map[string]func(m *core.Message) error{
			"moves":   func(*core.Message) error { return errors.New("it is bad") },
			"replies": func(m *core.Message) error { return m.Reply(placedType.Of(order{})) },
		} {
			t.Run(queue, func(t *testing.T) {
				var bad, good atomic.Int64
				ep, err := core.New(queue, s.open(t, restricted), core.Config{
					Logger: slog.New(slog.DiscardHandler), Provision: core.ProvisionNever, Concurrency: 20,
					Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
				})
				if err != nil {
					t.Fatal(err)
				}
				core.Handle(ep, placedType, func(_ context.Context, m *core.Message, _ order) error {
					if m.ID == "bad" {
						bad.Add(1)
						return fail(m)
					}
					good.Add(1)
					return m.Send("shop", placedType.Of(order{}))
				})
				runs(t, ep)
				const n, ofBad = 200, 10
				for i := range n {
					out := returned(queue, "")
					out.Headers.Set(headers.ReplyToAddress, "others")
					if i%(n/ofBad) == 0 {
						out.ID = "bad"
					}
					mustSend(t, admin, out)
				}
				s.awaits(t, "shop", n-ofBad)
				if got := good.Load(); got != n-ofBad {
					t.Errorf("%d messages were handled %d times", n-ofBad, got)
				}
				awaitTrue(t, "the others are handled too", func() bool { return bad.Load() >= ofBad })
				s.take(t, "shop")
			})
		}
	})
}
