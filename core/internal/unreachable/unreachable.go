// Package unreachable records the queues that an endpoint cannot reach.
package unreachable

import (
	"hash/maphash"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core/internal/delays"
)

// Queues records the queues that the endpoint cannot reach. For such a queue a
// single message at a time is a probe, and all others are stored without a try.
type Queues struct {
	outageCount atomic.Int64 // the length of outages, so that the usual case takes no lock
	mu          sync.Mutex
	outages     map[string]*queueOutage
	stored      map[uint64]time.Time // hash of a message's id: when its next delivery is due, at most maxStoredMessages
	seed        maphash.Seed
}

type queueOutage struct {
	since  time.Time
	err    error
	probes int
	next   time.Time // of the next probe
	// probing: a probe has not ended. A broker that does not answer can take long.
	probing bool
}

// MaxPause is the longest pause between the tries of one queue.
const MaxPause = 30 * time.Second

// A stored message is tried again after 1, 2, 4, ... 30 s and then every 30 s. If many
// are stored, the pauses are longer, so that the queue stays free for other messages:
// about a hundred tries a second in total.
const (
	minStoredDelay = time.Second
	storedTryRate  = 100 // a second
	MaxStoredDelay = 5 * time.Minute
)

// maxStoredMessages limits the stored messages that Health counts.
const maxStoredMessages = 30_000

// probeBackoff is for the probes of one queue.
var probeBackoff = delays.Backoff{First: time.Second, Last: MaxPause}

// New returns the record of an endpoint that can reach all queues.
func New() *Queues {
	return &Queues{outages: map[string]*queueOutage{}, stored: map[uint64]time.Time{}, seed: maphash.MakeSeed()}
}

// Blocked returns the reason why a queue is not to be tried now, or nil and the function
// that the caller calls after its try. During an outage that try is the probe, and no
// other message is tried before it has ended: tries that the broker does not answer would
// take all slots.
func (q *Queues) Blocked(queue string) (ended func(), err error) {
	if q.outageCount.Load() == 0 {
		return NoProbe, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	o := q.outages[queue]
	if o == nil {
		return NoProbe, nil
	}
	now := time.Now()
	if o.probing || now.Before(o.next) {
		return nil, &BlockedError{o.err}
	}
	o.probing, o.next = true, now.Add(probeBackoff.After(o.probes))
	return func() { q.probeEnded(o) }, nil
}

// NoProbe is the function of a try that is no probe.
func NoProbe() {}

func (q *Queues) probeEnded(o *queueOutage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	o.probing = false
}

// BlockedError is the reason why a queue is not tried: another message's try has just
// failed.
type BlockedError struct{ err error }

// Error implements error.
func (e *BlockedError) Error() string { return e.err.Error() }

// Unwrap returns the error of the other try.
func (e *BlockedError) Unwrap() error { return e.err }

// RecordFailure records that a queue could not be reached, and reports whether this is
// new: the beginning of an outage or a probe, not one of several tries that failed
// together.
func (q *Queues) RecordFailure(queue string, err error, began time.Time) (isNew bool, since time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	o := q.outages[queue]
	switch {
	case o == nil:
		o = &queueOutage{since: now}
		q.outages[strings.Clone(queue)] = o // it may be a part of a message
		q.outageCount.Store(int64(len(q.outages)))
	case began.Before(o.since): // it was sent before the outage was known
		return false, o.since
	}
	o.err = err
	o.probes++
	o.next = now.Add(probeBackoff.After(o.probes))
	return true, o.since
}

// RecordReached ends an outage.
func (q *Queues) RecordReached(queue string) (since time.Time, wasUnreachable bool) {
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

// AllowProbes lets the next message to each queue be a probe.
func (q *Queues) AllowProbes() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, o := range q.outages {
		o.next = time.Time{}
	}
}

// OldestOutage returns the beginning of the longest outage of a queue, or the zero time.
// An outage without a recent probe may have ended: another instance then has the
// messages.
func (q *Queues) OldestOutage() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	var oldest time.Time
	for _, o := range q.outages {
		if !o.probing && time.Since(o.next) > MaxStoredDelay {
			continue
		}
		if oldest.IsZero() || o.since.Before(oldest) {
			oldest = o.since
		}
	}
	return oldest
}

// StoredDelay returns the time for which a message is stored after the given number of
// tries.
func (q *Queues) StoredDelay(tries int) time.Duration {
	q.mu.Lock()
	defer q.mu.Unlock()
	spread := time.Duration(len(q.stored)) * time.Second / storedTryRate
	last := min(max(spread, MaxPause), MaxStoredDelay)
	return delays.Backoff{First: minStoredDelay, Last: last}.After(tries)
}

// AddStored counts a message that is stored until the given time.
func (q *Queues) AddStored(id string, due time.Time) {
	key := maphash.String(q.seed, id)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.stored) >= maxStoredMessages {
		q.forgetOverdueLocked()
	}
	if _, known := q.stored[key]; known || len(q.stored) < maxStoredMessages {
		q.stored[key] = due
	}
}

// RemoveStored removes a message from the count.
func (q *Queues) RemoveStored(id string) {
	q.mu.Lock()
	delete(q.stored, maphash.String(q.seed, id))
	q.mu.Unlock()
}

// forgetOverdueLocked drops the messages that another instance has received.
func (q *Queues) forgetOverdueLocked() {
	now := time.Now()
	maps.DeleteFunc(q.stored, func(_ uint64, due time.Time) bool { return now.Sub(due) > MaxStoredDelay })
}

// StoredMessages returns the number of stored messages that this process knows of.
func (q *Queues) StoredMessages() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.forgetOverdueLocked()
	return len(q.stored)
}
