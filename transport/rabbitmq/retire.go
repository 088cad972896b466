package rabbitmq

import (
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// This file ends consumers of a queue whose broker counts deliveries. One that is on its way
// to the channel when the broker learns of the end goes back to the queue, and is counted as
// an attempt, so there must be none: either the consumer has been sent as many as it may
// hold, or nothing was sent for a while. For that time none of its settlements is written:
// each of them lets the broker send it one more.
//
// Each consumer has a lower priority than those that the session began before. So all but
// the first are sent something only while those before them have as many as they may hold,
// and are quiet soon when messages become fewer.
//
// What the engine wants to have in flight goes up and down with the times that handlers
// take. It is followed downwards after a while only, so that consumers seldom end.

const (
	// shrinkPause is for how long MaxInFlight must have been smaller.
	shrinkPause = 2 * time.Second
	// quietTime is for how long a consumer must have been sent nothing. A message that
	// the broker sends it just afterwards may still meet its end.
	quietTime = 50 * time.Millisecond
	// retirePatience is after how long a consumer is ended that is never quiet. It is
	// short because handled messages wait that time for their acknowledgement.
	retirePatience = time.Second
)

// lastPriority is below that of all others.
const lastPriority = -1000

// priority returns the arguments of a consumer that is begun beside n others.
func priority(n int) amqp.Table {
	if n == 0 {
		return nil // as consumers of others have it
	}
	return amqp.Table{"x-priority": int32(-n)}
}

// retire ends a consumer. It reports whether it did: unless there are too many of them it
// does not where, by then, more may be held again.
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

// quieten waits until nothing is on its way to a consumer, while its settlements are not
// written.
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

// consumerState is what matters to the end of a consumer.
type consumerState struct {
	arrived int
	full    bool // the broker sends it nothing more before a settlement is written
	excess  bool // the active consumers may hold more than they should
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

// catchUp returns when the broker has done all that was written before, and has given the
// channel what it sent because of it. The order of what a quorum queue does is that of its
// log, in which the beginning and the end of a consumer have their place.
func (s *session) catchUp() error {
	c, err := s.consume(1, priority(-lastPriority))
	if err != nil {
		return err
	}
	return s.cancel(c)
}

// withhold lets no settlement of a consumer's deliveries be written until resume.
func (s *session) withhold(c *consumer) {
	s.writing.Lock() // what was taken before has been written
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

// shrink is how far consumers follow a MaxInFlight that has become smaller.
type shrink struct {
	consumed int         // what they hold together at most, if more than MaxInFlight
	highest  int         // the highest MaxInFlight since timer began
	timer    *time.Timer // while consumed is more than MaxInFlight
}

// mostConsumed is how many deliveries the consumers may hold together. mu is held.
func (r *receiver) mostConsumed() int { return max(r.maxInFlight, r.shrink.consumed) }

// stop lets the consumers hold no more than MaxInFlight at once.
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

// shrinkNow lets the consumers hold no more than was wanted during the last shrinkPause.
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
