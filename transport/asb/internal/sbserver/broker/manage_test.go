package broker_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/Azure/go-amqp"

	"github.com/reprise-go/reprise/transport/asb/internal/sbserver/broker"
)

func TestQueue_Defaults(t *testing.T) {
	n := withQueue(t, broker.QueueProperties{})
	info, err := n.Queue("Q")
	n.must(err)
	equal(t, "the name", info.Name, "q")
	equal(t, "the properties", info.Properties, broker.QueueProperties{
		LockDuration: time.Minute, MaxDeliveryCount: 10, DefaultMessageTimeToLive: broker.MaxTimeToLive, DuplicateDetectionWindow: 10 * time.Minute,
		Status: broker.StatusActive, AutoDeleteOnIdle: broker.MaxTimeToLive, MaxSizeInMegabytes: 1024,
	})
	equal(t, "the time of creation", info.Runtime.Created, start)
}

func TestCreateQueue_Refusals(t *testing.T) {
	tests := []struct {
		name      string
		queue     string
		p         broker.QueueProperties
		condition amqp.ErrCond
	}{
		{"exists", "Q", broker.QueueProperties{}, broker.CondEntityAlreadyExists},
		{"a topic has the name", "t", broker.QueueProperties{}, broker.CondEntityAlreadyExists},
		{"no name", "", broker.QueueProperties{}, broker.CondArgument},
		{"long name", strings.Repeat("x", 261), broker.QueueProperties{}, broker.CondArgument},
		{"bad name", "a b", broker.QueueProperties{}, broker.CondArgument},
		{"short lock", "n", broker.QueueProperties{LockDuration: time.Millisecond}, broker.CondArgumentRange},
		{"long lock", "n", broker.QueueProperties{LockDuration: 5*time.Minute + 1}, broker.CondArgumentRange},
		{"negative count", "n", broker.QueueProperties{MaxDeliveryCount: -1}, broker.CondArgumentRange},
		{"short time to live", "n", broker.QueueProperties{DefaultMessageTimeToLive: time.Millisecond}, broker.CondArgumentRange},
		{"short window", "n", broker.QueueProperties{DuplicateDetectionWindow: 19 * time.Second}, broker.CondArgumentRange},
		{"long window", "n", broker.QueueProperties{DuplicateDetectionWindow: 8 * 24 * time.Hour}, broker.CondArgumentRange},
		{"short idle time", "n", broker.QueueProperties{AutoDeleteOnIdle: time.Minute}, broker.CondArgumentRange},
		{"negative size", "n", broker.QueueProperties{MaxSizeInMegabytes: -1}, broker.CondArgumentRange},
		{"message size in Standard", "n", broker.QueueProperties{MaxMessageSizeInKilobytes: 1024}, broker.CondNotAllowed},
		{"unknown status", "n", broker.QueueProperties{Status: "Sleeping"}, broker.CondArgument},
		{"forwards to nowhere", "n", broker.QueueProperties{ForwardTo: "missing"}, broker.CondNotFound},
		{"forwards dead letters to nowhere", "n", broker.QueueProperties{ForwardDeadLetteredMessagesTo: "missing"}, broker.CondNotFound},
		{"forwards to itself", "n", broker.QueueProperties{ForwardTo: "N"}, broker.CondArgument},
		{"forwards to a subscription", "n", broker.QueueProperties{ForwardTo: "t/Subscriptions/s"}, broker.CondNotFound},
		{"sessions and forwarding", "n", broker.QueueProperties{ForwardTo: "q", RequiresSession: true}, broker.CondNotAllowed},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			n := withTopic(t, broker.Rule{})
			n.refuses(n.CreateQueue(test.queue, test.p), test.condition)
		})
	}
}

