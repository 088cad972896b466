package core

import (
	"fmt"
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
	// after is the number of deliveries after which a message is a suspect; 0 means never.
	after int
	// explained is the number of deliveries of a copy that the immediate retries in force
	// explain.
	explained int
	// reserved is the part of MaxDeliveries for the new copy (R34); with 0 the copy may be
	// delivered MaxDeliveries times again.
	reserved int
}

const (
	// leastIsolateAfter tolerates one lost connection, or one restart of all instances,
	// without isolation.
	leastIsolateAfter = 2
	// leastReserved is the least number of deliveries of a new copy. One of them may be lost
	// without a handler.
	leastReserved = 3
)

// resolveIsolation fills in IsolateAfter.
func (r *resolved) resolveIsolation(p *problems) {
	const field = "Recoverability.IsolateAfter"
	caps, most := r.rules.caps, r.maxDeliveries
	given := r.config.Recoverability.IsolateAfter
	notNegativeOrOff(p, field, given)
	impossible := ""
	switch {
	case r.mode == TransactionNone, r.mode == TransactionSendsAtomicWithReceive && !caps.AtomicLeases:
		impossible = fmt.Sprintf("the transaction mode is %v, in which the transport's count of deliveries does not tell of processes that died", r.mode)
	case !caps.NativeDeliveryCount:
		impossible = "the transport's count of deliveries ends with the process (Capabilities.NativeDeliveryCount)"
	case most == 0:
		impossible = "MaxDeliveries is off: a message that kills the process would keep all others waiting for ever"
	}
	switch {
	case given == Off:
		return
	case impossible != "":
		if given > 0 {
			p.add("%s is %d, but %s; remove it", field, given, impossible)
		}
		return
	case given > 0 && given >= most:
		p.add("%s is %d, but after %d deliveries (MaxDeliveries) no handler gets the message any more; use less than that", field, given, most)
		return
	}
	i := isolationRules{after: given, explained: r.mostImmediate() + 1}
	if r.mostImmediate() >= most { // retries without end, or a mistake that is reported
		return
	}
	if caps.CountsReleases {
		i.reserved = max(min(max(leastReserved, i.explained), most/2), 1)
	}
	if i.after == 0 {
		i.after = max(i.explained, min(leastIsolateAfter, i.firstLife(most)-1), 1)
	}
	r.isolation = i
}

// firstLife returns the number of deliveries after which a suspect becomes a new copy, if
// it does, or goes to the error queue.
func (i isolationRules) firstLife(maxDeliveries int) int {
	return max(maxDeliveries-i.reserved, i.explained)
}

// isCopy reports whether a message is the new copy of one that was delivered too often.
func (i isolationRules) isCopy(in *Incoming) bool {
	return i.reserved > 0 && in.Headers.Get(HeaderDeliveries) != ""
}

// isSuspect reports whether a message was delivered more often than its failures can
// explain, and the process is not known to have survived that. A new copy is a suspect
// from its second delivery on.
func (ep *Endpoint) isSuspect(in *Incoming) bool {
	i := ep.isolation
	switch {
	case i.after == 0 || in.DeliveryCount <= 1:
		return false
	case in.DeliveryCount <= i.after && !i.isCopy(in):
		return false
	case in.DeliveryCount <= i.explained && in.LastError != "":
		return false
	}
	return !ep.memory.wasSurvived(in) && !ep.memory.wasSettled(in.NativeID)
}

// noteSurvived records that a handler of the message returned, if that can matter.
func (ep *Endpoint) noteSurvived(in *Incoming) {
	if i := ep.isolation; i.after > 0 && (in.DeliveryCount >= i.after || i.isCopy(in)) {
		ep.memory.rememberSurvived(in)
	}
}

// exceedsDeliveries reports whether a message was delivered too often for a handler.
func (ep *Endpoint) exceedsDeliveries(in *Incoming) bool {
	if ep.maxDeliveries == 0 {
		return false
	}
	return in.DeliveryCount > ep.maxDeliveries || in.DeliveryCount > ep.isolation.reserved && in.DeliveryCount > ep.mostDeliveries(in)
}

