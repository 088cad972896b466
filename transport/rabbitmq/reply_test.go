package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// directReplies is where a client consumes replies from, and what it names in requests.
const directReplies = "amq.rabbitmq.reply-to"

// answering runs an endpoint that answers requests with their number, and fails at once
// otherwise.
func answering(t *testing.T, s *site) *rabbitmq.Transport {
	t.Helper()
	return answeringIn(t, s, rabbitmq.Config{})
}

// answeringIn is answering on a transport with a configuration.
func answeringIn(t *testing.T, s *site, cfg rabbitmq.Config) *rabbitmq.Transport {
	t.Helper()
	transport := s.provisioned(t, cfg, "billing", "error")
	ep, err := core.New("billing", transport, core.Config{
		Logger:         slog.New(slog.DiscardHandler),
		Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
	})
	if err != nil {
		t.Fatal(err)
	}
	core.Handle(ep, askedType, func(_ context.Context, m *core.Message, body order) error {
		return m.Reply(answeredType.Of(order{body.Number}))
	})
	runs(t, ep)
	return transport
}

func ask(t *testing.T, ch *amqp.Channel, replyTo, body string) {
	t.Helper()
	if err := ch.PublishWithContext(t.Context(), "", "billing", true, false, amqp.Publishing{
		Type: "orders.asked", ContentType: "application/json", MessageId: "m-1", CorrelationId: "c-1", ReplyTo: replyTo, Body: []byte(body),
	}); err != nil {
		t.Fatal(err)
	}
}

func TestDirectReplyTo(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		answering(t, s)
		ch := s.channel(t)
		replies, err := ch.Consume(directReplies, "", true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		ask(t, ch, directReplies, `{"Number":42}`)
		select {
		case reply := <-replies:
			if string(reply.Body) != `{"Number":42}` || reply.CorrelationId != "c-1" || reply.Type != "orders.answered" || reply.ContentType != "application/json" {
				t.Errorf("the reply is %s, correlation %q, type %q, content type %q", reply.Body, reply.CorrelationId, reply.Type, reply.ContentType)
			}
		case <-time.After(patience):
			t.Fatalf("there is no reply; in the error queue are %v", s.take(t, "error"))
		}
		awaitTrue(t, "the request is handled", func() bool { ready, unacked := s.depth(t, "billing"); return ready+unacked == 0 })
	})
}

// A reply to a client that has left, or never existed, is dropped, as the broker does when
// the client leaves later, and the request is handled.
func TestDirectReplyTo_ClientIsGone(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		ch := s.channel(t)
		if _, err := ch.QueueDeclare("addresses", false, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		client := s.channel(t)
		if _, err := client.Consume(directReplies, "", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		if err := client.PublishWithContext(t.Context(), "", "addresses", true, false, amqp.Publishing{ReplyTo: directReplies}); err != nil {
			t.Fatal(err)
		}
		var address string
		awaitTrue(t, "the broker names the client", func() bool {
			m, ok, err := ch.Get("addresses", true)
			if err != nil {
				t.Fatal(err)
			}
			address = m.ReplyTo
			return ok
		})
		if !strings.HasPrefix(address, directReplies+".") {
			t.Fatalf("the client's address is %q", address)
		}
		if err := client.Close(); err != nil {
			t.Fatal(err)
		}
		transport := answering(t, s)
		for _, to := range []string{address, address + "x", directReplies + ".", directReplies + ".garbage"} {
			ask(t, ch, to, `{"Number":1}`)
			awaitTrue(t, "the request is handled", func() bool { ready, unacked := s.depth(t, "billing"); return ready+unacked == 0 })
			if failed := s.take(t, "error"); len(failed) > 0 {
				t.Errorf("%s: the request is in the error queue", to)
			}
		}
		if err := transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: address, Delay: time.Second}); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Send of a delayed reply = %v, want ErrUnsupported", err)
		}
	})
}

