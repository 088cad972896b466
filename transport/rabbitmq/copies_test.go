package rabbitmq_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// ledger counts how often handlers were run and succeeded, by number.
type ledger struct {
	mu       sync.Mutex
	attempts map[int]int
	handled  map[int]int
}

func (l *ledger) handledTimes(number int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.handled[number]
}

// failing handles orders.placed: of each number the first attempts fail, the others succeed. A
// negative number fails always.
func (l *ledger) failing(t *testing.T, ep *core.Endpoint, attempts int) {
	t.Helper()
	l.attempts, l.handled = map[int]int{}, map[int]int{}
	core.Handle(ep, placedType, func(_ context.Context, _ *core.Message, body order) error {
		l.mu.Lock()
		defer l.mu.Unlock()
		number := body.Number
		if l.attempts[number]++; number < 0 || l.attempts[number] <= attempts {
			return errors.New("failed")
		}
		l.handled[number]++
		return nil
	})
}

// copied is a message with the name of a stored copy that somebody forged or copied.
func copied(copyID string, number int) amqp.Publishing {
	return amqp.Publishing{
		Headers: amqp.Table{
			"Reprise.CopyID": copyID, "NServiceBus.EnclosedMessageTypes": "orders.placed", "NServiceBus.ContentType": "application/json",
			"NServiceBus.MessageId": fmt.Sprint("m", number),
		},
		DeliveryMode: amqp.Persistent, Body: fmt.Appendf(nil, `{"Number":%d}`, number),
	}
}

// Messages with one ID may be different messages, or the same one several times. None is
// taken for another one that was settled.
func TestCopies_SharedIDHidesNoMessage(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		for _, kind := range []rabbitmq.QueueType{rabbitmq.Quorum, rabbitmq.Classic} {
			queue, errorQueue := fmt.Sprintf("billing-%v", kind), fmt.Sprintf("error-%v", kind)
			const n = 10
			ledgers := make([]*ledger, 2)
			transport := s.provisioned(t, rabbitmq.Config{QueueType: kind}, queue, errorQueue)
			ch := s.channel(t)
			for i := range n { // each of them once, failing once; each of them for ever; and one n times
				for _, number := range []int{1 + i, -1 - i, 1000} {
					copyID := "x@" + queue
					if number == 1000 {
						copyID = "y@" + queue
					}
					if err := ch.PublishWithContext(t.Context(), "", queue, true, false, copied(copyID, number)); err != nil {
						t.Fatal(err)
					}
				}
			}
			for i := range ledgers { // instances
				ep, err := core.New(queue, s.open(t, rabbitmq.Config{QueueType: kind}), core.Config{
					Logger:         slog.New(slog.DiscardHandler),
					Concurrency:    2,
					Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 30}, Delayed: core.Delayed{NumberOfRetries: core.Off}, ErrorQueue: errorQueue},
				})
				if err != nil {
					t.Fatal(err)
				}
				ledgers[i] = &ledger{}
				ledgers[i].failing(t, ep, 1)
				runs(t, ep)
			}
			awaitTrue(t, "none is left", func() bool { ready, unacked := s.depth(t, queue); return ready+unacked == 0 })
			times := func(number int) int { return ledgers[0].handledTimes(number) + ledgers[1].handledTimes(number) }
			want := map[string]int{}
			for i := range n {
				if got := times(1 + i); got != 1 {
					t.Errorf("%v: message %d was handled %d times", kind, 1+i, got)
				}
				want[fmt.Sprintf(`{"Number":%d}`, -1-i)] = 1
			}
			if got := times(1000); got != n {
				t.Errorf("%v: of %d messages that are the same, %d were handled", kind, n, got)
			}
			if failed := s.take(t, errorQueue); !maps.Equal(failed, want) {
				t.Errorf("%v: these are in the error queue: %v", kind, failed)
			}
			_ = transport.Close(t.Context())
		}
	})
}

// A tool that sends a message to its queue once more, or returns it from the error queue,
// copies all of its headers.
func TestCopies_OfAHandledMessageAreHandled(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "billing", "error")
		ch := s.channel(t)
		ep, err := core.New("billing", transport, core.Config{
			Logger:         slog.New(slog.DiscardHandler),
			Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
		})
		if err != nil {
			t.Fatal(err)
		}
		fails := []bool{false, true, false, true, true, true, false} // run by run
		handled, run := 0, 0
		var mu sync.Mutex
		core.Handle(ep, placedType, func(context.Context, *core.Message, order) error {
			mu.Lock()
			defer mu.Unlock()
			if run++; fails[run-1] {
				return errors.New("failed")
			}
			handled++
			return nil
		})
		runs(t, ep)
		handledTimes := func(n int) func() bool {
			return func() bool { mu.Lock(); defer mu.Unlock(); return handled == n }
		}
		publish := func(message amqp.Publishing) {
			t.Helper()
			if err := ch.PublishWithContext(t.Context(), "", "billing", true, false, message); err != nil {
				t.Fatal(err)
			}
		}
		publish(copied("first@billing", 1))
		awaitTrue(t, "it is handled", handledTimes(1))
		publish(copied("first@billing", 1))
		awaitTrue(t, "its copy is handled, which fails once", handledTimes(2))
		publish(copied("first@billing", 1))
		var failed amqp.Delivery
		awaitTrue(t, "another copy, which fails twice, is moved", func() bool {
			var moved bool
			failed, moved, err = ch.Get("error", true)
			return err != nil || moved
		})
		if err != nil {
			t.Fatal(err)
		}
		publish(amqp.Publishing{Headers: failed.Headers, DeliveryMode: amqp.Persistent, Body: failed.Body})
		awaitTrue(t, "a returned message is handled, which fails once", handledTimes(3))
		mu.Lock()
		defer mu.Unlock()
		if run != len(fails) {
			t.Errorf("the handler was run %d times, want %d", run, len(fails))
		}
	})
}
