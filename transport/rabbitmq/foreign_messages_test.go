package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// order is a message of foreign publishers.
type order struct{ Number int }

// Their type comes from their property or from Config.MessageType, and their headers are
// text.
func TestForeign_MessagesAreHandled(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{MessageType: func(queue string, d *amqp.Delivery) string {
			return "guessed." + queue + "." + d.RoutingKey
		}}, "billing", "error")
		type arrival struct {
			typ     string
			body    order
			headers core.Headers
		}
		arrivals := make(chan arrival, 10)
		ep, err := core.New("billing", transport, core.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"orders.placed", "guessed.billing.billing"} {
			core.Handle(ep, core.NewMessageType[order](name), func(_ context.Context, m *core.Message, body order) error {
				arrivals <- arrival{name, body, m.Headers}
				return nil
			})
		}
		runs(t, ep)

		at := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
		ch := s.channel(t)
		for i, message := range []amqp.Publishing{
			{Type: "orders.placed", ContentType: "application/json", MessageId: "m-1", CorrelationId: "c-1", Headers: amqp.Table{
				"nested": amqp.Table{"a": int32(1)}, "list": []any{int64(1), "two", true}, "at": at, "int": int8(-3), "float": 1.5, "bytes": []byte("raw"), "nil": nil, "x-custom": "stays",
			}},
			{ContentType: "application/json"},
		} {
			message.Body = fmt.Appendf(nil, `{"Number":%d}`, i)
			if err := ch.PublishWithContext(t.Context(), "", "billing", true, false, message); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			select {
			case a := <-arrivals:
				want := map[string]string{}
				switch a.body.Number {
				case 0:
					want = map[string]string{
						"nested": "a=1", "list": "1;two;true", "int": "-3", "float": "1.5", "bytes": "raw", "nil": "", "x-custom": "stays",
						"NServiceBus.MessageId": "m-1", "NServiceBus.CorrelationId": "c-1", "NServiceBus.ContentType": "application/json",
					}
					if text := a.headers.Get("at"); len(text) < 19 || text[:10] != "2026-03-04" {
						t.Errorf("the time in a header is %q", text)
					}
					if a.typ != "orders.placed" {
						t.Errorf("the type of a property is %q", a.typ)
					}
				case 1:
					if a.typ != "guessed.billing.billing" {
						t.Errorf("the type of Config.MessageType is %q", a.typ)
					}
				default:
					t.Errorf("this came: %+v", a)
				}
				for key, text := range want {
					if got, there := a.headers.Lookup(key); !there || got != text {
						t.Errorf("header %q is %q, want %q", key, got, text)
					}
				}
			case <-time.After(patience):
				t.Fatal("a foreign message was not handled")
			}
		}
	})
}

// They are two messages, also when one has failed before the other arrives, and when many
// fail at the same time.
func TestForeign_MessagesWithTheSameBody(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		for _, kind := range []rabbitmq.QueueType{rabbitmq.Quorum, rabbitmq.Classic} {
			queue := fmt.Sprintf("billing-%v", kind)
			transport := s.provisioned(t, rabbitmq.Config{QueueType: kind}, queue, "error-"+queue)
			ep, err := core.New(queue, transport, core.Config{
				Logger:         slog.New(slog.DiscardHandler),
				Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 50}, ErrorQueue: "error-" + queue},
			})
			if err != nil {
				t.Fatal(err)
			}
			const n = 20
			var mu sync.Mutex
			attempts, handled := 0, 0
			core.Handle(ep, placedType, func(context.Context, *core.Message, order) error {
				mu.Lock()
				defer mu.Unlock()
				if attempts++; attempts <= n {
					return errors.New("as often as there are messages")
				}
				handled++
				return nil
			})
			runs(t, ep)
			ch := s.channel(t)
			for range n {
				if err := ch.PublishWithContext(t.Context(), "", queue, true, false, amqp.Publishing{
					Type: "orders.placed", ContentType: "application/json", MessageId: "the same", Body: []byte(`{"Number":1}`),
				}); err != nil {
					t.Fatal(err)
				}
			}
			awaitTrue(t, "all are handled", func() bool { mu.Lock(); defer mu.Unlock(); return handled >= n })
			awaitTrue(t, "none is left", func() bool { ready, unacked := s.depth(t, queue); return ready+unacked == 0 })
			mu.Lock()
			if handled != n || attempts != 2*n {
				t.Errorf("%d messages with the same body in a %v queue were handled %d times in %d attempts", n, kind, handled, attempts)
			}
			mu.Unlock()
			if failed := s.take(t, "error-"+queue); len(failed) > 0 {
				t.Errorf("these are in the error queue: %v", failed)
			}
		}
	})
}

