package broker_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/reprise-go/reprise/transport/asb/internal/sbserver/broker"
)

// withTopic returns a namespace with the topic "t", the subscription "s" that has a rule, and the
// queue "q".
func withTopic(t *testing.T, first broker.Rule) *namespace {
	t.Helper()
	n := newNamespace(t, broker.Config{})
	n.queue("q", broker.QueueProperties{})
	n.must(n.CreateTopic("t", broker.TopicProperties{}))
	n.must(n.CreateSubscription("t", "s", broker.SubscriptionProperties{}, first))
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
	n := withTopic(t, broker.Rule{})
	n.must(n.CreateSubscription("T", "other", broker.SubscriptionProperties{}, broker.Rule{}))
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
	n.refuses(err, broker.CondNotAllowed)
	n.refuses(n.Send(subscription, newMessage("a")), broker.CondNotAllowed)
}

func TestSubscription_ForwardsToAQueue(t *testing.T) {
	n := withTopic(t, broker.Rule{})
	n.must(n.CreateSubscription("t", "f", broker.SubscriptionProperties{ForwardTo: "sb://localhost/q"}, broker.Rule{}))
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
	n.refuses(err, broker.CondNotAllowed)
}

func TestForward_Failures(t *testing.T) {
	tests := []struct {
		name   string
		spoil  func(*namespace)
		reason string
	}{
		{"deleted", func(n *namespace) { n.must(n.DeleteQueue("target")) }, "MessagingEntityNotFoundException"},
		{"disabled", func(n *namespace) { n.must(n.SetStatus("target", broker.StatusDisabled)) }, "MessagingEntityDisabledException"},
		{"sending is disabled", func(n *namespace) { n.must(n.SetStatus("target", broker.StatusSendDisabled)) }, "MessagingEntityDisabledException"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := newNamespace(t, broker.Config{})
			n.queue("target", broker.QueueProperties{})
			n.queue("source", broker.QueueProperties{ForwardTo: "target"})
			test.spoil(n)
			n.send("source", "a")
			d := n.receive("source/$DeadLetterQueue")
			equal(t, "the body", body(d), "a")
			equal(t, "the reason", d.Message.ApplicationProperties["DeadLetterReason"], any(test.reason))
			n.nothing("source/$Transfer/$DeadLetterQueue")
		})
	}
}

func TestForward_QueueThatWasCreatedAnew(t *testing.T) {
	n := withTopic(t, broker.Rule{})
	n.queue("target", broker.QueueProperties{})
	n.must(n.CreateSubscription("t", "f", broker.SubscriptionProperties{ForwardTo: "target"}, broker.Rule{}))
	n.must(n.DeleteQueue("target"))
	n.queue("target", broker.QueueProperties{})
	n.send("t", "a")
	d := n.receive("t/Subscriptions/f/$DeadLetterQueue")
	equal(t, "the description", d.Message.ApplicationProperties["DeadLetterErrorDescription"], any("The transfer destination entity does not exist."))
	n.must(n.UpdateSubscription("t", "f", broker.SubscriptionProperties{ForwardTo: "target", UserMetadata: "changed"}))
	n.send("t", "b")
	equal(t, "the body after a change of the subscription", body(n.receive("target")), "b")
}

