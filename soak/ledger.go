package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// failEvery is how many orders there are for each one that always fails.
const failEvery = 200

// alwaysFails reports whether every attempt of an order fails.
func alwaysFails(id int) bool { return id%failEvery == failEvery/2 }

// order is the ledger's entry about one order.
type order struct {
	accepted bool // the broker has confirmed it
	doubtful bool // an earlier send of it had an unknown result, so that it may be there twice
	began    int  // runs of the handler; counted for orders that always fail alone
	handled  [stages]int
	rows     [stages]int // in the database, or in its stead a queue; in SendsAtomicWithReceive alone
	moved    []movedCopy

	group int               // of which it is a message, where queues keep groups
	first [stages]time.Time // when a handler first came to its end
}

// isComplete reports whether all that an order leads to has been handled.
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
	fromOrders bool         // the header NServiceBus.FailedQ names the queue of orders
	rounds     []core.Round // the header Reprise.Attempts
}

// A ledger records the orders that were sent and the reports of the workers, and compares
// them when the run has ended. Its methods may be called concurrently.
type ledger struct {
	mu      sync.Mutex
	changed *sync.Cond // when an order is complete, or no more are sent
	orders  []order
	strange []fact // of orders that were never sent

	accepted   int
	incomplete int // orders that should complete, and have not
	completed  int // runs of handlers to their end, repeated ones included
	attempts   int // failed ones
	ready      int // starts of workers that succeeded
	refused    int // starts of workers that were refused
	deaths     []string
	ended      []string // errors of endpoints that ended while they ran
	disorderly []string // errors of workers that were asked to end
	leaks      []string
	left       map[string]int // messages in the queues at the end
	unread     int            // messages in the error queue that are no orders
	stalled    []string       // faults after which nothing was handled
	stopped    bool
	watches    map[*watch]bool
}

func newLedger() *ledger {
	l := &ledger{left: map[string]int{}, watches: map[*watch]bool{}}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// open returns the id of a new order of a group when fewer than window are incomplete, or
// false when stop was called.
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

// stop ends open.
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

// record records a fact that a worker reports.
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
		// The facts of two workers may come in another order than they happened.
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

// addDeath records a worker that ended by itself, without a word.
func (l *ledger) addDeath(text string) { l.add(&l.deaths, text) }

// addDisorderly records a worker that was asked to end, and did not do so in order.
func (l *ledger) addDisorderly(text string) { l.add(&l.disorderly, text) }

// addLeak records where a secret was found.
func (l *ledger) addLeak(text string) { l.add(&l.leaks, text) }

// addStalled records a fault after which nothing was handled.
func (l *ledger) addStalled(text string) { l.add(&l.stalled, text) }

func (l *ledger) add(to *[]string, text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	*to = append(*to, text)
}

// setLeft records how many messages the queues have at the end.
func (l *ledger) setLeft(depths map[string]int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = depths
}

// progress returns how many orders have yet to complete, and how often handlers ran to
// their end.
func (l *ledger) progress() (incomplete, completed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.incomplete, l.completed
}

// failing returns how many orders were accepted that always fail.
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

// A watch measures how work goes on during and after a fault.
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
	case w.first.IsZero() && !at.Add(-took).Before(w.end): // not one that had begun before
		w.first = at
		close(w.recovered)
	}
}

// faultEnded notes the end of the fault, and returns a channel that is closed when the
// first handler that began after it has run to its end, and how many orders are
// incomplete.
func (w *watch) faultEnded(now time.Time) (recovered <-chan struct{}, waiting int) {
	w.l.mu.Lock()
	defer w.l.mu.Unlock()
	w.end = now
	return w.recovered, w.l.incomplete
}

// stop ends the measurement and returns it. Without a completion after the fault,
// recovery is negative.
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

// orderPrefix begins the message id of each order.
const orderPrefix = "order-"

// orderID is the message id of an order.
func orderID(id int) string { return fmt.Sprintf("%s%d", orderPrefix, id) }
