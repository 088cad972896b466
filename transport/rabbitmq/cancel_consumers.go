package rabbitmq

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// This file cancels consumers of a queue whose broker counts deliveries. A
// message in transit to the channel when the broker processes the cancel is requeued, and
// counted as an attempt. So there must be none: either the consumer has as many messages as
// its prefetch allows, or the broker has sent it nothing for a while. During that time none
// of its settlements is written, because each settlement lets the broker send it one more
// message.
//
// Each consumer has a lower priority than the earlier consumers of the channel. So all
// except the first get messages only while the consumers before them are full, and become
// quiet soon when messages become fewer.

const (
	// quietTime is how long the broker must have sent a consumer nothing. A message that it
	// sends right afterwards may still be affected by the cancel.
	quietTime = 50 * time.Millisecond
	// quietSyncs is how many calls of sync must have brought the consumer nothing, however
	// long each takes. Of the settlements written before, the broker's channel keeps those
	// beyond 32 until the queue has confirmed earlier ones (rabbit_fifo_client.erl,
	// SOFT_LIMIT). So the queue may get them during the first call, and the messages that it
	// then sends arrive with the second.
	quietSyncs = 3
	// quietTimeout is the time after which a consumer is cancelled even if it was never
	// quiet. It is short because handled messages wait that long for their acknowledgement.
	quietTimeout = time.Second
)

// lastPriority is lower than all other priorities.
const lastPriority = -1000

// priority returns the arguments of a consumer that begins beside n others.
func priority(n int) amqp.Table {
	if n == 0 {
		return nil // the default, as other clients' consumers have it
	}
	return amqp.Table{"x-priority": int32(-n)}
}

// cancelQuietly cancels a consumer. It reports whether it did. If more deliveries may be
// prefetched again by then, it keeps the consumer, unless there are too many consumers.
func (c *consumerChannel) cancelQuietly(consumer *consumer, tooMany bool) (cancelled bool, err error) {
	if c.r.brokerCounts {
		c.withholdSettlements(consumer)
		defer c.resumeSettlements(consumer)
		if cancelled, err = c.awaitQuiet(consumer, tooMany); !cancelled {
			return false, err
		}
	}
	if err := c.cancel(consumer); err != nil {
		return false, err
	}
	return true, nil
}

// awaitQuiet waits until no message is in transit to a consumer, while the consumer's
// settlements are withheld.
func (c *consumerChannel) awaitQuiet(consumer *consumer, tooMany bool) (quiet bool, err error) {
	began := time.Now()
	quietSince, syncs, arrived := began, 0, -1
	for {
		now := c.consumerState(consumer)
		if now.arrived != arrived {
			quietSince, syncs, arrived = time.Now(), 0, now.arrived
		}
		switch {
		case !now.excess && !tooMany:
			return false, nil
		case now.full, syncs >= quietSyncs && time.Since(quietSince) > quietTime, time.Since(began) > quietTimeout, c.r.isClosing():
			return true, nil
		}
		if err := c.sync(); err != nil {
			return false, err
		}
		syncs++
	}
}

// consumerState is the state of a consumer as far as its cancellation depends on it.
type consumerState struct {
	arrived int
	full    bool // the broker sends it nothing before a settlement is written
	excess  bool // the active consumers may prefetch more messages than they should
}

func (c *consumerChannel) consumerState(consumer *consumer) consumerState {
	active, _ := c.activeConsumers()
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	return consumerState{
		arrived: consumer.arrived,
		full:    consumer.acks.Unwritten >= consumer.prefetch,
		excess:  active > c.r.maxConsumedLocked(),
	}
}

// sync returns when the broker has processed everything written before, and the resulting
// deliveries have arrived at the channel. A quorum queue processes commands in the order of
// its log, which includes the beginning and the end of a consumer.
func (c *consumerChannel) sync() error {
	consumer, err := c.consume(1, priority(-lastPriority))
	if err != nil {
		return err
	}
	return c.cancel(consumer)
}

// withholdSettlements lets no settlement of a consumer's deliveries be written until
// resumeSettlements.
func (c *consumerChannel) withholdSettlements(consumer *consumer) {
	c.writeMu.Lock() // settlements taken before have been written
	defer c.writeMu.Unlock()
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	consumer.acks.Withheld = true
}

func (c *consumerChannel) resumeSettlements(consumer *consumer) {
	c.r.mu.Lock()
	consumer.acks.Withheld = false
	c.r.mu.Unlock()
	c.acks.Pending.Notify()
	c.acks.FlushNow.Notify()
}
