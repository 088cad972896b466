package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// This file is the pump's judgement of what to fetch and what to hold, and the
// buffer between the two. All but receive is called with the pump's mu held.

// A fetch and a settlement cost about the same for one message and for a hundred.
// So fast handlers have many held ahead, whatever the number of slots: what they
// get through in quickWindow. With slow handlers little or nothing is held ahead:
// other instances could have it.
const (
	// aheadWindow is how long an unstarted delivery may be expected to wait.
	aheadWindow = 500 * time.Millisecond
	// quickWindow is how long it may be where more are held than there are slots.
	quickWindow = 20 * time.Millisecond
	// manyAhead is the most that are held ahead of fewer slots than that, and
	// manyAheadCounted where the broker counts a return as an attempt: what waits for
	// handlers that turn slow stays where it is.
	manyAhead        = 1024
	manyAheadCounted = 256
	// stallWindow is how long all slots may hang before unstarted deliveries are
	// given back to other instances.
	stallWindow = time.Second
	// hangWindow is for how long nothing may be started before they are given back where
	// the broker counts that as an attempt: longer than handlers wait for a service that
	// is away.
	hangWindow = 2 * time.Minute
)

// extraFetchWait is how long a Receive beside another one may wait: an idle queue
// is watched by one.
const extraFetchWait = time.Second

// landing is where a Receive puts what it brings.
type landing struct {
	arrivals []Delivery
	arrived  []held
	suspects []held
}

// landing returns one that is not in use. There are few, however many workers
// there are: most of the time one of them fetches.
func (p *pump) landing() *landing {
	last := len(p.landings) - 1
	if last < 0 {
		return &landing{}
	}
	l := p.landings[last]
	p.landings = p.landings[:last]
	return l
}

// receive fetches into the buffer.
func (w *worker) receive(want int) {
	p := w.pump
	l := p.landing()
	ctx := p.fetch
	if p.fetching > 0 && !p.perWorker {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, extraFetchWait)
		defer cancel()
	}
	p.fetching++
	p.asked += want
	p.mu.Unlock()
	if len(l.arrivals) < want {
		l.arrivals = make([]Delivery, want)
	}
	dst := l.arrivals[:want]
	n, err := p.receiver.Receive(ctx, dst)
	if n < 0 || n > want {
		err = fmt.Errorf("the adapter's Receive returned %d deliveries for %d places (C3)", n, want)
		n = 0
	}
	l.arrived, l.suspects = l.arrived[:0], l.suspects[:0]
	for i, d := range dst[:n] {
		if d == nil {
			err = fmt.Errorf("the adapter's Receive returned %d deliveries, of which number %d is nil (C3)", n, i+1)
			continue
		}
		if item := (held{p.adjust(d), p.watch(d)}); p.isSuspect(item.delivery) {
			l.suspects = append(l.suspects, item)
		} else {
			l.arrived = append(l.arrived, item)
		}
		dst[i] = nil
	}
	p.mu.Lock()
	p.fetching--
	p.asked -= want
	p.full = n == want
	p.push(l.arrived...)
	p.isolate(len(l.arrived), l.suspects)
	p.watchStall()
	clear(l.arrived)
	clear(l.suspects)
	p.landings = append(p.landings, l)
	p.checkReceive(ctx, n, err)
}

// checkReceive tells an interrupted Receive from one that failed for good.
func (p *pump) checkReceive(ctx context.Context, n int, err error) {
	if err == nil && n == 0 {
		err = errors.New("the adapter's Receive returned neither a delivery nor an error (C3)")
	}
	switch {
	case err == nil || p.stopping || p.failed:
		return
	case p.base.Err() != nil:
		p.end() // as stop is about to do: until then each Receive would return at once
		return
	case ctx.Err() != nil:
		return
	}
	p.failed = true
	p.gated++
	p.apply()
	p.onError(err)
}

