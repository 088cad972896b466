package core

import (
	"slices"
	"time"
)

// This file prevents a message that kills the process from affecting other messages
// (R35).
//
// The failure of a handler that ends the process cannot be observed: only the delivery
// counts rise, of every message that the process had. A message with more deliveries than
// its failures can explain is a suspect. It is attempted when the process has no other
// message, so that no other message is counted with it.

// isolationRules decides which messages are suspects. With the zero value none is.
type isolationRules struct {
	// threshold is the number of deliveries after which a message is a suspect; 0 means
	// never.
	threshold int
	// explainedDeliveries is the number of deliveries of a copy that the immediate retries
	// in force explain.
	explainedDeliveries int
	// reserved is the part of MaxDeliveries for the new copy (R34); with 0 the copy may be
	// delivered MaxDeliveries times again.
	reserved int
}

const (
	// minIsolateAfter tolerates one lost connection, or one restart of all instances,
	// without isolation.
	minIsolateAfter = 2
	// minReserved is the lowest number of deliveries of a new copy. One of them may be lost
	// without a handler.
	minReserved = 3
)

// firstCopyLimit returns the number of deliveries after which a suspect becomes a new
// copy, if it does, or goes to the error queue.
func (i isolationRules) firstCopyLimit(maxDeliveries int) int {
	return max(maxDeliveries-i.reserved, i.explainedDeliveries)
}

// isNewCopy reports whether a message is the new copy of one that was delivered too
// often.
func (i isolationRules) isNewCopy(in *Incoming) bool {
	return i.reserved > 0 && in.Headers.Get(HeaderDeliveries) != ""
}

// isSuspect reports whether a message was delivered more often than its failures can
// explain, and the process is not known to have survived that. A new copy is a suspect
// from its second delivery on.
func (ep *Endpoint) isSuspect(in *Incoming) bool {
	i := ep.isolation
	switch {
	case i.threshold == 0 || in.DeliveryCount <= 1:
		return false
	case in.DeliveryCount <= i.threshold && !i.isNewCopy(in):
		return false
	case in.DeliveryCount <= i.explainedDeliveries && in.LastError != "":
		return false
	}
	return !ep.redeliveries.wasSurvived(in) && !ep.redeliveries.wasSettled(in.NativeID)
}

// recordSurvived records that a handler of the message returned, if that can matter.
func (ep *Endpoint) recordSurvived(in *Incoming) {
	if i := ep.isolation; i.threshold > 0 && (in.DeliveryCount >= i.threshold || i.isNewCopy(in)) {
		ep.redeliveries.rememberSurvived(in)
	}
}

// exceedsDeliveries reports whether a message was delivered too often for a handler.
func (ep *Endpoint) exceedsDeliveries(in *Incoming) bool {
	if ep.maxDeliveries == 0 {
		return false
	}
	return in.DeliveryCount > ep.maxDeliveries || in.DeliveryCount > ep.isolation.reserved && in.DeliveryCount > ep.maxDeliveriesOf(in)
}

// maxDeliveriesOf returns the limit of deliveries of a message to a handler. The
// deliveries of a suspect and of its new copy are MaxDeliveries together.
func (ep *Endpoint) maxDeliveriesOf(in *Incoming) int {
	i := ep.isolation
	switch {
	case i.reserved == 0 || !ep.isSuspect(in):
		return ep.maxDeliveries
	case i.isNewCopy(in):
		return i.reserved
	}
	return i.firstCopyLimit(ep.maxDeliveries)
}

// isolation has the suspects of a pump. All but isSuspect and onChange is guarded by the
// pump's mu.
//
// While there are suspects, nothing is fetched. Other fetched messages are handled first,
// then the suspects, those with the fewest deliveries first: the message that kills the
// process was there each time. After that, as after the start, one message at a time is
// fetched until one is no suspect. Brokers redeliver messages first, so this way the next
// process does not get all messages of the dead process at once.
type isolation struct {
	isSuspect func(*Incoming) bool               // nil: no message is one
	onChange  func(isolating bool, in *Incoming) // called with the pump's mu; must not block
	single    bool                               // the receiver never has more than one delivery if that is its limit

	probing      bool              // one message at a time is fetched
	reported     bool              // onChange was called with true
	suspects     []fetchedDelivery // those with the fewest deliveries first
	isolated     *worker           // has a suspect, and there is no other fetched message
	handling     int               // workers that have a delivery
	aloneTimer   *time.Timer       // of the time for which a suspect runs alone
	recheckTimer *time.Timer       // until the workers look again whether a suspect may be handled
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

// isSuspect is called without mu.
func (p *pump) isSuspect(d Delivery) bool {
	if p.isolation.isSuspect == nil {
		return false
	}
	in := d.Incoming()
	return in.DeliveryCount > 1 && p.isolation.isSuspect(in)
}

// isIsolating reports whether one message at a time is attempted because of suspects.
func (p *pump) isIsolating() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isolation.reported
}

