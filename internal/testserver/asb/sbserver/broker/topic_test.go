package broker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/rules"
)

// withTopic returns a namespace with the topic "t", the subscription "s" that has a rule, and the
// queue "q".
func withTopic(t *testing.T, first rules.Rule) *namespace {
	t.Helper()
	n := newNamespace(t, broker.Config{})
	n.queue("q", properties.Queue{})
	n.must(n.CreateTopic("t", properties.Topic{}))
	n.must(n.CreateSubscription("t", "s", properties.Subscription{}, first))
	return n
}

const subscription = "t/Subscriptions/s"

func (n *namespace) received() int {
	n.t.Helper()
	info, err := n.Subscription("t", "s")
	n.must(err)
	return info.Runtime.Active
}

func TestTopic_CopiesToEachSubscription(t *testing.T) {
	n := withTopic(t, rules.Rule{})
	n.must(n.CreateSubscription("T", "other", properties.Subscription{}, rules.Rule{}))
	n.send("t", "a", withID("m"))
	for _, path := range []string{subscription, "T/subscriptions/OTHER"} {
		d := n.receive(path)
		equal(t, "the body", body(d), "a")
		equal(t, "the message id", d.Message.Properties.MessageID, any("m"))
		equal(t, "the sequence number", d.SequenceNumber, 1)
		n.settle(path, d, broker.Complete)
		n.nothing(path)
	}
	_, err := n.Consume(t.Context(), "t", broker.ConsumerConfig{})
	n.refuses(err, condition.NotAllowed)
	n.refuses(n.Send(subscription, newMessage("a")), condition.NotAllowed)
}

func TestSubscription_ForwardsToAQueue(t *testing.T) {
	n := withTopic(t, rules.Rule{})
	n.must(n.CreateSubscription("t", "f", properties.Subscription{ForwardTo: "sb://localhost/q"}, rules.Rule{}))
	n.send("q", "occupies sequence numbers")
	n.settle("q", n.receive("q"), broker.Complete)
	n.send("t", "a", withID("m"), withTTL(time.Hour))
	d := n.receive("q")
	equal(t, "the message id", d.Message.Properties.MessageID, any("m"))
	equal(t, "the sequence number", d.SequenceNumber, 2)
	equal(t, "the enqueued sequence number", d.Message.Annotations["x-opt-enqueue-sequence-number"], any(int64(1)))
	equal(t, "the delivery count", d.DeliveryCount, 0)
	equal(t, "the time to live", d.Message.Header.TTL, time.Hour)
	_, err := n.Consume(t.Context(), "t/Subscriptions/f", broker.ConsumerConfig{})
	n.refuses(err, condition.NotAllowed)
}

func TestForward_Failures(t *testing.T) {
	tests := []struct {
		name   string
		spoil  func(*namespace)
		reason string
	}{
		{"deleted", func(n *namespace) { n.must(n.DeleteQueue("target")) }, "MessagingEntityNotFoundException"},
		{"disabled", func(n *namespace) { n.must(n.SetStatus("target", properties.StatusDisabled)) }, "MessagingEntityDisabledException"},
		{"sending is disabled", func(n *namespace) { n.must(n.SetStatus("target", properties.StatusSendDisabled)) }, "MessagingEntityDisabledException"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := newNamespace(t, broker.Config{})
			n.queue("target", properties.Queue{})
			n.queue("source", properties.Queue{ForwardTo: "target"})
			test.spoil(n)
			n.send("source", "a")
			d := n.receive("source/$DeadLetterQueue")
			equal(t, "the body", body(d), "a")
			equal(t, "the reason", d.Message.ApplicationProperties["DeadLetterReason"], any(test.reason))
			n.nothing("source/$Transfer/$DeadLetterQueue")
		})
	}
}

func TestForward_RecreatedQueue(t *testing.T) {
	n := withTopic(t, rules.Rule{})
	n.queue("target", properties.Queue{})
	n.must(n.CreateSubscription("t", "f", properties.Subscription{ForwardTo: "target"}, rules.Rule{}))
	n.must(n.DeleteQueue("target"))
	n.queue("target", properties.Queue{})
	n.send("t", "a")
	d := n.receive("t/Subscriptions/f/$DeadLetterQueue")
	equal(t, "the description", d.Message.ApplicationProperties["DeadLetterErrorDescription"], any("The transfer destination entity does not exist."))
	n.must(n.UpdateSubscription("t", "f", properties.Subscription{ForwardTo: "target", UserMetadata: "changed"}))
	n.send("t", "b")
	equal(t, "the body after a change of the subscription", body(n.receive("target")), "b")
}

