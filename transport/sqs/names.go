package sqs

import (
	"fmt"
	"strings"

	"github.com/reprise-go/reprise/transport"
)

// queueAddress returns a queue's address: its name, with a hyphen in place of every dot,
// as in NServiceBus. Other characters that SQS does not allow are refused, so that two
// queues never get the same address.
func (c *Config) queueAddress(queue string) (string, error) {
	address, err := c.addressOf(queue)
	return address, transport.Permanent(err)
}

func (c *Config) addressOf(queue string) (string, error) {
	if queue == "" {
		return "", transport.BadName("queue", queue, 0, "the name of a queue is empty")
	}
	base, fifo := strings.CutSuffix(queue, fifoSuffix)
	if fifo && base == "" {
		return "", transport.BadName("queue", queue, 0, "the queue %q has no name but its suffix", queue)
	}
	address, err := sanitized(base, ".")
	if err != nil {
		return "", transport.BadName("queue", queue, 0, "the queue %q %v", queue, err)
	}
	if fifo {
		address += fifoSuffix
	}
	// The queue of its long delays needs a valid name too.
	longest := max(len(address), len(delayQueue(address)))
	if c.NoLongDelays {
		longest = len(address)
	}
	if n := len(c.QueuePrefix) + longest; n > maxQueueNameLength {
		return "", transport.BadName("queue", queue, c.maxQueueName(), "the queue %q, or the one for its long delays, would have a name of %d characters, and SQS allows %d; shorten it%s", queue, n, maxQueueNameLength, c.orPrefix())
	}
	return address, nil
}

// maxQueueName returns the length of the longest name of a queue.
func (c *Config) maxQueueName() int {
	n := maxQueueNameLength - len(c.QueuePrefix)
	if !c.NoLongDelays {
		n -= len(delaySuffix)
	}
	return n
}

// maxTopicName returns the length of the longest name of a topic.
func (c *Config) maxTopicName() int { return maxTopicNameLength - len(c.TopicPrefix) }

func (c *Config) orPrefix() string {
	if c.QueuePrefix == "" {
		return ""
	}
	return fmt.Sprintf(", or Config.QueuePrefix, which is %q", c.QueuePrefix)
}

// delayQueue returns the address of the queue for messages with longer delays than SQS
// supports.
func delayQueue(address string) string { return strings.TrimSuffix(address, fifoSuffix) + delaySuffix }

// isFIFO reports whether a queue keeps the order of groups.
func isFIFO(address string) bool { return strings.HasSuffix(address, fifoSuffix) }

// topicName returns the name of the SNS topic.
func (c *Config) topicName(topic string) (string, error) {
	name, err := c.nameOf(topic)
	return name, transport.Permanent(err)
}

func (c *Config) nameOf(topic string) (string, error) {
	if topic == "" {
		return "", transport.BadName("topic", topic, 0, "the topic is empty")
	}
	base, fifo := strings.CutSuffix(topic, fifoSuffix)
	if base == "" {
		return "", transport.BadName("topic", topic, 0, "the topic %q has no name but its suffix", topic)
	}
	name, err := sanitized(base, ".+") // of .NET's names of types
	if err != nil {
		return "", transport.BadName("topic", topic, 0, "the topic %q %v", topic, err)
	}
	name = c.TopicPrefix + name
	if fifo {
		name += fifoSuffix
	}
	if len(name) > maxTopicNameLength {
		return "", transport.BadName("topic", topic, c.maxTopicName(), "the topic %q would have a name of %d characters, and SNS allows %d; shorten it", topic, len(name), maxTopicNameLength)
	}
	return name, nil
}

// sanitized returns a name with hyphens in place of some characters.
func sanitized(name, replaced string) (string, error) {
	for _, r := range name {
		if !allowed(r) && !strings.ContainsRune(replaced, r) {
			return "", fmt.Errorf("has %q in it, which AWS does not allow; use letters, digits, hyphens, underscores and dots, which become hyphens", r)
		}
	}
	return strings.Map(func(r rune) rune {
		if allowed(r) {
			return r
		}
		return '-'
	}, name), nil
}

func allowed(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_'
}

func checkPrefix(prefix string, limit int) error {
	if len(prefix) > limit {
		return fmt.Errorf("%q is %d characters long, but must leave room for names: at most %d", prefix, len(prefix), limit)
	}
	for _, r := range prefix {
		if !allowed(r) {
			return fmt.Errorf("%q has %q in it; use letters, digits, hyphens and underscores", prefix, r)
		}
	}
	return nil
}
