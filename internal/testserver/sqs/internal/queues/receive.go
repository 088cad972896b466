package queues

import (
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/deduplication"
)

// A delivery is a message with its state at a receive.
type delivery struct {
	message *message
	handle  string
	// The state at the receive: the message may have changed when the answer is written.
	count int
	first clock.Instant
}

// A wanted holds the parameters of a receive.
type wanted struct {
	max        int
	visibility time.Duration
	attempt    string // ReceiveRequestAttemptId; FIFO queues only
}

// takeLocked receives messages that are ready.
func (st *Store) takeLocked(q *queue, w wanted, now clock.Instant) (got []delivery) {
	for len(got) < w.max {
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
			n = min(w.max-len(got), st.maxInFlight-q.count[inFlight])
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
			q.attemptOrder = append(q.attemptOrder, deduplication.SentKey{Key: w.attempt, At: now})
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
func (st *Store) takeFromLocked(q *queue, g *group, n int, visibility time.Duration, now clock.Instant) (got []*message) {
	for len(got) < n {
		m, ok := g.ready.Peek()
		if !ok {
			break
		}
		if st.redriveLocked(q, m, now) {
			continue
		}
		g.leave()
		g.ready.Remove(m.place)
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
		m.due = now.Add(visibility)
		q.hide(m, inFlight)
	}
	return got
}

// An attempt is the result of a receive with a ReceiveRequestAttemptId.
type attempt struct {
	got []delivery
	at  clock.Instant
}

// repeatLocked returns the messages that a receive with the same ReceiveRequestAttemptId got in
// the last five minutes, and restarts their visibility timeout, unless any of them has been
// changed since.
func (st *Store) repeatLocked(q *queue, w wanted, now clock.Instant) ([]delivery, bool) {
	for len(q.attemptOrder) > 0 && q.attemptOrder[0].At.Add(deduplication.Interval) <= now {
		if o := q.attemptOrder[0]; q.attempts[o.Key].at == o.At {
			delete(q.attempts, o.Key)
		}
		q.attemptOrder = q.attemptOrder[1:]
	}
	a, ok := q.attempts[w.attempt]
	if !ok || w.attempt == "" {
		return nil, false
	}
	for _, d := range a.got {
		m := d.message
		if m.state != inFlight || m.count != d.count || m.due != m.received.Add(w.visibility) {
			delete(q.attempts, w.attempt)
			return nil, false
		}
	}
	for _, d := range a.got {
		d.message.received = now
		q.setVisibility(d.message, now.Add(w.visibility), now)
		st.logVisibilityLocked(q, d.message, now)
	}
	return a.got, true
}