func TestForward_FourHops(t *testing.T) {
	n := newNamespace(t, broker.Config{})
	n.queue("hop0", broker.QueueProperties{})
	for i := range 5 {
		n.queue(fmt.Sprint("hop", i+1), broker.QueueProperties{ForwardTo: fmt.Sprint("hop", i)})
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
	n.queue("c", broker.QueueProperties{})
	n.queue("b", broker.QueueProperties{ForwardTo: "c"})
	n.queue("a", broker.QueueProperties{ForwardTo: "b", DefaultMessageTimeToLive: time.Minute})
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
	n.queue("target", broker.QueueProperties{RequiresDuplicateDetection: true})
	n.queue("source", broker.QueueProperties{ForwardTo: "target"})
	n.send("source", "a", withID("1"))
	n.send("source", "b", withID("1"))
	n.send("target", "c", withID("1"))
	equal(t, "the messages", bodies(n.consume("target").Next(5)), "[a]")
}

func TestForward_SessionTarget(t *testing.T) {
	n := newNamespace(t, broker.Config{})
	n.queue("q", broker.QueueProperties{RequiresSession: true})
	n.queue("source", broker.QueueProperties{ForwardTo: "q"})
	n.send("source", "a", inSession("s"))
	n.send("source", "b")
	equal(t, "the messages of the session", bodies(n.accept("s").Next(5)), "[a]")
	equal(t, "the reason", n.receive("source/$DeadLetterQueue").Message.ApplicationProperties["DeadLetterReason"], any("Session ID is null."))
}

func TestForward_BeginsWithAnUpdate(t *testing.T) {
	n := newNamespace(t, broker.Config{})
	n.queue("target", broker.QueueProperties{})
	n.queue("q", broker.QueueProperties{})
	n.send("q", "a")
	n.must(n.UpdateQueue("q", broker.QueueProperties{ForwardTo: "target"}))
	equal(t, "the body", body(n.receive("target")), "a")
}

func TestTopic_ScheduledMessage(t *testing.T) {
	n := withTopic(t, broker.Rule{})
	sequences, err := n.Schedule("t", newMessage("a", scheduledAt(start.Add(time.Minute))), newMessage("b", scheduledAt(start.Add(time.Minute))))
	n.must(err)
	n.must(n.CancelScheduled("t", sequences[0]))
	n.nothing(subscription)
	n.clock.Advance(time.Minute)
	equal(t, "the messages", bodies(n.consume(subscription).Next(5)), "[b]")
}

func TestTopic_TimeToLive(t *testing.T) {
	n := newNamespace(t, broker.Config{})
	n.must(n.CreateTopic("t", broker.TopicProperties{DefaultMessageTimeToLive: time.Minute}))
	n.must(n.CreateSubscription("t", "s", broker.SubscriptionProperties{DefaultMessageTimeToLive: time.Hour}, broker.Rule{}))
	n.send("t", "a", withTTL(24*time.Hour))
	d := n.receive(subscription)
	equal(t, "the time to live", d.Message.Header.TTL, time.Minute)
}

func TestTopic_DuplicateDetection(t *testing.T) {
	n := newNamespace(t, broker.Config{})
	n.must(n.CreateTopic("t", broker.TopicProperties{RequiresDuplicateDetection: true}))
	n.must(n.CreateSubscription("t", "s", broker.SubscriptionProperties{}, broker.Rule{}))
	n.send("t", "a", withID("1"))
	n.send("t", "b", withID("1"))
	equal(t, "the messages", bodies(n.consume(subscription).Next(5)), "[a]")
}

func TestFilter(t *testing.T) {
	message := []option{func(m *amqp.Message) {
		m.Properties = &amqp.MessageProperties{
			MessageID: "m1", CorrelationID: "c1", Subject: new("label"), To: new("to"), ReplyTo: new("reply"),
			ReplyToGroupID: new("rs"), GroupID: new("s1"), ContentType: new("application/json"),
		}
		m.ApplicationProperties = map[string]any{
			"color": "red", "Size": int32(10), "price": 2.5, "big": true, "small": uint8(3), "Some.Name": "x",
			"types": "Ns.A;Ns.B", "percent": "50%", "at": start,
		}
	}}
	sql := func(expression string) broker.Filter { return broker.SQLFilter{Expression: expression} }
	tests := []struct {
		filter broker.Filter
		want   bool
	}{
		{nil, true},
		{broker.TrueFilter{}, true},
		{broker.FalseFilter{}, false},

		{broker.CorrelationFilter{}, true},
		{broker.CorrelationFilter{Subject: new("label")}, true},
		{broker.CorrelationFilter{Subject: new("Label")}, false},
		{broker.CorrelationFilter{MessageID: new("m1"), CorrelationID: new("c1"), To: new("to"), ReplyTo: new("reply"),
			ReplyToSessionID: new("rs"), SessionID: new("s1"), ContentType: new("application/json")}, true},
		{broker.CorrelationFilter{MessageID: new("m1"), CorrelationID: new("c2")}, false},
		{broker.CorrelationFilter{Properties: map[string]any{"color": "red", "Size": int64(10), "big": true}}, true},
		{broker.CorrelationFilter{Properties: map[string]any{"color": "red", "Size": int64(11)}}, false},
		{broker.CorrelationFilter{Properties: map[string]any{"missing": "x"}}, false},
		{broker.CorrelationFilter{Subject: new("label"), Properties: map[string]any{"color": "blue"}}, false},

		{sql("1=1"), true},
		{sql("1=0"), false},
		{sql("color = 'red'"), true},
		{sql("COLOR='red'"), true},
		{sql("user.color = 'red'"), true},
		{sql("[color] = 'red'"), true},
		{sql(`"color" = 'red'`), true},
		{sql("[Some.Name] = 'x'"), true},
		{sql("color = 'Red'"), false},
		{sql("color <> 'blue'"), true},
		{sql("color != 'red'"), false},
		{sql("color > 'blue' AND color < 'yellow'"), true},
		{sql("sys.Label = 'label'"), true},
		{sql("sys.label LIKE 'la%'"), true},
		{sql("sys.MessageId = 'm1' AND sys.CorrelationId = 'c1' AND sys.SessionId = 's1'"), true},
		{sql("sys.PartitionKey IS NULL"), true},
		{sql("Size = 10"), true},
		{sql("Size >= 10 AND Size <= 10.0"), true},
		{sql("Size > 10 OR Size < 10"), false},
		{sql("price * 4 = Size"), true},
		{sql("Size % 3 = 1 AND Size / 3 = 3 AND Size - 1 + 2 = 11"), true},
		{sql("-Size = -10"), true},
		{sql("2 + 3 * 4 = 14 AND (2 + 3) * 4 = 20"), true},
		{sql("big = TRUE"), true},
		{sql("big <> FALSE AND small = 3"), true},
		{sql("price = 0.25E1"), true},
		{sql("color IN ('blue', 'red')"), true},
		{sql("color NOT IN ('blue', 'red')"), false},
		{sql("Size IN (1, 10)"), true},
		{sql("missing IN ('a')"), false},
		{sql("missing NOT IN ('a')"), false}, // unknown
		{sql("missing IS NULL"), true},
		{sql("missing IS NOT NULL"), false},
		{sql("color IS NOT NULL"), true},
		{sql("EXISTS(color)"), true},
		{sql("EXISTS(user.missing)"), false},
		{sql("NOT EXISTS(missing)"), true},
		{sql("missing = 'x'"), false},
		{sql("NOT missing = 'x'"), false}, // unknown
		{sql("missing = 'x' OR color = 'red'"), true},
		{sql("NOT (missing = 'x' AND color = 'blue')"), true},
		{sql("missing = 'x' AND color = 'red'"), false},
		{sql("missing + 1 = 2"), false},
		{sql("types LIKE '%Ns.B%'"), true},
		{sql("types LIKE 'Ns._;Ns._'"), true},
		{sql("types LIKE 'Ns.B'"), false},
		{sql("types NOT LIKE '%C%'"), true},
		{sql(`percent LIKE '50\%' ESCAPE '\'`), true},
		{sql(`types LIKE '%\%' ESCAPE '\'`), false},
		{sql("color = 'it''s' OR color = 'red'"), true},
		{sql("color = 'red' OR color = 'blue' AND Size = 11"), true},
		{sql("(color = 'red' OR color = 'blue') AND Size = 11"), false},
		{sql("NOT color = 'blue' AND NOT (Size = 11)"), true},
		{sql("property('color') = 'red' AND p('Size') = 10"), true},
		{sql("newid() = newid()"), false},
		{broker.SQLFilter{Expression: "color = @c AND Size < @s", Parameters: map[string]any{"@c": "red", "@s": int32(11)}}, true},
	}
	for _, test := range tests {
		t.Run(fmt.Sprint(test.filter), func(t *testing.T) {
			n := withTopic(t, broker.Rule{Name: "r", Filter: test.filter})
			n.send("t", "a", message...)
			equal(t, "selection", n.received() == 1, test.want)
			n.nothing(subscription + "/$DeadLetterQueue")
		})
	}
}

func TestFilter_Invalid(t *testing.T) {
	long := "color = '" + string(make([]byte, 1024)) + "'"
	deep := ""
	for range 300 {
		deep += "("
	}
	for _, expression := range []string{
		"", "color =", "= 'a'", "color = 'a", "[color = 'a'", "color 'a'", "color = 'a' b", "color IN ()", "color IN ('a'", "color LIKE", "color IS 1",
		"color NOT = 'a'", "EXISTS color", "sys.Nonsense = 1", "other.color = 1", "AND = 1", "color = @missing", "f(1) = 1", "color = # 1", "(1=1", "1=1\x00", long, deep,
	} {
		t.Run(expression[:min(len(expression), 20)], func(t *testing.T) {
			n := withTopic(t, broker.Rule{})
			err := n.CreateRule("t", "s", broker.Rule{Name: "r", Filter: broker.SQLFilter{Expression: expression}})
			n.refuses(err, broker.CondArgument)
		})
	}
}

func TestFilter_Error(t *testing.T) {
	for _, drop := range []bool{false, true} {
		t.Run(fmt.Sprint(drop), func(t *testing.T) {
			n := newNamespace(t, broker.Config{})
			n.must(n.CreateTopic("t", broker.TopicProperties{}))
			n.must(n.CreateSubscription("t", "s", broker.SubscriptionProperties{DropOnFilterErrors: drop},
				broker.Rule{Name: "r", Filter: broker.SQLFilter{Expression: "color > 5"}}))
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
	n := withTopic(t, broker.Rule{})
	n.must(n.CreateRule("t", "s", broker.Rule{Name: "r1", Filter: broker.TrueFilter{}}))
	n.must(n.CreateRule("t", "s", broker.Rule{Name: "a1", Action: &broker.Action{
		Expression: "SET color = 'blue'; SET sys.Label = 'l' SET n = Size / 2, REMOVE Other; SET sys.CorrelationId = property('color')",
	}}))
	n.must(n.CreateRule("t", "s", broker.Rule{Name: "no", Filter: broker.FalseFilter{}, Action: &broker.Action{Expression: "SET a = 1"}}))
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

func TestActions_Invalid(t *testing.T) {
	for _, expression := range []string{"", "SET", "SET a", "SET a = ", "color = 1", "REMOVE", "SET sys.Size = 1", "SET sys.Nonsense = 1", "SET a = 1 b"} {
		n := withTopic(t, broker.Rule{})
		err := n.CreateRule("t", "s", broker.Rule{Name: "r", Action: &broker.Action{Expression: expression}})
		n.refuses(err, broker.CondArgument)
	}
}

func TestRules_Management(t *testing.T) {
	n := withTopic(t, broker.Rule{})
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
	n.must(n.CreateRule("t", "s", broker.Rule{Name: "r", Filter: broker.FalseFilter{}}))
	n.refuses(n.CreateRule("t", "s", broker.Rule{Name: "R"}), broker.CondEntityAlreadyExists)
	n.must(n.DeleteRule("t", "s", "$default"))
	equal(t, "the rules", names(), "[r]")
	n.send("t", "a")
	equal(t, "the number of messages", n.received(), 0)
	n.must(n.UpdateRule("t", "s", broker.Rule{Name: "r", Filter: broker.TrueFilter{}}))
	n.send("t", "b")
	equal(t, "the number of messages", n.received(), 1)
	n.must(n.DeleteRule("t", "s", "r"))
	n.send("t", "c")
	equal(t, "the number of messages", n.received(), 1)
	n.refuses(n.DeleteRule("t", "s", "r"), broker.CondNotFound)
	n.refuses(n.UpdateRule("t", "s", broker.Rule{Name: "r"}), broker.CondNotFound)
}
