package pump

import (
	"slices"
	"time"

	"github.com/reprise-go/reprise/core/internal/timers"
)

// This file prevents a message that kills the process from affecting other messages
// (R35).
//
// The failure of a handler that ends the process cannot be observed: only the delivery
// counts rise, of every message that the process had. A message with more deliveries than
// its failures can explain is a suspect. It is attempted when the process has no other
// message, so that no other message is counted with it.

// isolation has the suspects of a pump, guarded by the pump's mu.
//
// While there are suspects, nothing is fetched. Other fetched messages are handled first,
// then the suspects, those with the fewest deliveries first: the message that kills the
// process was there each time. After that, as after the start, one message at a time is
// fetched until one is no suspect. Brokers redeliver messages first, so this way the next
// process does not get all messages of the dead process at once.
type isolation[D, A any] struct {
	probing      bool          // one message at a time is fetched
	reported     bool          // OnIsolate was called with true
	suspects     []Item[D]     // those with the fewest deliveries first
	isolated     *Worker[D, A] // has a suspect, and there is no other fetched message
	handling     int           // workers that have a delivery
	aloneTimer   *time.Timer   // of the time for which a suspect runs alone
	recheckTimer *time.Timer   // until the workers look again whether a suspect may be handled
	recheckAt    time.Time
	arrivedAt    time.Time // when the newest delivery arrived, or suspects began to wait
}

const (
	// isolationTimeout limits how long a suspect waits for running handlers, and how long
	// other messages wait for a suspect's handler: a handler that hangs, or takes hours,
	// must not stop the endpoint.
	isolationTimeout = 2 * time.Minute
	// quietPeriod is how long a receiver with limit 0 must not have delivered a message, if
	// it may keep its prefetched messages, or is still releasing them.
	quietPeriod = 250 * time.Millisecond
)

// IsIsolating reports whether one message at a time is attempted because of suspects.
func (p *Pump[D, A]) IsIsolating() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isolation.reported
}

// IsIsolated reports whether the worker handles a suspect.
func (w *Worker[D, A]) IsIsolated() bool {
	w.pump.mu.Lock()
	defer w.pump.mu.Unlock()
	return w.pump.isolation.isolated == w
}

// drainsReceiverLocked reports whether the receiver may have prefetched deliveries that
// are to be handled before the suspects, because the broker counts their release.
func (p *Pump[D, A]) drainsReceiverLocked() bool {
	return p.rules.CountsReleases && !p.isolation.probing
}

// isolateLocked updates the isolation after deliveries have arrived.
func (p *Pump[D, A]) isolateLocked(others int, suspects []Item[D]) {
	i := &p.isolation
	switch {
	case !p.rules.Isolates || others+len(suspects) == 0:
		return
	case len(suspects) == 0 && !p.hasSuspectsLocked():
		if i.probing {
			p.endProbingLocked()
		}
		return
	}
	i.arrivedAt = time.Now()
	began := !p.hasSuspectsLocked()
	for _, item := range suspects {
		at, _ := slices.BinarySearchFunc(i.suspects, item, func(a, b Item[D]) int {
			if p.calls.TotalDeliveries(a.Delivery) <= p.calls.TotalDeliveries(b.Delivery) {
				return -1
			}
			return 1
		})
		i.suspects = slices.Insert(i.suspects, at, item)
	}
	if !began {
		return
	}
	if !i.reported {
		i.reported = true
		p.calls.OnIsolate(true, suspects[0].Delivery)
	}
	p.applyLimitsLocked()
}

// canStartSuspectLocked reports whether a suspect is to be handled now.
func (p *Pump[D, A]) canStartSuspectLocked() bool {
	i := &p.isolation
	switch {
	case len(i.suspects) == 0 || i.isolated != nil:
		return false
	case p.isFetchStoppedLocked() && !p.handlesPrefetchedLocked(), p.busySlots >= p.limit, p.buffer.Len() > 0:
		return false
	case i.handling > 0:
		return p.hasPassedLocked(p.remainingWaitLocked())
	case i.probing || !p.rules.CountsReleases:
		return p.fetching == 0
	}
	return p.hasPassedLocked(quietPeriod - time.Since(i.arrivedAt))
}

