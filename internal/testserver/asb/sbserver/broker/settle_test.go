package broker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

func TestSettle_DeliveryCount(t *testing.T) {
	tests := []struct {
		name  string
		end   func(*namespace, broker.Delivery)
		count uint32
	}{
		{"abandon", func(n *namespace, d broker.Delivery) { n.settle("q", d, broker.Abandon) }, 1},
		{"release", func(n *namespace, d broker.Delivery) { n.settle("q", d, broker.Release) }, 0},
		{"the lock ends", func(n *namespace, _ broker.Delivery) { n.clock.Advance(time.Minute) }, 1},
		{"the lock is ended", func(n *namespace, d broker.Delivery) { n.must(n.ExpireLock("q", d.LockToken)) }, 1},
		{"all locks are ended", func(n *namespace, _ broker.Delivery) {
			ended, err := n.ExpireLocks("q")
			n.must(err)
			equal(n.t, "the number of locks", ended, 1)
		}, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := withQueue(t, properties.Queue{})
			n.send("q", "a")
			first := n.receive("q")
			equal(t, "the first delivery count", first.DeliveryCount, 0)
			n.nothing("q")
			test.end(n, first)
			second := n.receive("q")
			equal(t, "the body", body(second), "a")
			equal(t, "the delivery count", second.DeliveryCount, test.count)
			equal(t, "the header's delivery count", second.Message.Header.DeliveryCount, test.count)
			equal(t, "the sequence number", second.SequenceNumber, first.SequenceNumber)
			if second.LockToken == first.LockToken {
				t.Error("the second delivery has the lock token of the first")
			}
		})
	}
}

func TestComplete_RemovesTheMessage(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	n.send("q", "a")
	n.settle("q", n.receive("q"), broker.Complete)
	n.nothing("q")
	n.clock.Advance(time.Hour)
	n.nothing("q")
	info, err := n.Queue("q")
	n.must(err)
	equal(t, "the number of messages", info.Runtime.Active, 0)
	equal(t, "the size", info.Runtime.SizeInBytes, 0)
}

// Each outcome is refused once the lock has ended or the message was settled.
func TestSettle_LockLost(t *testing.T) {
	for _, outcome := range []broker.Outcome{broker.Complete, broker.Abandon, broker.Release, broker.Defer, broker.DeadLetter} {
		t.Run(fmt.Sprint(outcome), func(t *testing.T) {
			n := withQueue(t, properties.Queue{LockDuration: 10 * time.Second})
			n.send("q", "a")
			d := n.receive("q")
			equal(t, "the end of the lock", d.LockedUntil, start.Add(10*time.Second))
			n.clock.Advance(10 * time.Second)
			err := n.Settle("q", d.LockToken, broker.Settlement{Outcome: outcome})
			n.refuses(err, condition.MessageLockLost)
			equal(t, "the status", err.(*condition.Error).Status(), 410)
			redelivered := n.receive("q")
			n.settle("q", redelivered, broker.Complete)
			n.refuses(n.Settle("q", redelivered.LockToken, broker.Settlement{Outcome: outcome}), condition.MessageLockLost)
		})
	}
}

func TestSettle_OtherQueueDoesNotKnowTheLock(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	n.queue("other", properties.Queue{})
	n.send("q", "a")
	d := n.receive("q")
	n.refuses(n.Settle("other", d.LockToken, broker.Settlement{Outcome: broker.Complete}), condition.MessageLockLost)
	n.settle("Q", d, broker.Complete)
}

func TestSettle_PropertiesAreChanged(t *testing.T) {
	tests := []struct {
		name    string
		outcome broker.Outcome
		from    string
		changed bool
	}{
		{"abandon", broker.Abandon, "q", true},
		{"release", broker.Release, "q", false},
		{"dead-letter", broker.DeadLetter, "q/$DeadLetterQueue", true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := withQueue(t, properties.Queue{})
			n.send("q", "a", withProperty("kept", "1"), withProperty("changed", "1"))
			d := n.receive("q")
			n.must(n.Settle("q", d.LockToken, broker.Settlement{Outcome: test.outcome, Properties: map[string]any{"changed": int64(2)}}))
			got := n.receive(test.from).Message.ApplicationProperties
			equal(t, "the other property", got["kept"], any("1"))
			want := any("1")
			if test.changed {
				want = int64(2)
			}
			equal(t, "the property", got["changed"], want)
			equal(t, "the property of the first delivery", d.Message.ApplicationProperties["changed"], any("1"))
		})
	}
}

