package asb_test

import (
	"strings"
	"testing"

	"github.com/reprise-go/reprise/transport/asb"
)

func openUnreached(t *testing.T, cfg asb.Config) *asb.Transport {
	t.Helper()
	if cfg.ConnectionString == "" {
		cfg.ConnectionString = anyInstance
	}
	transport, err := asb.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = transport.Close(t.Context()) })
	return transport
}

func TestAddress(t *testing.T) {
	transport := openUnreached(t, asb.Config{QueuePrefix: "test/"})
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
		got, err := transport.Address(queue)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("the address of %q is %q, %v; want %q", queue, got, err, want)
		}
		if err == nil {
			if again, err := transport.Address(got); again != got || err != nil {
				t.Errorf("the address of the address %q is %q, %v", got, again, err)
			}
		}
	}
}

func TestSubscriptionName(t *testing.T) {
	transport := openUnreached(t, asb.Config{})
	names := map[string]string{}
	for _, address := range []string{
		"orders", "sales.orders", "sales/orders", "sales-orders", strings.Repeat("q", 50), strings.Repeat("q", 51), strings.Repeat("q", 52),
	} {
		name := transport.SubscriptionName(address)
		if len(name) > 50 || strings.Contains(name, "/") {
			t.Errorf("the subscription of %q is %q, which Service Bus does not take", address, name)
		}
		if other := names[name]; other != "" {
			t.Errorf("%q and %q have the same subscription, %q", address, other, name)
		}
		names[name] = address
	}
	if got := transport.SubscriptionName("sales.orders"); got != "sales.orders" {
		t.Errorf("the subscription of sales.orders is %q, but NServiceBus's is named like the queue", got)
	}
}

func TestKeepsGroups(t *testing.T) {
	transport := openUnreached(t, asb.Config{SessionQueues: []string{"Orders", "ordered-*", "*/*"}})
	for queue, want := range map[string]bool{"orders/$deadletterqueue": false, "shop/orders": true, "orders": true, "ORDERS": true, "ordered-a": true, "orders2": false, "other": false, "": false} {
		if got := transport.KeepsGroups(queue); got != want {
			t.Errorf("KeepsGroups(%q) is %v", queue, got)
		}
	}
}

func TestCheckTopic(t *testing.T) {
	each := openUnreached(t, asb.Config{})
	shared := openUnreached(t, asb.Config{SharedTopic: "events"})
	for topic, want := range map[string]bool{
		"Shop.OrderPlaced": true, "Shop.Orders+Placed": true, "a/b": true, "": false, "all events": false, "Shop.Order[int]": false,
		strings.Repeat("t", 261): false,
	} {
		if err := each.CheckTopic(topic); (err == nil) != want {
			t.Errorf("CheckTopic(%q) is %v", topic, err)
		}
		if err := shared.CheckTopic(topic); (err == nil) != (topic != "") {
			t.Errorf("with a shared topic CheckTopic(%q) is %v", topic, err)
		}
	}
}