// want is how many deliveries a worker is to fetch now.
func (p *pump) want() int {
	room := p.limit - p.running - p.buffered() - p.asked
	switch {
	case p.closed() && !p.finishesPrefetched():
		return 0
	case p.perWorker:
		return max(min(room, 1), 0)
	case p.isolating():
		if p.fetching > 0 || !p.drains() {
			return 0
		}
		return p.limit
	case p.isolation.probing:
		return max(min(room, 1-p.running-p.buffered()-p.asked), 0)
	}
	if !p.slowed && !p.prefetched.full() {
		room += p.mayBeAhead
	}
	switch {
	case p.fetching > 0 && (p.maxBatch == 0 || !p.full || room < p.maxBatch):
		return 0 // one at a time, unless small batches cannot keep up
	case p.buffered() > 0 && room < p.worthFetching():
		return 0 // a larger batch is soon due
	case p.maxBatch > 0:
		room = min(room, p.maxBatch)
	}
	return max(room, 0)
}

// worthFetching is how many deliveries there is room for before the buffer is
// filled up: half of the slots or of what may be held ahead of them.
func (p *pump) worthFetching() int {
	most := p.limit
	if !p.slowed {
		most = max(most, p.mayBeAhead)
	}
	return (most + 1) / 2
}

// measure learns how long deliveries take in their slots.
func (p *pump) measure(took time.Duration) {
	if p.measured == 0 {
		p.average = took
	}
	p.average += (took - p.average) / 8
	p.measured = min(p.measured+1, p.mostAhead())
	if room := p.aheadRoom(p.limit); p.worthTelling(room) {
		p.mayBeAhead = room
		p.apply()
	}
}

// worthTelling reports whether the receiver is told what may be held now: of large
// changes alone, of the most, and of the end of holding more than there are slots.
func (p *pump) worthTelling(room int) bool {
	switch {
	case room == p.mayBeAhead:
		return false
	case room > p.mayBeAhead:
		return room >= 2*p.mayBeAhead || room == p.mostAhead()
	default:
		return 2*room <= p.mayBeAhead || room <= p.limit && p.mayBeAhead > p.limit
	}
}

// aheadRoom is how many deliveries to hold beyond so many free slots: as many as
// there are slots, more where handlers are fast, fewer where they are slow, none
// while that is unknown or where one message at a time is attempted. One fast
// handler proves nothing of the next: there are no more beyond the slots' number
// than were measured.
func (p *pump) aheadRoom(limit int) int {
	switch {
	case !p.ahead || p.measured == 0 || p.slowed || p.stalled:
		return 0
	case p.average > aheadWindow:
		return min(p.done(limit, aheadWindow), p.prefetched.room())
	}
	return min(max(limit, min(p.done(limit, quickWindow), p.mostAhead(), p.measured)), p.prefetched.room())
}

// mostAhead is the most deliveries to hold beyond fewer slots than that.
func (p *pump) mostAhead() int {
	if p.counts {
		return manyAheadCounted
	}
	return manyAhead
}

// done is how many deliveries so many slots get through in a time.
func (p *pump) done(limit int, window time.Duration) int {
	return int(min(time.Duration(limit)*window/max(p.average, 1), math.MaxInt32))
}

// excess is how many unstarted deliveries are too many.
func (p *pump) excess() int {
	switch {
	case p.consumed:
		return 0
	case p.counts:
		if p.stopping || p.hanging {
			return p.buffered()
		}
		return 0
	case p.closed():
		return p.buffered()
	}
	allowed := max(p.limit-p.running, 0)
	if !p.slowed {
		allowed += max(p.mayBeAhead, p.mayStay())
	}
	return p.buffered() - allowed
}

// mayStay is how many deliveries that are held already may wait for handlers that
// were fast before: they are not given back because one took longer.
func (p *pump) mayStay() int {
	if !p.ahead || p.measured == 0 || p.stalled {
		return 0
	}
	return min(p.done(p.limit, aheadWindow), p.mostAhead())
}

// watchStall begins to look for slots that all hang, where deliveries are held ahead
// of them: how long handlers take is learnt when they end, and these may never do.
//
// Where the broker counts, the receiver may have prefetched deliveries that the pump does
// not know of, and they are kept while nothing is to be started.
func (p *pump) watchStall() {
	if !p.ahead || p.stallTimer != nil || p.stopping || p.buffered() == 0 && !p.mayHavePrefetched() {
		return
	}
	ended := p.ended
	p.stallTimer = time.AfterFunc(stallWindow, func() { p.checkStall(ended) })
}

