// Package names has the rules for the names of queues, exchanges and routing keys.
package names

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/rabbitmq/internal/delays"
)

// MaxShortString is the maximum size in bytes of a name, a routing key or a property in
// AMQP.
const MaxShortString = 255

// MaxQueue is the maximum size in bytes of the name of a queue. With it, the routing
// key of a delayed message to the queue still fits into MaxShortString.
const MaxQueue = MaxShortString - len(delays.BindingPattern)

const (
	// MaxTopic is the maximum size in bytes of a topic, whose exchange has a prefix.
	MaxTopic = MaxShortString - len(TopicPrefix)

	// MaxEvent is that of a topic in the topology of NServiceBus: the name of its exchange
	// may have a colon more.
	MaxEvent = MaxShortString - 1
)

const (
	// BrokerPrefix begins names that only the broker may declare.
	BrokerPrefix = "amq."

	// TopicPrefix begins the names of the exchanges of topics. Each queue has an exchange
	// of the same name, so the name of a queue must not begin with it.
	TopicPrefix = "topic:"

	// DirectExchange is the exchange of all topics in the direct topology. The broker
	// declares it.
	DirectExchange = "amq.topic"
)

// Queue checks the name of a queue, which is its address too, and returns it.
func Queue(queue string) (string, error) {
	if err := checkQueue(queue); err != nil {
		return "", transport.Permanent(err)
	}
	return queue, nil
}

func checkQueue(queue string) error {
	switch {
	case strings.HasPrefix(queue, BrokerPrefix):
		return transport.BadName("queue", queue, 0, "the name of a queue cannot begin with %q, which is for the broker itself: %q", BrokerPrefix, queue)
	case strings.HasPrefix(queue, TopicPrefix):
		return transport.BadName("queue", queue, 0, "the name of a queue cannot begin with %q, as the exchanges of topics do: %q", TopicPrefix, queue)
	case strings.HasPrefix(queue, delays.Prefix):
		return transport.BadName("queue", queue, 0, "the name of a queue cannot begin with %q, as the queues of delayed messages do: %q", delays.Prefix, queue)
	case hasWildcard(queue):
		return transport.BadName("queue", queue, 0, "the name of a queue cannot have * or # as a word between dots: %q", queue)
	}
	return check("queue", queue, MaxQueue)
}

const (
	// DirectReplies is the reply address that a client with direct reply-to sets. The
	// broker replaces it by the client's own address. If the sender does not consume such
	// replies, the broker refuses the message and closes the channel.
	DirectReplies = BrokerPrefix + "rabbitmq.reply-to"

	// ReplyPrefix begins the addresses of such clients. They are not queues: the broker
	// passes a message on to the client's channel, or drops it.
	ReplyPrefix = DirectReplies + "."

	// generatedPrefix begins the names that the broker gives to queues which clients
	// declare without a name. Only the broker may declare them, but anybody may send to
	// them.
	generatedPrefix = BrokerPrefix + "gen-"
)

// IsClient reports whether a name is the address of a client that awaits replies: one with
// direct reply-to, or the queue that the broker named for it.
func IsClient(name string) bool {
	return strings.HasPrefix(name, ReplyPrefix) || strings.HasPrefix(name, generatedPrefix)
}

// Destination checks the name of a queue or a client to which messages are sent, and returns
// it.
func Destination(name string) (string, error) {
	if !IsClient(name) {
		return Queue(name)
	}
	if err := check("client for replies", name, MaxShortString); err != nil {
		return "", transport.Permanent(err)
	}
	return name, nil
}

// TopicExchange returns the name of a topic's exchange.
func TopicExchange(topic string) (string, error) {
	if err := check("topic", topic, MaxTopic); err != nil {
		return "", transport.Permanent(err)
	}
	return TopicPrefix + topic, nil
}

// TopicKey returns the routing key of a topic in the direct topology, which is also the key
// of its bindings. Without wildcards it matches only itself.
func TopicKey(topic string) (string, error) {
	err := check("topic", topic, MaxShortString)
	if err == nil && hasWildcard(topic) {
		err = transport.BadName("topic", topic, 0, "a topic cannot have * or # as a word between dots in the direct topology: %q", topic)
	}
	if err != nil {
		return "", transport.Permanent(err)
	}
	return topic, nil
}

// check applies the rules common to all names. The broker itself accepts nearly any
// bytes, but drops line breaks from some names and not from others.
func check(entity, name string, limit int) error {
	kind := entity
	if kind != "topic" {
		kind = "queue"
	}
	switch {
	case name == "":
		return transport.BadName(kind, name, 0, "the name of a %s is empty", entity)
	case len(name) > limit:
		return transport.BadName(kind, name, limit, "the name of a %s may have %d bytes, but has %d: %.40q...", entity, limit, len(name), name)
	case !utf8.ValidString(name):
		return transport.BadName(kind, name, 0, "the name of a %s is not UTF-8: %q", entity, name)
	case strings.ContainsFunc(name, unicode.IsControl):
		return transport.BadName(kind, name, 0, "the name of a %s has a control character: %q", entity, name)
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

const (
	// EveryEvent is the exchange to which NServiceBus binds the exchanges of all classes.
	EveryEvent = "System:Object"

	// iEvent is the marker of events. NServiceBus treats a subscription to it as a
	// subscription to all events, whether or not their types have the marker.
	iEvent = "NServiceBus.IEvent"
)

// EventExchange returns the name of the exchange of an event in NServiceBus's topology: for
// the type "Shop.Billing.OrderPlaced" it is "Shop.Billing:OrderPlaced". Like NServiceBus it
// leaves out the classes that enclose a nested type.
func EventExchange(topic string) (string, error) {
	exchange := eventExchangeName(topic)
	err := check("topic", topic, MaxEvent)
	switch {
	case err != nil:
	case strings.ContainsAny(topic, "`[]"):
		err = transport.BadName("topic", topic, 0, "the topology of NServiceBus has no topic for a generic type: %q; publish a type that is none", topic)
	case strings.Contains(topic, ":"):
		err = transport.BadName("topic", topic, 0, "in the topology of NServiceBus a topic is the full name of a .NET type, such as Shop.Billing.OrderPlaced, which has no colon: %q", topic)
	case strings.HasSuffix(exchange, ":"):
		err = transport.BadName("topic", topic, 0, "in the topology of NServiceBus a topic is the full name of a .NET type, such as Shop.Billing.OrderPlaced, and this one ends before the name: %q", topic)
	case strings.HasPrefix(exchange, BrokerPrefix):
		err = transport.BadName("topic", topic, 0, "the exchange of a topic cannot begin with %q, which is for the broker itself: %q", BrokerPrefix, topic)
	case len(exchange) > MaxShortString:
		err = transport.BadName("topic", topic, MaxEvent, "the exchange of the topic %.40q... may have %d bytes, but has %d", topic, MaxShortString, len(exchange))
	}
	if err != nil {
		return "", transport.Permanent(err)
	}
	return exchange, nil
}

func eventExchangeName(topic string) string {
	if topic == iEvent {
		return EveryEvent
	}
	outer, nested, _ := strings.Cut(topic, "+")
	namespace, name := "", outer
	if at := strings.LastIndexByte(outer, '.'); at >= 0 {
		namespace, name = outer[:at], outer[at+1:]
	}
	if nested != "" {
		name = nested[strings.LastIndexByte(nested, '+')+1:]
	}
	return namespace + ":" + name
}
