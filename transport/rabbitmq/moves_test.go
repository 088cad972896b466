package rabbitmq_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// TestMoves_ForeignMessageBeyondLimits: the limits of the adapter are for what
// applications send. A foreign message beyond them is retried with a delay, and reaches
// the error queue, whole.
func TestMoves_ForeignMessageBeyondLimits(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	text := func(size int) string { return strings.Repeat("0123456789abcdef", size/16) }
	for name, c := range map[string]struct {
		headers amqp.Table
		body    int
	}{
		"headers of 72 KiB":  {amqp.Table{"big": text(72 << 10), "small": "kept"}, 100},
		"headers of 120 KiB": {amqp.Table{"big": text(60 << 10), "big too": text(60 << 10), "small": "kept"}, 100},
		"body of 1 MiB":      {amqp.Table{"small": "kept"}, 1 << 20},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, s *site) {
				s.withDelays()
				transport := s.provisioned(t, rabbitmq.Config{MaxMessageBytes: 256 << 10}, "billing", "error")
				ep, err := core.New("billing", transport, core.Config{
					Logger:         slog.New(slog.DiscardHandler),
					Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second}},
					Observers:      []core.Observer{{CriticalError: func(_ context.Context, _ *core.Endpoint, err error) { t.Errorf("critical error: %v", err) }}},
				})
				if err != nil {
					t.Fatal(err)
				}
				var attempts atomic.Int64
				core.Handle(ep, placedByteType, func(context.Context, *core.Message, []byte) error {
					attempts.Add(1)
					return errors.New("fails always")
				})
				runs(t, ep)
				body := bytes.Repeat([]byte("x"), c.body)
				if err := s.channel(t).PublishWithContext(t.Context(), "", "billing", true, false, amqp.Publishing{
					Type: "orders.placed", MessageId: "m-1", ContentType: "application/octet-stream", Headers: c.headers, Body: body,
				}); err != nil {
					t.Fatal(err)
				}
				moved := next(t, consume(t, transport, core.ReceiverConfig{Queue: "error"}), 1)[0].Incoming()
				if moved.ID != "m-1" || !bytes.Equal(moved.Body, body) {
					t.Errorf("message %q with %d bytes is in the error queue, want m-1 with %d", moved.ID, len(moved.Body), len(body))
				}
				for key, value := range c.headers {
					if got := moved.Headers.Get(key); got != value {
						t.Errorf("header %q has %d bytes in the error queue, want %v", key, len(got), len(fmt.Sprint(value)))
					}
				}
				for _, key := range []string{headers.FailedQ, headers.ExceptionMessage} {
					if moved.Headers.Get(key) == "" {
						t.Errorf("header %s is missing in the error queue", key)
					}
				}
				if n := attempts.Load(); n != 4 {
					t.Errorf("%d attempts, want 4: two, and two after the delay", n)
				}
			})
		})
	}
}

