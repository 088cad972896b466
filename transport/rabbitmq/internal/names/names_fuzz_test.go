package names

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// FuzzNames reads any text as the name of a queue, such as a reply address, and as a topic
// of each topology.
func FuzzNames(f *testing.F) {
	for _, name := range []string{
		"orders", "amq.topic", "topic:orders", "a.*.b", "#", "a#", "amq.rabbitmq.reply-to.x", "Shop.Billing.OrderPlaced", "Shop.Outer+Inner", "NServiceBus.IEvent", "amq.x.y", "Shop.", ":", "a\nb", "\xff", "", strings.Repeat("é", 128),
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		for kind, read := range map[string]func(string) (string, error){"queue": Queue, "exchange": TopicExchange, "key": TopicKey, "event": EventExchange} {
			got, err := read(name)
			if err != nil {
				if got != "" {
					t.Errorf("%q as a %s: %q and %v", name, kind, got, err)
				}
				continue
			}
			if got == "" || len(got) > MaxShortString || !utf8.ValidString(got) || strings.ContainsFunc(got, unicode.IsControl) {
				t.Errorf("%q is the %s %q", name, kind, got)
			}
			if kind != "key" && strings.HasPrefix(got, BrokerPrefix) {
				t.Errorf("%q is the %s %q, which is the broker's", name, kind, got)
			}
			if kind != "exchange" && kind != "event" && hasWildcard(got) {
				t.Errorf("%q is the %s %q, which matches others", name, kind, got)
			}
			if kind == "queue" && (got != name || strings.HasPrefix(got, TopicPrefix)) {
				t.Errorf("%q is the queue %q", name, got)
			}
		}
	})
}