func TestCreateQueue_LimitsOfTheEmulator(t *testing.T) {
	n := newNamespace(t, broker.Config{EmulatorLimits: true})
	for _, p := range []broker.QueueProperties{{MaxDeliveryCount: 11}, {DefaultMessageTimeToLive: 61 * time.Minute}, {DefaultMessageTimeToLive: 4 * time.Minute}} {
		n.refuses(n.CreateQueue("q", p), broker.CondArgumentRange)
	}
	n.must(n.CreateQueue("q", broker.QueueProperties{MaxDeliveryCount: 10}))
	info, err := n.Queue("q")
	n.must(err)
	equal(t, "the time to live", info.Properties.DefaultMessageTimeToLive, time.Hour)
}

func TestForwardTo_TurnsAutoDeleteOff(t *testing.T) {
	n := withQueue(t, broker.QueueProperties{})
	n.queue("source", broker.QueueProperties{ForwardTo: "q", AutoDeleteOnIdle: 5 * time.Minute})
	n.clock.Advance(time.Hour)
	info, err := n.Queue("source")
	n.must(err)
	equal(t, "the idle time", info.Properties.AutoDeleteOnIdle, broker.MaxTimeToLive)
}

func TestUpdate(t *testing.T) {
	n := withTopic(t, broker.Rule{})
	n.clock.Advance(time.Second)
	n.must(n.UpdateQueue("q", broker.QueueProperties{LockDuration: 5 * time.Second, UserMetadata: "x"}))
	n.must(n.UpdateTopic("t", broker.TopicProperties{UserMetadata: "x"}))
	n.must(n.UpdateSubscription("t", "s", broker.SubscriptionProperties{MaxDeliveryCount: 1}))
	info, err := n.Queue("q")
	n.must(err)
	equal(t, "the metadata", info.Properties.UserMetadata, "x")
	equal(t, "the time of the update", info.Runtime.Updated, start.Add(time.Second))
	n.send("q", "a")
	equal(t, "the end of the lock", n.receive("q").LockedUntil, start.Add(6*time.Second))
	n.send("t", "a")
	n.settle(subscription, n.receive(subscription), broker.Abandon)
	equal(t, "the body", body(n.receive(subscription+"/$DeadLetterQueue")), "a")
	for _, p := range []broker.QueueProperties{{RequiresSession: true}, {RequiresDuplicateDetection: true}, {EnablePartitioning: true}} {
		n.refuses(n.UpdateQueue("q", p), broker.CondNotAllowed)
	}
	n.refuses(n.UpdateQueue("t", broker.QueueProperties{}), broker.CondNotFound)
	n.refuses(n.UpdateTopic("q", broker.TopicProperties{}), broker.CondNotFound)
	n.refuses(n.UpdateSubscription("t", "missing", broker.SubscriptionProperties{}), broker.CondNotFound)
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
			n := withTopic(t, broker.Rule{})
			n.send("q", "a")
			n.send("t", "a")
			var ended []*broker.Error
			c, err := n.Consume(t.Context(), test.path, broker.ConsumerConfig{Ended: func(e *broker.Error) { ended = append(ended, e) }})
			n.must(err)
			got := c.Next(1)
			n.must(test.remove(n))
			equal(t, "the number of calls", len(ended), 1)
			equal(t, "the condition", ended[0].Condition, broker.CondNotFound)
			equal(t, "the number of messages afterwards", len(c.Next(1)), 0)
			for _, d := range got {
				n.refuses(c.Settle(d.LockToken, broker.Settlement{Outcome: broker.Complete}), broker.CondNotFound)
			}
			_, err = n.Entity(test.path)
			n.refuses(err, broker.CondNotFound)
			n.refuses(test.remove(n), broker.CondNotFound)
			n.clock.Advance(time.Hour) // no lock of the deleted entity matters
			n.must(c.Close())
			equal(t, "the number of calls", len(ended), 1)
		})
	}
}

