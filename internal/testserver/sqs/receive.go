//go:build darwin || linux

package sqs

import (
	"context"
	"time"
)

// A delivery is a message with its state at a receive.
type delivery struct {
	message *message
	handle  string
	// The state at the receive: the message may have changed when the answer is written.
	count int
	first instant
}

// A wanted holds the parameters of a receive.
type wanted struct {
	most       int
	visibility time.Duration
	attempt    string // ReceiveRequestAttemptId; FIFO queues only
}

// takeLocked receives messages that are ready.
func (st *store) takeLocked(q *queue, w wanted, now instant) (got []delivery) {
	for len(got) < w.most {
		if q.count[inFlight] >= st.maxInFlight {
			break // no error: ReceiveMessage answers OverLimit where the service does
		}
		g := q.nextGroup()
		if g == nil {
			break
		}
		// A receive from a FIFO queue gets as many messages of one group as possible, because
		// the first one locks the group.
		n := 1
		if q.fifo {
			n = min(w.most-len(got), st.maxInFlight-q.count[inFlight])
		}
		batch := st.takeFromLocked(q, g, n, w.visibility, now)
		for _, m := range batch {
			got = append(got, delivery{m, receipt{q.id, m.serial, m.receive}.handle(), m.count, m.first})
		}
	}
	if len(got) > 0 {
		st.logReceiveLocked(q, got, now)
		if w.attempt != "" {
			q.attempts[w.attempt] = attempt{got, now}
			q.attemptOrder = append(q.attemptOrder, sentKey{w.attempt, now})
		}
	}
	for _, twin := range q.twins {
		st.enterLocked(q, twin, now)
	}
	q.twins = nil
	if w.visibility == 0 {
		for _, d := range got {
			if d.message.state == inFlight {
				q.setVisibility(d.message, now, now)
			}
		}
	}
	return got
}

// takeFromLocked receives messages of one group. It moves messages that were received too
// often to the dead-letter queue instead.
func (st *store) takeFromLocked(q *queue, g *group, n int, visibility time.Duration, now instant) (got []*message) {
	for len(got) < n {
		m, ok := g.ready.peek()
		if !ok {
			break
		}
		if st.redriveLocked(q, m, now) {
			continue
		}
		g.leave()
		g.ready.remove(m.place)
		q.count[ready]--
		got = append(got, m)
	}
	for _, m := range got {
		if q.duplicates > 0 && !q.fifo {
			q.duplicates--
			twin := *m
			st.serial++
			twin.serial, twin.due = st.serial, now
			q.twins = append(q.twins, &twin)
		}
		m.count++
		m.here++
		m.receive++
		m.received = now
		if m.first == 0 {
			m.first = now
		}
		m.due = now.add(visibility)
		q.hide(m, inFlight)
	}
	return got
}

// A poll is a waiting ReceiveMessage.
type poll struct {
	wanted
	until  instant
	result chan []delivery // takes one, without waiting
}

// serveLocked gives ready messages to the waiting polls, in the order of their arrival, and
// ends polls that have waited long enough.
func (st *store) serveLocked(q *queue, now instant) {
	q.settle(now)
	if len(q.polls) == 0 {
		return
	}
	waiting := q.polls[:0]
	for _, p := range q.polls {
		got := st.takeLocked(q, p.wanted, now)
		if len(got) > 0 || p.until <= now {
			p.result <- got
		} else {
			waiting = append(waiting, p)
		}
	}
	if len(waiting) < len(q.polls) {
		clear(q.polls[len(waiting):])
		q.polls = waiting
		q.tellPollsChanged()
	}
	st.armLocked(q, now)
}

func (q *queue) tellPollsChanged() {
	close(q.pollsChanged)
	q.pollsChanged = make(chan struct{})
}

// armLocked sets the alarm for the next event that the polls wait for.
func (st *store) armLocked(q *queue, now instant) {
	if q.alarm != nil {
		q.alarm.Stop()
		q.alarm = nil
	}
	at, ok := q.nextEvent()
	if !ok || st.dead {
		return
	}
	q.alarm = time.AfterFunc(max(0, at.sub(now)), func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		if !st.dead {
			st.touchLocked(q)
			st.settleLocked(st.clock.now())
		}
	})
}

// nextEvent returns the time at which a poll of the queue will get a message or end.
func (q *queue) nextEvent() (at instant, ok bool) {
	if len(q.polls) == 0 {
		return 0, false
	}
	at = q.polls[0].until
	for _, p := range q.polls[1:] {
		at = min(at, p.until)
	}
	if due, ok := q.next(); ok {
		at = min(at, due)
	}
	return at, true
}

// wait waits for messages until the poll ends or the client has closed the connection. With
// cancelledPollsReceive the poll then stays, and takes messages that no client gets.
func (st *store) wait(ctx context.Context, q *queue, p *poll) []delivery {
	select {
	case got := <-p.result:
		return got
	case <-ctx.Done():
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.cancelledPollsReceive && !st.dead {
		return nil
	}
	for i, other := range q.polls {
		if other == p {
			q.polls = append(q.polls[:i:i], q.polls[i+1:]...)
			q.tellPollsChanged()
			st.armLocked(q, st.clock.now())
			break
		}
	}
	return nil
}

// An attempt is the result of a receive with a ReceiveRequestAttemptId.
type attempt struct {
	got []delivery
	at  instant
}

// repeatLocked returns the messages that a receive with the same ReceiveRequestAttemptId got in
// the last five minutes, and restarts their visibility timeout, unless any of them has been
// changed since.
func (st *store) repeatLocked(q *queue, w wanted, now instant) ([]delivery, bool) {
	for len(q.attemptOrder) > 0 && q.attemptOrder[0].at.add(deduplicationInterval) <= now {
		if o := q.attemptOrder[0]; q.attempts[o.key].at == o.at {
			delete(q.attempts, o.key)
		}
		q.attemptOrder = q.attemptOrder[1:]
	}
	a, ok := q.attempts[w.attempt]
	if !ok || w.attempt == "" {
		return nil, false
	}
	for _, d := range a.got {
		m := d.message
		if m.state != inFlight || m.count != d.count || m.due != m.received.add(w.visibility) {
			delete(q.attempts, w.attempt)
			return nil, false
		}
	}
	for _, d := range a.got {
		d.message.received = now
		q.setVisibility(d.message, now.add(w.visibility), now)
		st.logVisibilityLocked(q, d.message, now)
	}
	return a.got, true
}
