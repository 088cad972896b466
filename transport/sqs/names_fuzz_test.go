package sqs

import (
	"strings"
	"testing"
)

// FuzzNames reads any text as the name or the address of a queue, such as a reply address,
// and as a topic.
func FuzzNames(f *testing.F) {
	for _, name := range []string{"orders", "orders.eu.fifo", ".fifo", "a.fifo.fifo", "Shop.Order+Placed", "https://sqs/1/orders", "", "\xff", strings.Repeat("a", 80)} {
		f.Add(name, "test-", false)
		f.Add(name, "", true)
	}
	legal := func(name string, longest int) bool {
		name = strings.TrimSuffix(name, fifoSuffix)
		return name != "" && len(name) <= longest && strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
	}
	f.Fuzz(func(t *testing.T, name, prefix string, noLongDelays bool) {
		if checkPrefix(prefix, 40) != nil {
			prefix = ""
		}
		c := &Config{QueuePrefix: prefix, TopicPrefix: prefix, NoLongDelays: noLongDelays}
		if address, err := c.queueAddress(name); err == nil {
			second, err := c.queueAddress(address)
			if err != nil || second != address || isFIFO(address) != strings.HasSuffix(name, fifoSuffix) {
				t.Errorf("%q has the address %q, and that %q, %v", name, address, second, err)
			}
			if !legal(prefix+address, maxQueueNameLength) || len(prefix+address) > maxQueueNameLength {
				t.Errorf("%q is named %q", name, prefix+address)
			}
			if delays := prefix + delayQueue(address); !noLongDelays && (!legal(delays, maxQueueNameLength) || len(delays) > maxQueueNameLength) {
				t.Errorf("%q has the queue of delays %q", name, delays)
			}
		}
		if topic, err := c.topicName(name); err == nil && (!legal(topic, maxTopicNameLength) || len(topic) > maxTopicNameLength) {
			t.Errorf("the topic %q is named %q", name, topic)
		}
	})
}
