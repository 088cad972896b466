package rabbitmq_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// When a remembered exchange, queue or binding turns out to be gone.
func TestDeclarationCache_RedeclaresAfterDeletion(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		s.withDelays()
		transport := s.provisioned(t, rabbitmq.Config{}, "billing")
		publish(t, transport, "orders.placed")
		if err := s.channel(t).ExchangeDelete("topic:orders.placed", false, false); err != nil {
			t.Fatal(err)
		}
		s.await(t, "publish again", func() error {
			return transport.Send(t.Context(), core.Outgoing{ID: "1", Topic: "orders.placed"})
		})
		if err := s.channel(t).ExchangeDelete("nsb.v2.delay-delivery", false, false); err != nil {
			t.Fatal(err)
		}
		s.await(t, "delay again", func() error {
			return transport.Send(t.Context(), core.Outgoing{ID: "2", Queue: "billing", Delay: time.Second, Body: []byte("delayed")})
		})
	})
}

// await tries until there is no error.
func (s *site) await(t testing.TB, subject string, try func() error) {
	t.Helper()
	for awaitTrue := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(awaitTrue) {
			t.Fatalf("%s: %v", subject, err)
		}
	}
}

// When it is sent, and again when the queue is gone.
func TestSend_DelayedNeedsItsQueue(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		s.withDelays()
		transport := s.open(t, rabbitmq.Config{})
		delayed := core.Outgoing{ID: "1", Queue: "billing", Delay: time.Hour}
		if err := transport.Send(t.Context(), delayed); !errors.Is(err, core.ErrQueueNotFound) {
			t.Fatalf("Send = %v, want ErrQueueNotFound", err)
		}
		s.queue(t, "billing", amqp.Table{"x-queue-type": "quorum"})
		if err := transport.Send(t.Context(), delayed); err != nil {
			t.Fatal(err)
		}
		if _, err := s.channel(t).QueueDelete("billing", false, false, false); err != nil {
			t.Fatal(err)
		}
		for awaitTrue := time.Now().Add(patience); ; {
			err := transport.Send(t.Context(), delayed)
			if errors.Is(err, core.ErrQueueNotFound) {
				break
			}
			if err != nil || time.Now().After(awaitTrue) {
				t.Fatalf("Send = %v, want ErrQueueNotFound", err)
			}
		}
	})
}

// The topology is declared once, and each queue's binding too.
func TestSend_DelayedConcurrently(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		s.withDelays()
		transport := s.open(t, rabbitmq.Config{})
		var wg sync.WaitGroup
		for i := range 3 {
			s.queue(t, fmt.Sprint("q", i), amqp.Table{"x-queue-type": "quorum"})
		}
		for i := range 60 {
			wg.Go(func() {
				out := core.Outgoing{ID: fmt.Sprint(i), Queue: fmt.Sprint("q", i%3), Delay: time.Second, Body: []byte("x")}
				if err := transport.Send(t.Context(), out); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		for i := range 3 {
			deliveries, err := s.channel(t).Consume(fmt.Sprint("q", i), "", true, false, false, false, nil)
			if err != nil {
				t.Fatal(err)
			}
			for range 20 {
				await(t, deliveries)
			}
		}
	})
}
