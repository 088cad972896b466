// Package acks collects the acknowledgements of one channel, so that few are written.
package acks

import (
	"slices"
	"sync"

	"github.com/reprise-go/reprise/transport"
)

// Batcher collects the acknowledgements of a channel that have been requested and not yet
// written, because one acknowledgement can cover all tags up to its own, provided that each
// of those has arrived and is settled.
//
// It has no lock: one lock of the caller guards the Batcher, its entries and its consumers,
// except for the exported fields and [Batcher.Stop].
type Batcher struct {
	oldest, newest    *Entry    // of the unfinished tags, in order
	contiguous        uint64    // every tag up to this one has arrived
	outOfOrder        []uint64  // tags that arrived beyond a gap, in order: consumers are read concurrently
	pendingAcks       int       // acknowledgements not yet written
	requeues          []Requeue // returns to the queue, not yet written
	requeuesPostponed bool      // requeues must not be written yet
	flushThreshold    int       // this many are written without delay
	batch             Batch     // reused, for its slices

	Pending  transport.Signal // there is something to write
	FlushNow transport.Signal // enough to write without waiting for more
	Stopped  chan struct{}    // closed by Stop: nothing more will arrive

	stopOnce sync.Once
}

// Entry is a tag whose settlement has not been taken to be written.
type Entry struct {
	Tag        uint64
	Consumer   *Consumer // nil: none
	state      state
	prev, next *Entry
}

// isWithheld reports whether the settlement of the tag must not be written yet.
func (e *Entry) isWithheld() bool { return e.Consumer != nil && e.Consumer.Withheld }

// state is the state of a tag.
type state byte

const (
	unsettled state = iota // not settled
	settled                // to be acknowledged
	skipped                // likewise, and skipped by one flush because a lower tag was unsettled
)

// Consumer is a consumer of the channel as far as its acknowledgements are concerned.
type Consumer struct {
	Unwritten int  // number of its entries: deliveries that are unsettled as far as the broker knows
	Withheld  bool // its settlements must not be written now
}

// Settlement is how a delivery is settled at the broker.
type Settlement int

const (
	Acknowledge Settlement = iota // the broker deletes the message
	Abandon                       // it failed: basic.reject, which every broker counts
	Release                       // basic.nack, which brokers from 4.3 on do not count
)

// Requeue is a delivery returned to its queue. Its entry stays unsettled until the return
// is written: no acknowledgement may cover it.
type Requeue struct {
	Entry   *Entry
	Counted bool // basic.reject, else basic.nack
}

// Batch is the settlements to write, in this order.
type Batch struct {
	Requeues []Requeue
	UpTo     uint64 // acknowledge this tag; 0: none
	Multiple bool   // and the tags below it
	Single   []uint64
}

// maxFlushThreshold is the largest number of acknowledgements that wait for others.
const maxFlushThreshold = 50

// New returns a Batcher that lets no acknowledgement wait, until [Batcher.SetMaxInFlight].
func New() *Batcher {
	return &Batcher{
		flushThreshold: 1,
		Pending:        transport.NewSignal(),
		FlushNow:       transport.NewSignal(),
		Stopped:        make(chan struct{}),
	}
}

// Stop has everything written, and then ends the writing.
func (a *Batcher) Stop() { a.stopOnce.Do(func() { close(a.Stopped) }) }

// SetMaxInFlight follows a change of MaxInFlight: the broker counts deliveries whose
// acknowledgement is not written, and sends that many fewer.
func (a *Batcher) SetMaxInFlight(maxInFlight int) {
	a.flushThreshold = max(1, min(maxFlushThreshold, maxInFlight/4))
}

// Add enters a tag. The broker numbers tags from 1 in the order of sending.
func (a *Batcher) Add(e *Entry) {
	at := a.newest
	for at != nil && at.Tag > e.Tag {
		at = at.prev
	}
	a.insert(e, at)
	if e.Consumer != nil {
		e.Consumer.Unwritten++
	}
	if e.Tag != a.contiguous+1 {
		i, _ := slices.BinarySearch(a.outOfOrder, e.Tag)
		a.outOfOrder = slices.Insert(a.outOfOrder, i, e.Tag)
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

// PostponeRequeues starts or stops postponing the returns. While consumers are about to be
// cancelled because of a lower MaxInFlight, the broker would redeliver the messages to
// them.
func (a *Batcher) PostponeRequeues(postpone bool) {
	a.requeuesPostponed = postpone
	if !postpone && len(a.requeues) > 0 {
		a.Pending.Notify()
		a.FlushNow.Notify()
	}
}

// Settle requests the settlement of a tag.
func (a *Batcher) Settle(e *Entry, how Settlement) {
	a.Pending.Notify()
	if how == Acknowledge {
		e.state = settled
		a.pendingAcks++
	} else {
		a.requeues = append(a.requeues, Requeue{e, how == Abandon})
	}
	if a.pendingAcks+len(a.requeues) >= a.flushThreshold {
		a.FlushNow.Notify()
	}
}

// Take returns the settlements to write now, until the next call: the returns, one
// acknowledgement for all tags settled without a gap, and one for each tag beyond a gap
// that already existed at the last flush. With all it returns everything.
//
// An acknowledgement never names a tag that was written before: the broker would close the
// channel.
func (a *Batcher) Take(all bool) *Batch {
	b := &a.batch
	clear(b.Requeues)
	b.Requeues = b.Requeues[:0]
	if !a.requeuesPostponed || all {
		b.Requeues, a.requeues = a.requeues, b.Requeues
		for _, r := range b.Requeues {
			if r.Entry.isWithheld() && !all {
				a.requeues = append(a.requeues, r)
			} else {
				a.remove(r.Entry)
			}
		}
		b.Requeues = slices.DeleteFunc(b.Requeues, func(r Requeue) bool { return r.Entry.isWithheld() && !all })
	}
	b.UpTo, b.Multiple, b.Single = 0, false, b.Single[:0]
	e := a.oldest
	for e != nil && e.state != unsettled && e.Tag <= a.contiguous && (all || !e.isWithheld()) {
		b.Multiple = b.UpTo > 0
		b.UpTo = e.Tag
		a.pendingAcks--
		e = a.remove(e)
	}
	for e != nil && a.pendingAcks > 0 {
		switch {
		case e.isWithheld() && !all:
		case e.state == skipped, all && e.state == settled:
			b.Single = append(b.Single, e.Tag)
			a.pendingAcks--
			e = a.remove(e)
			continue
		case e.state == settled:
			e.state = skipped
		}
		e = e.next
	}
	if a.pendingAcks > 0 {
		a.Pending.Notify()
	}
	return b
}

// insert enters e after another entry, or as the first.
func (a *Batcher) insert(e, after *Entry) {
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
func (a *Batcher) remove(e *Entry) (next *Entry) {
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
	if e.Consumer != nil {
		e.Consumer.Unwritten--
	}
	return next
}
