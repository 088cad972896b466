package asb

import (
	"time"

	"github.com/reprise-go/reprise/core"
)

// Internals that tests observe from outside.

// Arrived returns how many messages a receiver has that no Receive has returned.
func Arrived(coreReceiver core.Receiver) int {
	r := coreReceiver.(*receiver)
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.arrived)
}

// SetMaxPostponed changes how many sessions a receiver keeps locked whose messages are not due.
func SetMaxPostponed(coreReceiver core.Receiver, n int) {
	r := coreReceiver.(*receiver)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.maxPostponed = n
}

// Losses returns the errors of a link that is lost after times without messages.
func Losses(lasted ...time.Duration) (errs []error) {
	var l link
	for _, d := range lasted {
		errs = append(errs, l.loss(d))
	}
	return errs
}

// LockEnd returns when a lock ends that ends at lockedUntil by the service's clock, and by how much that clock is taken to be ahead then. lock is
// 0 where the queue's LockDuration is not known.
func LockEnd(cfg Config, lock time.Duration, lockedUntil, at time.Time) (end time.Time, offset time.Duration) {
	r := &receiver{t: &Transport{cfg: &cfg}, lock: lock}
	end = r.lockEnd(lockedUntil, at)
	return end, r.t.clock.Ahead()
}

// Transient reports whether a retry may help against an error.
func Transient(err error) bool { return transient(err) }

var (
	Duration      = duration
	ParseDuration = parseDuration
)
