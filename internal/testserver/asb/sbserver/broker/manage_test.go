package broker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/rules"
)

func TestQueue_Defaults(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	info, err := n.Queue("Q")
	n.must(err)
	equal(t, "the name", info.Name, "q")
	equal(t, "the properties", info.Properties, properties.Queue{
		LockDuration: time.Minute, MaxDeliveryCount: 10, DefaultMessageTimeToLive: properties.MaxTimeToLive, DuplicateDetectionWindow: 10 * time.Minute,
		Status: properties.StatusActive, AutoDeleteOnIdle: properties.MaxTimeToLive, MaxSizeInMegabytes: 1024,
	})
	equal(t, "the time of creation", info.Runtime.Created, start)
}

func TestCreateQueue_Refusals(t *testing.T) {
	tests := []struct {
		name      string
		queue     string
		p         properties.Queue
		condition amqp10.Symbol
	}{
		{"exists", "Q", properties.Queue{}, condition.EntityAlreadyExists},
		{"a topic has the name", "t", properties.Queue{}, condition.EntityAlreadyExists},
		{"no name", "", properties.Queue{}, condition.Argument},
		{"long name", strings.Repeat("x", 261), properties.Queue{}, condition.Argument},
		{"bad name", "a b", properties.Queue{}, condition.Argument},
		{"short lock", "n", properties.Queue{LockDuration: time.Millisecond}, condition.ArgumentRange},
		{"long lock", "n", properties.Queue{LockDuration: 5*time.Minute + 1}, condition.ArgumentRange},
		{"negative count", "n", properties.Queue{MaxDeliveryCount: -1}, condition.ArgumentRange},
		{"short time to live", "n", properties.Queue{DefaultMessageTimeToLive: time.Millisecond}, condition.ArgumentRange},
		{"short window", "n", properties.Queue{DuplicateDetectionWindow: 19 * time.Second}, condition.ArgumentRange},
		{"long window", "n", properties.Queue{DuplicateDetectionWindow: 8 * 24 * time.Hour}, condition.ArgumentRange},
		{"short idle time", "n", properties.Queue{AutoDeleteOnIdle: time.Minute}, condition.ArgumentRange},
		{"negative size", "n", properties.Queue{MaxSizeInMegabytes: -1}, condition.ArgumentRange},
		{"message size in Standard", "n", properties.Queue{MaxMessageSizeInKilobytes: 1024}, condition.NotAllowed},
		{"unknown status", "n", properties.Queue{Status: "Sleeping"}, condition.Argument},
		{"forwards to nowhere", "n", properties.Queue{ForwardTo: "missing"}, condition.NotFound},
		{"forwards dead letters to nowhere", "n", properties.Queue{ForwardDeadLetteredMessagesTo: "missing"}, condition.NotFound},
		{"forwards to itself", "n", properties.Queue{ForwardTo: "N"}, condition.Argument},
		{"forwards to a subscription", "n", properties.Queue{ForwardTo: "t/Subscriptions/s"}, condition.NotFound},
		{"sessions and forwarding", "n", properties.Queue{ForwardTo: "q", RequiresSession: true}, condition.NotAllowed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := withTopic(t, rules.Rule{})
			n.refuses(n.CreateQueue(test.queue, test.p), test.condition)
		})
	}
}

func TestCreateQueue_LimitsOfTheEmulator(t *testing.T) {
	n := newNamespace(t, broker.Config{EmulatorLimits: true})
	for _, p := range []properties.Queue{{MaxDeliveryCount: 11}, {DefaultMessageTimeToLive: 61 * time.Minute}, {DefaultMessageTimeToLive: 4 * time.Minute}} {
		n.refuses(n.CreateQueue("q", p), condition.ArgumentRange)
	}
	n.must(n.CreateQueue("q", properties.Queue{MaxDeliveryCount: 10}))
	info, err := n.Queue("q")
	n.must(err)
	equal(t, "the time to live", info.Properties.DefaultMessageTimeToLive, time.Hour)
}

func TestForwardTo_TurnsAutoDeleteOff(t *testing.T) {
	n := withQueue(t, properties.Queue{})
	n.queue("source", properties.Queue{ForwardTo: "q", AutoDeleteOnIdle: 5 * time.Minute})
	n.clock.Advance(time.Hour)
	info, err := n.Queue("source")
	n.must(err)
	equal(t, "the idle time", info.Properties.AutoDeleteOnIdle, properties.MaxTimeToLive)
}

