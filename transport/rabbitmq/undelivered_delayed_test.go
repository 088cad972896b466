package rabbitmq_test

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// undeliveredCount is an observer that counts the messages that it is told of.
type undeliveredCount struct{ messages atomic.Int64 }

// MessageUndeliverable is that of a core.ReceiverConfig.
func (c *undeliveredCount) MessageUndeliverable(e core.Undeliverable) {
	if e.MovedTo == "reprise.undelivered" && e.Err != nil {
		c.messages.Add(int64(e.Messages))
	}
}

// sendDelayed sends n messages with a delay.
func sendDelayed(t *testing.T, transport *rabbitmq.Transport, queue string, n int) {
	t.Helper()
	var all []core.Outgoing
	for i := range n {
		out := typed(queue, "t", fmt.Sprint(queue, i))
		out.Delay = 5 * time.Second // by when a caller has removed the queue, or its bindings
		all = append(all, out)
	}
	mustSend(t, transport, all...)
}

// A delay level passes on 32 messages at a time, and one for a queue that is gone was
// passed on for ever: with 32 of them no message left it any more, for any queue
// .
func TestUndelivered_DelayedMessagesOfADeletedQueueBlockNoOther(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		s.withDelays()
		provisioned := func(queue string) { s.provisioned(t, rabbitmq.Config{}, queue) }
		deleted := func(queue string) error {
			_, err := s.channel(t).QueueDelete(queue, false, false, false)
			return err
		}
		for name, test := range map[string]struct {
			made func(queue string)
			gone func(queue string) error
		}{
			"provisioned": {provisioned, deleted},
			"by another":  {func(queue string) { s.queue(t, queue, amqp.Table{"x-queue-type": "quorum"}) }, deleted},
			"removed": {provisioned, func(queue string) error {
				return s.open(t, rabbitmq.Config{}).Remove(t.Context(), []string{queue}, nil)
			}},
		} {
			t.Run(name, func(t *testing.T) {
				const messages, others = 40, 10
				gone, kept := "gone "+name, "kept "+name
				transport := s.provisioned(t, rabbitmq.Config{}, kept)
				test.made(gone)
				sendDelayed(t, transport, gone, messages)
				if err := test.gone(gone); err != nil {
					t.Fatal(err)
				}
				sendDelayed(t, transport, kept, others)
				for id, n := range drain(t, consume(t, transport, core.ReceiverConfig{Queue: kept}), others) {
					if n != 1 {
						t.Errorf("%s came %d times", id, n)
					}
				}
				told := &undeliveredCount{}
				sink := s.provisioned(t, rabbitmq.Config{}, "ours")
				sink.PollUndelivered(50 * time.Millisecond)
				consume(t, sink, core.ReceiverConfig{Queue: "ours", MessageUndeliverable: told.MessageUndeliverable})
				awaitTrue(t, "it is told", func() bool { return told.messages.Load() >= messages })
				came := drain(t, consume(t, transport, core.ReceiverConfig{Queue: "reprise.undelivered"}), messages)
				for id, n := range came {
					if n != 1 || !strings.HasPrefix(id, gone) {
						t.Errorf("%s is undelivered, %d times", id, n)
					}
				}
			})
		}
	})
}

// TestUndelivered_RecreatedQueueGetsItsMessages, and no copy of them is taken for
// undelivered.
func TestUndelivered_RecreatedQueueGetsItsMessages(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		s.withDelays()
		transport := s.provisioned(t, rabbitmq.Config{}, "orders")
		sendDelayed(t, transport, "orders", 5)
		if _, err := s.channel(t).QueueDelete("orders", false, false, false); err != nil {
			t.Fatal(err)
		}
		provision(t, transport, "orders")
		for id, n := range drain(t, consume(t, transport, core.ReceiverConfig{Queue: "orders"}), 5) {
			if n != 1 {
				t.Errorf("%s came %d times", id, n)
			}
		}
		if ready, unacked := s.depth(t, "reprise.undelivered"); ready+unacked != 0 {
			t.Errorf("%d messages are undelivered", ready+unacked)
		}
	})
}

// TestUndelivered_BesideNServiceBus: an installer of NServiceBus's before or after ours
// finds the topology of delays as it declares it, and its endpoint gets a delayed message
// once.
func TestUndelivered_BesideNServiceBus(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	for _, first := range []string{"NServiceBus", "Reprise"} {
		t.Run(first+" first", func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, s *site) {
				s.withDelays()
				var transport *rabbitmq.Transport
				steps := []func(){
					func() { declareLikeNServiceBus(t, s.channel(t), "theirs") },
					func() { transport = s.provisioned(t, rabbitmq.Config{UnverifiedDeliveryLimit: s.limits()}, "orders") },
				}
				if first == "Reprise" {
					slices.Reverse(steps)
				}
				for _, step := range steps {
					step()
				}
				sendDelayed(t, transport, "theirs", 3)
				for id, n := range drain(t, consume(t, transport, core.ReceiverConfig{Queue: "theirs"}), 3) {
					if n != 1 {
						t.Errorf("%s came %d times", id, n)
					}
				}
				if ready, unacked := s.depth(t, "reprise.undelivered"); ready+unacked != 0 {
					t.Errorf("%d messages are undelivered", ready+unacked)
				}
			})
		})
	}
}

// TestUndelivered_WithoutTheRights a queue is bound as it was before there was a place
// for undelivered messages.
func TestUndelivered_WithoutTheRights(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		s.withDelays()
		s.provisioned(t, rabbitmq.Config{}, "orders")
		s.queue(t, "others", amqp.Table{"x-queue-type": "quorum"})
		ours := "^(orders|others|amq\\.default|nsb\\..*)$"
		transport := s.open(t, rabbitmq.Config{URLs: []string{s.user(t, "app", ours, ours, ours)}, UnverifiedDeliveryLimit: s.limits()})
		provision(t, transport, "orders")
		sendDelayed(t, transport, "others", 3)
		drain(t, consume(t, transport, core.ReceiverConfig{Queue: "others"}), 3)
	})
}

// TestUndelivered_ClosedWhileItAsks: the broker may answer when the transport is closed.
func TestUndelivered_ClosedWhileItAsks(t *testing.T) {
	ofDelayQueues(t)
	t.Parallel()
	s := newestSite(t).withDelays()
	sendDelayed(t, s.provisioned(t, rabbitmq.Config{}, "orders", "gone"), "gone", 1)
	if _, err := s.channel(t).QueueDelete("gone", false, false, false); err != nil {
		t.Fatal(err)
	}
	for range 30 {
		transport := s.open(t, rabbitmq.Config{})
		transport.PollUndelivered(time.Nanosecond)
		told := &undeliveredCount{}
		consume(t, transport, core.ReceiverConfig{Queue: "orders", MessageUndeliverable: told.MessageUndeliverable})
		awaitTrue(t, "it is told", func() bool { return told.messages.Load() >= 1 })
		if err := transport.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}
