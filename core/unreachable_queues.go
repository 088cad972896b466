package core

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core/internal/delays"
)

// unreachableQueues records the queues that the endpoint cannot reach. For such a queue a
// single message at a time is a probe, and all others are stored without a try.
type unreachableQueues struct {
	outageCount atomic.Int64 // the length of outages, so that the usual case takes no lock
	mu          sync.Mutex
	outages     map[string]*queueOutage
	stored      map[string]time.Time // message id: when its next delivery is due, at most maxStoredMessages
}

type queueOutage struct {
	since  time.Time
	err    error
	probes int
	next   time.Time // of the next probe
	// probing: a probe has not ended. A broker that does not answer can take long.
	probing bool
}

// A stored message is tried again after 1, 2, 4, ... 30 s and then every 30 s. If many
// are stored, the pauses are longer, so that the queue stays free for other messages:
// about a hundred tries a second in total.
const (
	minStoredDelay = time.Second
	storedTryRate  = 100 // a second
	maxStoredDelay = 5 * time.Minute
)

// maxStoredMessages limits the stored messages that Health counts.
const maxStoredMessages = 30_000

// probeBackoff is for the probes of one queue.
var probeBackoff = delays.Backoff{First: time.Second, Last: maxUndeliveredPause}

func newUnreachableQueues() *unreachableQueues {
	return &unreachableQueues{outages: map[string]*queueOutage{}, stored: map[string]time.Time{}}
}

// blocked returns the reason why a queue is not to be tried now, or nil and the function
// that the caller calls after its try. During an outage that try is the probe, and no
// other message is tried before it has ended: tries that the broker does not answer would
// take all slots.
func (q *unreachableQueues) blocked(queue string) (ended func(), err error) {
	if q.outageCount.Load() == 0 {
		return noProbe, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	o := q.outages[queue]
	if o == nil {
		return noProbe, nil
	}
	now := time.Now()
	if o.probing || now.Before(o.next) {
		return nil, &blockedError{o.err}
	}
	o.probing, o.next = true, now.Add(probeBackoff.After(o.probes))
	return func() { q.probeEnded(o) }, nil
}

func noProbe() {}

func (q *unreachableQueues) probeEnded(o *queueOutage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	o.probing = false
}

// blockedError is the reason why a queue is not tried: another message's try has just
// failed.
type blockedError struct{ err error }

func (e *blockedError) Error() string { return e.err.Error() }
func (e *blockedError) Unwrap() error { return e.err }

// recordFailure records that a queue could not be reached, and reports whether this is
// new: the beginning of an outage or a probe, not one of several tries that failed
// together.
func (q *unreachableQueues) recordFailure(queue string, err error, began time.Time) (isNew bool, since time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	o := q.outages[queue]
	switch {
	case o == nil:
		o = &queueOutage{since: now}
		q.outages[queue] = o
		q.outageCount.Store(int64(len(q.outages)))
	case began.Before(o.since): // it was sent before the outage was known
		return false, o.since
	}
	o.err = err
	o.probes++
	o.next = now.Add(probeBackoff.After(o.probes))
	return true, o.since
}

// recordReached ends an outage.
func (q *unreachableQueues) recordReached(queue string) (since time.Time, wasUnreachable bool) {
	if q.outageCount.Load() == 0 {
		return time.Time{}, false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	o := q.outages[queue]
	if o == nil {
		return time.Time{}, false
	}
	delete(q.outages, queue)
	q.outageCount.Store(int64(len(q.outages)))
	return o.since, true
}

// allowProbes lets the next message to each queue be a probe.
func (q *unreachableQueues) allowProbes() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, o := range q.outages {
		o.next = time.Time{}
	}
}

// oldestOutage returns the beginning of the longest outage of a queue, or the zero time.
// An outage without a recent probe may have ended: another instance then has the
// messages.
func (q *unreachableQueues) oldestOutage() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	var oldest time.Time
	for _, o := range q.outages {
		if !o.probing && time.Since(o.next) > maxStoredDelay {
			continue
		}
		if oldest.IsZero() || o.since.Before(oldest) {
			oldest = o.since
		}
	}
	return oldest
}

// storedDelay returns the time for which a message is stored after the given number of
// tries.
func (q *unreachableQueues) storedDelay(tries int) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	spread := time.Duration(len(q.stored)) * time.Second / storedTryRate
	last := min(max(spread, maxUndeliveredPause), maxStoredDelay)
	return delays.Backoff{First: minStoredDelay, Last: last}.After(tries)
}

// addStored counts a message that is stored until the given time.
func (q *unreachableQueues) addStored(id string, due time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.stored) >= maxStoredMessages {
		q.forgetOverdueLocked()
	}
	if _, known := q.stored[id]; known || len(q.stored) < maxStoredMessages {
		q.stored[id] = due
	}
}

// removeStored removes a message from the count.
func (q *unreachableQueues) removeStored(id string) {
	q.mu.Lock()
	delete(q.stored, id)
	q.mu.Unlock()
}

// forgetOverdueLocked drops the messages that another instance has received.
func (q *unreachableQueues) forgetOverdueLocked() {
	now := time.Now()
	maps.DeleteFunc(q.stored, func(_ string, due time.Time) bool { return now.Sub(due) > maxStoredDelay })
}

// storedMessages returns the number of stored messages that this process knows of.
func (q *unreachableQueues) storedMessages() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forgetOverdueLocked()
	return len(q.stored)
}