func TestUpdate(t *testing.T) {
	n := withTopic(t, rules.Rule{})
	n.clock.Advance(time.Second)
	n.must(n.UpdateQueue("q", properties.Queue{LockDuration: 5 * time.Second, UserMetadata: "x"}))
	n.must(n.UpdateTopic("t", properties.Topic{UserMetadata: "x"}))
	n.must(n.UpdateSubscription("t", "s", properties.Subscription{MaxDeliveryCount: 1}))
	info, err := n.Queue("q")
	n.must(err)
	equal(t, "the metadata", info.Properties.UserMetadata, "x")
	equal(t, "the time of the update", info.Runtime.Updated, start.Add(time.Second))
	n.send("q", "a")
	equal(t, "the end of the lock", n.receive("q").LockedUntil, start.Add(6*time.Second))
	n.send("t", "a")
	n.settle(subscription, n.receive(subscription), broker.Abandon)
	equal(t, "the body", body(n.receive(subscription+"/$DeadLetterQueue")), "a")
	for _, p := range []properties.Queue{{RequiresSession: true}, {RequiresDuplicateDetection: true}, {EnablePartitioning: true}} {
		n.refuses(n.UpdateQueue("q", p), condition.NotAllowed)
	}
	n.refuses(n.UpdateQueue("t", properties.Queue{}), condition.NotFound)
	n.refuses(n.UpdateTopic("q", properties.Topic{}), condition.NotFound)
	n.refuses(n.UpdateSubscription("t", "missing", properties.Subscription{}), condition.NotFound)
}

func TestDelete_EndsReceivers(t *testing.T) {
	tests := []struct {
		name, path string
		remove     func(*namespace) error
	}{
		{"queue", "q", func(n *namespace) error { return n.DeleteQueue("Q") }},
		{"dead-letter queue", "q/$DeadLetterQueue", func(n *namespace) error { return n.DeleteQueue("q") }},
		{"subscription", subscription, func(n *namespace) error { return n.DeleteSubscription("t", "s") }},
		{"topic", subscription, func(n *namespace) error { return n.DeleteTopic("t") }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := withTopic(t, rules.Rule{})
			n.send("q", "a")
			n.send("t", "a")
			var ended []*condition.Error
			c, err := n.Consume(t.Context(), test.path, broker.ConsumerConfig{Ended: func(e *condition.Error) { ended = append(ended, e) }})
			n.must(err)
			got := c.Next(1)
			n.must(test.remove(n))
			equal(t, "the number of calls", len(ended), 1)
			equal(t, "the condition", ended[0].Condition, condition.NotFound)
			equal(t, "the number of messages afterwards", len(c.Next(1)), 0)
			for _, d := range got {
				n.refuses(c.Settle(d.LockToken, broker.Settlement{Outcome: broker.Complete}), condition.NotFound)
			}
			_, err = n.Entity(test.path)
			n.refuses(err, condition.NotFound)
			n.refuses(test.remove(n), condition.NotFound)
			n.clock.Advance(time.Hour) // no lock of the deleted entity matters
			n.must(c.Close())
			equal(t, "the number of calls", len(ended), 1)
		})
	}
}

func TestStatus(t *testing.T) {
	tests := []struct {
		status        properties.Status
		send, receive bool
	}{
		{properties.StatusActive, true, true},
		{properties.StatusDisabled, false, false},
		{properties.StatusSendDisabled, false, true},
		{properties.StatusReceiveDisabled, true, false},
	}
	for _, test := range tests {
		t.Run(string(test.status), func(t *testing.T) {
			n := withQueue(t, properties.Queue{})
			n.send("q", "kept")
			var ended []*condition.Error
			_, err := n.Consume(t.Context(), "q", broker.ConsumerConfig{Ended: func(e *condition.Error) { ended = append(ended, e) }})
			n.must(err)
			n.must(n.SetStatus("q", test.status))
			equal(t, "whether the receiver goes on", len(ended) == 0, test.receive)
			if !test.receive {
				equal(t, "the condition", ended[0].Condition, condition.EntityDisabled)
			}
			err = n.Send("q", newMessage("a"))
			equal(t, "whether it can be sent to", err == nil, test.send)
			if err != nil {
				n.refuses(err, condition.EntityDisabled)
			}
			c, err := n.Consume(t.Context(), "q", broker.ConsumerConfig{})
			equal(t, "whether it can be received from", err == nil, test.receive)
			if err != nil {
				n.refuses(err, condition.EntityDisabled)
			} else {
				equal(t, "the body", body(n.next(c)), "kept")
			}
			n.must(n.SetStatus("q", properties.StatusActive))
			n.send("q", "b")
		})
	}
	n := withQueue(t, properties.Queue{})
	n.refuses(n.SetStatus("missing", properties.StatusDisabled), condition.NotFound)
	n.refuses(n.SetStatus("q", "Sleeping"), condition.Argument)
}

