package asb

import "github.com/reprise-go/reprise/core"

// This file counts the places of a receiver, and starts pollers to request messages for
// free ones.

// require records how many messages calls of Receive wait for.
func (r *receiver) require(n int) {
	if r.mode != core.TransactionNone {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.demand += n
	if n > 0 {
		r.room.Notify()
	}
}

// freePlacesLocked returns the number of free places.
func (r *receiver) freePlacesLocked() int {
	if r.mode == core.TransactionNone {
		return min(r.demand, r.maxInFlight) - len(r.arrived) - r.asked
	}
	return r.maxInFlight - len(r.unsettled) - r.asked
}

// freeLocked frees the place of a delivery.
func (r *receiver) freeLocked(d *delivery) {
	delete(r.unsettled, d)
	r.room.Notify()
}

// startPollersLocked starts the missing pollers.
func (r *receiver) startPollersLocked() {
	for !r.closed && r.started < r.wanted {
		r.started++
		r.pollers.Go(r.runPoller)
	}
}

// noSession records that no session had messages for a while, and reports whether the
// poller is no longer needed. It frees the places of the request.
func (r *receiver) noSession(places int) (retire bool) {
	r.works()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked -= places
	if retire = r.started > 1; retire {
		r.started--
		r.wanted = max(1, min(r.wanted, r.started))
	}
	r.room.Notify()
	return retire
}

// accepted records that a session had messages: others may have some, too.
func (r *receiver) accepted() {
	r.works()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wanted = min(r.wanted+1, max(1, r.maxInFlight)+r.postponed)
	r.startPollersLocked()
}

// giveUpPlace frees the place of a message that did not arrive.
func (r *receiver) giveUpPlace() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked--
	r.room.Notify()
}

// lendPlace lends a place to others. If too many sessions wait, it frees the place and
// returns false.
func (r *receiver) lendPlace() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked--
	r.room.Notify()
	if r.postponed >= r.maxPostponed {
		r.crowded = true
		return false
	}
	r.postponed++
	r.wanted++
	r.startPollersLocked()
	return true
}

// forgoPlace ends the wait of a message that is not handed out.
func (r *receiver) forgoPlace() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.endPostponedLocked()
}

// endPostponedLocked records that a session no longer waits. The receiver stays crowded for some more, so that its observer is
// not told of each session.
func (r *receiver) endPostponedLocked() {
	r.postponed--
	if r.postponed <= r.maxPostponed/2 {
		r.crowded = false
	}
}
