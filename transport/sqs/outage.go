package sqs

import (
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// These are the kinds of outages of a receiver.
const (
	outageOfQueue  = iota // requests for messages fail
	outageOfDelays        // messages with long delays cannot be forwarded, and no retry can help
	outageOfBodies        // bodies cannot be fetched
	outageKinds
)

// jointOutages presents several kinds of outages of a receiver as one outage: it begins
// with the first, and ends when all have ended.
type jointOutages struct {
	tell func(core.ConnectionChange) // core.ReceiverConfig.ConnectionChanged, or nil

	mu    sync.Mutex             // held during calls of tell, so that they are in order
	since [outageKinds]time.Time // zero: no outage
}

// part returns the function that is called for one kind of outages, or nil.
func (j *jointOutages) part(kind int) func(core.ConnectionChange) {
	if j.tell == nil {
		return nil
	}
	return func(change core.ConnectionChange) { j.changed(kind, change) }
}

func (j *jointOutages) changed(kind int, change core.ConnectionChange) {
	j.mu.Lock()
	defer j.mu.Unlock()
	before := j.earliestLocked()
	if change.Connected {
		j.since[kind] = time.Time{}
		if !j.earliestLocked().IsZero() {
			return // another outage is in progress
		}
		change.Since = before
	} else {
		j.since[kind] = change.Since
		change.Since = j.earliestLocked()
	}
	j.tell(change)
}

// earliestLocked returns when the first of the outages in progress began, or zero.
func (j *jointOutages) earliestLocked() (earliest time.Time) {
	for _, since := range j.since {
		if !since.IsZero() && (earliest.IsZero() || since.Before(earliest)) {
			earliest = since
		}
	}
	return earliest
}

// bodyOutages are outages of the store of bodies. An outage ends when a body is fetched,
// or when no fetch has failed for a time: other instances may have received the messages
// since.
type bodyOutages struct {
	transport.Outages

	mu      sync.Mutex
	forget  *time.Timer
	stopped bool
}

// failed records a failed fetch, and returns how long to pause. If no further fetch fails
// for the time forget, the outage ends.
func (o *bodyOutages) failed(err error, began time.Time, forget time.Duration) (pause time.Duration) {
	pause = o.Failed(err, began)
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.stopped:
	case o.forget == nil:
		o.forget = time.AfterFunc(forget, o.End)
	default:
		o.forget.Reset(forget)
	}
	return pause
}

// ended records an answer of the store.
func (o *bodyOutages) ended() {
	o.mu.Lock()
	if o.forget != nil {
		o.forget.Stop()
	}
	o.mu.Unlock()
	o.End()
}

// stop ends the watch.
func (o *bodyOutages) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	if o.forget != nil {
		o.forget.Stop()
	}
}
