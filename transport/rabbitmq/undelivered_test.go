package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// While the error queue was away, the engine gave the message back again and again, the
// broker counted each return, and dropped the message in the end.
func TestUndelivered_ErrorQueueDeletedWhileRunning(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		s.withDelays()
		const slots, failing, healthy = 2, 6, 50
		transport := s.provisioned(t, rabbitmq.Config{}, "orders", "error")
		ep, err := core.New("orders", transport, core.Config{
			Concurrency:    slots,
			Logger:         slog.New(slog.DiscardHandler),
			Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
		})
		if err != nil {
			t.Fatal(err)
		}
		var failed, handled, highest atomic.Int64
		register(t, ep, "fails", func(_ context.Context, m *core.Message, _ []byte) error {
			failed.Add(1)
			highest.Store(max(highest.Load(), int64(m.Attempt)))
			return errors.New("as the test wants it")
		})
		register(t, ep, "works", func(context.Context, *core.Message, []byte) error {
			handled.Add(1)
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error, 1)
		go func() { ran <- ep.Run(ctx) }()
		select {
		case <-ep.Ready():
		case err := <-ran:
			t.Fatal(err)
		}
		if _, err := s.channel(t).QueueDelete("error", false, false, false); err != nil {
			t.Fatal(err)
		}
		for i := range failing {
			mustSend(t, transport, typed("orders", "fails", fmt.Sprint("bad", i)))
		}
		awaitTrue(t, "all failing messages are kept", func() bool { return ep.Health().Undelivered == failing })
		for i := range healthy {
			mustSend(t, transport, typed("orders", "works", fmt.Sprint("good", i)))
		}
		awaitTrue(t, "healthy messages are handled", func() bool { return handled.Load() == healthy })
		provision(t, transport, "error")
		awaitTrue(t, "the failing messages are moved", func() bool { return ep.Health().Undelivered == 0 })
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
		r := consume(t, transport, core.ReceiverConfig{Queue: "error"})
		for body, n := range drain(t, r, failing) {
			if n != 1 {
				t.Errorf("%d copies of %s are in the error queue", n, body)
			}
		}
		if n := failed.Load(); n != 2*failing || highest.Load() != 2 {
			t.Errorf("%d attempts, the highest number %d; want two attempts at each of %d messages", n, highest.Load(), failing)
		}
	})
}

func register(t *testing.T, ep *core.Endpoint, messageType string, handler func(context.Context, *core.Message, []byte) error) {
	t.Helper()
	core.Handle(ep, core.NewMessageType[[]byte](messageType), handler)
}

// typed returns a message for the handlers of a type.
func typed(queue, messageType, id string) core.Outgoing {
	return core.Outgoing{ID: id, Queue: queue, Body: []byte(id), Headers: core.HeadersFromMap(map[string]string{
		headers.MessageID: id, headers.MessageTypes: messageType,
	})}
}
