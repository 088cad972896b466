package sqs

import (
	"time"

	"github.com/reprise-go/reprise/transport"
)

// startPollersLocked starts the missing pollers.
func (r *receiver) startPollersLocked() {
	for !r.closed && r.started < r.neededLocked() {
		r.started++
		r.pollers.Go(r.poll)
	}
}

// poll runs a poller.
func (r *receiver) poll() {
	for {
		places, wait, retire := r.reserve()
		switch {
		case retire:
			return
		case places > 0:
			r.ask(places)
		default:
			_ = transport.Sleep(r.closing, r.closing, wait, r.room) // reserve detects that the receiver is closed
		}
	}
}

// ask makes one request for messages, and hands them on.
func (r *receiver) ask(places int) {
	began := time.Now()
	messages, err := r.request(r.cut, r.url, places)
	if err != nil {
		r.notAnswered(places, err, began)
		return
	}
	r.outages.End()
	p := r.prepare(messages)
	r.releaseAll(r.answered(places, len(messages), p))
	if len(p.expired) > 0 {
		r.settler.deleteAll(r.cut, p.expired)
	}
	if len(p.notDue) > 0 {
		malformed, err := r.delayAll(p.notDue)
		r.handOut(malformed)
		if err != nil && r.closing.Err() == nil {
			r.pause(r.outages.Failed(err, began))
		}
	}
}

// handOut makes messages available to Receive that were not to be handed out yet.
func (r *receiver) handOut(messages []*delivery) {
	if len(messages) == 0 {
		return
	}
	var ready, stored []*delivery
	for _, d := range messages {
		if d.in.BodyKey != "" {
			stored = append(stored, d)
		} else {
			ready = append(ready, d)
		}
	}
	r.mu.Lock()
	if r.asked += len(stored); len(stored) > 0 {
		r.pollers.Go(func() { r.fetchBodies(stored, len(stored)+1, false) })
	}
	surplus := r.arriveLocked(ready...)
	r.mu.Unlock()
	r.releaseAll(surplus)
}

// answered records the answer to a request for messages: brought is their number, and p
// has them by the next step. It returns those for which there is no longer a place.
func (r *receiver) answered(places, brought int, p prepared) (surplus []*delivery) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hasReceived = true
	r.asked -= places - len(p.stored)
	// While the store is down, the next request waits for the outcome of this one.
	probes := r.storeDown && len(p.stored) == brought && brought > 0
	if !probes {
		r.polling--
	}
	switch brought {
	case places:
		r.wanted = min(r.wanted+1, max(1, r.maxPollersLocked()))
		r.startPollersLocked()
	case 0:
		r.wanted = 1
	}
	if len(p.stored) > 0 {
		r.pollers.Go(func() { r.fetchBodies(p.stored, brought, probes) })
	}
	surplus = r.arriveLocked(p.ready...)
	r.wakePollersLocked()
	return surplus
}

// notAnswered records a failed request: the next one begins after a pause, or never if no
// retry can help. A refusal of credentials or rights that have sufficed before may pass, as
// during a rotation.
func (r *receiver) notAnswered(places int, err error, began time.Time) {
	r.mu.Lock()
	retry := transient(err) || r.hasReceived && faultOf(err) == faultRefused
	r.mu.Unlock()
	var pause time.Duration
	if retry && r.closing.Err() == nil {
		pause = r.outages.Failed(err, began)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.polling--
	r.asked -= places
	if !retry && !r.closed {
		r.permanent = err
		r.arrivals.Notify()
	}
	r.pauseLocked(pause)
}

// pause stops the requests of all pollers for a time. After that one poller begins.
func (r *receiver) pause(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pauseLocked(d)
}