// Messages that are at a subscription can be received while its topic is disabled.
func TestStatus_TopicAndSubscription(t *testing.T) {
	n := withTopic(t, rules.Rule{})
	n.send("t", "a")
	n.must(n.SetStatus("t", properties.StatusDisabled))
	n.refuses(n.Send("t", newMessage("b")), condition.EntityDisabled)
	equal(t, "the body", body(n.receive(subscription)), "a")
	n.must(n.SetStatus("t", properties.StatusActive))
	n.must(n.SetStatus(subscription, properties.StatusDisabled))
	n.send("t", "c")
	_, err := n.Consume(t.Context(), subscription, broker.ConsumerConfig{})
	n.refuses(err, condition.EntityDisabled)
	equal(t, "the number of messages", n.received(), 2)
}

func TestSend_Limits(t *testing.T) {
	kib := func(n int) string { return strings.Repeat("x", n<<10) }
	property := func(name string, size int) option { return withProperty(name, strings.Repeat("x", size)) }
	tests := []struct {
		name      string
		tier      properties.Tier
		p         properties.Queue
		body      string
		options   []option
		condition amqp10.Symbol // "" if it is accepted
	}{
		{"Standard", properties.Standard, properties.Queue{}, kib(255), nil, ""},
		{"too large for Standard", properties.Standard, properties.Queue{}, kib(256), nil, condition.MessageSize},
		{"Premium", properties.Premium, properties.Queue{}, kib(1023), nil, ""},
		{"too large for Premium", properties.Premium, properties.Queue{}, kib(1024), nil, condition.MessageSize},
		{"large message", properties.Premium, properties.Queue{MaxMessageSizeInKilobytes: 2048}, kib(2000), nil, ""},
		{"too large a message", properties.Premium, properties.Queue{MaxMessageSizeInKilobytes: 2048}, kib(2048), nil, condition.MessageSize},
		{"property", properties.Standard, properties.Queue{}, "", []option{property("p", 32<<10-1)}, ""},
		{"property too large", properties.Standard, properties.Queue{}, "", []option{property("p", 32<<10)}, condition.InternalError},
		{"message id", properties.Standard, properties.Queue{}, "", []option{withID(strings.Repeat("é", 128))}, ""},
		{"message id too long", properties.Standard, properties.Queue{}, "", []option{withID(strings.Repeat("x", 129))}, condition.ArgumentRange},
		{"session id too long", properties.Standard, properties.Queue{}, "", []option{inSession(strings.Repeat("x", 129))}, condition.ArgumentRange},
		{"partition key too long", properties.Standard, properties.Queue{}, "", []option{withPartition(strings.Repeat("x", 129))}, condition.ArgumentRange},
		{"properties", properties.Standard, properties.Queue{}, "", []option{property("p", 32000), property("q", 32000)}, ""},
		{"properties too large", properties.Standard, properties.Queue{}, "", []option{property("p", 32000), property("q", 32000), property("r", 2000)}, condition.MessageSize},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := newNamespace(t, broker.Config{Tier: test.tier})
			n.queue("q", test.p)
			err := n.Send("q", newMessage(test.body, test.options...))
			if test.condition == "" {
				n.must(err)
			} else {
				n.refuses(err, test.condition)
				n.nothing("q")
			}
		})
	}
}

func TestSend_EntityIsFull(t *testing.T) {
	n := withQueue(t, properties.Queue{MaxSizeInMegabytes: 1})
	large := strings.Repeat("x", 250<<10)
	for range 4 {
		n.send("q", large)
	}
	n.refuses(n.Send("q", newMessage(large)), condition.ResourceLimit)
	n.settle("q", n.receive("q"), broker.Complete)
	n.send("q", large)
}

// A batch is accepted as a whole or not at all.
func TestSend_BatchIsAtomic(t *testing.T) {
	n := withQueue(t, properties.Queue{RequiresSession: true})
	n.refuses(n.Send("q", newMessage("a", inSession("s")), newMessage("b")), condition.NotAllowed)
	messages, err := n.Peek("q", 0, 10, nil)
	n.must(err)
	equal(t, "the number of messages", len(messages), 0)
}

