package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core/headers"
)

// failEvery: one of failEvery orders always fails.
const failEvery = 200

// alwaysFails reports whether every attempt of an order fails.
func alwaysFails(id int) bool { return id%failEvery == failEvery/2 }

// order is the ledger's entry for one order.
type order struct {
	accepted bool // the broker has confirmed it
	doubtful bool // an earlier send had an unknown result, so that the order may be there twice
	began    int  // runs of the handler; counted only for orders that always fail
	handled  [stages]int
	rows     [stages]int // in the database, or in the queue that replaces it; only in SendsAtomicWithReceive
	moved    []movedCopy

	group int               // the message's group, if queues keep groups
	first [stages]time.Time // when a handler first ended
}

// isComplete reports whether the order and all messages sent because of it have been
// handled.
func (o *order) isComplete() bool {
	for _, n := range o.handled {
		if n == 0 {
			return false
		}
	}
	return true
}

// String describes the order.
func (o *order) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "accepted %t, perhaps sent twice %t, handled %v, rows %v, attempts begun %d", o.accepted, o.doubtful, o.handled, o.rows, o.began)
	for _, c := range o.moved {
		fmt.Fprintf(&b, ", moved (from its queue %t) after rounds of", c.fromOrders)
		for _, r := range c.rounds {
			fmt.Fprintf(&b, " %d", r.Attempts)
		}
	}
	return b.String()
}

// movedCopy is a message in the error queue.
type movedCopy struct {
	fromOrders bool            // the header NServiceBus.FailedQ names the queue of orders
	rounds     []headers.Round // the header Reprise.Attempts
}

// A ledger records the orders that were sent and the reports of the workers, and compares
// them when the run has ended. Its methods may be called concurrently.
type ledger struct {
	mu      sync.Mutex
	changed *sync.Cond // when an order is complete, or no more orders are sent
	orders  []order
	strange []fact // of orders that were never sent

	accepted   int
	incomplete int // orders that should complete and have not yet
	completed  int // handler runs that ended without an error, including repeated ones
	attempts   int // failed attempts
	ready      int // starts of workers that succeeded
	refused    int // starts of workers that were refused
	deaths     []string
	ended      []string // errors of endpoints that ended while they ran
	failedEnds []string // errors of workers that were asked to end
	leaks      []string
	left       map[string]int // messages in the queues at the end
	unread     int            // messages in the error queue that are not orders
	stalled    []string       // faults after which nothing was handled
	stopped    bool
	watches    map[*watch]bool
}

func newLedger() *ledger {
	l := &ledger{left: map[string]int{}, watches: map[*watch]bool{}}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// open returns the id of a new order of a group when fewer than window orders are
// incomplete, or false when stop was called.
func (l *ledger) open(window, group int) (id int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.incomplete >= window && !l.stopped {
		l.changed.Wait()
	}
	if l.stopped {
		return 0, false
	}
	id = len(l.orders)
	l.orders = append(l.orders, order{group: group})
	if !alwaysFails(id) {
		l.incomplete++
	}
	return id, true
}

// stop makes open return false.
func (l *ledger) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	l.changed.Broadcast()
}

// accept records that the broker has confirmed an order, and whether an earlier send of it
// had an unknown result.
func (l *ledger) accept(id int, doubtful bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	o := &l.orders[id]
	o.accepted, o.doubtful = true, doubtful
	l.accepted++
}

// record records a fact reported by a worker.
func (l *ledger) record(f fact) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch f.kind {
	case factReady:
		l.ready++
		return
	case factRefused:
		l.refused++
		return
	case factEnded:
		l.ended = append(l.ended, f.text)
		return
	}
	if f.id >= len(l.orders) {
		l.strange = append(l.strange, f)
		return
	}
	o := &l.orders[f.id]
	switch f.kind {
	case factBegan:
		o.began++
	case factFailed:
		l.attempts++
	case factHandled:
		before := o.isComplete()
		o.handled[f.stage]++
		// The facts of two workers may arrive in a different order than they happened.
		if first := &o.first[f.stage]; first.IsZero() || f.at.Before(*first) {
			*first = f.at
		}
		l.completed++
		if !before && o.isComplete() && !alwaysFails(f.id) {
			l.incomplete--
			l.changed.Broadcast()
		}
		for w := range l.watches {
			w.handledLocked(f.at, f.took)
		}
	}
}

