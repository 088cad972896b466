// Package delays has the exchanges, queues and routing keys of delayed messages.
//
// Such messages wait in NServiceBus's topology, version 2, which all endpoints of a
// virtual host share. It has 28 levels, an exchange and a queue each. The queue of level n
// keeps a message for 2^n seconds, and then passes it to the exchange of level n-1; the
// last one passes it to the delivery exchange, which knows the queues.
//
// The routing key describes the path: the 28 bits of the delay in seconds, the highest
// first, and the name of the queue, all separated by dots. The exchange of a level passes a
// message whose bit is 1 to its queue, and a message whose bit is 0 to the next level at
// once.
//
//	exchange 27 --1--> queue 27 --after 2^27 s--> exchange 26 ... exchange 0 --1--> queue 0 --after 1 s--> deliveries
//	exchange 27 --0----------------------------> exchange 26 ... exchange 0 --0-------------------------> deliveries
//
// Everything must be declared as NServiceBus declares it: the broker refuses a second
// declaration with other arguments. Only the binding of a queue to the delivery exchange
// differs. NServiceBus's "#.billing" matches the keys of "sales.billing" too; ours has a *
// for each bit, and matches one queue only.
package delays

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	// Prefix begins the names of all exchanges and queues of delayed messages.
	Prefix = "nsb.v2.delay-"

	// DeliveryExchange is the exchange that passes due messages to their queues.
	DeliveryExchange = Prefix + "delivery"

	// Levels is the number of levels.
	Levels     = 28
	maxSeconds = 1<<Levels - 1

	// Max is the longest delay.
	Max = maxSeconds * time.Second

	// Precision: each delay is rounded up to a second, and the broker may take another
	// second to pass the message from level to level.
	Precision = 2 * time.Second

	// BindingPattern precedes the name of a queue in the key of its binding to the
	// delivery exchange.
	BindingPattern = "*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*."
)

// Level returns the name of a level's exchange and of its queue.
func Level(level int) string { return levelNames[level] }

var levelNames = func() (names [Levels]string) {
	for level := range names {
		names[level] = fmt.Sprintf("%slevel-%02d", Prefix, level)
	}
	return names
}()

// Seconds returns a delay in whole seconds, rounded up: never early.
func Seconds(delay time.Duration) int {
	return int((delay + time.Second - 1) / time.Second)
}

// Route returns where to publish a message that is to reach a queue after a delay of at
// most Max. The exchange is that of the first level in which the message waits, so that the
// message passes as few exchanges as possible.
func Route(delay time.Duration, queue string) (exchange, key string, seconds int) {
	seconds = Seconds(delay)
	var b strings.Builder
	b.Grow(len(BindingPattern) + len(queue))
	for level := Levels - 1; level >= 0; level-- {
		b.WriteByte('0' + byte(seconds>>level&1))
		b.WriteByte('.')
	}
	b.WriteString(queue)
	first := max(bits.Len(uint(seconds))-1, 0)
	return Level(first), b.String(), seconds
}

// BindingKey returns the key that binds a queue to the delivery exchange.
func BindingKey(queue string) string { return BindingPattern + queue }

// levelBindings returns the keys that bind a level's queue, and the next level's exchange,
// to the level's exchange.
func levelBindings(level int) (waits, passes string) {
	before := BindingPattern[:len("*.")*(Levels-1-level)]
	return before + "1.#", before + "0.#"
}

// nextExchange returns the exchange that follows a level.
func nextExchange(level int) string {
	if level == 0 {
		return DeliveryExchange
	}
	return Level(level - 1)
}

// levelArguments returns the arguments of a level's queue. With at-least-once the queue
// keeps a message until the next queue has it.
func levelArguments(level int) amqp.Table {
	return amqp.Table{
		"x-queue-type":           "quorum",
		"x-dead-letter-strategy": "at-least-once",
		"x-overflow":             "reject-publish", // which at-least-once requires
		"x-message-ttl":          int64(1000) << level,
		"x-dead-letter-exchange": nextExchange(level),
	}
}

// Declare declares all levels and the delivery exchange, from the last to the first, so
// that even a partial topology leads to its end. It leaves existing parts as they are; if
// one differs, the error names it and the channel is closed.
func Declare(ch *amqp.Channel) error {
	if err := declareExchange(ch, DeliveryExchange); err != nil {
		return err
	}
	for level := range Levels {
		name, next := Level(level), nextExchange(level)
		waits, passes := levelBindings(level)
		if err := declareExchange(ch, name); err != nil {
			return err
		}
		if err := ch.ExchangeBind(next, passes, name, false, nil); err != nil {
			return fmt.Errorf("bind the exchange %q to %q for delayed messages: %w", next, name, err)
		}
		if _, err := ch.QueueDeclare(name, true, false, false, false, levelArguments(level)); err != nil {
			return fmt.Errorf("declare the queue %q for delayed messages: %w", name, err)
		}
		if err := ch.QueueBind(name, waits, name, false, nil); err != nil {
			return fmt.Errorf("bind the queue %q for delayed messages: %w", name, err)
		}
	}
	return nil
}

func declareExchange(ch *amqp.Channel, name string) error {
	if err := ch.ExchangeDeclare(name, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
		return fmt.Errorf("declare the exchange %q for delayed messages: %w", name, err)
	}
	return nil
}

// CheckExists returns an error if a part of the topology does not exist.
func CheckExists(ch *amqp.Channel) error {
	if err := ch.ExchangeDeclarePassive(DeliveryExchange, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
		return err
	}
	for level := range Levels {
		name := Level(level)
		if err := ch.ExchangeDeclarePassive(name, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
			return err
		}
		if _, err := ch.QueueDeclarePassive(name, true, false, false, false, nil); err != nil {
			return err
		}
	}
	return nil
}
