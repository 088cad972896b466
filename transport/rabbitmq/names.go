package rabbitmq

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-go/reprise/transport"
)

// maxShortString is the maximum size in bytes of a name, a routing key or a property in
// AMQP.
const maxShortString = 255

// maxQueueName is the maximum size in bytes of the name of a queue. With it, the routing
// key of a delayed message to the queue still fits into maxShortString.
const maxQueueName = maxShortString - len(deliveryPattern)

const (
	// brokerPrefix begins names that only the broker may declare.
	brokerPrefix = "amq."

	// topicPrefix begins the names of the exchanges of topics. Each queue has an exchange
	// of the same name, so the name of a queue must not begin with it.
	topicPrefix = "topic:"

	// directExchange is the exchange of all topics in the direct topology. The broker
	// declares it.
	directExchange = "amq.topic"
)

// queueName checks the name of a queue, which is its address too, and returns it.
func queueName(queue string) (string, error) {
	if err := checkQueueName(queue); err != nil {
		return "", transport.Permanent(err)
	}
	return queue, nil
}

func checkQueueName(queue string) error {
	switch {
	case strings.HasPrefix(queue, brokerPrefix):
		return fmt.Errorf("the name of a queue cannot begin with %q, which is for the broker itself: %q", brokerPrefix, queue)
	case strings.HasPrefix(queue, topicPrefix):
		return fmt.Errorf("the name of a queue cannot begin with %q, as the exchanges of topics do: %q", topicPrefix, queue)
	case strings.HasPrefix(queue, delayPrefix):
		return fmt.Errorf("the name of a queue cannot begin with %q, as the queues of delayed messages do: %q", delayPrefix, queue)
	case hasWildcard(queue):
		return fmt.Errorf("the name of a queue cannot have * or # as a word between dots: %q", queue)
	}
	return checkName("queue", queue, maxQueueName)
}

const (
	// directReplies is the reply address that a client with direct reply-to sets. The
	// broker replaces it by the client's own address. If the sender does not consume such
	// replies, the broker refuses the message and closes the channel.
	directReplies = brokerPrefix + "rabbitmq.reply-to"

	// replyPrefix begins the addresses of such clients. They are not queues: the broker
	// passes a message on to the client's channel, or drops it.
	replyPrefix = directReplies + "."
)

// checkReplyName checks a name that begins with replyPrefix.
func checkReplyName(name string) error {
	return checkName("client for replies", name, maxShortString)
}

// topicExchange returns the name of a topic's exchange.
func topicExchange(topic string) (string, error) {
	if err := checkName("topic", topic, maxShortString-len(topicPrefix)); err != nil {
		return "", transport.Permanent(err)
	}
	return topicPrefix + topic, nil
}

// topicKey returns the routing key of a topic in the direct topology, which is also the key
// of its bindings. Without wildcards it matches only itself.
func topicKey(topic string) (string, error) {
	err := checkName("topic", topic, maxShortString)
	if err == nil && hasWildcard(topic) {
		err = fmt.Errorf("a topic cannot have * or # as a word between dots in the direct topology: %q", topic)
	}
	if err != nil {
		return "", transport.Permanent(err)
	}
	return topic, nil
}

// checkName applies the rules common to all names. The broker itself accepts nearly any
// bytes, but drops line breaks from some names and not from others.
func checkName(what, name string, most int) error {
	switch {
	case name == "":
		return fmt.Errorf("the name of a %s is empty", what)
	case len(name) > most:
		return fmt.Errorf("the name of a %s may have %d bytes, but has %d: %.40q...", what, most, len(name), name)
	case !utf8.ValidString(name):
		return fmt.Errorf("the name of a %s is not UTF-8: %q", what, name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("the name of a %s has a control character: %q", what, name)
	}
	return nil
}

// hasWildcard reports whether a word of a binding key would match other words.
func hasWildcard(key string) bool {
	if !strings.ContainsAny(key, "*#") {
		return false
	}
	for word := range strings.SplitSeq(key, ".") {
		if word == "*" || word == "#" {
			return true
		}
	}
	return false
}