// addRow records a row of a stage for an order.
func (l *ledger) addRow(s stage, id int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id < 0 || id >= len(l.orders) {
		l.strange = append(l.strange, fact{kind: factHandled, stage: s, id: id, text: "a row"})
		return
	}
	l.orders[id].rows[s]++
}

// addMoved records a message in the error queue.
func (l *ledger) addMoved(id int, c movedCopy) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if id < 0 || id >= len(l.orders) {
		l.unread++
		return
	}
	l.orders[id].moved = append(l.orders[id].moved, c)
}

// addDeath records a worker that ended by itself without a report.
func (l *ledger) addDeath(text string) { l.add(&l.deaths, text) }

// addFailedEnd records a worker that did not shut down properly when asked to.
func (l *ledger) addFailedEnd(text string) { l.add(&l.failedEnds, text) }

// addLeak records the place where a secret was found.
func (l *ledger) addLeak(text string) { l.add(&l.leaks, text) }

// addStalled records a fault after which nothing was handled.
func (l *ledger) addStalled(text string) { l.add(&l.stalled, text) }

func (l *ledger) add(to *[]string, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*to = append(*to, text)
}

// setLeft records the number of messages in the queues at the end.
func (l *ledger) setLeft(depths map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = depths
}

// progress returns the number of orders that have yet to complete, and the number of
// handler runs that ended without an error.
func (l *ledger) progress() (incomplete, completed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.incomplete, l.completed
}

// failing returns the number of accepted orders that always fail.
func (l *ledger) failing() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.orders {
		if alwaysFails(id) && l.orders[id].accepted {
			n++
		}
	}
	return n
}

// A watch measures progress during and after a fault.
type watch struct {
	l *ledger

	// Guarded by l.mu.
	began     time.Time
	last      time.Time // completion, or began
	pause     time.Duration
	during    int       // completions before the end of the fault
	end       time.Time // of the fault; zero before
	recovered chan struct{}
	first     time.Time // completion of a handler that began after end
}

// watch begins to measure.
func (l *ledger) watch(now time.Time) *watch {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := &watch{l: l, began: now, last: now, recovered: make(chan struct{})}
	l.watches[w] = true
	return w
}

func (w *watch) handledLocked(at time.Time, took time.Duration) {
	if at.After(w.last) {
		w.pause = max(w.pause, at.Sub(w.last))
		w.last = at
	}
	switch {
	case w.end.IsZero():
		if at.After(w.began) {
			w.during++
		}
	case w.first.IsZero() && !at.Add(-took).Before(w.end): // not a handler that had begun before
		w.first = at
		close(w.recovered)
	}
}

// faultEnded records the end of the fault. It returns the number of incomplete orders, and
// a channel that is closed when the first handler that began after it has ended.
func (w *watch) faultEnded(now time.Time) (recovered <-chan struct{}, waiting int) {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	w.end = now
	return w.recovered, w.l.incomplete
}

// stop ends the measurement and returns its results. If no handler has completed after the
// fault, recovery is negative.
func (w *watch) stop() (during int, recovery, pause time.Duration) {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	delete(w.l.watches, w)
	recovery = -1
	if !w.first.IsZero() {
		recovery = w.first.Sub(w.end)
	}
	return w.during, recovery, w.pause
}

// orderPrefix is the prefix of each order's message id.
const orderPrefix = "order-"

// orderID returns the message id of an order.
func orderID(id int) string { return fmt.Sprintf("%s%d", orderPrefix, id) }