// isIsolated reports whether the worker handles a suspect.
func (w *worker) isIsolated() bool {
	w.pump.mu.Lock()
	defer w.pump.mu.Unlock()
	return w.pump.isolation.isolated == w
}

// drainsReceiverLocked reports whether the receiver may have prefetched deliveries that
// are to be handled before the suspects, because the broker counts their release.
func (p *pump) drainsReceiverLocked() bool { return p.countsReleases && !p.limitedToOneLocked() }

// isolateLocked updates the isolation after deliveries have arrived.
func (p *pump) isolateLocked(others int, suspects []fetchedDelivery) {
	i := &p.isolation
	switch {
	case i.isSuspect == nil || others+len(suspects) == 0:
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
		at, _ := slices.BinarySearchFunc(i.suspects, item, func(a, b fetchedDelivery) int {
			if totalDeliveries(a) <= totalDeliveries(b) {
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
		i.onChange(true, suspects[0].delivery.Incoming())
	}
	p.applyLimitsLocked()
}

// totalDeliveries also counts the deliveries of the message that this one is a new copy
// of.
func totalDeliveries(item fetchedDelivery) int {
	in := item.delivery.Incoming()
	return in.DeliveryCount + intHeader(in.Headers, HeaderDeliveries)
}

// canStartSuspectLocked reports whether a suspect is to be handled now.
func (p *pump) canStartSuspectLocked() bool {
	i := &p.isolation
	switch {
	case len(i.suspects) == 0 || i.isolated != nil:
		return false
	case p.isFetchStoppedLocked() && !p.handlesPrefetchedLocked(), p.busySlots >= p.limit, p.buffer.Len() > 0:
		return false
	case i.handling > 0:
		return p.hasPassedLocked(p.remainingWaitLocked())
	case p.limitedToOneLocked() || !p.countsReleases && i.single:
		return p.fetching == 0
	}
	return p.hasPassedLocked(quietPeriod - time.Since(i.arrivedAt))
}

// remainingWaitLocked returns how long a suspect still waits for running handlers.
func (p *pump) remainingWaitLocked() time.Duration {
	left := time.Duration(0)
	for w := range p.workers {
		if w.handling {
			left = max(left, isolationTimeout-time.Since(w.slotStart))
		}
	}
	return left
}

// hasPassedLocked reports whether d is 0 or less; otherwise it wakes the workers after d.
func (p *pump) hasPassedLocked(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	i, at := &p.isolation, time.Now().Add(d)
	if i.recheckTimer != nil && !at.Before(i.recheckAt) {
		return false
	}
	stopTimer(&i.recheckTimer)
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
func (w *worker) takeSuspectLocked() fetchedDelivery {
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
func (w *worker) endIsolatedLocked() {
	p := w.pump
	if p.isolation.isolated == w {
		p.isolation.isolated = nil
		stopTimer(&p.isolation.aloneTimer)
		p.nextSuspectLocked()
	}
}

// nextSuspectLocked continues with the next suspect, or with other messages.
func (p *pump) nextSuspectLocked() {
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
func (p *pump) endProbingLocked() {
	i := &p.isolation
	i.probing = false
	if i.reported {
		i.reported = false
		i.onChange(false, nil)
	}
	p.applyLimitsLocked()
}

// surplusSuspectsLocked returns how many waiting suspects are to be released. If that is
// not counted, one is kept at a time.
func (p *pump) surplusSuspectsLocked() int {
	i := &p.isolation
	n := len(i.suspects)
	switch {
	case n == 0:
		return 0
	case p.countsReleases:
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
func (p *pump) takeSuspectsLocked(n int) []fetchedDelivery {
	i := &p.isolation
	at := len(i.suspects) - n
	items := slices.Clone(i.suspects[at:])
	clear(i.suspects[at:])
	i.suspects = i.suspects[:at]
	p.nextSuspectLocked()
	return items
}

func (i *isolation) stopTimersLocked() {
	stopTimer(&i.aloneTimer)
	stopTimer(&i.recheckTimer)
}

// isolationChanged reports suspects, once while there are some.
func (r *runner) isolationChanged(isolating bool, in *Incoming) {
	log := r.ep.log.recoverability
	if !isolating {
		r.hookCalls.Add(func() { log.Info("messages are attempted side by side again") })
		return
	}
	id, deliveries := in.ID, in.DeliveryCount
	r.hookCalls.Add(func() {
		log.Warn("a message was delivered several times without a known end and may have killed its process: such messages are attempted one at a time, with nothing beside them",
			"message_id", id, "deliveries", deliveries, "isolate_after", r.ep.isolation.threshold)
	})
}
