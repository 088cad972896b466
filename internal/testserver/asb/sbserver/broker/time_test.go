package broker_test

import (
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/rules"
)

func TestSchedule_MaterializesAtItsTime(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	at := start.Add(time.Hour)
	sequences, err := n.Schedule("q", newMessage("later", scheduledAt(at)))
	n.must(err)
	n.send("q", "annotated", scheduledAt(at))
	n.send("q", "now")
	n.settle("q", n.receive("q"), broker.Complete)
	n.clock.Advance(time.Hour - time.Millisecond)
	n.nothing("q")
	n.clock.Advance(time.Millisecond)
	c := n.consume("q")
	got := c.Next(10)
	equal(t, "the messages", bodies(got), "[later annotated]")
	// It gets a new sequence number, and its enqueued time is that moment.
	equal(t, "the sequence number", got[0].SequenceNumber, 4)
	equal(t, "the first sequence number", sequences[0], 1)
	equal(t, "the enqueued time", got[0].Message.Annotations["x-opt-enqueued-time"], any(at))
	equal(t, "the scheduled time", got[0].Message.Annotations["x-opt-scheduled-enqueue-time"], any(at))
}

func TestSchedule_PastTimeDoesNotDelay(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	n.send("q", "a", scheduledAt(start.Add(-time.Hour)))
	equal(t, "the body", body(n.receive("q")), "a")
}

func TestSchedule_NeedsATime(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	_, err := n.Schedule("q", newMessage("a"))
	n.refuses(err, condition.Argument)
}

func TestSchedule_InOrderOfTime(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	n.send("q", "second", scheduledAt(start.Add(2*time.Second)))
	n.send("q", "first", scheduledAt(start.Add(time.Second)))
	n.clock.Advance(time.Hour)
	equal(t, "the messages", bodies(n.consume("q").Next(3)), "[first second]")
}

func TestCancelScheduled(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	at := scheduledAt(start.Add(time.Minute))
	sequences, err := n.Schedule("q", newMessage("a", at), newMessage("b", at), newMessage("c", at))
	n.must(err)
	n.must(n.CancelScheduled("q", sequences[1]))
	// All or none of them.
	n.refuses(n.CancelScheduled("q", sequences[0], sequences[1]), condition.MessageNotFound)
	info, err := n.Queue("q")
	n.must(err)
	equal(t, "the number of scheduled messages", info.Runtime.Scheduled, 2)
	equal(t, "the number of active messages", info.Runtime.Active, 0)
	n.clock.Advance(time.Minute)
	equal(t, "the messages", bodies(n.consume("q").Next(3)), "[a c]")
	n.refuses(n.CancelScheduled("q", sequences[0]), condition.MessageNotFound)
	n.send("q", "active")
	messages, err := n.Peek("q", 0, 10, nil)
	n.must(err)
	last := messages[len(messages)-1]
	equal(t, "the last message", string(last.Body()), "active")
	n.refuses(n.CancelScheduled("q", last.Annotations["x-opt-sequence-number"].(int64)), condition.MessageNotFound)
}

func TestTimeToLive(t *testing.T) {
	tests := []struct {
		name       string
		queue      time.Duration
		message    time.Duration
		deadLetter bool
		lives      time.Duration
	}{
		{"of the message", 0, time.Minute, false, time.Minute},
		{"of the queue", time.Hour, 0, false, time.Hour},
		{"the queue's is a ceiling", time.Minute, time.Hour, false, time.Minute},
		{"the message's is shorter", time.Hour, time.Minute, false, time.Minute},
		{"dead-lettered", time.Hour, time.Minute, true, time.Minute},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := withQueue(t, properties.Queue{
				DefaultMessageTimeToLive: test.queue, DeadLetteringOnMessageExpiration: test.deadLetter, LockDuration: time.Second,
			})
			n.send("q", "a", withTTL(test.message))
			n.clock.Advance(test.lives - time.Millisecond)
			d := n.receive("q")
			equal(t, "the time to live", d.Message.Header.TTL, test.lives)
			n.settle("q", d, broker.Release)
			n.clock.Advance(time.Millisecond)
			n.nothing("q")
			if !test.deadLetter {
				n.nothing("q/$DeadLetterQueue")
				return
			}
			n.clock.Advance(24 * time.Hour) // it is not observed there
			dead := n.receive("q/$DeadLetterQueue")
			equal(t, "the reason", dead.Message.ApplicationProperties["DeadLetterReason"], any("TTLExpiredException"))
			equal(t, "the delivery count", dead.DeliveryCount, 0)
		})
	}
}