func TestEntity_Addresses(t *testing.T) {
	n := withTopic(t, rules.Rule{})
	n.queue("a/b", properties.Queue{RequiresSession: true})
	tests := []struct {
		path string
		want broker.Entity // without a path it does not exist
	}{
		{"q", broker.Entity{Path: "q", Kind: broker.KindQueue}},
		{"/Q/", broker.Entity{Path: "q", Kind: broker.KindQueue}},
		{"amqps://localhost/q", broker.Entity{Path: "q", Kind: broker.KindQueue}},
		{"a/B", broker.Entity{Path: "a/b", Kind: broker.KindQueue, RequiresSession: true}},
		{"a/b/$deadletterqueue", broker.Entity{Path: "a/b/$DeadLetterQueue", Kind: broker.KindQueue, Subqueue: broker.SubqueueDeadLetter}},
		{"q/$DeadLetterQueue", broker.Entity{Path: "q/$DeadLetterQueue", Kind: broker.KindQueue, Subqueue: broker.SubqueueDeadLetter}},
		{"q/$Transfer/$DeadLetterQueue", broker.Entity{Path: "q/$Transfer/$DeadLetterQueue", Kind: broker.KindQueue, Subqueue: broker.SubqueueTransferDeadLetter}},
		{"t", broker.Entity{Path: "t", Kind: broker.KindTopic}},
		{"t/SUBSCRIPTIONS/S", broker.Entity{Path: "t/Subscriptions/s", Kind: broker.KindSubscription}},
		{"t/Subscriptions/s/$DeadLetterQueue", broker.Entity{Path: "t/Subscriptions/s/$DeadLetterQueue", Kind: broker.KindSubscription, Subqueue: broker.SubqueueDeadLetter}},
		{"t/$DeadLetterQueue", broker.Entity{}},
		{"t/Subscriptions/missing", broker.Entity{}},
		{"q/Subscriptions/s", broker.Entity{}},
		{"missing", broker.Entity{}},
		{"", broker.Entity{}},
	}
	for _, test := range tests {
		t.Run(test.path, func(t *testing.T) {
			got, err := n.Entity(test.path)
			if test.want.Path == "" {
				n.refuses(err, condition.NotFound)
				return
			}
			n.must(err)
			test.want.MaxMessageSize = 256 << 10
			equal(t, "the entity", got, test.want)
		})
	}
}

func TestAutoCreate(t *testing.T) {
	n := newNamespace(t, broker.Config{AutoCreate: true, AutoQueue: properties.Queue{MaxDeliveryCount: 2, LockDuration: 3 * time.Second}})
	n.send("a", "x")
	n.nothing("b/$DeadLetterQueue")
	_, err := n.Entity("c")
	n.must(err)
	_, err = n.Entity("t/Subscriptions/s")
	n.refuses(err, condition.NotFound)
	n.must(n.CreateTopic("t", properties.Topic{}))
	n.must(n.CreateSubscription("t", "s", properties.Subscription{ForwardTo: "d"}, rules.Rule{}))
	queues, err := n.Queues()
	n.must(err)
	var names []string
	for _, q := range queues {
		names = append(names, q.Name)
		equal(t, "the maximum of deliveries", q.Properties.MaxDeliveryCount, 2)
	}
	equal(t, "the queues", fmt.Sprint(names), "[a b c d]")
	if _, err := broker.New(broker.Config{AutoQueue: properties.Queue{LockDuration: time.Hour}}); err == nil {
		t.Error("properties that are out of bounds are accepted")
	}
}

func TestList(t *testing.T) {
	n := withTopic(t, rules.Rule{})
	n.queue("p", properties.Queue{})
	n.must(n.CreateTopic("a", properties.Topic{}))
	n.must(n.CreateSubscription("t", "r", properties.Subscription{}, rules.Rule{}))
	n.refuses(n.CreateSubscription("t", "R", properties.Subscription{}, rules.Rule{}), condition.EntityAlreadyExists)
	n.refuses(n.CreateSubscription("q", "x", properties.Subscription{}, rules.Rule{}), condition.NotFound)
	n.refuses(n.CreateSubscription("t", strings.Repeat("x", 51), properties.Subscription{}, rules.Rule{}), condition.Argument)
	var names []string
	queues, err := n.Queues()
	n.must(err)
	for _, q := range queues {
		names = append(names, q.Name)
	}
	topics, err := n.Topics()
	n.must(err)
	for _, x := range topics {
		names = append(names, fmt.Sprint(x.Name, x.Subscriptions))
	}
	subscriptions, err := n.Subscriptions("t")
	n.must(err)
	for _, x := range subscriptions {
		names = append(names, x.Topic+"/"+x.Name)
	}
	equal(t, "all names", fmt.Sprint(names), "[p q a0 t2 t/r t/s]")
}
