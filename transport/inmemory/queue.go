package inmemory

import (
	"sync"
	"time"
)

// queue is one queue: its messages in their states, and the receivers that wait for them.
// No goroutine blocks while it holds the lock.
type queue struct {
	name        string
	deadLetters *queue // nil: this is a dead-letter queue itself

	mu       sync.Mutex
	ready    ring[*message] // in order of delivery; expired ones stay until swept
	unswept  int            // messages in ready that have left
	delayed  int
	inFlight int
	groups   groups
	stored   index // all messages

	// deadlines holds every message whose state time will change. One timer serves them
	// all; it is set for armed, or not set if armed is zero.
	deadlines deadlines
	timer     *time.Timer
	armed     time.Time
	stopped   bool

	// receivers are woken in turn. waiting counts their waiting calls; woken counts the
	// woken calls that have not yet looked for messages.
	receivers []*receiver
	turn      int
	waiting   int
	woken     int
}

// unlock ends every critical section. It keeps the invariant on which Receive relies:
// when the lock is free and a message is ready that a waiting call may take, a woken call
// is about to look for it. unlock wakes one call at most; the unlock of that call wakes
// the next if there are more messages.
func (q *queue) unlock() {
	w := q.wakeOne()
	q.mu.Unlock()
	if w != nil {
		w.signal <- struct{}{} // buffered: never blocks
	}
}

func (q *queue) wakeOne() *waiter {
	if q.waiting == 0 || q.available() <= q.woken {
		return nil
	}
	for range q.receivers {
		q.turn = (q.turn + 1) % len(q.receivers)
		r := q.receivers[q.turn]
		if r.waiters.first != nil && r.room() > r.woken {
			w := r.waiters.first
			r.wake(w)
			return w
		}
	}
	return nil
}

// available is the number of messages that can be delivered now.
func (q *queue) available() int { return q.ready.len() - q.unswept }

// send stores a new message.
func (q *queue) send(m *message) {
	q.mu.Lock()
	q.stored.add(m)
	if m.delay > 0 {
		q.delay(m, m.sent.Add(m.delay))
	} else {
		q.makeReady(m, false)
	}
	q.unlock()
}

// delay keeps a message until it is due.
func (q *queue) delay(m *message, due time.Time) {
	m.state = delayed
	q.delayed++
	if !m.expires.IsZero() && m.expires.Before(due) {
		due = m.expires
	}
	q.deadlines.add(m, due)
	q.arm()
}

// remove forgets a message that has been removed from all lists. Then the next message of
// its group can be delivered.
func (q *queue) remove(m *message) {
	m.state = gone
	q.stored.remove(m)
	if !m.ordered {
		return
	}
	if next := q.groups.leave(m); next != nil {
		q.makeReady(next, false)
	}
}

// makeReady makes a message available, at the tail or, with first, at the head, unless
// another message of its group is before it. A message that has expired is not delivered:
// next checks that, and the timer removes the message at once.
func (q *queue) makeReady(m *message, first bool) {
	if m.ordered && !q.groups.enter(m) {
		return
	}
	if !m.expires.IsZero() {
		q.deadlines.add(m, m.expires)
		q.arm()
	}
	m.state = ready
	if first {
		q.ready.pushFront(m)
	} else {
		q.ready.pushBack(m)
	}
}

// next takes the next deliverable message, or returns nil. The message then has no state:
// the caller must set one.
func (q *queue) next() *message {
	for q.ready.len() > 0 {
		m := q.ready.popFront()
		if m.state != ready {
			q.unswept--
			continue
		}
		if m.place > 0 { // it can expire
			q.deadlines.remove(m)
			if m.expired(time.Now()) {
				q.remove(m)
				continue
			}
		}
		return m
	}
	return nil
}

// hold locks a message for a delivery until its settlement or, unless zero, until the
// given time.
func (q *queue) hold(m *message, d *delivery, lockedUntil time.Time) {
	m.state = held
	m.holder = d
	q.inFlight++
	if !lockedUntil.IsZero() {
		q.deadlines.add(m, lockedUntil)
		q.arm()
	}
}

// takeBack undoes hold.
func (q *queue) takeBack(m *message) {
	m.holder = nil
	q.inFlight--
	q.deadlines.remove(m)
}

// loseLock ends a delivery whose lock has expired. The message goes to the tail, so that
// a message that kills its receivers does not block the others.
func (q *queue) loseLock(m *message) {
	d := m.holder
	d.state = lockLost
	d.receiver.unsettled.remove(d)
	q.takeBack(m)
	if d.receiver.log == nil {
		m.failures++
	}
	q.makeReady(m, false)
}

// advance processes all deadlines up to now.
func (q *queue) advance(now time.Time) {
	for len(q.deadlines) > 0 && !q.deadlines[0].deadline.After(now) {
		m := q.deadlines[0]
		switch m.state {
		case delayed:
			q.deadlines.remove(m)
			q.delayed--
			q.makeReady(m, false)
		case ready:
			q.deadlines.remove(m)
			q.expire(m)
		case held:
			q.loseLock(m)
		}
	}
}

// expire removes a ready message.
func (q *queue) expire(m *message) {
	q.remove(m)
	*m = message{state: gone} // the ring must not keep headers and body alive
	q.sweep()
}

// sweep is called when a message in the ring of ready ones has another state. Its place stays
// until half of the ring's places are free, so that each removal costs O(1).
func (q *queue) sweep() {
	q.unswept++
	if 2*q.unswept >= q.ready.len() {
		q.ready.keep(func(m *message) bool { return m.state == ready })
		q.unswept = 0
	}
}

// withdraw takes a message that no receiver has out of its queue. Until it is removed, it counts
// as in flight, and the next message of its group waits.
func (q *queue) withdraw(m *message) {
	q.deadlines.remove(m)
	before := m.state
	m.state = leaving
	switch before {
	case ready:
		q.sweep()
	case delayed:
		q.delayed--
	case waiting:
		q.groups.sweep(m)
	}
	q.inFlight++
}

// purge removes the ready messages and returns their number.
func (q *queue) purge() (removed int) {
	q.mu.Lock()
	defer q.unlock()
	q.advance(time.Now())
	for m := q.next(); m != nil; m = q.next() {
		q.remove(m) // which makes waiting messages of its group ready, in turn
		removed++
	}
	return removed
}

// arm sets the timer for the earliest deadline. It does not move a timer that is set too
// early, which then finds nothing to do: deadlines mostly move to later times, as locks
// are settled, and setting a timer costs more than an early tick.
func (q *queue) arm() {
	if q.stopped || len(q.deadlines) == 0 {
		return
	}
	at := q.deadlines[0].deadline
	if !q.armed.IsZero() && !at.Before(q.armed) {
		return
	}
	q.armed = at
	if q.timer == nil {
		q.timer = time.AfterFunc(time.Until(at), q.tick)
	} else {
		q.timer.Reset(time.Until(at))
	}
}

func (q *queue) tick() {
	q.mu.Lock()
	q.armed = time.Time{}
	q.advance(time.Now())
	q.arm()
	q.unlock()
}

// stop ends the timer for good. Messages stay where they are.
func (q *queue) stop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stopped = true
	if q.timer != nil {
		q.timer.Stop()
	}
}
