package inmemory

import (
	"math"

	"github.com/reprise-go/reprise/core"
)

// This file has the waiting calls of a receiver's Receive, which the queue wakes. The
// queue's lock guards them.

// waiter is one waiting call of Receive. Each has its own signal, so that a particular
// call can be woken.
type waiter struct {
	signal     chan struct{} // holds one
	waiting    bool          // false once it was woken or gave up
	prev, next *waiter
}

// waiterList is in the order in which the calls began to wait.
type waiterList struct{ first, last *waiter }

// room is how many more deliveries the receiver may hold. In TransactionNone there is no
// limit, because it holds none.
func (r *receiver) room() int {
	if r.mode == core.TransactionNone {
		return math.MaxInt
	}
	return r.maxInFlight - r.unsettled.count
}

// wait adds a waiting call.
func (r *receiver) wait() *waiter {
	var w *waiter
	if last := len(r.idle) - 1; last >= 0 {
		w, r.idle = r.idle[last], r.idle[:last]
	} else {
		w = &waiter{signal: make(chan struct{}, 1)}
	}
	w.waiting, w.prev, w.next = true, r.waiters.last, nil
	if w.prev != nil {
		w.prev.next = w
	} else {
		r.waiters.first = w
	}
	r.waiters.last = w
	r.queue.waiting++
	return w
}

// stopWaiting removes a call.
func (r *receiver) stopWaiting(w *waiter) {
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		r.waiters.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		r.waiters.last = w.prev
	}
	w.waiting, w.prev, w.next = false, nil, nil
	r.queue.waiting--
}

// wake removes a call that is about to be signalled.
func (r *receiver) wake(w *waiter) {
	r.stopWaiting(w)
	r.woken++
	r.queue.woken++
}

// looking records that a woken call is looking for messages.
func (r *receiver) looking() {
	r.woken--
	r.queue.woken--
}
