package core

import (
	"fmt"
	"sync"
	"time"
)

// outageAlarm raises one critical error for an outage that the transport reported and
// that has lasted for Config.OutageLimit. It has a timer, because an adapter may be silent
// while it reconnects.
type outageAlarm struct {
	limit time.Duration // 0 is without limit
	raise func(err error)

	raising sync.Mutex // taken before mu, which a slow log shall not hold
	mu      sync.Mutex
	current *reportedOutage // nil while connected
	stopped bool
}

// reportedOutage is from the first report of a lost connection to that of a restored one.
type reportedOutage struct {
	since time.Time
	err   error // the newest that was reported
	timer *time.Timer
}

// changed notes what the transport reported.
func (o *outageAlarm) changed(e ConnectionChange) {
	if o.limit <= 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.stopped:
	case e.Connected:
		o.endLocked()
	case o.current != nil: // another try to connect has failed
		if e.Err != nil {
			o.current.err = e.Err
		}
	default:
		begun := &reportedOutage{since: time.Now(), err: e.Err}
		if !e.Since.IsZero() && e.Since.Before(begun.since) {
			begun.since = e.Since
		}
		begun.timer = time.AfterFunc(time.Until(begun.since.Add(o.limit)), func() { o.expired(begun) })
		o.current = begun
	}
}

// expired raises the critical error, unless the connection was restored just now.
func (o *outageAlarm) expired(begun *reportedOutage) {
	o.raising.Lock()
	defer o.raising.Unlock()
	o.mu.Lock()
	still := o.current == begun
	err := begun.err
	o.mu.Unlock()
	if still {
		o.raise(&OutageError{Since: begun.since, Limit: o.limit, Err: err})
	}
}

func (o *outageAlarm) endLocked() {
	if o.current != nil {
		o.current.timer.Stop()
		o.current = nil
	}
}

// stop ends the alarm. None is raised after it has returned.
func (o *outageAlarm) stop() {
	o.raising.Lock() // one that is being raised has been
	defer o.raising.Unlock()
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
	o.endLocked()
}

// OutageError is the critical error of an outage that has lasted for Config.OutageLimit.
type OutageError struct {
	// Since is when the outage began.
	Since time.Time
	// Limit is Config.OutageLimit.
	Limit time.Duration
	// Err is the newest error that the transport reported, or nil.
	Err error
}

// Error implements error.
func (e *OutageError) Error() string {
	text := fmt.Sprintf("no connection to the broker since %s, for longer than Config.OutageLimit (%v); the endpoint goes on reconnecting",
		e.Since.UTC().Format(time.RFC3339), e.Limit)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap returns the transport's error.
func (e *OutageError) Unwrap() error { return e.Err }