// A message that is locked does not expire before its lock ends.
func TestTimeToLive_LockedMessage(t *testing.T) {
	ends := map[string]func(*namespace, broker.Delivery){
		"abandoned":     func(n *namespace, d broker.Delivery) { n.settle("q", d, broker.Abandon) },
		"released":      func(n *namespace, d broker.Delivery) { n.settle("q", d, broker.Release) },
		"the lock ends": func(n *namespace, _ broker.Delivery) { n.clock.Advance(time.Minute) },
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			n := withQueue(t, properties.Queue{DeadLetteringOnMessageExpiration: true})
			n.send("q", "a", withTTL(10*time.Second))
			d := n.receive("q")
			n.clock.Advance(30 * time.Second)
			n.nothing("q/$DeadLetterQueue")
			end(n, d)
			n.nothing("q")
			equal(t, "the reason", n.receive("q/$DeadLetterQueue").Message.ApplicationProperties["DeadLetterReason"], any("TTLExpiredException"))
		})
	}
}

func TestTimeToLive_DeletedMessage(t *testing.T) {
	n := withQueue(t, properties.Queue{DeadLetteringOnMessageExpiration: true})
	n.send("q", "a", withTTL(time.Minute))
	c, err := n.Consume(t.Context(), "q", broker.ConsumerConfig{Mode: broker.ReceiveAndDelete})
	n.must(err)
	n.next(c)
	n.clock.Advance(time.Hour)
	n.nothing("q/$DeadLetterQueue")
	info, err := n.Queue("q")
	n.must(err)
	equal(t, "the size", info.Runtime.SizeInBytes, 0)
}

func TestTimeToLive_LockedMessageCanBeCompleted(t *testing.T) {
	n := withQueue(t, properties.Queue{DeadLetteringOnMessageExpiration: true})
	n.send("q", "a", withTTL(10*time.Second))
	d := n.receive("q")
	n.clock.Advance(30 * time.Second)
	n.settle("q", d, broker.Complete)
	n.nothing("q/$DeadLetterQueue")
}

func TestTimeToLive_ScheduledMessageBeginsAtItsTime(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	n.send("q", "a", withTTL(time.Minute), scheduledAt(start.Add(time.Hour)))
	n.clock.Advance(time.Hour + time.Minute - time.Millisecond)
	n.settle("q", n.receive("q"), broker.Release)
	n.clock.Advance(time.Millisecond)
	n.nothing("q")
}

func TestDefer(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	n.send("q", "a")
	n.send("q", "b")
	d := n.receive("q")
	n.must(n.Settle("q", d.LockToken, broker.Settlement{Outcome: broker.Defer, Properties: map[string]any{"k": "v"}}))
	n.settle("q", n.receive("q"), broker.Complete)
	n.clock.Advance(time.Hour)
	n.nothing("q")

	receive := func() broker.Delivery {
		t.Helper()
		got, err := n.ReceiveDeferred("q", broker.PeekLock, nil, d.SequenceNumber)
		n.must(err)
		return got[0]
	}
	second := receive()
	equal(t, "the body", body(second), "a")
	equal(t, "the property", second.Message.ApplicationProperties["k"], any("v"))
	equal(t, "the delivery count after a deferral", second.DeliveryCount, 1)
	equal(t, "the state", second.Message.Annotations["x-opt-message-state"], any(int32(1)))
	_, err := n.ReceiveDeferred("q", broker.PeekLock, nil, d.SequenceNumber)
	n.refuses(err, condition.MessageNotFound) // it is locked

	n.settle("q", second, broker.Abandon)
	n.nothing("q")
	second = receive()
	equal(t, "the delivery count after abandoning", second.DeliveryCount, 2)
	n.clock.Advance(time.Minute)
	n.nothing("q")
	second = receive()
	equal(t, "the delivery count after the lock has ended", second.DeliveryCount, 3)
	n.settle("q", second, broker.Defer)
	second = receive()
	equal(t, "the delivery count after another deferral", second.DeliveryCount, 4)
	n.settle("q", second, broker.Complete)
	_, err = n.ReceiveDeferred("q", broker.PeekLock, nil, d.SequenceNumber)
	n.refuses(err, condition.MessageNotFound)
}