func TestForward_FourHops(t *testing.T) {
	n := newNamespace(t, broker.Config{})
	n.queue("hop0", properties.Queue{})
	for i := range 5 {
		n.queue(fmt.Sprint("hop", i+1), properties.Queue{ForwardTo: fmt.Sprint("hop", i)})
	}
	n.send("hop4", "a")
	equal(t, "the body after four hops", body(n.receive("hop0")), "a")
	n.send("hop5", "b")
	d := n.receive("hop1/$DeadLetterQueue")
	equal(t, "the body after five hops", body(d), "b")
	equal(t, "the reason", d.Message.ApplicationProperties["DeadLetterReason"], any("MaxTransferHopCountExceeded"))
}

// The sequence number of the first entity and the time to live that an entity on the way allows
// stay.
func TestForward_Chain(t *testing.T) {
	n := newNamespace(t, broker.Config{})
	n.queue("c", properties.Queue{})
	n.queue("b", properties.Queue{ForwardTo: "c"})
	n.queue("a", properties.Queue{ForwardTo: "b", DefaultMessageTimeToLive: time.Minute})
	n.send("b", "first")
	n.send("b", "second")
	n.send("a", "third")
	got := n.consume("c").Next(5)
	equal(t, "the messages", bodies(got), "[first second third]")
	equal(t, "the sequence number", got[2].SequenceNumber, 3)
	equal(t, "the enqueued sequence number", got[2].Message.Annotations["x-opt-enqueue-sequence-number"], any(int64(1)))
	equal(t, "the time to live", got[2].Message.Header.TTL, time.Minute)
}

func TestForward_DuplicateDetectionOfTheTarget(t *testing.T) {
	n := newNamespace(t, broker.Config{})
	n.queue("target", properties.Queue{RequiresDuplicateDetection: true})
	n.queue("source", properties.Queue{ForwardTo: "target"})
	n.send("source", "a", withID("1"))
	n.send("source", "b", withID("1"))
	n.send("target", "c", withID("1"))
	equal(t, "the messages", bodies(n.consume("target").Next(5)), "[a]")
}

func TestForward_SessionTarget(t *testing.T) {
	n := newNamespace(t, broker.Config{})
	n.queue("q", properties.Queue{RequiresSession: true})
	n.queue("source", properties.Queue{ForwardTo: "q"})
	n.send("source", "a", inSession("s"))
	n.send("source", "b")
	equal(t, "the messages of the session", bodies(n.accept("s").Next(5)), "[a]")
	equal(t, "the reason", n.receive("source/$DeadLetterQueue").Message.ApplicationProperties["DeadLetterReason"], any("Session ID is null."))
}

func TestForward_BeginsWithAnUpdate(t *testing.T) {
	n := newNamespace(t, broker.Config{})
	n.queue("target", properties.Queue{})
	n.queue("q", properties.Queue{})
	n.send("q", "a")
	n.must(n.UpdateQueue("q", properties.Queue{ForwardTo: "target"}))
	equal(t, "the body", body(n.receive("target")), "a")
}

func TestTopic_ScheduledMessage(t *testing.T) {
	n := withTopic(t, rules.Rule{})
	sequences, err := n.Schedule("t", newMessage("a", scheduledAt(start.Add(time.Minute))), newMessage("b", scheduledAt(start.Add(time.Minute))))
	n.must(err)
	n.must(n.CancelScheduled("t", sequences[0]))
	n.nothing(subscription)
	n.clock.Advance(time.Minute)
	equal(t, "the messages", bodies(n.consume(subscription).Next(5)), "[b]")
}

func TestTopic_TimeToLive(t *testing.T) {
	n := newNamespace(t, broker.Config{})
	n.must(n.CreateTopic("t", properties.Topic{DefaultMessageTimeToLive: time.Minute}))
	n.must(n.CreateSubscription("t", "s", properties.Subscription{DefaultMessageTimeToLive: time.Hour}, rules.Rule{}))
	n.send("t", "a", withTTL(24*time.Hour))
	d := n.receive(subscription)
	equal(t, "the time to live", d.Message.Header.TTL, time.Minute)
}