// mostDeliveries returns the limit of deliveries of a message to a handler. The
// deliveries of a suspect and of its new copy are MaxDeliveries together.
func (ep *Endpoint) mostDeliveries(in *Incoming) int {
	i := ep.isolation
	switch {
	case i.reserved == 0 || !ep.isSuspect(in):
		return ep.maxDeliveries
	case i.isCopy(in):
		return i.reserved
	}
	return i.firstLife(ep.maxDeliveries)
}

// isolation has the suspects of a pump. All but suspect and onChange is guarded by the
// pump's mu.
//
// While there are suspects, nothing is fetched. Other fetched messages are handled first,
// then the suspects, those with the fewest deliveries first: the message that kills the
// process was there each time. After that, as after the start, one message at a time is
// fetched until one is no suspect. Brokers redeliver messages first, so this way the next
// process does not get all messages of the dead process at once.
type isolation struct {
	suspect  func(*Incoming) bool               // nil: no message is one
	onChange func(isolating bool, in *Incoming) // called with the pump's mu; must not block
	single   bool                               // the receiver never has more than one delivery if that is its limit

	probing  bool        // one message at a time is fetched
	told     bool        // onChange was called with true
	waiting  []held      // those with the fewest deliveries first
	isolated *worker     // has a suspect, and there is no other fetched message
	handling int         // workers that have a delivery
	limit    *time.Timer // of the time for which a suspect runs alone
	look     *time.Timer // until the workers look again whether a suspect may be handled
	lookAt   time.Time
	arrived  time.Time // when the newest delivery arrived, or suspects began to wait
}

const (
	// isolationPatience limits how long a suspect waits for running handlers, and how long
	// other messages wait for a suspect's handler: a handler that hangs, or takes hours,
	// must not stop the endpoint.
	isolationPatience = 2 * time.Minute
	// quietBefore is how long a receiver with limit 0 must not have delivered a message, if
	// it may keep its prefetched messages, or is still giving them back.
	quietBefore = 250 * time.Millisecond
)

// isSuspect is called without mu.
func (p *pump) isSuspect(d Delivery) bool {
	if p.isolation.suspect == nil {
		return false
	}
	in := d.Incoming()
	return in.DeliveryCount > 1 && p.isolation.suspect(in)
}

// isIsolating reports whether one message at a time is attempted because of suspects.
func (p *pump) isIsolating() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isolation.told
}

// isIsolated reports whether the worker handles a suspect.
func (w *worker) isIsolated() bool {
	w.pump.mu.Lock()
	defer w.pump.mu.Unlock()
	return w.pump.isolation.isolated == w
}

// isolating reports whether there are suspects. The pump's mu is held, as in all
// functions below.
func (p *pump) isolating() bool {
	return len(p.isolation.waiting) > 0 || p.isolation.isolated != nil
}

// holdsOne reports whether the one delivery of the receiver is the suspect.
func (p *pump) holdsOne() bool { return p.isolation.probing && p.isolation.single }

// drains reports whether the receiver may have prefetched deliveries that are to be
// handled before the suspects, because the broker counts their return.
func (p *pump) drains() bool { return p.counts && !p.holdsOne() }

// isolate updates the isolation after deliveries have arrived.
func (p *pump) isolate(healthy int, suspects []held) {
	i := &p.isolation
	switch {
	case i.suspect == nil || healthy+len(suspects) == 0:
		return
	case len(suspects) == 0 && !p.isolating():
		if i.probing {
			p.endProbing()
		}
		return
	}
	i.arrived = time.Now()
	began := !p.isolating()
	for _, item := range suspects {
		at, _ := slices.BinarySearchFunc(i.waiting, item, func(a, b held) int {
			if deliveriesOf(a) <= deliveriesOf(b) {
				return -1
			}
			return 1
		})
		i.waiting = slices.Insert(i.waiting, at, item)
	}
	if !began {
		return
	}
	if !i.told {
		i.told = true
		i.onChange(true, suspects[0].delivery.Incoming())
	}
	p.apply()
}

// deliveriesOf also counts the deliveries of the message that this one is a new copy of.
func deliveriesOf(item held) int {
	in := item.delivery.Incoming()
	return in.DeliveryCount + intHeader(in.Headers, HeaderDeliveries)
}

