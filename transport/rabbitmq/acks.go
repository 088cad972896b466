package rabbitmq

import (
	"slices"
	"sync"

	"github.com/reprise-go/reprise/transport"
)

// ackBatcher collects the acknowledgements of a consumerChannel that have been requested
// and not yet written, because one acknowledgement can cover all tags up to its own,
// provided that each of those has arrived and is settled.
//
// The receiver's mu guards every field except the channels.
type ackBatcher struct {
	oldest, newest    *tagEntry // of the unfinished tags, in order
	contiguous        uint64    // every tag up to this one has arrived
	outOfOrder        []uint64  // tags that arrived beyond a gap, in order: consumers are read concurrently
	pendingAcks       int       // acknowledgements not yet written
	requeues          []requeue // returns to the queue, not yet written
	requeuesPostponed bool      // requeues must not be written yet
	flushThreshold    int       // this many are written without delay
	batch             ackBatch  // reused, for its slices

	pending  transport.Signal // there is something to write
	flushNow transport.Signal // enough to write without waiting for more
	stopped  chan struct{}    // closed when nothing more will arrive
	stop     func()           // has everything written, then ends the writing
}

// tagEntry is an unfinished tag.
type tagEntry struct {
	tag        uint64
	consumer   *consumer
	state      tagState
	prev, next *tagEntry
}

// isWithheld reports whether the settlement of the tag must not be written yet.
func (e *tagEntry) isWithheld() bool { return e.consumer != nil && e.consumer.withheld }

// tagState is the state of a tag.
type tagState byte

const (
	tagUnsettled tagState = iota // not settled
	tagSettled                   // to be acknowledged
	tagSkipped                   // likewise, and skipped by one flush because a lower tag was unsettled
)

// requeue is a delivery returned to its queue. Its entry stays unsettled until the return
// is written: no acknowledgement may cover it.
type requeue struct {
	entry   *tagEntry
	counted bool
}

// ackBatch is the settlements to write, in this order.
type ackBatch struct {
	requeues []requeue
	upTo     uint64 // 0: nothing
	multiple bool   // upTo covers the tags below it as well
	single   []uint64
}

// mostFlushThreshold is the largest number of acknowledgements that wait for others.
const mostFlushThreshold = 50

func newAckBatcher() *ackBatcher {
	a := &ackBatcher{
		flushThreshold: 1,
		pending:        transport.NewSignal(),
		flushNow:       transport.NewSignal(),
		stopped:        make(chan struct{}),
	}
	a.stop = sync.OnceFunc(func() { close(a.stopped) })
	return a
}

// setMaxInFlight follows a change of MaxInFlight: the broker counts deliveries whose
// acknowledgement is not written, and sends that many fewer.
func (a *ackBatcher) setMaxInFlight(maxInFlight int) {
	a.flushThreshold = max(1, min(mostFlushThreshold, maxInFlight/4))
}

// add enters a tag. The broker numbers tags from 1 in the order of sending.
func (a *ackBatcher) add(e *tagEntry) {
	at := a.newest
	for at != nil && at.tag > e.tag {
		at = at.prev
	}
	a.insert(e, at)
	if e.tag != a.contiguous+1 {
		i, _ := slices.BinarySearch(a.outOfOrder, e.tag)
		a.outOfOrder = slices.Insert(a.outOfOrder, i, e.tag)
		return
	}
	a.contiguous++
	n := 0
	for n < len(a.outOfOrder) && a.outOfOrder[n] == a.contiguous+1 {
		a.contiguous++
		n++
	}
	if n > 0 {
		a.outOfOrder = slices.Delete(a.outOfOrder, 0, n)
	}
}

// postponeRequeues starts or stops postponing the returns. While consumers are about to be
// cancelled because of a lower MaxInFlight, the broker would redeliver the messages to
// them.
func (a *ackBatcher) postponeRequeues(postpone bool) {
	a.requeuesPostponed = postpone
	if !postpone && len(a.requeues) > 0 {
		a.pending.Notify()
		a.flushNow.Notify()
	}
}

// settle requests the settlement of a tag.
func (a *ackBatcher) settle(e *tagEntry, how settlement) {
	a.pending.Notify()
	if how == acknowledge {
		e.state = tagSettled
		a.pendingAcks++
	} else {
		a.requeues = append(a.requeues, requeue{e, how == abandon})
	}
	if a.pendingAcks+len(a.requeues) >= a.flushThreshold {
		a.flushNow.Notify()
	}
}

// take returns the settlements to write now: the returns, one acknowledgement for all tags
// settled without a gap, and one for each tag beyond a gap that already existed at the last
// flush. With all it returns everything.
//
// An acknowledgement never names a tag that was written before: the broker would close the
// channel.
func (a *ackBatcher) take(all bool) *ackBatch {
	b := &a.batch
	clear(b.requeues)
	b.requeues = b.requeues[:0]
	if !a.requeuesPostponed || all {
		b.requeues, a.requeues = a.requeues, b.requeues
		for _, r := range b.requeues {
			if r.entry.isWithheld() && !all {
				a.requeues = append(a.requeues, r)
			} else {
				a.remove(r.entry)
			}
		}
		b.requeues = slices.DeleteFunc(b.requeues, func(r requeue) bool { return r.entry.isWithheld() && !all })
	}
	b.upTo, b.multiple, b.single = 0, false, b.single[:0]
	e := a.oldest
	for e != nil && e.state != tagUnsettled && e.tag <= a.contiguous && (all || !e.isWithheld()) {
		b.multiple = b.upTo > 0
		b.upTo = e.tag
		a.pendingAcks--
		e = a.remove(e)
	}
	for e != nil && a.pendingAcks > 0 {
		switch {
		case e.isWithheld() && !all:
		case e.state == tagSkipped, all && e.state == tagSettled:
			b.single = append(b.single, e.tag)
			a.pendingAcks--
			e = a.remove(e)
			continue
		case e.state == tagSettled:
			e.state = tagSkipped
		}
		e = e.next
	}
	if a.pendingAcks > 0 {
		a.pending.Notify()
	}
	return b
}

// insert enters e after another entry, or as the first.
func (a *ackBatcher) insert(e, after *tagEntry) {
	e.prev = after
	if after != nil {
		e.next, after.next = after.next, e
	} else {
		e.next, a.oldest = a.oldest, e
	}
	if e.next != nil {
		e.next.prev = e
	} else {
		a.newest = e
	}
}

// remove takes an entry out and returns the next one.
func (a *ackBatcher) remove(e *tagEntry) (next *tagEntry) {
	next = e.next
	if e.prev != nil {
		e.prev.next = next
	} else {
		a.oldest = next
	}
	if next != nil {
		next.prev = e.prev
	} else {
		a.newest = e.prev
	}
	e.prev, e.next = nil, nil
	if e.consumer != nil {
		e.consumer.unwritten--
	}
	return next
}
