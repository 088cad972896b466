package asb_test

import (
	"strings"
	"testing"

	"github.com/reprise-go/reprise/transport/asb"
)

func TestBicep(t *testing.T) {
	cfg := asb.Config{ConnectionString: anyInstance, QueuePrefix: "test.", TopicPrefix: "test.", SessionQueues: []string{"ledger"}}
	e := asb.Entities{
		Queues:        []string{"Billing", "error"},
		Subscriptions: map[string][]string{"billing": {"Shop.OrderPlaced"}, "ledger": {"Shop.OrderPlaced", "Shop.Paid"}},
	}
	text, err := asb.Bicep(cfg, e)
	if err != nil {
		t.Fatal(err)
	}
	for fragment, want := range map[string]int{
		"name: 'shop'\n":                         1,
		"name: 'test.billing'\n  properties":     2, // the queue and its subscription
		"name: 'test.error'\n":                   1,
		"name: 'test.Shop.OrderPlaced'\n":        1,
		"name: 'test.Shop.Paid'\n":               1,
		"maxDeliveryCount: 2147483647\n":         6,
		"lockDuration: 'PT60S'\n":                3,
		"requiresSession: true\n":                1,
		"requiresSession: false\n":               2,
		"namespaces/topics/subscriptions@":       3,
		"namespaces/topics/subscriptions/rules@": 0,
		"forwardTo: queue1.name\n":               1,
		secretKey:                                0,
	} {
		if got := strings.Count(text, fragment); got != want {
			t.Errorf("it has %q %d times, want %d:\n%s", fragment, got, want, text)
		}
	}
	cfg.QueuePrefix, cfg.TopicPrefix = "test/", "test/"
	if text, err = asb.Bicep(cfg, e); err != nil {
		t.Fatal(err)
	}
	for fragment, want := range map[string]int{"name: 'test~billing'\n": 1, "name: 'test~Shop.OrderPlaced'\n": 1, "test/": 0} {
		if got := strings.Count(text, fragment); got != want {
			t.Errorf("with slashes it has %q %d times, want %d:\n%s", fragment, got, want, text)
		}
	}
}

func TestBicep_RefusesNamesThatServiceBusDoesNotTake(t *testing.T) {
	for name, e := range map[string]asb.Entities{
		"a queue":             {Queues: []string{"two words"}},
		"a dead-letter queue": {Queues: []string{"orders/$DeadLetterQueue"}},
		"a topic":             {Subscriptions: map[string][]string{"orders": {"two words"}}},
		"a subscriber":        {Subscriptions: map[string][]string{"two words": {"a"}}},
	} {
		if text, err := asb.Bicep(asb.Config{ConnectionString: anyInstance}, e); err == nil {
			t.Errorf("%s is accepted:\n%s", name, text)
		}
	}
}
