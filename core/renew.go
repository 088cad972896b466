package core

import (
	"context"
	"errors"
	"sync"
	"time"
)

// renewer renews the locks of all deliveries in flight: one goroutine watches the times,
// short-lived goroutines do the renewals that are due.
type renewer struct {
	ctx    context.Context // for Renew; ends with stop
	cancel context.CancelFunc

	mu      sync.Mutex
	holds   hold      // the head of a ring of all renewed holds
	armed   time.Time // when run looks again by itself; zero: it does not
	wake    chan struct{}
	stopped chan struct{}
	done    chan struct{} // closed when run and all renewals have returned
	wg      sync.WaitGroup
}

// parallelRenewals limits the renewals at the same time; more would only queue at the
// broker.
const parallelRenewals = 16

// renewalPatience is how long due renewals wait for others to return before they start
// anyway: because of renewals that hang, other locks must not expire.
const renewalPatience = 100 * time.Millisecond

// renewalPause is the shortest time between two renewals of one lock.
const renewalPause = 10 * time.Millisecond

func newRenewer(ctx context.Context) *renewer {
	r := &renewer{wake: make(chan struct{}, 1), stopped: make(chan struct{}), done: make(chan struct{})}
	r.holds.before, r.holds.after = &r.holds, &r.holds
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r
}

// watch begins to renew d, if it has a lock that expires. It returns nil otherwise.
func (r *renewer) watch(d Delivery) *hold {
	until := d.LockedUntil()
	if until.IsZero() {
		return nil
	}
	h := &hold{delivery: d, next: halfway(until)}
	r.mu.Lock()
	r.holds.insert(h)
	sooner := r.armed.IsZero() || h.next.Before(r.armed)
	r.mu.Unlock()
	if sooner {
		r.poke()
	}
	return h
}

// insert puts a hold before h in the ring. The renewer's mu is held.
func (h *hold) insert(added *hold) {
	added.before, added.after = h.before, h
	h.before.after, h.before = added, added
}

// remove takes h out of the ring that it is in, if any. The renewer's mu is held.
func (h *hold) remove() {
	if h.listed() {
		h.before.after, h.after.before = h.after, h.before
		h.before, h.after = nil, nil
	}
}

func (h *hold) listed() bool { return h.after != nil }

// forget ends the renewal of h, which may be nil.
func (r *renewer) forget(h *hold) {
	if h == nil {
		return
	}
	r.mu.Lock()
	h.remove()
	r.mu.Unlock()
}

// halfway is when a lock that ends at the given time is renewed.
func halfway(until time.Time) time.Time {
	now := time.Now()
	return now.Add(until.Sub(now) / 2)
}

func (r *renewer) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run renews until stop.
func (r *renewer) run() {
	defer close(r.done)
	slots := make(chan struct{}, parallelRenewals)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, next := r.due()
		patience := renewalPatience
		for _, h := range due {
			free, ok := acquire(slots, patience)
			if !ok {
				patience = 0
			}
			r.wg.Go(func() {
				defer free()
				r.renew(h)
			})
		}
		var tick <-chan time.Time
		if !next.IsZero() {
			timer.Reset(time.Until(next))
			tick = timer.C
		}
		select {
		case <-r.stopped:
			r.wg.Wait()
			return
		case <-r.wake:
		case <-tick:
		}
	}
}

// acquire takes one of the slots, or none (not ok) if that takes longer than patience.
// free gives it back.
func acquire(slots chan struct{}, patience time.Duration) (free func(), ok bool) {
	release := func() { <-slots }
	select {
	case slots <- struct{}{}:
		return release, true
	default:
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case slots <- struct{}{}:
		return release, true
	case <-timer.C:
		return func() {}, false
	}
}

// due marks and returns the holds to renew now, and the time of the next renewal.
func (r *renewer) due() (due []*hold, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for h := r.holds.after; h != &r.holds; h = h.after {
		switch {
		case h.renewing:
		case !h.next.After(now):
			h.renewing = true
			due = append(due, h)
		case next.IsZero() || h.next.Before(next):
			next = h.next
		}
	}
	r.armed = next
	return due, next
}

func (r *renewer) renew(h *hold) {
	until := h.delivery.LockedUntil()
	ctx, cancel := context.WithDeadline(r.ctx, until)
	err := h.delivery.Renew(ctx)
	cancel()

	lost := false
	r.mu.Lock()
	h.renewing = false
	now := time.Now()
	switch {
	case !h.listed():
	case err == nil:
		h.next = halfway(h.delivery.LockedUntil())
		if !h.next.After(now) { // a lock that was renewed, but did not move: no reason to spin
			h.next = now.Add(renewalPause)
		}
	case errors.Is(err, ErrLockLost), !now.Before(until):
		lost = true
		h.remove()
	default: // try again while the lock still holds
		h.next = now.Add(max(until.Sub(now)/4, renewalPause))
	}
	r.mu.Unlock()
	if lost {
		h.lose()
	}
	r.poke()
}

// stop ends run and the renewals in progress, and waits for them, but not longer than the
// timeout.
func (r *renewer) stop(timeout time.Duration) bool {
	close(r.stopped)
	r.cancel()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-r.done:
		return true
	case <-timer.C:
		return false
	}
}