func TestTopic_DuplicateDetection(t *testing.T) {
	n := newNamespace(t, broker.Config{})
	n.must(n.CreateTopic("t", properties.Topic{RequiresDuplicateDetection: true}))
	n.must(n.CreateSubscription("t", "s", properties.Subscription{}, rules.Rule{}))
	n.send("t", "a", withID("1"))
	n.send("t", "b", withID("1"))
	equal(t, "the messages", bodies(n.consume(subscription).Next(5)), "[a]")
}

func TestFilter_Error(t *testing.T) {
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprint(drop), func(t *testing.T) {
			n := newNamespace(t, broker.Config{})
			n.must(n.CreateTopic("t", properties.Topic{}))
			n.must(n.CreateSubscription("t", "s", properties.Subscription{DropOnFilterErrors: drop},
				rules.Rule{Name: "r", Filter: rules.SQLFilter{Expression: "color > 5"}}))
			n.send("t", "a", withProperty("color", "red"))
			n.nothing(subscription)
			if drop {
				n.nothing(subscription + "/$DeadLetterQueue")
				return
			}
			equal(t, "the reason", n.receive(subscription + "/$DeadLetterQueue").Message.ApplicationProperties["DeadLetterReason"],
				any("FilterEvaluationException"))
		})
	}
}

// Rules without actions make one copy together, each rule with an action makes another one.
func TestRules_Copies(t *testing.T) {
	n := withTopic(t, rules.Rule{})
	n.must(n.CreateRule("t", "s", rules.Rule{Name: "r1", Filter: rules.TrueFilter{}}))
	n.must(n.CreateRule("t", "s", rules.Rule{Name: "a1", Action: &rules.Action{
		Expression: "SET color = 'blue'; SET sys.Label = 'l' SET n = Size / 2, REMOVE Other; SET sys.CorrelationId = property('color')",
	}}))
	n.must(n.CreateRule("t", "s", rules.Rule{Name: "no", Filter: rules.FalseFilter{}, Action: &rules.Action{Expression: "SET a = 1"}}))
	n.send("t", "a", withProperty("Color", "red"), withProperty("size", int32(10)), withProperty("other", "x"))
	got := n.consume(subscription).Next(10)
	equal(t, "the number of copies", len(got), 2)
	plain, changed := got[0].Message, got[1].Message
	equal(t, "the color of the plain copy", plain.ApplicationProperties["Color"], any("red"))
	equal(t, "the rule's name in the plain copy", plain.ApplicationProperties["RuleName"], nil)
	equal(t, "the color", changed.ApplicationProperties["Color"], any("blue"))
	equal(t, "the rule's name", changed.ApplicationProperties["RuleName"], any("a1"))
	equal(t, "the number", changed.ApplicationProperties["n"], any(int64(5)))
	equal(t, "the removed property", changed.ApplicationProperties["other"], nil)
	equal(t, "the label", *changed.Properties.Subject, "l")
	equal(t, "the correlation id", changed.Properties.CorrelationID, any("blue"))
}

func TestRules_Management(t *testing.T) {
	n := withTopic(t, rules.Rule{})
	names := func() string {
		rules, err := n.Rules("t", "s")
		n.must(err)
		var names []string
		for _, r := range rules {
			names = append(names, r.Name)
		}
		return fmt.Sprint(names)
	}
	equal(t, "the rules", names(), "[$Default]")
	n.must(n.CreateRule("t", "s", rules.Rule{Name: "r", Filter: rules.FalseFilter{}}))
	n.refuses(n.CreateRule("t", "s", rules.Rule{Name: "R"}), condition.EntityAlreadyExists)
	n.must(n.DeleteRule("t", "s", "$default"))
	equal(t, "the rules", names(), "[r]")
	n.send("t", "a")
	equal(t, "the number of messages", n.received(), 0)
	n.must(n.UpdateRule("t", "s", rules.Rule{Name: "r", Filter: rules.TrueFilter{}}))
	n.send("t", "b")
	equal(t, "the number of messages", n.received(), 1)
	n.must(n.DeleteRule("t", "s", "r"))
	n.send("t", "c")
	equal(t, "the number of messages", n.received(), 1)
	n.refuses(n.DeleteRule("t", "s", "r"), condition.NotFound)
	n.refuses(n.UpdateRule("t", "s", rules.Rule{Name: "r"}), condition.NotFound)
}
