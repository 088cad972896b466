package rabbitmq

import (
	"slices"
	"sync"

	"github.com/reprise-go/reprise/transport"
)

// acks are the session's acknowledgements that have been requested and not yet written.
// They are collected because one acknowledgement can cover all tags up to its own, provided
// that each of those has arrived and is settled.
//
// The receiver's mu guards every field except the channels.
type acks struct {
	first, last *entry   // of the unfinished tags, in order
	complete    uint64   // every tag up to this one has arrived
	early       []uint64 // tags that arrived beyond a gap, in order: consumers are read concurrently
	waiting     int      // acknowledgements not yet written
	given       []given  // returns to the queue, not yet written
	heldBack    bool     // given must not be written yet
	atOnce      int      // this many are written without delay
	batch       batch    // reused, for its slices

	some    transport.Signal // there is something to write
	enough  transport.Signal // enough to write without waiting for more
	stopped chan struct{}    // closed when nothing more will arrive
	stop    func()           // has everything written, then ends the writing
}

// entry is an unfinished tag.
type entry struct {
	tag          uint64
	consumer     *consumer
	state        state
	before, next *entry
}

// isWithheld reports whether the settlement of the tag must not be written yet.
func (e *entry) isWithheld() bool { return e.consumer != nil && e.consumer.withheld }

// state is the state of a tag.
type state byte

const (
	open    state = iota // not settled
	settled              // to be acknowledged
	passed               // likewise, and skipped by one flush because a lower tag was open
)

// given is a delivery returned to its queue. Its entry stays open until the return is
// written: no acknowledgement may cover it.
type given struct {
	entry   *entry
	counted bool
}

// batch is the settlements to write, in this order.
type batch struct {
	given   []given
	upTo    uint64 // 0: nothing
	several bool   // upTo covers the tags below it as well
	singly  []uint64
}

// mostTogether is the largest number of acknowledgements that wait for others.
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

// flushAt follows a change of MaxInFlight: the broker counts deliveries whose
// acknowledgement is not written, and sends that many fewer.
func (a *acks) flushAt(maxInFlight int) { a.atOnce = max(1, min(mostTogether, maxInFlight/4)) }

// arrived enters a tag. The broker numbers tags from 1 in the order of sending.
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

// holdGiven begins or ends the holding back of returns. While consumers are about to be
// cancelled because of a lower MaxInFlight, the broker would redeliver the messages to them.
func (a *acks) holdGiven(yes bool) {
	a.heldBack = yes
	if !yes && len(a.given) > 0 {
		a.some.Notify()
		a.enough.Notify()
	}
}

// settle requests the settlement of a tag.
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

// take returns the settlements to write now: the returns, one acknowledgement for all tags
// settled without a gap, and one for each tag beyond a gap that already existed at the last
// flush. With all it returns everything.
//
// An acknowledgement never names a tag that was written before: the broker would close the
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

// insert enters e after another entry, or as the first.
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

// remove takes an entry out and returns the next one.
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
