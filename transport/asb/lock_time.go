package asb

import "time"

// lockMargin is how much earlier than estimated a lock is assumed to end: the estimate of
// the service's clock is off by the time of the quickest message.
const lockMargin = 50 * time.Millisecond

// maxSkew is the largest plausible difference between the service's clock and the
// machine's. With a larger one the machine would take the service's certificate to be
// expired, or not valid yet: a time that differs more says nothing about the clock.
const maxSkew = 365 * 24 * time.Hour

// lockEnd returns when a lock ends, by this process's clock. It ends at lockedUntil by the
// service's clock, and that time arrived at at.
func (r *receiver) lockEnd(lockedUntil, at time.Time) time.Time {
	if offset := lockedUntil.Sub(at); offset < -maxSkew || offset > maxSkew { // the service has not sent a time
		lockedUntil = at.Add(r.t.clock.Ahead()).Add(r.lockDuration())
	} else if r.lock > 0 {
		r.t.clock.Observe(lockedUntil.Add(-r.lock), at) // the lock began before it arrived
	}
	left := lockedUntil.Sub(at) - r.t.clock.Ahead()
	switch {
	case r.lock > 0:
		left = min(left, r.lock)
	case left <= 0 || left > maxLock:
		// The clocks differ, and without the right Manage the difference is not known.
		left = r.t.cfg.LockDuration
	}
	return at.Add(left - lockMargin)
}

// lockDuration returns how long the service locks a session.
func (r *receiver) lockDuration() time.Duration {
	if r.lock > 0 {
		return r.lock
	}
	return r.t.cfg.LockDuration
}