// suspectReady reports whether a suspect is to be handled now.
func (p *pump) suspectReady() bool {
	i := &p.isolation
	switch {
	case len(i.waiting) == 0 || i.isolated != nil:
		return false
	case p.closed() && !p.finishesPrefetched(), p.running >= p.limit, p.buffered() > 0:
		return false
	case i.handling > 0:
		return p.lookIn(p.youngestIsOld())
	case p.holdsOne() || !p.counts && i.single:
		return p.fetching == 0
	}
	return p.lookIn(quietBefore - time.Since(i.arrived))
}

// youngestIsOld returns the time after which no running handler is waited for any more.
func (p *pump) youngestIsOld() time.Duration {
	left := time.Duration(0)
	for w := range p.everyWorker {
		if w.handling {
			left = max(left, isolationPatience-time.Since(w.since))
		}
	}
	return left
}

// lookIn reports whether d has passed already; if not, it wakes the workers after d.
func (p *pump) lookIn(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	i, at := &p.isolation, time.Now().Add(d)
	if i.look != nil && !at.Before(i.lookAt) {
		return false
	}
	stopTimer(&i.look)
	var look *time.Timer
	look = time.AfterFunc(d, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if i.look != look { // stopped
			return
		}
		i.look = nil
		p.restartFetch() // all of them may be in Receive
		p.wakeUp.Broadcast()
	})
	i.look, i.lookAt = look, at
	return false
}

// takeSuspect returns the suspect that this worker is about to handle.
func (w *worker) takeSuspect() held {
	p := w.pump
	i := &p.isolation
	item := i.waiting[0]
	i.waiting = slices.Delete(i.waiting, 0, 1)
	i.isolated = w
	var limit *time.Timer
	limit = time.AfterFunc(isolationPatience, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if i.limit == limit { // not stopped
			w.endIsolated()
		}
	})
	i.limit = limit
	return item
}

// endIsolated is called after a suspect's attempt, or after the time for which it runs
// alone.
func (w *worker) endIsolated() {
	p := w.pump
	if p.isolation.isolated == w {
		p.isolation.isolated = nil
		stopTimer(&p.isolation.limit)
		p.fewerSuspects()
	}
}

// fewerSuspects continues with the next suspect, or with other messages.
func (p *pump) fewerSuspects() {
	i := &p.isolation
	switch {
	case p.stopping || i.isolated != nil:
	case len(i.waiting) > 0:
		p.wakeUp.Broadcast()
	case i.handling > 0: // for minutes, and the receiver may have to hold more than one
		i.stopTimers()
		p.endProbing()
	default:
		i.stopTimers()
		i.probing = true
		p.apply()
	}
}

// endProbing ends fetching one at a time: a message has come that is no suspect.
func (p *pump) endProbing() {
	i := &p.isolation
	i.probing = false
	if i.told {
		i.told = false
		i.onChange(false, nil)
	}
	p.apply()
}

// unwantedSuspects returns how many waiting suspects are to be given back. If that is not
// counted, one is kept at a time.
func (p *pump) unwantedSuspects() int {
	i := &p.isolation
	n := len(i.waiting)
	switch {
	case n == 0:
		return 0
	case p.counts:
		if p.stopping || p.hanging {
			return n
		}
		return 0
	case p.closed() || i.isolated != nil:
		return n
	}
	return n - 1
}

// takeSuspects removes the n suspects with the most deliveries.
func (p *pump) takeSuspects(n int) []held {
	i := &p.isolation
	at := len(i.waiting) - n
	items := slices.Clone(i.waiting[at:])
	clear(i.waiting[at:])
	i.waiting = i.waiting[:at]
	p.fewerSuspects()
	return items
}

func (i *isolation) stopTimers() {
	stopTimer(&i.limit)
	stopTimer(&i.look)
}

// isolationChanged reports suspects, once while there are some.
func (r *runner) isolationChanged(isolating bool, in *Incoming) {
	log := r.ep.log.recoverability
	if !isolating {
		r.hooks.notify(func() { log.Info("messages are attempted side by side again") })
		return
	}
	id, deliveries := in.ID, in.DeliveryCount
	r.hooks.notify(func() {
		log.Warn("a message was delivered several times without a known end and may have killed its process: such messages are attempted one at a time, with nothing beside them",
			"message_id", id, "deliveries", deliveries, "isolate_after", r.ep.isolation.after)
	})
}