func TestDefer_LastDeliveryDeadLetters(t *testing.T) {
	n := withQueue(t, properties.Queue{MaxDeliveryCount: 1})
	n.send("q", "a")
	n.settle("q", n.receive("q"), broker.Defer)
	equal(t, "the reason", n.receive("q/$DeadLetterQueue").Message.ApplicationProperties["DeadLetterReason"], any("MaxDeliveryCountExceeded"))
}

func TestReceiveDeferred_AllOrNone(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	n.send("q", "a")
	n.send("q", "b")
	n.settle("q", n.receive("q"), broker.Defer)
	_, err := n.ReceiveDeferred("q", broker.PeekLock, nil, 1, 2)
	n.refuses(err, condition.MessageNotFound)
	_, err = n.ReceiveDeferred("q", broker.ReceiveAndDelete, nil, 1)
	n.must(err)
	_, err = n.ReceiveDeferred("q", broker.PeekLock, nil, 1)
	n.refuses(err, condition.MessageNotFound)
}

// A deferred message stays after its time to live, until a receiver asks for it.
func TestDefer_TimeToLive(t *testing.T) {
	n := withQueue(t, properties.Queue{DeadLetteringOnMessageExpiration: true})
	n.send("q", "a", withTTL(time.Minute))
	n.settle("q", n.receive("q"), broker.Defer)
	n.clock.Advance(time.Hour)
	n.nothing("q/$DeadLetterQueue")
	_, err := n.ReceiveDeferred("q", broker.PeekLock, nil, 1)
	n.refuses(err, condition.MessageNotFound)
	equal(t, "the reason", n.receive("q/$DeadLetterQueue").Message.ApplicationProperties["DeadLetterReason"], any("TTLExpiredException"))
}

func TestPeek_AllStatesInOrder(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	n.send("q", "deferred")
	n.settle("q", n.receive("q"), broker.Defer)
	n.send("q", "scheduled", scheduledAt(start.Add(time.Hour)))
	n.send("q", "locked")
	n.receive("q")
	n.send("q", "available")
	for range 2 { // it changes nothing
		messages, err := n.Peek("q", 0, 10, nil)
		n.must(err)
		equal(t, "the number of messages", len(messages), 4)
		for i, want := range []struct {
			body  string
			state int32
		}{{"deferred", 1}, {"scheduled", 2}, {"locked", 0}, {"available", 0}} {
			m := messages[i]
			equal(t, "the body", string(m.Body()), want.body)
			equal(t, "the state of "+want.body, m.Annotations["x-opt-message-state"], any(want.state))
			equal(t, "the sequence number", m.Annotations["x-opt-sequence-number"], any(int64(i+1)))
			if m.Annotations["x-opt-locked-until"] != nil {
				t.Error("peeking shows a lock")
			}
		}
	}
	messages, err := n.Peek("q", 3, 1, nil)
	n.must(err)
	equal(t, "the number of messages", len(messages), 1)
	equal(t, "the body", string(messages[0].Body()), "locked")
}

func TestDuplicateDetection(t *testing.T) {
	tests := []struct {
		name        string
		partitioned bool
		first, then []option
		accepted    bool
	}{
		{"same id", false, []option{withID("1")}, []option{withID("1")}, false},
		{"other id", false, []option{withID("1")}, []option{withID("2")}, true},
		{"no id", false, nil, nil, true},
		{"same id, other properties", false, []option{withID("1")}, []option{withID("1"), withProperty("k", int64(1))}, false},
		{"the duplicate is scheduled", false, []option{withID("1")}, []option{withID("1"), scheduledAt(start.Add(time.Minute))}, false},
		{"the first is scheduled", false, []option{withID("1"), scheduledAt(start.Add(time.Minute))}, []option{withID("1")}, false},
		{"other partition", false, []option{withID("1"), withPartition("a")}, []option{withID("1"), withPartition("b")}, false},
		{"other partition, partitioned", true, []option{withID("1"), withPartition("a")}, []option{withID("1"), withPartition("b")}, true},
		{"other session, partitioned", true, []option{withID("1"), inSession("a")}, []option{withID("1"), inSession("b")}, true},
		{"same session, partitioned", true, []option{withID("1"), inSession("a")}, []option{withID("1"), inSession("a")}, false},
		{"same partition, partitioned", true, []option{withID("1"), withPartition("a")}, []option{withID("1"), withPartition("a")}, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := withQueue(t, properties.Queue{RequiresDuplicateDetection: true, EnablePartitioning: test.partitioned})
			n.send("q", "a", test.first...)
			n.send("q", "b", test.then...)
			n.clock.Advance(time.Minute)
			want := "[a]"
			if test.accepted {
				want = "[a b]"
			}
			equal(t, "the messages", bodies(n.consume("q").Next(3)), want)
		})
	}
}

