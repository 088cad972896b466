package rabbitmq

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// This file cancels consumers of a queue whose broker counts deliveries. A message in
// transit to the channel when the broker processes the cancel is requeued, and counted as
// an attempt. So there must be none: either the consumer has as many messages as its
// prefetch allows, or the broker has sent it nothing for a while. During that time none of
// its settlements is written, because each settlement lets the broker send it one more
// message.
//
// Each consumer has a lower priority than the earlier consumers of the channel. So all
// except the first get messages only while the consumers before them are full, and become
// quiet soon when messages become fewer.
//
// The MaxInFlight that the engine wants rises and falls with the duration of the handlers.
// Consumers follow it downwards only after a while, so that they are seldom cancelled.

const (
	// shrinkPause is how long MaxInFlight must have been lower.
	shrinkPause = 2 * time.Second
	// quietTime is how long the broker must have sent a consumer nothing. A message that it
	// sends right afterwards may still be affected by the cancel.
	quietTime = 50 * time.Millisecond
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
	quietSince, arrived := began, -1
	for {
		now := c.consumerState(consumer)
		if now.arrived != arrived {
			quietSince, arrived = time.Now(), now.arrived
		}
		switch {
		case !now.excess && !tooMany:
			return false, nil
		case now.full, time.Since(quietSince) > quietTime, time.Since(began) > quietTimeout, c.r.isClosing():
			return true, nil
		}
		if err := c.sync(); err != nil {
			return false, err
		}
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
		excess:  active > c.r.mostConsumedLocked(),
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

// shrinkState is the state of following a lower MaxInFlight.
type shrinkState struct {
	consumed int         // the most deliveries that consumers may prefetch together, if more than MaxInFlight
	highest  int         // the highest MaxInFlight since timer began
	timer    *time.Timer // runs while consumed is more than MaxInFlight
}

// mostConsumedLocked is how many deliveries the consumers may prefetch together.
func (r *receiver) mostConsumedLocked() int { return max(r.maxInFlight, r.shrink.consumed) }

// stop limits the consumers to MaxInFlight immediately.
func (s *shrinkState) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
	*s = shrinkState{}
}

// shrinkLaterLocked is called before MaxInFlight becomes n.
func (r *receiver) shrinkLaterLocked(n int) {
	s := &r.shrink
	before := r.mostConsumedLocked()
	if n == 0 || n >= before {
		s.stop()
		return
	}
	s.consumed = before
	s.highest = max(s.highest, n)
	if s.timer == nil {
		s.highest = n
		s.timer = time.AfterFunc(shrinkPause, r.shrinkNow)
	}
}

// shrinkNow limits the consumers to the highest MaxInFlight of the last shrinkPause.
func (r *receiver) shrinkNow() {
	r.mu.Lock()
	s := &r.shrink
	if s.timer == nil || r.closed {
		r.mu.Unlock()
		return
	}
	s.timer, s.consumed = nil, 0
	if s.highest > r.maxInFlight {
		s.consumed, s.highest = s.highest, r.maxInFlight
		s.timer = time.AfterFunc(shrinkPause, r.shrinkNow)
	}
	r.mu.Unlock()
	r.changed.Notify()
}
