package rabbitmq

import (
	"fmt"
	"math"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/transport/rabbitmq/internal/acks"
)

// consumer is one of the consumers of a channel.
type consumer struct {
	tag      string
	prefetch int
	drained  chan struct{} // closed when it has ended and all of its deliveries have arrived

	// The receiver's mu guards these.
	cancelled bool // only the goroutine of run writes it
	arrived   int  // number of deliveries
	unsettled int  // of these, not settled
	acks      acks.Consumer
}

// maxConsumers is the maximum number of consumers of a channel, without those that are
// ending.
const maxConsumers = 8

// maxPrefetch is the maximum prefetch of a consumer, two bytes on the wire.
const maxPrefetch = math.MaxUint16

// adjustConsumers begins and ends consumers so that their prefetch adds up to MaxInFlight,
// and requeues excess messages.
func (c *consumerChannel) adjustConsumers() error {
	c.r.mu.Lock()
	limit := c.r.maxConsumedLocked()
	c.r.mu.Unlock()
	if err := c.cancelExcess(limit); err != nil {
		return err
	}
	active, n := c.activeConsumers()
	missing := c.releaseExcess(limit, active)
	if missing <= 0 {
		return nil
	}
	for ; missing > 0; missing, n = missing-maxPrefetch, n+1 {
		if _, err := c.consume(min(missing, maxPrefetch), priority(n)); err != nil {
			return err
		}
	}
	return nil
}

// cancelExcess ends the latest consumers if together they may prefetch too much. If there
// are too many consumers for another one to begin, it ends half of them.
func (c *consumerChannel) cancelExcess(limit int) error {
	active, n := c.activeConsumers()
	tooMany := active < limit && n >= maxConsumers
	for _, consumer := range slices.Backward(c.consumers) {
		if active <= limit && (!tooMany || n <= maxConsumers/2) {
			break
		}
		if consumer.cancelled {
			continue
		}
		cancelled, err := c.cancelQuietly(consumer, tooMany)
		if err != nil || !cancelled {
			return err
		}
		active -= consumer.prefetch
		n--
	}
	return nil
}

// activeConsumers returns how many messages the consumers that are not ending may prefetch,
// and how many such consumers there are.
func (c *consumerChannel) activeConsumers() (messages, consumers int) {
	for _, consumer := range c.consumers {
		if !consumer.cancelled {
			messages += consumer.prefetch
			consumers++
		}
	}
	return messages, consumers
}

// releaseExcess is called when consumers have ended because of a MaxInFlight of most, and
// the others may prefetch active messages. It releases arrived messages beyond MaxInFlight
// (excess) and no longer postpones returns. It returns how many more messages a new consumer
// may prefetch. A few are not worth one while the others can get messages, and ending ones
// are about to free some.
func (c *consumerChannel) releaseExcess(limit, active int) (missing int) {
	r := c.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.maxConsumedLocked() >= limit { // it was not lowered again
		c.acks.PostponeRequeues(false)
	}
	for r.hasExcessLocked() {
		last := len(r.prefetched) - 1
		r.prefetched[last].requestLocked(acks.Release)
		r.prefetched[last] = nil
		r.prefetched = r.prefetched[:last]
	}
	missing = r.maxConsumedLocked() - active
	ending, full := false, true
	left := c.consumers[:0]
	for _, consumer := range c.consumers {
		if consumer.cancelled {
			missing -= consumer.unsettled
			ending = ending || consumer.unsettled > 0
		} else if consumer.unsettled < consumer.prefetch {
			full = false
		}
		if !consumer.cancelled || consumer.unsettled > 0 {
			left = append(left, consumer)
		}
	}
	clear(c.consumers[len(left):])
	c.consumers = left
	c.acks.SetMaxInFlight(r.maxInFlight)
	c.waitsUntilFull = ending && !full && missing > 0 && missing*4 < limit
	if c.waitsUntilFull {
		return 0
	}
	return missing
}

// consume begins one more consumer.
func (c *consumerChannel) consume(prefetch int, args amqp.Table) (*consumer, error) {
	if err := c.ch.Qos(prefetch, 0, false); err != nil {
		return nil, err
	}
	c.consumerCount++
	consumer := &consumer{
		// The broker returns the messages of a closed channel by consumer, and few in the order of their tags.
		tag: fmt.Sprintf("%s-%09d", c.r.t.copyIDs.prefix, c.consumerCount), prefetch: prefetch,
		drained: make(chan struct{}),
	}
	deliveries, err := c.ch.Consume(c.r.queue, consumer.tag, false, false, false, false, args)
	if err != nil {
		return nil, err
	}
	c.consumers = append(c.consumers, consumer)
	c.readers.Go(func() {
		defer close(consumer.drained)
		for d := range deliveries {
			c.r.addDelivery(c, consumer, &d)
		}
	})
	return consumer, nil
}

// cancel ends a consumer. When it returns, all messages that the broker sent to it have
// arrived.
func (c *consumerChannel) cancel(consumer *consumer) error {
	if err := c.ch.Cancel(consumer.tag, false); err != nil {
		return err
	}
	<-consumer.drained
	c.r.mu.Lock()
	consumer.cancelled = true
	c.r.mu.Unlock()
	return nil
}
