package names

import (
	"strings"
	"testing"
)

func TestNames(t *testing.T) {
	t.Parallel()
	const illegal = "?"
	for _, c := range []struct{ name, queue, exchange, key string }{
		{"billing", "billing", "topic:billing", "billing"},
		{"Sales.Order Placed/v2+x", "Sales.Order Placed/v2+x", "topic:Sales.Order Placed/v2+x", "Sales.Order Placed/v2+x"},
		{"0.1.x", "0.1.x", "topic:0.1.x", "0.1.x"},
		{"Örder ✓", "Örder ✓", "topic:Örder ✓", "Örder ✓"},
		{"a..b.", "a..b.", "topic:a..b.", "a..b."},
		{"orders*", "orders*", "topic:orders*", "orders*"},
		{"orders.#1", "orders.#1", "topic:orders.#1", "orders.#1"},
		{"", illegal, illegal, illegal},
		{"amq.gen-1", illegal, "topic:amq.gen-1", "amq.gen-1"},
		{"topic:x", illegal, "topic:topic:x", "topic:x"},
		{"nsb.v2.delay-level-01", illegal, "topic:nsb.v2.delay-level-01", "nsb.v2.delay-level-01"},
		{"*", illegal, "topic:*", illegal},
		{"orders.*", illegal, "topic:orders.*", illegal},
		{"#.orders", illegal, "topic:#.orders", illegal},
		{"a.#.b", illegal, "topic:a.#.b", illegal},
		{"line\nbreak", illegal, illegal, illegal},
		{"nul\x00", illegal, illegal, illegal},
		{"\u0085", illegal, illegal, illegal},
		{"\xff", illegal, illegal, illegal},
		{strings.Repeat("q", 199), strings.Repeat("q", 199), "topic:" + strings.Repeat("q", 199), strings.Repeat("q", 199)},
		{strings.Repeat("q", 200), illegal, "topic:" + strings.Repeat("q", 200), strings.Repeat("q", 200)},
		{strings.Repeat("q", 249), illegal, "topic:" + strings.Repeat("q", 249), strings.Repeat("q", 249)},
		{strings.Repeat("q", 250), illegal, illegal, strings.Repeat("q", 250)},
		{strings.Repeat("ü", 127), illegal, illegal, strings.Repeat("ü", 127)},
		{strings.Repeat("ü", 128), illegal, illegal, illegal},
	} {
		for name, check := range map[string]struct {
			check func(string) (string, error)
			want  string
		}{"queue": {Queue, c.queue}, "topic's exchange": {TopicExchange, c.exchange}, "topic's key": {TopicKey, c.key}} {
			got, err := check.check(c.name)
			switch {
			case check.want == illegal && err == nil:
				t.Errorf("%.40q is no name of a %s, but %q was returned", c.name, name, got)
			case check.want != illegal && (err != nil || got != check.want):
				t.Errorf("%.40q as a %s: %q, %v", c.name, name, got, err)
			case err != nil && len(err.Error()) > 400:
				t.Errorf("the error is long: %v", err)
			}
		}
	}
}

func TestDestination(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]struct{ destination, client bool }{
		"billing":                             {true, false},
		"amq.gen-JzTY20BRgKO-HjmUJj0wLg":      {true, true},
		"amq.rabbitmq.reply-to.g1h2.x":        {true, true},
		"amq.rabbitmq.reply-to":               {false, false},
		"amq.topic":                           {false, false},
		"amq.gen":                             {false, false},
		"amq.gen-\n":                          {false, true},
		"amq.gen-" + strings.Repeat("q", 247): {true, true},
		"amq.gen-" + strings.Repeat("q", 248): {false, true},
		"amq.rabbitmq.reply-to." + "\xff":     {false, true},
	} {
		got, err := Destination(name)
		if (err == nil) != want.destination || err == nil && got != name || IsClient(name) != want.client {
			t.Errorf("%.40q: %q, %v, client %v; want %+v", name, got, err, IsClient(name), want)
		}
		if _, err := Queue(name); err == nil && want.client {
			t.Errorf("%.40q can be declared", name)
		}
	}
}

func TestEventExchange(t *testing.T) {
	t.Parallel()
	for topic, want := range map[string]string{
		"Shop.Billing.OrderPlaced":        "Shop.Billing:OrderPlaced",
		"OrderPlaced":                     ":OrderPlaced",
		"Shop.Contracts+OrderPlaced":      "Shop:OrderPlaced", // as NServiceBus, without the outer class
		"Shop.Contracts+V2+OrderPlaced":   "Shop:OrderPlaced",
		"Contracts+OrderPlaced":           ":OrderPlaced",
		"NServiceBus.IEvent":              "System:Object",
		"System.Object":                   "System:Object",
		"Shop.Grüße":                      "Shop:Grüße",
		strings.Repeat("n", 252) + ".N":   strings.Repeat("n", 252) + ":N",
		"Shop.Lists`1[[System.Int32]]":    "",
		"Shop.Lists`1":                    "",
		"Shop:OrderPlaced":                "",
		"Shop.":                           "",
		"":                                "",
		"amq.shop.OrderPlaced":            "",
		strings.Repeat("n", 253) + ".N":   "",
		"Shop.Order\x00":                  "",
		strings.Repeat("n", 255):          "",
		"Shop.Contracts+":                 "Shop:Contracts",
		"amqp.OrderPlaced":                "amqp:OrderPlaced",
		"Shop.IHandle.Of.Everything.That": "Shop.IHandle.Of.Everything:That",
	} {
		got, err := EventExchange(topic)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("the exchange of %q is %q, %v; want %q", topic, got, err, want)
		}
	}
}
