package asb

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// This file keeps messages from their arrival until Receive returns them, or until they are
// given back because there is no place for them.

// arriveLocked makes messages available to Receive, and returns those for which there is
// no longer a place.
func (r *receiver) arriveLocked(ready ...*delivery) (surplus []*delivery) {
	for _, d := range ready {
		r.unsettled[d] = struct{}{}
		d.waiting = true
	}
	r.arrived = append(r.arrived, ready...)
	surplus = r.surplusLocked()
	if len(r.arrived) > 0 {
		r.arrivals.Notify()
	}
	return surplus
}

// surplusLocked removes and returns the arrived messages beyond MaxInFlight, the newest
// ones. A closed receiver keeps them, for Close; a receiver in mode None keeps them too,
// because they cannot be returned.
func (r *receiver) surplusLocked() (surplus []*delivery) {
	n := min(len(r.unsettled)-r.maxInFlight, len(r.arrived))
	if n <= 0 || r.closed || r.mode == core.TransactionNone {
		return nil
	}
	kept := len(r.arrived) - n
	surplus = slices.Clone(r.arrived[kept:])
	clear(r.arrived[kept:])
	r.arrived = r.arrived[:kept]
	for _, d := range surplus {
		d.waiting = false
		r.freeLocked(d)
	}
	return surplus
}

// take moves messages that have arrived into dst. more reports whether another call of
// Receive has to look as well: for further messages, or for the same error. A message or an
// error ends the call, and its demand.
func (r *receiver) take(dst []core.Delivery) (n int, more bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n, more, err = r.takeLocked(dst)
	if (n > 0 || err != nil) && r.mode == core.TransactionNone {
		// Any later, a poller would ask for a message that no call waits for any more.
		r.demand -= len(dst)
	}
	return n, more, err
}

func (r *receiver) takeLocked(dst []core.Delivery) (n int, more bool, err error) {
	if r.closed {
		return 0, true, core.ErrClosed
	}
	var stale []*delivery
	for n < len(dst) && len(r.arrived) > 0 {
		d := r.arrived[0]
		r.arrived = r.arrived[1:]
		d.waiting = false
		if r.mode == core.TransactionNone {
			r.dropLocked(d)
		}
		switch left := time.Until(d.LockedUntil()); {
		case d.in.Expired(r.t.clock.Now()):
			if r.mode != core.TransactionNone {
				r.freeLocked(d)
				r.pollers.Go(func() { r.discard(d) })
			}
			continue
		case r.mode == core.TransactionNone:
		case left <= 0:
			r.dropLocked(d) // it is redelivered, and no handler has seen it
			continue
		case left < d.locked/2 && !d.refreshed:
			stale = append(stale, d)
			continue
		}
		dst[n] = d
		n++
	}
	if len(stale) > 0 {
		r.pollers.Go(func() { r.refresh(stale) })
	}
	if n == 0 && r.permanent != nil {
		return 0, true, r.permanent
	}
	return n, len(r.arrived) > 0, nil
}

// discard consumes a message that is past its time to live, whose place is free already, as the service does.
func (r *receiver) discard(d *delivery) {
	ctx, cancel := context.WithTimeout(r.closing, requestTimeout)
	defer cancel()
	defer d.ended()
	consume := complete
	if r.keepExpired {
		consume = deadLetterExpired
	}
	_ = d.request(ctx, consume) // otherwise the service does so when its lock ends
}

// refresh renews the locks of messages that have waited long for a Receive, so that a
// handler has time until it settles them or the engine renews them, and makes them
// available again.
func (r *receiver) refresh(stale []*delivery) {
	var renewals sync.WaitGroup
	for _, d := range stale {
		renewals.Go(func() {
			ctx, cancel := context.WithDeadline(r.closing, d.LockedUntil())
			defer cancel()
			_ = d.Renew(ctx) // otherwise the rest of the lock must suffice
		})
	}
	renewals.Wait()
	r.mu.Lock()
	for _, d := range stale {
		d.refreshed = true
	}
	surplus := r.arriveLocked(stale...)
	r.mu.Unlock()
	r.releaseUnseen(surplus)
}

// dropLocked frees the place of a delivery that will not be settled.
func (r *receiver) dropLocked(d *delivery) {
	r.freeLocked(d)
	d.ended()
}

// sweepLocked frees the places of deliveries whose lock has ended, and which may never be settled.
func (r *receiver) sweepLocked() {
	if r.mode == core.TransactionNone {
		return
	}
	now := time.Now()
	if now.Before(r.nextSweep) {
		return
	}
	r.nextSweep = now.Add(minLock / 16)
	for d := range r.unsettled {
		if !d.waiting && now.After(d.LockedUntil()) {
			r.dropLocked(d)
		}
	}
}

// reserve takes places for a request, at most most. If there are none, the poller looks
// again after room's signal, or after wait. open is false when the receiver is closed.
func (r *receiver) reserve(limit int) (places int, wait time.Duration, waiting context.Context, open bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return 0, 0, nil, false
	}
	if wait := time.Until(r.resume); wait > 0 {
		return 0, wait, nil, true
	}
	free := r.freePlacesLocked()
	if free <= 0 {
		r.sweepLocked()
		free = r.freePlacesLocked()
	}
	if free <= 0 || r.permanent != nil {
		return 0, minLock, nil, true
	}
	places = min(free, limit)
	r.asked += places
	if free > places {
		r.room.Notify()
	}
	return places, 0, r.waiting, true
}

// answered records the messages of a request. It returns those for which there is no
// longer a place.
func (r *receiver) answered(places int, messages []*delivery) (surplus []*delivery) {
	if len(messages) > 0 {
		r.works()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked -= places
	// In None a link without a request may have messages that the service has forgotten:
	// so there is only one link.
	if !r.sessions && r.mode != core.TransactionNone && len(messages) == places && r.freePlacesLocked() > 0 {
		r.wanted = min(r.wanted+1, maxLinks)
		r.startPollersLocked()
	}
	surplus = r.arriveLocked(messages...)
	r.room.Notify()
	return surplus
}

// keep hands on the messages that arrived while a link was closed. If the receiver is
// closed, Close releases them.
func (r *receiver) keep(last []*delivery) {
	r.mu.Lock()
	surplus := r.arriveLocked(last...)
	r.mu.Unlock()
	r.releaseUnseen(surplus)
}

// releaseUnseen releases messages that no handler has seen.
func (r *receiver) releaseUnseen(surplus []*delivery) {
	if len(surplus) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(r.graceful, requestTimeout)
	defer cancel()
	r.releaseAll(ctx, surplus)
}

// maxConcurrentReleases is how many messages are released at the same time.
const maxConcurrentReleases = 64

// releaseAll releases messages, if the service can be reached. Otherwise they are
// redelivered when their locks end.
func (r *receiver) releaseAll(ctx context.Context, deliveries []*delivery) {
	slots := make(chan struct{}, maxConcurrentReleases)
	var running sync.WaitGroup
	for _, d := range deliveries {
		slots <- struct{}{}
		running.Go(func() {
			_ = d.releaseUnplaced(ctx)
			<-slots
		})
	}
	running.Wait()
}

// reclaimPlace takes a place for a due message, and reports whether there was one. Places
// of requests for a session count as free: on a quiet queue such a request takes up to a
// minute.
func (r *receiver) reclaimPlace() bool {
	places, _, _, open := r.reserve(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case !open:
		return false
	case places > 0:
	case r.accepting > r.lent:
		r.lent++
	default:
		return false
	}
	r.endPostponedLocked()
	return true
}