// remainingWaitLocked returns how long a suspect still waits for running handlers.
func (p *Pump[D, A]) remainingWaitLocked() time.Duration {
	left := time.Duration(0)
	for w := range p.workers {
		if w.handling {
			left = max(left, isolationTimeout-time.Since(w.slotStart))
		}
	}
	return left
}

// hasPassedLocked reports whether d is 0 or less; otherwise it wakes the workers after d.
func (p *Pump[D, A]) hasPassedLocked(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	i, at := &p.isolation, time.Now().Add(d)
	if i.recheckTimer != nil && !at.Before(i.recheckAt) {
		return false
	}
	timers.Stop(&i.recheckTimer)
	var recheck *time.Timer
	recheck = time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if i.recheckTimer != recheck { // stopped
			return
		}
		i.recheckTimer = nil
		p.restartFetchLocked() // all of them may be in Receive
		p.wakeUp.Broadcast()
	})
	i.recheckTimer, i.recheckAt = recheck, at
	return false
}

// takeSuspectLocked returns the suspect that this worker is about to handle.
func (w *Worker[D, A]) takeSuspectLocked() Item[D] {
	p := w.pump
	i := &p.isolation
	item := i.suspects[0]
	i.suspects = slices.Delete(i.suspects, 0, 1)
	i.isolated = w
	var timer *time.Timer
	timer = time.AfterFunc(isolationTimeout, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if i.aloneTimer == timer { // not stopped
			w.endIsolatedLocked()
		}
	})
	i.aloneTimer = timer
	return item
}

// endIsolatedLocked is called after a suspect's attempt, or after the time for which it
// runs alone.
func (w *Worker[D, A]) endIsolatedLocked() {
	p := w.pump
	if p.isolation.isolated == w {
		p.isolation.isolated = nil
		timers.Stop(&p.isolation.aloneTimer)
		p.nextSuspectLocked()
	}
}

// nextSuspectLocked continues with the next suspect, or with other messages.
func (p *Pump[D, A]) nextSuspectLocked() {
	i := &p.isolation
	switch {
	case p.stopping || i.isolated != nil:
	case len(i.suspects) > 0:
		p.wakeUp.Broadcast()
	case i.handling > 0: // for minutes, and the receiver may have to hold more than one
		i.stopTimersLocked()
		p.endProbingLocked()
	default:
		i.stopTimersLocked()
		i.probing = true
		p.applyLimitsLocked()
	}
}

// endProbingLocked ends fetching one at a time: a message has come that is no suspect.
func (p *Pump[D, A]) endProbingLocked() {
	i := &p.isolation
	i.probing = false
	if i.reported {
		i.reported = false
		var none D
		p.calls.OnIsolate(false, none)
	}
	p.applyLimitsLocked()
}

// surplusSuspectsLocked returns how many waiting suspects are to be released. If that is
// not counted, one is kept at a time.
func (p *Pump[D, A]) surplusSuspectsLocked() int {
	i := &p.isolation
	n := len(i.suspects)
	switch {
	case n == 0:
		return 0
	case p.rules.CountsReleases:
		if p.stopping || p.hanging {
			return n
		}
		return 0
	case p.isFetchStoppedLocked() || i.isolated != nil:
		return n
	}
	return n - 1
}

// takeSuspectsLocked removes the n suspects with the most deliveries.
func (p *Pump[D, A]) takeSuspectsLocked(n int) []Item[D] {
	i := &p.isolation
	at := len(i.suspects) - n
	items := slices.Clone(i.suspects[at:])
	clear(i.suspects[at:])
	i.suspects = i.suspects[:at]
	p.nextSuspectLocked()
	return items
}

func (i *isolation[D, A]) stopTimersLocked() {
	timers.Stop(&i.aloneTimer)
	timers.Stop(&i.recheckTimer)
}
