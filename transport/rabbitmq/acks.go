package rabbitmq

import (
	"slices"
	"sync"

	"github.com/reprise-go/reprise/transport"
)

// acks are the acknowledgements of a session that have been ordered and not written yet.
// They are collected: one can stand for all tags up to it, if each of those has arrived
// and is settled.
//
// The receiver's mu guards them, but for the channels.
type acks struct {
	first, last *entry   // of the tags that are not over, in order
	complete    uint64   // every tag up to this one has arrived
	early       []uint64 // tags that arrived beyond a gap, in order: consumers are read beside each other
	waiting     int      // acknowledgements that are not written
	given       []given  // back to the queue, and not written
	heldBack    bool     // given is not written yet
	atOnce      int      // so many are not kept waiting
	batch       batch    // whose slices are used again

	some    transport.Signal // there is something to write
	enough  transport.Signal // and it need not wait for more
	stopped chan struct{}    // nothing more will come
	stop    func()           // lets everything be written, and then no more
}

// entry is a tag that is not over.
type entry struct {
	tag          uint64
	consumer     *consumer
	state        state
	before, next *entry
}

// isWithheld reports whether what became of the tag is not to be written yet.
func (e *entry) isWithheld() bool { return e.consumer != nil && e.consumer.withheld }

// state is what has become of a tag.
type state byte

const (
	open    state = iota // not settled
	settled              // to be acknowledged
	passed               // likewise, and left behind by one flush: a tag below it was open
)

// given is a delivery that goes back to its queue. Its entry is open until it is written:
// no acknowledgement may stand for it.
type given struct {
	entry   *entry
	counted bool
}

// batch is what is to be written, in this order.
type batch struct {
	given   []given
	upTo    uint64 // 0: nothing
	several bool   // it stands for those below as well
	singly  []uint64
}

// mostTogether is how many acknowledgements are kept waiting at most.
const mostTogether = 50

func newAcks() *acks {
	a := &acks{
		atOnce:  1,
		some:    transport.NewSignal(),
		enough:  transport.NewSignal(),
		stopped: make(chan struct{}),
	}
	a.stop = sync.OnceFunc(func() { close(a.stopped) })
	return a
}

// flushAt follows a change of how many deliveries may be held: the broker counts those
// whose acknowledgement waits, and sends that many fewer.
func (a *acks) flushAt(maxInFlight int) { a.atOnce = max(1, min(mostTogether, maxInFlight/4)) }

// arrived enters a tag. Tags are numbered from 1 on in the order in which they were sent.
func (a *acks) arrived(e *entry) {
	at := a.last
	for at != nil && at.tag > e.tag {
		at = at.before
	}
	a.insert(e, at)
	if e.tag != a.complete+1 {
		i, _ := slices.BinarySearch(a.early, e.tag)
		a.early = slices.Insert(a.early, i, e.tag)
		return
	}
	a.complete++
	n := 0
	for n < len(a.early) && a.early[n] == a.complete+1 {
		a.complete++
		n++
	}
	if n > 0 {
		a.early = slices.Delete(a.early, 0, n)
	}
}

// holdGiven begins or ends to hold back what is given back. While consumers are about to
// end, because less may be held, the broker would only send it to them again.
func (a *acks) holdGiven(yes bool) {
	a.heldBack = yes
	if !yes && len(a.given) > 0 {
		a.some.Notify()
		a.enough.Notify()
	}
}

// settle orders what is to be written for a tag.
func (a *acks) settle(e *entry, how settlement) {
	a.some.Notify()
	if how == acknowledge {
		e.state = settled
		a.waiting++
	} else {
		a.given = append(a.given, given{e, how == abandon})
	}
	if a.waiting+len(a.given) >= a.atOnce {
		a.enough.Notify()
	}
}

// take returns what to write now: what was given back, one acknowledgement for all that
// is settled without a gap, and one each for what is behind a gap that was there at the
// last flush too, or for everything.
//
// An acknowledgement never names a tag that was written before, which would close the
// channel.
func (a *acks) take(all bool) *batch {
	b := &a.batch
	clear(b.given)
	b.given = b.given[:0]
	if !a.heldBack || all {
		b.given, a.given = a.given, b.given
		for _, g := range b.given {
			if g.entry.isWithheld() && !all {
				a.given = append(a.given, g)
			} else {
				a.remove(g.entry)
			}
		}
		b.given = slices.DeleteFunc(b.given, func(g given) bool { return g.entry.isWithheld() && !all })
	}
	b.upTo, b.several, b.singly = 0, false, b.singly[:0]
	e := a.first
	for e != nil && e.state != open && e.tag <= a.complete && (all || !e.isWithheld()) {
		b.several = b.upTo > 0
		b.upTo = e.tag
		a.waiting--
		e = a.remove(e)
	}
	for e != nil && a.waiting > 0 {
		switch {
		case e.isWithheld() && !all:
		case e.state == passed, all && e.state == settled:
			b.singly = append(b.singly, e.tag)
			a.waiting--
			e = a.remove(e)
			continue
		case e.state == settled:
			e.state = passed
		}
		e = e.next
	}
	if a.waiting > 0 {
		a.some.Notify()
	}
	return b
}

// insert enters an entry after another one, or as the first.
func (a *acks) insert(e, after *entry) {
	e.before = after
	if after != nil {
		e.next, after.next = after.next, e
	} else {
		e.next, a.first = a.first, e
	}
	if e.next != nil {
		e.next.before = e
	} else {
		a.last = e
	}
}

// remove takes an entry out, and returns the next one.
func (a *acks) remove(e *entry) (next *entry) {
	next = e.next
	if e.before != nil {
		e.before.next = next
	} else {
		a.first = next
	}
	if next != nil {
		next.before = e.before
	} else {
		a.last = e.before
	}
	e.before, e.next = nil, nil
	if e.consumer != nil {
		e.consumer.unwritten--
	}
	return next
}
