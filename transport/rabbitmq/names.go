package rabbitmq

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-go/reprise/transport"
)

// maxShortString is how many bytes AMQP allows a name, a routing key or a property.
const maxShortString = 255

// maxQueueName is how many bytes the name of a queue may have, so that the routing key
// of a delayed message to it is a legal one.
const maxQueueName = maxShortString - len(deliveryPattern)

const (
	// brokersOwn begins names that only the broker may declare.
	brokersOwn = "amq."

	// topicPrefix begins the names of the exchanges of topics. A queue has an exchange of
	// its own name, so no queue may begin like it.
	topicPrefix = "topic:"

	// directExchange is that of all topics in the direct topology. The broker makes it.
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
	case strings.HasPrefix(queue, brokersOwn):
		return fmt.Errorf("the name of a queue cannot begin with %q, which is for the broker itself: %q", brokersOwn, queue)
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
	// directReplies is what a client with direct reply-to names as the address for replies.
	// The broker puts the client's own in its place. From anybody who does not consume such
	// replies it refuses the message, and closes the channel.
	directReplies = brokersOwn + "rabbitmq.reply-to"

	// replyPrefix begins the addresses of such clients. They are no queues: the broker passes
	// a message on to the client's channel, or drops it.
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

// topicKey returns the routing key of a topic, which is the key of its bindings too, in
// the direct topology. Without wildcards it matches itself and nothing else.
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

// checkName checks what all names have in common. The broker itself takes nearly any
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

// hasWildcard reports whether one of the words of a binding key would match others.
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