// mayHavePrefetched reports whether the receiver may keep deliveries that wait for a slot,
// or for the end of what keeps anything from being started.
func (p *pump) mayHavePrefetched() bool {
	return p.counts && (p.running > 0 || p.gated > 0 || p.waiting != nil)
}

// checkStall ends the prefetching where no slot was released since the last look.
func (p *pump) checkStall(ended int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stallTimer == nil { // stopped
		return
	}
	p.stallTimer = nil
	starts := p.running < p.limit && (!p.closed() || p.finishesPrefetched())
	if p.ended != ended || starts || p.buffered() == 0 && !p.counts {
		p.stalls = 0
		p.watchStall()
		return
	}
	p.stalls++
	p.stalled = true
	p.apply()
	if p.counts && time.Duration(p.stalls)*stallWindow >= hangWindow {
		p.hang()
	}
	p.watchStall()
}

// hang gives back what was prefetched although the broker counts that as an attempt: for
// too long nothing is started, and other instances could have it.
func (p *pump) hang() {
	if !p.counts || p.hanging {
		return
	}
	p.hanging = true
	p.apply() // the receiver fetches nothing more
	p.returnPrefetched()
}

// endStall is called when a slot is released, or a wait has ended.
func (p *pump) endStall() {
	p.stalled, p.stalls = false, 0
	if p.hanging && !p.stopping && !p.parked && p.gated == 0 && p.waiting == nil {
		p.hanging = false
		p.endReturning()
		p.apply()
	}
}

// returning is the return of deliveries that the receiver has prefetched.
type returning struct {
	stop context.CancelFunc
	done chan struct{}
}

// returnPrefetched begins to take from the receiver what it has prefetched, and gives it
// back. Where the broker does not count, the receiver does so by itself when it may hold
// nothing.
func (p *pump) returnPrefetched() {
	if !p.counts || !p.ahead || p.returning != nil {
		return
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(p.base))
	r := &returning{stop, make(chan struct{})}
	p.returning = r
	go func() {
		defer close(r.done)
		arrivals := make([]Delivery, manyAheadCounted)
		for {
			n, err := p.receiver.Receive(ctx, arrivals)
			for _, d := range arrivals[:min(max(n, 0), len(arrivals))] {
				if d != nil {
					p.giveBack(held{d, p.watch(d)})
				}
			}
			if err != nil || n <= 0 {
				return
			}
		}
	}()
}

// endReturning lets it end.
func (p *pump) endReturning() {
	if p.returning != nil {
		p.returning.stop()
		p.returning = nil
	}
}

// wait returns when all workers have ended, and nothing is given back any more.
func (p *pump) wait() {
	p.wg.Wait()
	p.mu.Lock()
	r := p.returning
	p.endReturning()
	p.mu.Unlock()
	if r != nil {
		<-r.done
	}
}

func (p *pump) buffered() int { return len(p.buffer) - p.head }

// push reuses the room of what was taken, so that the buffer stays as small as
// what it holds.
func (p *pump) push(items ...held) {
	if p.head > 0 && len(p.buffer)+len(items) > cap(p.buffer) {
		n := copy(p.buffer, p.buffer[p.head:])
		clear(p.buffer[n:])
		p.buffer, p.head = p.buffer[:n], 0
	}
	p.buffer = append(p.buffer, items...)
	p.prefetched.add(items)
}

func (p *pump) take() held {
	item := p.buffer[p.head]
	p.buffer[p.head] = held{}
	p.prefetched.remove(item)
	p.head++
	if p.head == len(p.buffer) {
		p.buffer, p.head = p.buffer[:0], 0
	}
	return item
}

// takeLast removes the n deliveries that were fetched last.
func (p *pump) takeLast(n int) []held {
	at := len(p.buffer) - n
	items := append([]held(nil), p.buffer[at:]...)
	p.prefetched.remove(items...)
	clear(p.buffer[at:])
	p.buffer = p.buffer[:at]
	if p.head == len(p.buffer) {
		p.buffer, p.head = p.buffer[:0], 0
	}
	return items
}
