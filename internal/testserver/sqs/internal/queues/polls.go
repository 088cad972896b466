package queues

import (
	"context"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
)

// A poll is a waiting ReceiveMessage.
type poll struct {
	wanted
	deadline clock.Instant
	result   chan []delivery // takes one, without waiting
}

// serveLocked gives ready messages to the waiting polls, in the order of their arrival, and
// ends polls that have waited long enough.
func (st *Store) serveLocked(q *queue, now clock.Instant) {
	q.settle(now)
	if len(q.polls) == 0 {
		return
	}
	waiting := q.polls[:0]
	for _, p := range q.polls {
		got := st.takeLocked(q, p.wanted, now)
		if len(got) > 0 || p.deadline <= now {
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
func (st *Store) armLocked(q *queue, now clock.Instant) {
	if q.alarm != nil {
		q.alarm.Stop()
		q.alarm = nil
	}
	at, ok := q.nextEvent()
	if !ok || st.dead {
		return
	}
	q.alarm = time.AfterFunc(max(0, at.Sub(now)), func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		if !st.dead {
			st.touchLocked(q)
			st.settleLocked(st.clock.Now())
		}
	})
}

// nextEvent returns the time at which a poll of the queue will get a message or end.
func (q *queue) nextEvent() (at clock.Instant, ok bool) {
	if len(q.polls) == 0 {
		return 0, false
	}
	at = q.polls[0].deadline
	for _, p := range q.polls[1:] {
		at = min(at, p.deadline)
	}
	if due, ok := q.next(); ok {
		at = min(at, due)
	}
	return at, true
}

// wait waits for messages until the poll ends or the client has closed the connection. With
// CancelledPollsReceive the poll then stays, and takes messages that no client gets.
func (st *Store) wait(ctx context.Context, q *queue, p *poll) []delivery {
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
			st.armLocked(q, st.clock.Now())
			break
		}
	}
	return nil
}

func (st *Store) settleLocked(now clock.Instant) {
	for len(st.touched) > 0 {
		q := st.touched[len(st.touched)-1]
		st.touched = st.touched[:len(st.touched)-1]
		st.serveLocked(q, now)
	}
}
