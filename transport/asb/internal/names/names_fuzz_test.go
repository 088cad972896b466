package names

import (
	"strings"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"
)

// FuzzNames reads any text as the name or the address of a queue, such as a reply address,
// and as a topic.
func FuzzNames(f *testing.F) {
	for _, name := range []string{
		"orders", "Orders/EU.v2", "orders/$DeadLetterQueue", "/$deadletterqueue", "orders/$deadletterqueue/$deadletterqueue", "a/", ".a", "", "Shop.Order+Placed", "\u212aelvin", "\xff", strings.Repeat("a", 261),
	} {
		f.Add(name, "test.")
	}
	f.Fuzz(func(t *testing.T, name, prefix string) {
		if CheckPrefix(prefix) != nil {
			prefix = ""
		}
		n := Namespace{QueuePrefix: prefix, TopicPrefix: prefix, SessionQueues: []string{"orders*"}}
		if address, err := n.QueueAddress(name); err == nil {
			if second, err := n.QueueAddress(address); err != nil || second != address {
				t.Errorf("%q has the address %q, and that %q, %v", name, address, second, err)
			}
			entity, sub := n.Source(address)
			checkEntity(t, name, entity, maxQueueNameLength)
			_, err := n.Target(name)
			if dead := IsDeadLetterQueue(address); dead != (sub == azservicebus.SubQueueDeadLetter) || dead != (err != nil) || dead && n.KeepsGroups(address) {
				t.Errorf("%q: %q is a dead-letter queue: %t; it is read as %v, and sending there says %v", name, address, dead, sub, err)
			}
			if subscription := n.SubscriptionName(address); len(subscription) > maxSubscriptionNameLength || strings.Contains(subscription, "/") {
				t.Errorf("%q has the subscription %q", name, subscription)
			}
		}
		if n.CheckTopic(name) == nil {
			checkEntity(t, name, n.TopicOf(name), maxQueueNameLength)
		}
	})
}

// checkEntity fails for a name that the service refuses, or that would be a part of another
// resource's URL.
func checkEntity(t *testing.T, name, entity string, longest int) {
	t.Helper()
	const legal = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./"
	if entity == "" || len(entity) > longest || strings.Trim(entity, legal) != "" || strings.HasPrefix(entity, "/") || strings.HasSuffix(entity, "/") {
		t.Errorf("%q is named %q", name, entity)
	}
}
