package rabbitmq

import (
	"fmt"
	"math/bits"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Delayed messages wait in NServiceBus's topology, version 2, which all endpoints of a
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

const (
	delayPrefix      = "nsb.v2.delay-"
	deliveryExchange = delayPrefix + "delivery"

	delayLevels     = 28
	maxDelaySeconds = 1<<delayLevels - 1
	maxDelay        = maxDelaySeconds * time.Second

	// delayPrecision: each delay is rounded up to a second, and the broker may take another
	// second to pass the message from level to level.
	delayPrecision = 2 * time.Second

	// deliveryPattern precedes the name of a queue in the key of its binding to the
	// delivery exchange.
	deliveryPattern = "*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*."
)

// delayLevel returns the name of a level's exchange and of its queue.
func delayLevel(level int) string { return delayNames[level] }

var delayNames = func() (names [delayLevels]string) {
	for level := range names {
		names[level] = fmt.Sprintf("%slevel-%02d", delayPrefix, level)
	}
	return names
}()

// delaySeconds returns a delay in whole seconds, rounded up: never early.
func delaySeconds(delay time.Duration) int {
	return int((delay + time.Second - 1) / time.Second)
}

// delayRoute returns where to publish a message that is to reach a queue after a delay of
// at most maxDelay. The exchange is that of the first level in which the message waits, so
// that the message passes as few exchanges as possible.
func delayRoute(delay time.Duration, queue string) (exchange, key string, seconds int) {
	seconds = delaySeconds(delay)
	var b strings.Builder
	b.Grow(len(deliveryPattern) + len(queue))
	for level := delayLevels - 1; level >= 0; level-- {
		b.WriteByte('0' + byte(seconds>>level&1))
		b.WriteByte('.')
	}
	b.WriteString(queue)
	first := max(bits.Len(uint(seconds))-1, 0)
	return delayLevel(first), b.String(), seconds
}

// deliveryBinding returns the key that binds a queue to the delivery exchange.
func deliveryBinding(queue string) string { return deliveryPattern + queue }

// delayBindings returns the keys that bind a level's queue, and the next level's exchange,
// to the level's exchange.
func delayBindings(level int) (waits, passes string) {
	before := deliveryPattern[:len("*.")*(delayLevels-1-level)]
	return before + "1.#", before + "0.#"
}

// afterDelay returns the exchange that follows a level.
func afterDelay(level int) string {
	if level == 0 {
		return deliveryExchange
	}
	return delayLevel(level - 1)
}

// delayArguments returns the arguments of a level's queue. With at-least-once the queue
// keeps a message until the next queue has it.
func delayArguments(level int) amqp.Table {
	return amqp.Table{
		"x-queue-type":           "quorum",
		"x-dead-letter-strategy": "at-least-once",
		"x-overflow":             "reject-publish", // which at-least-once requires
		"x-message-ttl":          int64(1000) << level,
		"x-dead-letter-exchange": afterDelay(level),
	}
}

// declareDelays declares all levels and the delivery exchange, from the last to the first,
// so that even a partial topology leads to its end. It leaves existing parts as they are;
// if one differs, the error names it and the channel is closed.
func declareDelays(ch *amqp.Channel) error {
	if err := declareDelayExchange(ch, deliveryExchange); err != nil {
		return err
	}
	for level := range delayLevels {
		name, next := delayLevel(level), afterDelay(level)
		waits, passes := delayBindings(level)
		if err := declareDelayExchange(ch, name); err != nil {
			return err
		}
		if err := ch.ExchangeBind(next, passes, name, false, nil); err != nil {
			return fmt.Errorf("bind the exchange %q to %q for delayed messages: %w", next, name, err)
		}
		if _, err := ch.QueueDeclare(name, true, false, false, false, delayArguments(level)); err != nil {
			return fmt.Errorf("declare the queue %q for delayed messages: %w", name, err)
		}
		if err := ch.QueueBind(name, waits, name, false, nil); err != nil {
			return fmt.Errorf("bind the queue %q for delayed messages: %w", name, err)
		}
	}
	return nil
}

func declareDelayExchange(ch *amqp.Channel, name string) error {
	if err := ch.ExchangeDeclare(name, amqp.ExchangeTopic, true, false, false, false, nil); err != nil {
		return fmt.Errorf("declare the exchange %q for delayed messages: %w", name, err)
	}
	return nil
}
