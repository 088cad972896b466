package core

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// destinations records the queues that the endpoint cannot reach. For such a queue a
// single message at a time is a probe, and all others are stored without a try.
type destinations struct {
	away    atomic.Int64 // the length of outages, so that the usual case takes no lock
	mu      sync.Mutex
	outages map[string]*outage
	stored  map[string]time.Time // message id: when its next delivery is due, at most mostStored
}

type outage struct {
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
	storedPause      = time.Second
	storedRate       = 100 // a second
	longestStoredFor = 5 * time.Minute
)

// mostStored limits the stored messages that Health counts.
const mostStored = 30_000

// probePauses are between the probes of one destination.
var probePauses = pauses{time.Second, longestUndeliveredHold}

func newDestinations() *destinations {
	return &destinations{outages: map[string]*outage{}, stored: map[string]time.Time{}}
}

// blocked returns the reason why a queue is not to be tried now, or nil and the function
// that the caller calls after its try. During an outage that try is the probe, and no
// other message is tried before it has ended: tries that the broker does not answer would
// take all slots.
func (d *destinations) blocked(queue string) (ended func(), err error) {
	if d.away.Load() == 0 {
		return noProbe, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.outages[queue]
	if o == nil {
		return noProbe, nil
	}
	now := time.Now()
	if o.probing || now.Before(o.next) {
		return nil, &blockedError{o.err}
	}
	o.probing, o.next = true, now.Add(probePauses.after(o.probes))
	return func() { d.probeEnded(o) }, nil
}

func noProbe() {}

func (d *destinations) probeEnded(o *outage) {
	d.mu.Lock()
	defer d.mu.Unlock()
	o.probing = false
}

// blockedError is the reason why a queue is not tried: another message's try has just
// failed.
type blockedError struct{ err error }

func (e *blockedError) Error() string { return e.err.Error() }
func (e *blockedError) Unwrap() error { return e.err }

// failed records that a queue could not be reached, and reports whether this is new: the
// beginning of an outage or a probe, not one of several tries that failed together.
func (d *destinations) failed(queue string, err error, began time.Time) (news bool, since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	o := d.outages[queue]
	switch {
	case o == nil:
		o = &outage{since: now}
		d.outages[queue] = o
		d.away.Store(int64(len(d.outages)))
	case began.Before(o.since): // it was sent before the outage was known
		return false, o.since
	}
	o.err = err
	o.probes++
	o.next = now.Add(probePauses.after(o.probes))
	return true, o.since
}

// reached ends an outage.
func (d *destinations) reached(queue string) (since time.Time, wasOut bool) {
	if d.away.Load() == 0 {
		return time.Time{}, false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	o := d.outages[queue]
	if o == nil {
		return time.Time{}, false
	}
	delete(d.outages, queue)
	d.away.Store(int64(len(d.outages)))
	return o.since, true
}

// retry lets the next message to each queue be a probe.
func (d *destinations) retry() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.outages {
		o.next = time.Time{}
	}
}

// oldest returns the beginning of the longest outage of a queue, or the zero time. An
// outage without a recent probe may have ended: another instance then has the messages.
func (d *destinations) oldest() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	var oldest time.Time
	for _, o := range d.outages {
		if !o.probing && time.Since(o.next) > longestStoredFor {
			continue
		}
		if oldest.IsZero() || o.since.Before(oldest) {
			oldest = o.since
		}
	}
	return oldest
}

// pause returns the time for which a message is stored after the given number of tries.
func (d *destinations) pause(tries int) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	turn := time.Duration(len(d.stored)) * time.Second / storedRate
	last := min(max(turn, longestUndeliveredHold), longestStoredFor)
	return pauses{storedPause, last}.after(tries)
}

// noteStored counts a message that is stored until the given time.
func (d *destinations) noteStored(id string, due time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.stored) >= mostStored {
		d.forgetOverdue()
	}
	if _, known := d.stored[id]; known || len(d.stored) < mostStored {
		d.stored[id] = due
	}
}

// noteDelivered removes a message from the count.
func (d *destinations) noteDelivered(id string) {
	d.mu.Lock()
	delete(d.stored, id)
	d.mu.Unlock()
}

// forgetOverdue drops the messages that another instance has received. d.mu is held.
func (d *destinations) forgetOverdue() {
	now := time.Now()
	maps.DeleteFunc(d.stored, func(_ string, due time.Time) bool { return now.Sub(due) > longestStoredFor })
}

// storedMessages returns the number of stored messages that this process knows of.
func (d *destinations) storedMessages() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.forgetOverdue()
	return len(d.stored)
}
