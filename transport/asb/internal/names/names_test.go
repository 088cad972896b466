package names_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/asb/internal/names"
)

func TestQueueAddress(t *testing.T) {
	namespace := names.Namespace{QueuePrefix: "test/"}
	for queue, want := range map[string]string{
		"orders":                  "orders",
		"Sales.Orders":            "sales.orders",
		"a/b-c_d.e":               "a/b-c_d.e",
		"orders/$DeadLetterQueue": "orders/$deadletterqueue",
		strings.Repeat("q", 255):  strings.Repeat("q", 255),
		"":                        "",
		"two words":               "",
		"ünïcode":                 "",
		"-orders":                 "",
		"orders/":                 "",
		"$DeadLetterQueue":        "",
		"orders/$Transfer":        "",
		strings.Repeat("q", 256):  "",
	} {
		got, err := namespace.QueueAddress(queue)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("the address of %q is %q, %v; want %q", queue, got, err, want)
		}
		if err == nil {
			if second, err := namespace.QueueAddress(got); second != got || err != nil {
				t.Errorf("the address of the address %q is %q, %v", got, second, err)
			}
		}
	}
}

func TestSubscriptionName(t *testing.T) {
	namespace := names.Namespace{}
	queues := map[string]string{}
	for _, address := range []string{
		"orders", "sales.orders", "sales/orders", "sales-orders", strings.Repeat("q", 50), strings.Repeat("q", 51), strings.Repeat("q", 52),
	} {
		name := namespace.SubscriptionName(address)
		if len(name) > 50 || strings.Contains(name, "/") {
			t.Errorf("the subscription of %q is %q, which Service Bus does not take", address, name)
		}
		if other := queues[name]; other != "" {
			t.Errorf("%q and %q have the same subscription, %q", address, other, name)
		}
		queues[name] = address
	}
	if got := namespace.SubscriptionName("sales.orders"); got != "sales.orders" {
		t.Errorf("the subscription of sales.orders is %q, but NServiceBus's is named like the queue", got)
	}
}

func TestKeepsGroups(t *testing.T) {
	namespace := names.Namespace{SessionQueues: []string{"Orders", "ordered-*", "*/*"}}
	for address, want := range map[string]bool{"orders/$deadletterqueue": false, "shop/orders": true, "orders": true, "ordered-a": true, "orders2": false, "other": false, "": false} {
		if got := namespace.KeepsGroups(address); got != want {
			t.Errorf("KeepsGroups(%q) is %v", address, got)
		}
	}
}

func TestCheckTopic(t *testing.T) {
	var namespace names.Namespace
	for topic, want := range map[string]bool{
		"Shop.OrderPlaced": true, "Shop.Orders+Placed": true, "a/b": true, "": false, "all events": false, "Shop.Order[int]": false,
		strings.Repeat("t", 261): false,
	} {
		if err := namespace.CheckTopic(topic); (err == nil) != want {
			t.Errorf("CheckTopic(%q) is %v", topic, err)
		}
	}
}

func TestTarget_RefusesDeadLetterQueues(t *testing.T) {
	var namespace names.Namespace
	if got, err := namespace.Target("Orders"); got != "orders" || err != nil {
		t.Errorf("messages to Orders are sent to %q, %v", got, err)
	}
	if got, err := namespace.Target("orders/$DeadLetterQueue"); !errors.Is(err, errors.ErrUnsupported) || !transport.IsPermanent(err) {
		t.Errorf("messages to a dead-letter queue are sent to %q, %v", got, err)
	}
}

func TestSource(t *testing.T) {
	namespace := names.Namespace{QueuePrefix: "test."}
	for address, want := range map[string]azservicebus.SubQueue{"orders": 0, "orders/$deadletterqueue": azservicebus.SubQueueDeadLetter} {
		if name, sub := namespace.Source(address); name != "test.orders" || sub != want {
			t.Errorf("the source of %q is %q, %v", address, name, sub)
		}
		if got := names.IsDeadLetterQueue(address); got != (want != 0) {
			t.Errorf("IsDeadLetterQueue(%q) is %v", address, got)
		}
	}
}

func TestTopicOf(t *testing.T) {
	namespace := names.Namespace{TopicPrefix: "test."}
	if got := namespace.TopicOf("Shop.Orders+Placed"); got != "test.Shop.Orders.Placed" {
		t.Errorf("the event is published to %q", got)
	}
}

func TestCheckName_CountsThePrefix(t *testing.T) {
	name := strings.Repeat("q", 255)
	for prefix, want := range map[string]bool{"": true, "test.": true, "tests.": false} {
		if err := names.CheckName("queue", name, prefix); (err == nil) != want {
			t.Errorf("with the prefix %q the error is %v", prefix, err)
		}
	}
}

func TestCheckPrefix(t *testing.T) {
	for prefix, want := range map[string]bool{
		"": true, "test.": true, "test/": true, "a b": false, "/test": false, strings.Repeat("p", 130): true, strings.Repeat("p", 131): false,
	} {
		if err := names.CheckPrefix(prefix); (err == nil) != want {
			t.Errorf("CheckPrefix(%q) is %v", prefix, err)
		}
	}
}

func TestARMName(t *testing.T) {
	if got := names.ARMName("shop/orders.new"); got != "shop~orders.new" {
		t.Errorf("the name is %q", got)
	}
}