func TestRenew_ExtendsTheLock(t *testing.T) {
	n := withQueue(t, properties.Queue{LockDuration: time.Minute})
	n.send("q", "a")
	d := n.receive("q")
	for range 5 {
		n.clock.Advance(50 * time.Second)
		lockedUntil, err := n.Renew("q", d.LockToken)
		n.must(err)
		equal(t, "the end of the lock", lockedUntil[0], n.clock.Now().Add(time.Minute))
	}
	n.settle("q", d, broker.Complete)
	_, err := n.Renew("q", d.LockToken)
	n.refuses(err, condition.MessageLockLost)
}

func TestRenew_AllOrNone(t *testing.T) {
	n := withQueue(t, properties.Queue{LockDuration: time.Minute})
	n.send("q", "a")
	d := n.receive("q")
	n.clock.Advance(30 * time.Second)
	_, err := n.Renew("q", d.LockToken, broker.LockToken{1})
	n.refuses(err, condition.MessageLockLost)
	n.clock.Advance(30 * time.Second)
	equal(t, "the delivery count", n.receive("q").DeliveryCount, 1)
}

// An abandoned message keeps its place in the order.
func TestAbandon_KeepsTheOrder(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	for i := range 5 {
		n.send("q", fmt.Sprint(i))
	}
	c := n.consume("q")
	first := c.Next(3)
	equal(t, "the first messages", bodies(first), "[0 1 2]")
	n.settle("q", first[1], broker.Abandon)
	n.settle("q", first[0], broker.Release)
	equal(t, "the next messages", bodies(c.Next(10)), "[0 1 3 4]")
}

func TestMaxDeliveryCount_DeadLetters(t *testing.T) {
	ends := map[string]func(*namespace, broker.Delivery){
		"abandoned":     func(n *namespace, d broker.Delivery) { n.settle("q", d, broker.Abandon) },
		"the lock ends": func(n *namespace, _ broker.Delivery) { n.clock.Advance(time.Minute) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			n := withQueue(t, properties.Queue{MaxDeliveryCount: 3})
			n.send("q", "a", withID("m"))
			for i := range 3 {
				n.nothing("q/$DeadLetterQueue")
				d := n.receive("q")
				equal(t, "the delivery count", d.DeliveryCount, uint32(i))
				end(n, d)
			}
			n.nothing("q")
			dead := n.receive("q/$deadletterqueue")
			equal(t, "the delivery count", dead.DeliveryCount, 3)
			equal(t, "the sequence number", dead.SequenceNumber, 1)
			equal(t, "the message id", dead.Message.Properties.MessageID, any("m"))
			equal(t, "the reason", dead.Message.ApplicationProperties["DeadLetterReason"], any("MaxDeliveryCountExceeded"))
			equal(t, "the description", dead.Message.ApplicationProperties["DeadLetterErrorDescription"],
				any("Message could not be consumed after 3 delivery attempts."))
		})
	}
}

func TestRelease_NeverDeadLetters(t *testing.T) {
	n := withQueue(t, properties.Queue{MaxDeliveryCount: 1})
	n.send("q", "a")
	for range 5 {
		n.settle("q", n.receive("q"), broker.Release)
	}
	n.settle("q", n.receive("q"), broker.Abandon)
	n.nothing("q")
	equal(t, "the delivery count", n.receive("q/$DeadLetterQueue").DeliveryCount, 1)
}

func TestReceiveAndDelete_RemovesTheMessage(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	n.send("q", "a")
	c, err := n.Consume(t.Context(), "q", broker.ConsumerConfig{Mode: broker.ReceiveAndDelete})
	n.must(err)
	d := n.next(c)
	equal(t, "the lock token", d.LockToken, broker.LockToken{})
	if !d.LockedUntil.IsZero() || d.Message.Annotations["x-opt-locked-until"] != nil {
		t.Errorf("a message that was deleted is locked until %v", d.LockedUntil)
	}
	n.clock.Advance(time.Hour)
	n.nothing("q")
}

func TestDelivery_Annotations(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	n.send("q", "first")
	n.clock.Advance(time.Second)
	n.send("q", "second", withTTL(time.Hour), withPartition("p"))
	n.clock.Advance(time.Second)
	n.settle("q", n.receive("q"), broker.Complete)
	m := n.receive("q").Message
	equal(t, "the sequence number", m.Annotations["x-opt-sequence-number"], any(int64(2)))
	equal(t, "the enqueued time", m.Annotations["x-opt-enqueued-time"], any(start.Add(time.Second)))
	equal(t, "the end of the lock", m.Annotations["x-opt-locked-until"], any(start.Add(2*time.Second+time.Minute)))
	equal(t, "the state", m.Annotations["x-opt-message-state"], any(int32(0)))
	equal(t, "the partition key", m.Annotations["x-opt-partition-key"], any("p"))
	equal(t, "the time to live", m.Header.TTL, time.Hour)
	if _, ok := m.Annotations["x-opt-enqueue-sequence-number"]; ok {
		t.Error("a message that was not forwarded has an enqueued sequence number")
	}
}
