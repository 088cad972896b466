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
// Each consumer has a lower priority than the earlier consumers of the session. So all
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
	// retirePatience is the time after which a consumer is cancelled even if it was never
	// quiet. It is short because handled messages wait that long for their acknowledgement.
	retirePatience = time.Second
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

// retire cancels a consumer. It reports whether it did. If more deliveries may be held
// again by then, it keeps the consumer, unless there are too many consumers.
func (s *session) retire(c *consumer, tooMany bool) (retired bool, err error) {
	if s.r.counts {
		s.withhold(c)
		defer s.resume(c)
		if retired, err = s.quieten(c, tooMany); !retired {
			return false, err
		}
	}
	if err := s.cancel(c); err != nil {
		return false, err
	}
	return true, nil
}

// quieten waits until no message is in transit to a consumer, while the consumer's
// settlements are withheld.
func (s *session) quieten(c *consumer, tooMany bool) (quiet bool, err error) {
	began := time.Now()
	quietSince, arrived := began, -1
	for {
		now := s.state(c)
		if now.arrived != arrived {
			quietSince, arrived = time.Now(), now.arrived
		}
		switch {
		case !now.excess && !tooMany:
			return false, nil
		case now.full, time.Since(quietSince) > quietTime, time.Since(began) > retirePatience, s.r.isClosing():
			return true, nil
		}
		if err := s.catchUp(); err != nil {
			return false, err
		}
	}
}

// consumerState is the state of a consumer as far as its cancellation depends on it.
type consumerState struct {
	arrived int
	full    bool // the broker sends it nothing before a settlement is written
	excess  bool // the active consumers may hold more messages than they should
}

func (s *session) state(c *consumer) consumerState {
	active, _ := s.active()
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return consumerState{
		arrived: c.arrived,
		full:    c.unwritten >= c.prefetch,
		excess:  active > s.r.mostConsumed(),
	}
}

// catchUp returns when the broker has processed everything written before, and the
// resulting deliveries have arrived at the channel. A quorum queue processes commands in
// the order of its log, which includes the beginning and the end of a consumer.
func (s *session) catchUp() error {
	c, err := s.consume(1, priority(-lastPriority))
	if err != nil {
		return err
	}
	return s.cancel(c)
}

// withhold lets no settlement of a consumer's deliveries be written until resume.
func (s *session) withhold(c *consumer) {
	s.writing.Lock() // settlements taken before have been written
	defer s.writing.Unlock()
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	c.withheld = true
}

func (s *session) resume(c *consumer) {
	s.r.mu.Lock()
	c.withheld = false
	s.r.mu.Unlock()
	s.acks.some.Notify()
	s.acks.enough.Notify()
}

// shrink is the state of following a lower MaxInFlight.
type shrink struct {
	consumed int         // the most deliveries that consumers may hold together, if more than MaxInFlight
	highest  int         // the highest MaxInFlight since timer began
	timer    *time.Timer // runs while consumed is more than MaxInFlight
}

// mostConsumed is how many deliveries the consumers may hold together. mu is held.
func (r *receiver) mostConsumed() int { return max(r.maxInFlight, r.shrink.consumed) }

// stop limits the consumers to MaxInFlight immediately.
func (s *shrink) stop() {
	if s.timer != nil {
		s.timer.Stop()
	}
	*s = shrink{}
}

// shrinkLater is called before MaxInFlight becomes n. mu is held.
func (r *receiver) shrinkLater(n int) {
	s := &r.shrink
	before := r.mostConsumed()
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