func TestDuplicateDetection_Window(t *testing.T) {
	n := withQueue(t, properties.Queue{RequiresDuplicateDetection: true, DuplicateDetectionWindow: time.Minute})
	n.send("q", "a", withID("1"))
	n.settle("q", n.receive("q"), broker.Complete)
	n.clock.Advance(time.Minute - time.Millisecond)
	n.send("q", "b", withID("1"))
	n.nothing("q")
	n.clock.Advance(time.Millisecond)
	n.send("q", "c", withID("1"))
	equal(t, "the body", body(n.receive("q")), "c")
}

func TestAutoDeleteOnIdle(t *testing.T) {
	const idle = 5 * time.Minute
	tests := []struct {
		name string
		use  func(*namespace)
		kept bool // as long as it lasts
	}{
		{"send", func(n *namespace) { n.send("q", "a") }, false},
		{"receive", func(n *namespace) { n.nothing("q") }, false},
		{"peek", func(n *namespace) { _, err := n.Peek("q", 0, 1, nil); n.must(err) }, false},
		{"update", func(n *namespace) {
			n.must(n.UpdateQueue("q", properties.Queue{AutoDeleteOnIdle: idle, MaxDeliveryCount: 5}))
		}, false},
		{"a receiver waits", func(n *namespace) { n.consume("q") }, true},
		{"a message is scheduled", func(n *namespace) { n.send("q", "a", scheduledAt(start.Add(time.Hour))) }, true},
		{"AutoDeleteOnIdle is switched off", func(n *namespace) { n.must(n.UpdateQueue("q", properties.Queue{})) }, true},
	}
	exists := func(n *namespace) bool { _, err := n.Queue("q"); return err == nil }
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := withQueue(t, properties.Queue{AutoDeleteOnIdle: idle})
			n.clock.Advance(4 * time.Minute)
			test.use(n)
			n.clock.Advance(4 * time.Minute)
			equal(t, "existence after use", exists(n), true)
			n.clock.Advance(40 * time.Minute)
			equal(t, "existence later", exists(n), test.kept)
		})
	}
	n := withQueue(t, properties.Queue{AutoDeleteOnIdle: idle})
	n.clock.Advance(idle - time.Millisecond)
	equal(t, "existence before the end", exists(n), true)
	n.clock.Advance(time.Millisecond)
	equal(t, "existence", exists(n), false)
}

// Messages of a topic do not keep its subscription in use, and receivers of the subscription do not
// keep the topic in use.
func TestAutoDeleteOnIdle_TopicAndSubscription(t *testing.T) {
	const idle = 5 * time.Minute
	n := newNamespace(t, broker.Config{})
	n.must(n.CreateTopic("t", properties.Topic{AutoDeleteOnIdle: 2 * idle}))
	n.must(n.CreateSubscription("t", "idle", properties.Subscription{AutoDeleteOnIdle: idle}, rules.Rule{}))
	n.must(n.CreateSubscription("t", "s", properties.Subscription{AutoDeleteOnIdle: idle}, rules.Rule{}))
	n.consume(subscription)
	n.clock.Advance(4 * time.Minute)
	n.send("t", "a")
	n.clock.Advance(time.Minute)
	_, err := n.Entity("t/Subscriptions/idle")
	n.refuses(err, condition.NotFound)
	_, err = n.Subscription("t", "s")
	n.must(err)
	n.clock.Advance(9*time.Minute - time.Millisecond)
	_, err = n.Topic("t")
	n.must(err)
	n.clock.Advance(time.Millisecond)
	_, err = n.Topic("t")
	n.refuses(err, condition.NotFound)
}
