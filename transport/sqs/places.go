package sqs

import (
	"slices"
	"time"

	"github.com/reprise-go/reprise/transport/sqs/internal/batch"
)

// neededLocked returns how many pollers are needed. Each freed place would wake the
// others in vain.
func (r *receiver) neededLocked() int { return max(1, min(r.wanted, r.maxPollersLocked())) }

// maxPollersLocked returns how many requests fit into MaxInFlight.
func (r *receiver) maxPollersLocked() int { return (r.maxInFlight + r.batch - 1) / r.batch }

// surplusLocked removes and returns the arrived messages beyond MaxInFlight, the newest
// ones. A closed receiver keeps them, for Close.
func (r *receiver) surplusLocked() (surplus []*delivery) {
	n := min(len(r.held)-r.maxInFlight, len(r.arrived))
	if n <= 0 || r.closed {
		return nil
	}
	kept := len(r.arrived) - n
	surplus = slices.Clone(r.arrived[kept:])
	clear(r.arrived[kept:])
	r.arrived = r.arrived[:kept]
	for _, d := range surplus {
		delete(r.held, d)
	}
	return surplus
}

// wakePollersLocked wakes a poller if there are places for a request, if one has to look
// again at another time than before, or if one is no longer needed. A poller that takes
// places, or ends, wakes the next one.
func (r *receiver) wakePollersLocked() {
	few, resume := r.few, time.Until(r.resume) > 0
	if places, _ := r.placesLocked(); places > 0 || resume || !r.few.Equal(few) || r.started > r.neededLocked() {
		r.room.Notify()
	}
}

// freeLocked frees the place of a delivery.
func (r *receiver) freeLocked(d *delivery) {
	delete(r.held, d)
	r.wakePollersLocked()
}

// settling records a settlement in progress. It runs while the batcher adds the entry, so
// that among several simultaneous settlements the first one finds the others among the
// unsettled deliveries.
func (r *receiver) settling(*batch.Entry[*settlement]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inSettlement++
}

// settled frees the places of deliveries, all those of a request at the same time, so
// that the next request for messages uses all of them. With ErrClosed no request has
// left, and Close releases the message.
func (r *receiver) settled(entries []*batch.Entry[*settlement]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range entries {
		r.inSettlement--
		if e.Err == nil || faultOf(e.Err) == faultLockLost {
			delete(r.held, e.Item.d)
		}
	}
	r.wakePollersLocked()
}

// unsettled returns the number of deliveries that were handed out and have no settlement
// yet.
func (r *receiver) unsettled() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.held) - len(r.arrived) - r.inSettlement
}

// expireLocked drops arrived messages whose lock has ended: they are redelivered, and no
// handler has seen them.
func (r *receiver) expireLocked() {
	now := time.Now()
	r.arrived = slices.DeleteFunc(r.arrived, func(d *delivery) bool {
		ended := now.After(d.lockedUntil())
		if ended {
			d.noteUnseen()
			delete(r.held, d)
		}
		return ended
	})
}

// sweepLocked frees the places of deliveries whose lock has ended, and which may never be
// settled. It looks at all deliveries, so it runs only at intervals.
func (r *receiver) sweepLocked() {
	now := time.Now()
	if now.Before(r.nextSweep) {
		return
	}
	r.nextSweep = now.Add(r.visibility / 16)
	for d := range r.held {
		if now.After(d.lockedUntil()) {
			delete(r.held, d)
		}
	}
}

// askLinger is how long a request for fewer messages than possible waits for settlements
// in progress: a few times the duration of a settlement, so that one that hangs does not
// keep the other places empty.
const askLinger = 100 * time.Millisecond

// placesLocked returns the number of places for a request that could begin now. If it is
// 0, the poller looks again after wait.
func (r *receiver) placesLocked() (places int, wait time.Duration) {
	wait = r.visibility / 4 // by then locks may have ended
	free := r.maxInFlight - len(r.held) - r.asked
	switch {
	case free <= 0 || r.polling >= r.wanted || r.permanent != nil:
		return 0, wait
	case free < min(r.batch, r.maxInFlight) && r.inSettlement > 0:
		now := time.Now()
		if r.few.IsZero() {
			r.few = now
		}
		if left := r.few.Add(askLinger).Sub(now); left > 0 {
			return 0, min(left, wait)
		}
	}
	return min(free, r.batch), 0
}

// reserve takes places for a request, at most batch. If there are none, the poller looks
// again after room's signal, or after wait. If the poller is no longer needed, retire is
// true and the poller ends.
func (r *receiver) reserve() (places int, wait time.Duration, retire bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || r.started > r.neededLocked() {
		r.started--
		r.room.Notify() // this poller may have taken the signal for another one
		return 0, 0, true
	}
	if wait := time.Until(r.resume); wait > 0 {
		return 0, wait, false
	}
	if r.polling < r.wanted && r.permanent == nil {
		r.expireLocked()
		if r.maxInFlight-len(r.held)-r.asked < r.batch {
			r.sweepLocked()
		}
	}
	if places, wait = r.placesLocked(); places == 0 {
		return 0, wait, false
	}
	r.few = time.Time{}
	r.asked += places
	r.polling++
	r.wakePollersLocked()
	return places, 0, false
}

// arriveLocked makes messages available to Receive, and returns those for which there is
// no longer a place.
func (r *receiver) arriveLocked(ready ...*delivery) (surplus []*delivery) {
	for _, d := range ready {
		r.held[d] = struct{}{}
	}
	r.arrived = append(r.arrived, ready...)
	surplus = r.surplusLocked()
	if len(r.arrived) > 0 {
		r.arrivals.Notify()
	}
	return surplus
}

func (r *receiver) pauseLocked(d time.Duration) {
	if resume := time.Now().Add(d); resume.After(r.resume) {
		r.resume = resume
	}
	r.wanted = 1
	r.wakePollersLocked()
}
