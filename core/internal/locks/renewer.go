// Package locks renews the locks of deliveries, and cancels the contexts of those whose
// lock is lost.
package locks

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Delivery is a delivery that is reserved until a time.
type Delivery interface {
	// LockedUntil returns when the lock ends, or the zero time if it does not.
	LockedUntil() time.Time
	// Renew extends the lock.
	Renew(ctx context.Context) error
}

// Renewer renews the locks of all deliveries in flight: one goroutine watches the times,
// short-lived goroutines do the renewals that are due.
type Renewer struct {
	ctx     context.Context // for Renew; ends with Stop
	cancel  context.CancelFunc
	errLost error

	mu        sync.Mutex
	locks     Context   // the head of a ring of all renewed locks
	nextCheck time.Time // when Run looks again by itself; zero: it does not
	wakeUp    chan struct{}
	stopped   chan struct{}
	done      chan struct{} // closed when Run and all renewals have returned
	wg        sync.WaitGroup
}

// maxRenewals limits the renewals at the same time; more would only queue at the broker.
const maxRenewals = 16

// renewalSlotTimeout is how long due renewals wait for others to return before they start
// anyway: because of renewals that hang, other locks must not expire.
const renewalSlotTimeout = 100 * time.Millisecond

// minRenewalInterval is the shortest time between two renewals of one lock.
const minRenewalInterval = 10 * time.Millisecond

// New returns a renewer. errLost is the error of a Renew that finds the lock lost, and the
// cause with which the delivery's context is cancelled.
func New(ctx context.Context, errLost error) *Renewer {
	r := &Renewer{errLost: errLost, wakeUp: make(chan struct{}, 1), stopped: make(chan struct{}), done: make(chan struct{})}
	r.locks.prev, r.locks.next = &r.locks, &r.locks
	r.ctx, r.cancel = context.WithCancel(ctx)
	return r
}

// Watch begins to renew d, if it has a lock that expires. It returns nil otherwise.
func (r *Renewer) Watch(d Delivery) *Context {
	lockedUntil := d.LockedUntil()
	if lockedUntil.IsZero() {
		return nil
	}
	l := &Context{delivery: d, renewAt: halfway(lockedUntil)}
	r.mu.Lock()
	r.locks.insertLocked(l)
	sooner := r.nextCheck.IsZero() || l.renewAt.Before(r.nextCheck)
	r.mu.Unlock()
	if sooner {
		r.wake()
	}
	return l
}

// insertLocked puts a lock before l in the ring. The renewer's mu is held.
func (l *Context) insertLocked(added *Context) {
	added.prev, added.next = l.prev, l
	l.prev.next, l.prev = added, added
}

// removeLocked takes l out of the ring that it is in, if any. The renewer's mu is held.
func (l *Context) removeLocked() {
	if l.isListedLocked() {
		l.prev.next, l.next.prev = l.next, l.prev
		l.prev, l.next = nil, nil
	}
}

func (l *Context) isListedLocked() bool { return l.next != nil }

// Forget ends the renewal of l, which may be nil.
func (r *Renewer) Forget(l *Context) {
	if l == nil {
		return
	}
	r.mu.Lock()
	l.removeLocked()
	r.mu.Unlock()
}

// halfway is when a lock that ends at the given time is renewed.
func halfway(lockedUntil time.Time) time.Time {
	now := time.Now()
	return now.Add(lockedUntil.Sub(now) / 2)
}

func (r *Renewer) wake() {
	select {
	case r.wakeUp <- struct{}{}:
	default:
	}
}

// Run renews until Stop.
func (r *Renewer) Run() {
	defer close(r.done)
	slots := make(chan struct{}, maxRenewals)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		due, next := r.takeDue()
		timeout := renewalSlotTimeout
		for _, l := range due {
			free, ok := acquireSlot(slots, timeout)
			if !ok {
				timeout = 0
			}
			r.wg.Go(func() {
				defer free()
				r.renew(l)
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
		case <-r.wakeUp:
		case <-tick:
		}
	}
}

// acquireSlot takes one of the slots, or none (not ok) if that takes longer than timeout.
// free releases it.
func acquireSlot(slots chan struct{}, timeout time.Duration) (free func(), ok bool) {
	release := func() { <-slots }
	select {
	case slots <- struct{}{}:
		return release, true
	default:
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case slots <- struct{}{}:
		return release, true
	case <-timer.C:
		return func() {}, false
	}
}

// takeDue marks and returns the locks to renew now, and the time of the next renewal.
func (r *Renewer) takeDue() (due []*Context, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for l := r.locks.next; l != &r.locks; l = l.next {
		switch {
		case l.renewing:
		case !l.renewAt.After(now):
			l.renewing = true
			due = append(due, l)
		case next.IsZero() || l.renewAt.Before(next):
			next = l.renewAt
		}
	}
	r.nextCheck = next
	return due, next
}

func (r *Renewer) renew(l *Context) {
	lockedUntil := l.delivery.LockedUntil()
	ctx, cancel := context.WithDeadline(r.ctx, lockedUntil)
	err := l.delivery.Renew(ctx)
	cancel()

	lost := false
	r.mu.Lock()
	l.renewing = false
	now := time.Now()
	switch {
	case !l.isListedLocked():
	case err == nil:
		l.renewAt = halfway(l.delivery.LockedUntil())
		if !l.renewAt.After(now) { // a lock that was renewed, but did not move: no reason to spin
			l.renewAt = now.Add(minRenewalInterval)
		}
	case errors.Is(err, r.errLost), !now.Before(lockedUntil):
		lost = true
		l.removeLocked()
	default: // try again while the lock still holds
		l.renewAt = now.Add(max(lockedUntil.Sub(now)/4, minRenewalInterval))
	}
	r.mu.Unlock()
	if lost {
		l.lose(r.errLost)
	}
	r.wake()
}

// Stop ends Run and the renewals in progress, and waits for them, but not longer than the
// timeout.
func (r *Renewer) Stop(timeout time.Duration) bool {
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