// A message that the broker has accepted, and whose
// copy it refuses since max_message_size was lowered, is kept unsettled: its handler does
// not run again, no return counts, healthy messages flow, and the critical error says what
// to do. It is moved when the limit has been raised.
func testMovesBrokerRefusesTheSize(t *testing.T, _ *broker, s *site) {
	limit := func(bytes int) { // new channels have it
		t.Helper()
		if _, err := s.Eval(t.Context(), fmt.Sprintf("application:set_env(rabbit, max_message_size, %d), persistent_term:put(max_message_size, %d).", bytes, bytes)); err != nil {
			t.Fatal(err)
		}
	}
	const size = 1 << 20
	transport := s.provisioned(t, rabbitmq.Config{}, "billing", "error")
	mustSend(t, transport, orderOf("large", size))
	if err := transport.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	limit(64 << 10)

	transport = s.open(t, rabbitmq.Config{})
	critical := make(chan error, 1000)
	ep, err := core.New("billing", transport, core.Config{
		Logger:         slog.New(slog.DiscardHandler),
		Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
		Observers:      []core.Observer{{CriticalError: func(_ context.Context, _ *core.Endpoint, err error) { critical <- err }}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var large, small atomic.Int64
	core.Handle(ep, placedByteType, func(_ context.Context, m *core.Message, _ []byte) error {
		if m.ID == "large" {
			large.Add(1)
			return errors.New("fails always")
		}
		small.Add(1)
		return nil
	})
	runs(t, ep)
	for range 3 {
		select {
		case err := <-critical:
			saysAll(t, err, "message large", "max_message_size is 65536", "raise max_message_size")
			if !errors.Is(err, core.ErrTooLarge) {
				t.Errorf("critical error %v is not ErrTooLarge", err)
			}
		case <-time.After(patience):
			t.Fatal("there is no critical error")
		}
	}
	mustSend(t, transport, orderOf("small", 10))
	awaitTrue(t, "the small message is handled", func() bool { return small.Load() == 1 })
	awaitTrue(t, "the small message is completed, and the large one is not", func() bool {
		ready, unacked := s.depth(t, "billing")
		return ready == 0 && unacked == 1
	})
	if n := large.Load(); n != 2 {
		t.Errorf("%d attempts, want 2", n)
	}
	if err := transport.Send(t.Context(), orderOf("second", 100<<10)); !errors.Is(err, core.ErrTooLarge) {
		t.Errorf("Send of an application returned %v, want ErrTooLarge", err)
	}
	if n := ep.Health().Undelivered; n != 1 {
		t.Errorf("Health.Undelivered is %d, want 1", n)
	}

	limit(16 << 20)
	s.closeConnections(t, "the limit was raised")
	moved := next(t, consume(t, s.open(t, rabbitmq.Config{}), core.ReceiverConfig{Queue: "error"}), 1)[0].Incoming()
	if moved.ID != "large" || len(moved.Body) != size {
		t.Errorf("message %q of %d bytes is in the error queue", moved.ID, len(moved.Body))
	}
	if n := large.Load(); n != 2 {
		t.Errorf("%d attempts, want 2", n)
	}
}

// orderOf is a message for the queue billing.
func orderOf(id string, size int) core.Outgoing {
	return core.Outgoing{ID: id, Queue: "billing", Body: bytes.Repeat([]byte("x"), size), Headers: core.HeadersFromMap(map[string]string{
		headers.MessageID: id, headers.MessageTypes: "orders.placed", headers.ContentType: "application/octet-stream",
	})}
}

// TestMoves_ForeignHeadersThatFillTheFrame leave no room for those of the failure, or not
// even for FailedQ: they are left out then.
func TestMoves_ForeignHeadersThatFillTheFrame(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	const frame = 128 << 10
	for name, c := range map[string]struct {
		size int
		kept bool
	}{"room for FailedQ": {frame - 1000, true}, "no room": {frame - 150, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, s *site) {
				s.withDelays()
				transport := s.provisioned(t, rabbitmq.Config{}, "billing", "error")
				ep, err := core.New("billing", transport, core.Config{
					Logger:         slog.New(slog.DiscardHandler),
					Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second}},
				})
				if err != nil {
					t.Fatal(err)
				}
				core.Handle(ep, placedByteType, func(context.Context, *core.Message, []byte) error { return errors.New("fails always") })
				runs(t, ep)
				if err := s.channel(t).PublishWithContext(t.Context(), "", "billing", true, false, amqp.Publishing{
					Type: "orders.placed", MessageId: "m-1", Body: []byte("the body"),
					Headers: amqp.Table{"big": strings.Repeat("x", c.size), "small": "kept"},
				}); err != nil {
					t.Fatal(err)
				}
				moved := next(t, consume(t, transport, core.ReceiverConfig{Queue: "error"}), 1)[0].Incoming()
				if moved.ID != "m-1" || string(moved.Body) != "the body" || moved.Headers.Get(headers.FailedQ) != "billing" {
					t.Errorf("message %q is in the error queue with the body %q and headers of %d bytes", moved.ID, moved.Body, moved.Headers.Bytes())
				}
				for key, size := range map[string]int{"big": c.size, "small": len("kept")} {
					if kept := len(moved.Headers.Get(key)) == size; kept != c.kept {
						t.Errorf("the header %s is kept: %t, want %t", key, kept, c.kept)
					}
				}
			})
		})
	}
}

// A dead-letter queue that is full refuses messages, which go to the error queue: none is lost.
func TestMoves_FullDeadLetterQueue(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "billing", "error")
		s.queue(t, "dead", amqp.Table{"x-queue-type": "quorum", "x-delivery-limit": 100000, "x-max-length": 5, "x-overflow": "reject-publish"})
		const n = 100 // the limit of a quorum queue is checked after some messages more
		mustSend(t, transport, func() (out []core.Outgoing) {
			for i := range n {
				out = append(out, orderOf(fmt.Sprint(i), 10))
			}
			return out
		}()...)
		ep, err := core.New("billing", transport, core.Config{
			Logger: slog.New(slog.DiscardHandler), Concurrency: 1,
			Recoverability: core.Recoverability{Delayed: core.Delayed{NumberOfRetries: core.Off}, DeadLetterQueue: "dead"},
		})
		if err != nil {
			t.Fatal(err)
		}
		core.Handle(ep, placedByteType, func(context.Context, *core.Message, []byte) error {
			return core.GiveUpTo(errors.New("barred"), core.DeadLetterQueue)
		})
		runs(t, ep)
		dead, failed := 0, 0
		awaitTrue(t, "all messages are in one of the two queues", func() bool {
			dead, _ = s.depth(t, "dead")
			failed, _ = s.depth(t, "error")
			return dead+failed >= n
		})
		if dead == 0 || failed == 0 || dead+failed != n {
			t.Errorf("%d messages are in the dead-letter queue and %d in the error queue, want some of %d in each", dead, failed, n)
		}
		for _, d := range next(t, consume(t, transport, core.ReceiverConfig{Queue: "error", MaxInFlight: n}), failed) {
			if reason := d.Incoming().Headers.Get(headers.FailureReason); reason != string(headers.FailureRejected) {
				t.Errorf("the reason is %q in the error queue, want %q", reason, headers.FailureRejected)
			}
		}
	})
}
