package broker_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/rules"
)

// watch adds a consumer of a queue, and returns it with the number of its wake-ups.
func (n *namespace) watch(path string) (*broker.Consumer, *int) {
	n.t.Helper()
	wakeUps := 0
	c, err := n.Consume(n.t.Context(), path, broker.ConsumerConfig{Ready: func() { wakeUps++ }})
	n.must(err)
	return c, &wakeUps
}

// A consumer that waits wakes up whenever a message becomes available, for each reason.
func TestConsumer_WakesUp(t *testing.T) {
	tests := []struct {
		name   string
		before func(*namespace) broker.Delivery
		cause  func(*namespace, broker.Delivery)
	}{
		{"a message is sent", nil, func(n *namespace, _ broker.Delivery) { n.send("q", "a") }},
		{"a message is abandoned", (*namespace).lockOne, func(n *namespace, d broker.Delivery) { n.settle("q", d, broker.Abandon) }},
		{"a message is released", (*namespace).lockOne, func(n *namespace, d broker.Delivery) { n.settle("q", d, broker.Release) }},
		{"a lock ends", (*namespace).lockOne, func(n *namespace, _ broker.Delivery) { n.clock.Advance(time.Minute) }},
		{"a scheduled message materializes", func(n *namespace) broker.Delivery {
			n.send("q", "a", scheduledAt(start.Add(time.Hour)))
			return broker.Delivery{}
		}, func(n *namespace, _ broker.Delivery) { n.clock.Advance(time.Hour) }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := withQueue(t, properties.Queue{})
			var d broker.Delivery
			if test.before != nil {
				d = test.before(n)
			}
			c, wakeUps := n.watch("q")
			equal(t, "the number of messages at first", len(c.Next(5)), 0)
			*wakeUps = 0
			test.cause(n, d)
			equal(t, "the number of wake-ups", *wakeUps, 1)
			equal(t, "the messages", bodies(c.Next(1)), "[a]")
			n.send("q", "b")
			equal(t, "the number of wake-ups of one that does not wait", *wakeUps, 1)
			equal(t, "the messages", bodies(c.Next(2)), "[b]")
			n.must(c.Close())
			n.send("q", "c")
			equal(t, "the number of wake-ups after closing", *wakeUps, 1)
		})
	}
}

func (n *namespace) lockOne() broker.Delivery {
	n.send("q", "a")
	return n.receive("q")
}

func TestConsumer_WakesUpForMessagesThatAreThere(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	n.send("q", "a")
	c, wakeUps := n.watch("q")
	equal(t, "the number of wake-ups", *wakeUps, 1)
	equal(t, "the messages", bodies(c.Next(2)), "[a]")
}

func TestConsumer_WakesUpForExpiredMessagesInTheDeadLetterQueue(t *testing.T) {
	n := withQueue(t, properties.Queue{DeadLetteringOnMessageExpiration: true})
	n.send("q", "a", withTTL(time.Minute))
	_, wakeUps := n.watch("q/$DeadLetterQueue")
	n.clock.Advance(time.Minute)
	equal(t, "the number of wake-ups", *wakeUps, 1)
}

// A consumer that closes without taking messages leaves them to the others.
func TestConsumer_AllWaitingOnesWakeUp(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	first, _ := n.watch("q")
	second, wakeUps := n.watch("q")
	n.send("q", "a")
	n.must(first.Close())
	equal(t, "the number of wake-ups", *wakeUps, 1)
	equal(t, "the messages", bodies(second.Next(1)), "[a]")
}

// Locks stay when their consumer closes, so that the messages can be settled on another link.
func TestConsumer_CloseKeepsLocks(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	n.send("q", "a")
	c := n.consume("q")
	d := n.next(c)
	n.must(c.Close())
	n.nothing("q")
	n.settle("q", d, broker.Complete)
	n.clock.Advance(time.Hour)
	n.nothing("q")
}

func TestClose_EndsConsumersAndRefuses(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	var ended *condition.Error
	_, err := n.Consume(t.Context(), "q", broker.ConsumerConfig{Ended: func(e *condition.Error) { ended = e }})
	n.must(err)
	n.must(n.Close())
	if ended == nil || ended.Condition != condition.DetachForced {
		t.Errorf("the consumer ended with %v", ended)
	}
	n.refuses(n.Send("q", newMessage("a")), condition.DetachForced)
}

// Senders and receivers at the same time neither lose nor repeat messages.
func TestConcurrency(t *testing.T) {
	const senders, receivers, each = 4, 4, 500
	n := newNamespace(t, broker.Config{})
	n.queue("q", properties.Queue{})
	n.must(n.CreateTopic("t", properties.Topic{}))
	n.must(n.CreateSubscription("t", "s", properties.Subscription{ForwardTo: "q"}, rules.Rule{}))
	var working sync.WaitGroup
	for s := range senders {
		working.Go(func() {
			for i := range each {
				path := []string{"q", "t"}[i%2]
				if err := n.Send(path, newMessage(fmt.Sprint(s, "-", i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var mu sync.Mutex
	seen := map[string]int{}
	done := make(chan struct{})
	for range receivers {
		wake := make(chan struct{}, 1)
		c, err := n.Consume(t.Context(), "q", broker.ConsumerConfig{Ready: func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		}})
		n.must(err)
		working.Go(func() {
			for {
				got := c.Next(7)
				for i, d := range got {
					how := broker.Settlement{Outcome: broker.Complete}
					if d.DeliveryCount == 0 && i%3 == 0 {
						how.Outcome = broker.Abandon
					}
					if err := c.Settle(d.LockToken, how); err != nil {
						t.Error(err)
					}
					if how.Outcome == broker.Abandon {
						continue
					}
					mu.Lock()
					seen[body(d)]++
					if len(seen) == senders*each {
						close(done)
					}
					mu.Unlock()
				}
				if len(got) == 7 {
					continue
				}
				select {
				case <-wake:
				case <-done:
					return
				}
			}
		})
	}
	working.Wait()
	for b, times := range seen {
		if times != 1 {
			t.Errorf("message %s was completed %d times", b, times)
		}
	}
	info, err := n.Queue("q")
	n.must(err)
	equal(t, "the number of messages at the end", info.Runtime.Active, 0)
}