func TestStatus(t *testing.T) {
	tests := []struct {
		status        broker.Status
		send, receive bool
	}{
		{broker.StatusActive, true, true},
		{broker.StatusDisabled, false, false},
		{broker.StatusSendDisabled, false, true},
		{broker.StatusReceiveDisabled, true, false},
	}
	for _, test := range tests {
		t.Run(string(test.status), func(t *testing.T) {
			n := withQueue(t, broker.QueueProperties{})
			n.send("q", "kept")
			var ended []*broker.Error
			_, err := n.Consume(t.Context(), "q", broker.ConsumerConfig{Ended: func(e *broker.Error) { ended = append(ended, e) }})
			n.must(err)
			n.must(n.SetStatus("q", test.status))
			equal(t, "whether the receiver goes on", len(ended) == 0, test.receive)
			if !test.receive {
				equal(t, "the condition", ended[0].Condition, broker.CondEntityDisabled)
			}
			err = n.Send("q", newMessage("a"))
			equal(t, "whether it can be sent to", err == nil, test.send)
			if err != nil {
				n.refuses(err, broker.CondEntityDisabled)
			}
			c, err := n.Consume(t.Context(), "q", broker.ConsumerConfig{})
			equal(t, "whether it can be received from", err == nil, test.receive)
			if err != nil {
				n.refuses(err, broker.CondEntityDisabled)
			} else {
				equal(t, "the body", body(n.next(c)), "kept")
			}
			n.must(n.SetStatus("q", broker.StatusActive))
			n.send("q", "b")
		})
	}
	n := withQueue(t, broker.QueueProperties{})
	n.refuses(n.SetStatus("missing", broker.StatusDisabled), broker.CondNotFound)
	n.refuses(n.SetStatus("q", "Sleeping"), broker.CondArgument)
}

// Messages that are at a subscription can be received while its topic is disabled.
func TestStatus_TopicAndSubscription(t *testing.T) {
	n := withTopic(t, broker.Rule{})
	n.send("t", "a")
	n.must(n.SetStatus("t", broker.StatusDisabled))
	n.refuses(n.Send("t", newMessage("b")), broker.CondEntityDisabled)
	equal(t, "the body", body(n.receive(subscription)), "a")
	n.must(n.SetStatus("t", broker.StatusActive))
	n.must(n.SetStatus(subscription, broker.StatusDisabled))
	n.send("t", "c")
	_, err := n.Consume(t.Context(), subscription, broker.ConsumerConfig{})
	n.refuses(err, broker.CondEntityDisabled)
	equal(t, "the number of messages", n.received(), 2)
}

