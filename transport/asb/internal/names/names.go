// Package names derives the names of queues, topics, subscriptions and rules in a namespace of the service, and refuses
// those that the service does not allow.
package names

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/transport"
)

// These are the service's limits (https://learn.microsoft.com/azure/service-bus-messaging/service-bus-quotas).
const (
	maxQueueNameLength        = 260
	maxSubscriptionNameLength = 50
)

// Namespace says how the queues and topics of endpoints are named in a namespace of the service. Its fields are those of
// the adapter's Config.
type Namespace struct {
	QueuePrefix, TopicPrefix string
	SessionQueues            []string // queues, or patterns for path.Match
}

// deadLetterSuffix ends the address of a queue's dead-letter queue, which can be received
// from like any other queue.
const deadLetterSuffix = "/$deadletterqueue"

// QueueAddress returns a queue's address: its name in lower case, since the service
// ignores case in names. The address of a dead-letter queue ends with
// "/$deadletterqueue".
func (n Namespace) QueueAddress(queue string) (string, error) {
	name := strings.ToLower(queue)
	base, dead := strings.CutSuffix(name, deadLetterSuffix)
	if err := CheckName("queue", base, n.QueuePrefix); err != nil {
		return "", transport.Permanent(err)
	}
	if dead {
		return base + deadLetterSuffix, nil
	}
	return base, nil
}

// CheckName returns an error for the name of a queue or topic that cannot exist with its
// prefix. The service allows letters, digits, periods, hyphens, underscores and slashes,
// and requires a letter or digit at the beginning and the end
// (https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules#microsoftservicebus).
func CheckName(kind, name, prefix string) error {
	if name == "" {
		return transport.BadName(kind, name, 0, "the name of a %s is empty", kind)
	}
	for _, r := range name {
		if !isPlain(r) && r != '/' && r != '.' {
			return transport.BadName(kind, name, 0, "the %s %q has %q in its name, which Service Bus does not allow; use letters, digits, periods, hyphens, underscores and slashes", kind, name, r)
		}
	}
	if !isLetterOrDigit(name[0]) || !isLetterOrDigit(name[len(name)-1]) {
		return transport.BadName(kind, name, 0, "the name of the %s %q has to begin and end with a letter or a digit", kind, name)
	}
	if length := len(prefix) + len(name); length > maxQueueNameLength {
		return transport.BadName(kind, name, maxQueueNameLength-len(prefix), "the %s %q would have a name of %d characters, and Service Bus allows %d; shorten it", kind, name, length, maxQueueNameLength)
	}
	return nil
}

// CheckPrefix returns an error for a prefix with which no queue or topic can exist. Its text begins with a verb, to
// follow the name of the setting. It does not quote the prefix, which may be a secret in the wrong setting.
func CheckPrefix(prefix string) error {
	if prefix == "" {
		return nil
	}
	for _, r := range prefix {
		if !isPlain(r) && r != '/' && r != '.' {
			return fmt.Errorf("has %q in it; use letters, digits, periods, hyphens, underscores and slashes", r)
		}
	}
	if !isLetterOrDigit(prefix[0]) {
		return fmt.Errorf("begins with %q, but names have to begin with a letter or a digit", prefix[0])
	}
	if len(prefix) > maxQueueNameLength/2 {
		return fmt.Errorf("has %d characters, and must leave room for names: at most %d", len(prefix), maxQueueNameLength/2)
	}
	return nil
}

// IsPattern reports whether a text has only characters of names and of patterns for path.Match.
func IsPattern(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return !isPlain(r) && !strings.ContainsRune("/.*?[]^\\$", r) })
}

// isPlain reports whether every kind of name may have a character: a letter, digit, hyphen or underscore.
func isPlain(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || r == '-' || r == '_'
}

func isLetterOrDigit(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
}

// IsDeadLetterQueue reports whether an address is that of a dead-letter queue.
func IsDeadLetterQueue(address string) bool { return strings.HasSuffix(address, deadLetterSuffix) }

// Source returns the names that the SDK uses for a queue, or for its dead-letter queue.
func (n Namespace) Source(address string) (name string, sub azservicebus.SubQueue) {
	base, dead := strings.CutSuffix(address, deadLetterSuffix)
	if dead {
		sub = azservicebus.SubQueueDeadLetter
	}
	return n.QueuePrefix + base, sub
}

// Target returns the queue that messages to an address are sent to.
func (n Namespace) Target(queue string) (string, error) {
	address, err := n.QueueAddress(queue)
	if err != nil {
		return "", err
	}
	if IsDeadLetterQueue(address) {
		return "", transport.Permanent(fmt.Errorf("messages cannot be sent to a dead-letter queue, %q: %w", queue, errors.ErrUnsupported))
	}
	return address, nil
}

// KeepsGroups reports whether the queue at an address requires sessions. A dead-letter
// queue never does.
func (n Namespace) KeepsGroups(address string) bool {
	if IsDeadLetterQueue(address) {
		return false
	}
	for _, pattern := range n.SessionQueues {
		if ok, err := path.Match(strings.ToLower(pattern), address); ok && err == nil {
			return true
		}
	}
	return false
}

// MaxQueueName returns the length of the longest name of a queue.
func (n Namespace) MaxQueueName() int { return maxQueueNameLength - len(n.QueuePrefix) }

// MaxTopicName returns the length of the longest name of a topic.
func (n Namespace) MaxTopicName() int { return maxQueueNameLength - len(n.TopicPrefix) }

// CheckTopic returns an error for a topic that cannot exist.
func (n Namespace) CheckTopic(topic string) error {
	return transport.Permanent(CheckName("topic", TopicName(topic), n.TopicPrefix))
}

// ARMName returns the name of a queue or topic for the Azure Resource Manager, which az and Bicep use. There a slash separates resources, and
// stands as a tilde within a name
// (https://learn.microsoft.com/archive/blogs/servicebus/azure-service-bus-azure-resource-manager-and-this-character).
func ARMName(name string) string { return strings.ReplaceAll(name, "/", "~") }

// TopicName returns the name of the topic of an event. NServiceBus replaces the plus sign
// of nested types in the same way.
func TopicName(topic string) string { return strings.ReplaceAll(topic, "+", ".") }

// TopicOf returns the name of the topic in the namespace to which an event is published.
func (n Namespace) TopicOf(topic string) string {
	return n.TopicPrefix + TopicName(topic)
}

// SubscriptionName returns the name of a queue's subscription: that of the queue, as in
// NServiceBus, or its beginning and a hash if it is too long.
func (n Namespace) SubscriptionName(address string) string {
	return fitting(n.QueuePrefix + address)
}

// fitting returns a name that is valid for subscriptions and rules: at most 50
// characters, without slashes.
func fitting(name string) string {
	if len(name) <= maxSubscriptionNameLength && !strings.ContainsFunc(name, func(r rune) bool { return !isPlain(r) && r != '.' }) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	hash := hex.EncodeToString(sum[:8])
	kept := strings.Map(func(r rune) rune {
		if isPlain(r) || r == '.' {
			return r
		}
		return '-'
	}, name)
	kept = kept[:min(len(kept), maxSubscriptionNameLength-len(hash)-1)]
	return kept + "-" + hash
}