// No two of them share an identity, so each has its own attempts, and what their handlers send
// are separate messages. A redelivered one has the identity that one of the same content had.
func TestForeign_MessagesWithoutAnID(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		for _, kind := range []rabbitmq.QueueType{rabbitmq.Quorum, rabbitmq.Classic} {
			queue := fmt.Sprintf("billing-%v", kind)
			errorQueue, effects := "error-"+queue, "effects-"+queue
			transport := s.provisioned(t, rabbitmq.Config{QueueType: kind}, queue, errorQueue, effects)
			ep, err := core.New(queue, transport, core.Config{
				Logger:         slog.New(slog.DiscardHandler),
				Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 3}, Delayed: core.Delayed{NumberOfRetries: core.Off}, ErrorQueue: errorQueue},
			})
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			attempts := map[string][]int{} // by id
			core.Handle(ep, placedType, func(ctx context.Context, m *core.Message, o order) error {
				mu.Lock()
				attempts[m.ID] = append(attempts[m.ID], m.Attempt)
				mu.Unlock()
				if o.Number == 1 {
					return errors.New("out of stock")
				}
				return m.Send(effects, placedType.Of(o))
			})
			ch := s.channel(t)
			const n = 3
			for range n {
				for _, body := range []string{`{"Number":1}`, `{"Number":2}`} {
					if err := ch.PublishWithContext(t.Context(), "", queue, true, false, amqp.Publishing{Type: "orders.placed", ContentType: "application/json", Body: []byte(body)}); err != nil {
						t.Fatal(err)
					}
				}
			}
			runs(t, ep)
			for where, messages := range map[string][]amqp.Delivery{"failed": s.awaits(t, errorQueue, n), "sent": s.awaits(t, effects, n)} {
				ids := map[string]bool{}
				for _, m := range messages {
					ids[m.MessageId] = true
				}
				if len(ids) != n {
					t.Errorf("%v queue: %d messages %s have the ids %v", kind, n, where, ids)
				}
			}
			mu.Lock()
			failed := 0
			for id, numbers := range attempts {
				if len(numbers) > 1 {
					failed++
					if fmt.Sprint(numbers) != "[1 2 3 4]" {
						t.Errorf("%v queue: the attempts of %s are %v, want 1 to 4", kind, id, numbers)
					}
				}
			}
			if failed != n || len(attempts) != 2*n {
				t.Errorf("%v queue: %d of %d messages failed, want %d of %d", kind, failed, len(attempts), n, 2*n)
			}
			mu.Unlock()
		}
	})
}

// Its expiration is 0: the broker delivers it to a consumer that is waiting, or drops it.
func TestForeign_MessageThatExpiresAtOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		r := consume(t, s.provisioned(t, rabbitmq.Config{}, "billing"), core.ReceiverConfig{Queue: "billing"})
		ch := s.channel(t)
		for range 20 {
			if err := ch.PublishWithContext(t.Context(), "", "billing", true, false, amqp.Publishing{Expiration: "0", Body: []byte("42")}); err != nil {
				t.Fatal(err)
			}
		}
		if came := drain(t, r, 1); came["42"] == 0 {
			t.Errorf("this came: %v", came)
		}
	})
}

// runs runs an endpoint until the test ends, and returns when it is ready.
func runs(t *testing.T, ep *core.Endpoint) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case <-ep.Ready():
	case <-time.After(patience):
		t.Fatal("the endpoint is not ready")
	}
}