func TestSend_Limits(t *testing.T) {
	kib := func(n int) string { return strings.Repeat("x", n<<10) }
	property := func(name string, size int) option { return withProperty(name, strings.Repeat("x", size)) }
	tests := []struct {
		name      string
		tier      broker.Tier
		p         broker.QueueProperties
		body      string
		options   []option
		condition amqp.ErrCond // "" if it is accepted
	}{
		{"Standard", broker.Standard, broker.QueueProperties{}, kib(255), nil, ""},
		{"too large for Standard", broker.Standard, broker.QueueProperties{}, kib(256), nil, broker.CondMessageSize},
		{"Premium", broker.Premium, broker.QueueProperties{}, kib(1023), nil, ""},
		{"too large for Premium", broker.Premium, broker.QueueProperties{}, kib(1024), nil, broker.CondMessageSize},
		{"large message", broker.Premium, broker.QueueProperties{MaxMessageSizeInKilobytes: 2048}, kib(2000), nil, ""},
		{"too large a message", broker.Premium, broker.QueueProperties{MaxMessageSizeInKilobytes: 2048}, kib(2048), nil, broker.CondMessageSize},
		{"property", broker.Standard, broker.QueueProperties{}, "", []option{property("p", 32<<10-1)}, ""},
		{"property too large", broker.Standard, broker.QueueProperties{}, "", []option{property("p", 32<<10)}, broker.CondInternalError},
		{"message id", broker.Standard, broker.QueueProperties{}, "", []option{withID(strings.Repeat("é", 128))}, ""},
		{"message id too long", broker.Standard, broker.QueueProperties{}, "", []option{withID(strings.Repeat("x", 129))}, broker.CondArgumentRange},
		{"session id too long", broker.Standard, broker.QueueProperties{}, "", []option{inSession(strings.Repeat("x", 129))}, broker.CondArgumentRange},
		{"partition key too long", broker.Standard, broker.QueueProperties{}, "", []option{withPartition(strings.Repeat("x", 129))}, broker.CondArgumentRange},
		{"properties", broker.Standard, broker.QueueProperties{}, "", []option{property("p", 32000), property("q", 32000)}, ""},
		{"properties too large", broker.Standard, broker.QueueProperties{}, "", []option{property("p", 32000), property("q", 32000), property("r", 2000)}, broker.CondMessageSize},
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
	n := withQueue(t, broker.QueueProperties{MaxSizeInMegabytes: 1})
	large := strings.Repeat("x", 250<<10)
	for range 4 {
		n.send("q", large)
	}
	n.refuses(n.Send("q", newMessage(large)), broker.CondResourceLimit)
	n.settle("q", n.receive("q"), broker.Complete)
	n.send("q", large)
}

// A batch is accepted as a whole or not at all.
func TestSend_BatchIsAtomic(t *testing.T) {
	n := withQueue(t, broker.QueueProperties{RequiresSession: true})
	n.refuses(n.Send("q", newMessage("a", inSession("s")), newMessage("b")), broker.CondNotAllowed)
	messages, err := n.Peek("q", 0, 10, nil)
	n.must(err)
	equal(t, "the number of messages", len(messages), 0)
}

func TestEntity_Addresses(t *testing.T) {
	n := withTopic(t, broker.Rule{})
	n.queue("a/b", broker.QueueProperties{RequiresSession: true})
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
				n.refuses(err, broker.CondNotFound)
				return
			}
			n.must(err)
			test.want.MaxMessageSize = 256 << 10
			equal(t, "the entity", got, test.want)
		})
	}
}

func TestAutoCreate(t *testing.T) {
	n := newNamespace(t, broker.Config{AutoCreate: true, AutoQueue: broker.QueueProperties{MaxDeliveryCount: 2, LockDuration: 3 * time.Second}})
	n.send("a", "x")
	n.nothing("b/$DeadLetterQueue")
	_, err := n.Entity("c")
	n.must(err)
	_, err = n.Entity("t/Subscriptions/s")
	n.refuses(err, broker.CondNotFound)
	n.must(n.CreateTopic("t", broker.TopicProperties{}))
	n.must(n.CreateSubscription("t", "s", broker.SubscriptionProperties{ForwardTo: "d"}, broker.Rule{}))
	queues, err := n.Queues()
	n.must(err)
	var names []string
	for _, q := range queues {
		names = append(names, q.Name)
		equal(t, "the maximum of deliveries", q.Properties.MaxDeliveryCount, 2)
	}
	equal(t, "the queues", fmt.Sprint(names), "[a b c d]")
	if _, err := broker.New(broker.Config{AutoQueue: broker.QueueProperties{LockDuration: time.Hour}}); err == nil {
		t.Error("properties that are out of bounds are accepted")
	}
}

func TestList(t *testing.T) {
	n := withTopic(t, broker.Rule{})
	n.queue("p", broker.QueueProperties{})
	n.must(n.CreateTopic("a", broker.TopicProperties{}))
	n.must(n.CreateSubscription("t", "r", broker.SubscriptionProperties{}, broker.Rule{}))
	n.refuses(n.CreateSubscription("t", "R", broker.SubscriptionProperties{}, broker.Rule{}), broker.CondEntityAlreadyExists)
	n.refuses(n.CreateSubscription("q", "x", broker.SubscriptionProperties{}, broker.Rule{}), broker.CondNotFound)
	n.refuses(n.CreateSubscription("t", strings.Repeat("x", 51), broker.SubscriptionProperties{}, broker.Rule{}), broker.CondArgument)
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
