package broker_test

import (
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
)

func TestDeadLetter_ReasonAndCount(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	n.send("q", "a")
	n.settle("q", n.receive("q"), broker.Abandon)
	d := n.receive("q")
	n.must(n.Settle("q", d.LockToken, broker.Settlement{Outcome: broker.DeadLetter, Reason: "r", Description: "d"}))
	n.nothing("q")
	dead := n.receive("q/$DeadLetterQueue")
	equal(t, "the reason", dead.Message.ApplicationProperties["DeadLetterReason"], any("r"))
	equal(t, "the description", dead.Message.ApplicationProperties["DeadLetterErrorDescription"], any("d"))
	equal(t, "the delivery count", dead.DeliveryCount, 1)
	equal(t, "the sequence number", dead.SequenceNumber, d.SequenceNumber)
	if _, ok := dead.Message.Annotations["x-opt-deadletter-source"]; ok {
		t.Error("a message that was not forwarded has a dead-letter source")
	}
}

// The delivery count stays in a dead-letter queue, and the message too.
func TestDeadLetterQueue_FailuresAreNotCounted(t *testing.T) {
	const dlq = "q/$DeadLetterQueue"
	n := withQueue(t, properties.Queue{MaxDeliveryCount: 2})
	n.send("q", "a")
	n.settle("q", n.receive("q"), broker.DeadLetter)
	for range 5 {
		d := n.receive(dlq)
		equal(t, "the delivery count", d.DeliveryCount, 0)
		n.settle(dlq, d, broker.Abandon)
		equal(t, "the delivery count", n.receive(dlq).DeliveryCount, 0)
		n.clock.Advance(time.Minute)
	}
	d := n.receive(dlq)
	n.refuses(n.Settle(dlq, d.LockToken, broker.Settlement{Outcome: broker.DeadLetter}), condition.NotAllowed)
	n.settle(dlq, d, broker.Defer)
	deferred, err := n.ReceiveDeferred(dlq, broker.PeekLock, nil, d.SequenceNumber)
	n.must(err)
	n.settle(dlq, deferred[0], broker.Complete)
	n.nothing(dlq)
}

func TestDeadLetterQueue_CannotBeSentTo(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	n.refuses(n.Send("q/$DeadLetterQueue", newMessage("a")), condition.NotAllowed)
	n.refuses(n.Send("q/$Transfer/$DeadLetterQueue", newMessage("a")), condition.NotAllowed)
}

func TestForwardDeadLetteredMessagesTo(t *testing.T) {
	n := newNamespace(t, broker.Config{})
	n.queue("errors", properties.Queue{})
	n.queue("q", properties.Queue{ForwardDeadLetteredMessagesTo: "errors", MaxDeliveryCount: 1})
	n.send("errors", "occupies sequence number 1")
	n.settle("errors", n.receive("errors"), broker.Complete)
	n.send("q", "a", withID("m"))
	n.settle("q", n.receive("q"), broker.Abandon)
	n.nothing("q/$DeadLetterQueue")
	d := n.receive("errors")
	equal(t, "the message id", d.Message.Properties.MessageID, any("m"))
	equal(t, "the delivery count", d.DeliveryCount, 0)
	equal(t, "the sequence number", d.SequenceNumber, 2)
	equal(t, "the enqueued sequence number", d.Message.Annotations["x-opt-enqueue-sequence-number"], any(int64(1)))
	equal(t, "the dead-letter source", d.Message.Annotations["x-opt-deadletter-source"], any("q"))
	equal(t, "the reason", d.Message.ApplicationProperties["DeadLetterReason"], any("MaxDeliveryCountExceeded"))
}

func TestForwardDeadLetteredMessagesTo_StaysWithoutTarget(t *testing.T) {
	n := newNamespace(t, broker.Config{})
	n.queue("errors", properties.Queue{})
	n.queue("q", properties.Queue{ForwardDeadLetteredMessagesTo: "errors"})
	n.must(n.DeleteQueue("errors"))
	n.send("q", "a")
	n.settle("q", n.receive("q"), broker.DeadLetter)
	equal(t, "the body", body(n.receive("q/$DeadLetterQueue")), "a")
}
