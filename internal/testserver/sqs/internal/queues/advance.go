package queues

import (
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
)

// Advance moves the clock forward. The events for which polls and move tasks wait happen in
// the order of their times.
func (st *Store) Advance(d time.Duration) {
	st.mu.Lock()
	if st.dead {
		st.mu.Unlock()
		st.clock.Advance(d)
		return
	}
	now := st.clock.Now()
	target := now.Add(d)
	for {
		at, q, task := st.nextEventLocked(target)
		if q == nil && task == nil {
			break
		}
		at = max(at, now) // it may already have been due
		if task != nil {
			st.stepLocked(task, at)
		} else {
			st.serveLocked(q, at)
		}
		st.settleLocked(at)
		now = at
	}
	st.clock.Advance(d)
	st.logAdvanceLocked()
	for _, q := range st.queues {
		q.settle(target)
		st.armLocked(q, target)
	}
	for _, t := range st.tasks {
		st.armTaskLocked(t, target)
	}
	st.End(target)
}

// nextEventLocked returns the first event for which a poll or a move task waits, if it is due by
// the target.
func (st *Store) nextEventLocked(target clock.Instant) (first clock.Instant, next *queue, task *moveTask) {
	first = target + 1
	for _, q := range st.queues {
		if at, ok := q.nextEvent(); ok && at < first {
			first, next = at, q
		}
	}
	for _, t := range st.tasks {
		if t.status == taskRunning && t.next < first {
			first, next, task = t.next, nil, t
		}
	}
	return first, next, task
}