// An address at which a broker fails is the failure of its request alone: the broker ends
// the connection that the reply was sent on.
func TestDirectReplyTo_ForgedAddress(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := answering(t, s)
		provision(t, transport, "shop")
		ch := s.channel(t)
		const n = 20
		want := map[string]int{}
		for i := range n {
			body := fmt.Sprintf(`{"Number":%d}`, i)
			ask(t, ch, directReplies+".%%%.x", body)
			want[body] = 1
		}
		failed := map[string]int{}
		awaitTrue(t, "all requests are in the error queue", func() bool {
			for i := range 10 {
				if err := transport.Send(t.Context(), numbered("shop", i, 1)...); err != nil {
					t.Fatalf("Send beside it: %v", err)
				}
			}
			maps.Copy(failed, s.take(t, "error"))
			return len(failed) == n
		})
		if !maps.Equal(failed, want) {
			t.Errorf("these are in the error queue: %v", failed)
		}
	})
}

// The broker replaces this address in requests, and refuses it in messages from others.
// Such a message can be sent, and so moved to the error queue.
func TestDirectReplyTo_PseudoQueueInHeader(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		answering(t, s)
		if err := s.channel(t).PublishWithContext(t.Context(), "", "billing", true, false, amqp.Publishing{
			Headers: amqp.Table{"NServiceBus.ReplyToAddress": directReplies}, Type: "orders.asked", ContentType: "application/json", Body: []byte(`{"Number":1}`),
		}); err != nil {
			t.Fatal(err)
		}
		var failed amqp.Delivery
		ch := s.channel(t)
		awaitTrue(t, "the request is in the error queue", func() bool {
			m, ok, err := ch.Get("error", true)
			if err != nil {
				t.Fatal(err)
			}
			failed = m
			return ok
		})
		if got := failed.Headers["NServiceBus.ReplyToAddress"]; got != directReplies {
			t.Errorf("its reply address is %q", got)
		}
	})
}

// A client may let the broker name the queue for its replies, in any topology.
func TestReply_ToQueueNamedByTheBroker(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		for _, topology := range []rabbitmq.RoutingTopology{rabbitmq.Conventional, rabbitmq.Direct, rabbitmq.NServiceBus} {
			t.Run(topology.String(), func(t *testing.T) {
				s := newSite(t, s.Server)
				transport := answeringIn(t, s, rabbitmq.Config{Topology: topology, UnverifiedDeliveryLimit: true})
				ch := s.channel(t)
				queue, err := ch.QueueDeclare("", false, true, true, false, nil)
				if err != nil {
					t.Fatal(err)
				}
				if !strings.HasPrefix(queue.Name, "amq.gen-") {
					t.Fatalf("the broker named the queue %q", queue.Name)
				}
				replies, err := ch.Consume(queue.Name, "", true, true, false, false, nil)
				if err != nil {
					t.Fatal(err)
				}
				ask(t, ch, queue.Name, `{"Number":42}`)
				select {
				case reply := <-replies:
					if string(reply.Body) != `{"Number":42}` || reply.CorrelationId != "c-1" {
						t.Errorf("the reply is %s, correlation %q", reply.Body, reply.CorrelationId)
					}
				case <-time.After(patience):
					t.Fatalf("there is no reply; in the error queue are %v", s.take(t, "error"))
				}
				if err := transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: queue.Name, Delay: time.Second}); !errors.Is(err, errors.ErrUnsupported) {
					t.Errorf("Send of a delayed reply = %v, want ErrUnsupported", err)
				}
			})
		}
	})
}

// A queue that the broker named ends with its client: a reply to it is one to a queue that
// does not exist.
func TestReply_ToQueueNamedByTheBroker_ClientIsGone(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		transport := answering(t, s)
		client := s.channel(t)
		queue, err := client.QueueDeclare("", false, true, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.QueueDelete(queue.Name, false, false, false); err != nil {
			t.Fatal(err)
		}
		if err := transport.Send(t.Context(), core.Outgoing{ID: "1", Queue: queue.Name}); !errors.Is(err, core.ErrQueueNotFound) {
			t.Errorf("Send = %v, want ErrQueueNotFound", err)
		}
		ask(t, s.channel(t), queue.Name, `{"Number":1}`)
		awaitTrue(t, "the request is in the error queue", func() bool { return len(s.take(t, "error")) == 1 })
	})
}
