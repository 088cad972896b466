package core

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// This file decides how many deliveries the pump fetches and prefetches, and has the
// buffer of prefetched deliveries. All functions but receive are called with the pump's
// mu held.

// A fetch and a settlement cost about the same for one message and for a hundred. So the
// pump prefetches many for fast handlers, regardless of the number of slots: as many as
// they handle in quickWindow. For slow handlers it prefetches few or none: other
// instances could handle them.
const (
	// aheadWindow is the longest expected wait of an unstarted delivery.
	aheadWindow = 500 * time.Millisecond
	// quickWindow is the same limit if more deliveries are prefetched than there are slots.
	quickWindow = 20 * time.Millisecond
	// manyAhead is the most deliveries that are prefetched if there are fewer slots than
	// that, and manyAheadCounted the most if the broker counts a return as an attempt: those
	// cannot be given back if handlers become slow.
	manyAhead        = 1024
	manyAheadCounted = 256
	// stallWindow is the time for which all slots may hang before unstarted deliveries are
	// given back to other instances.
	stallWindow = time.Second
	// hangWindow is the time without a start after which unstarted deliveries are given back
	// if the broker counts that as an attempt: longer than handlers wait for a service that
	// is unavailable.
	hangWindow = 2 * time.Minute
)

// extraFetchWait limits the wait of a Receive beside another one: one Receive is enough
// for an idle queue.
const extraFetchWait = time.Second

// landing is the buffer that a Receive fills.
type landing struct {
	arrivals []Delivery
	arrived  []held
	suspects []held
}

// landing returns an unused one. There are few, regardless of the number of workers: most
// of the time one of them fetches.
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

// checkReceive distinguishes an interrupted Receive from one with a permanent error.
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

// want returns how many deliveries a worker is to fetch now.
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

// worthFetching returns the room that must be free before the buffer is filled up: half
// of the slots or of the deliveries that may be prefetched.
func (p *pump) worthFetching() int {
	most := p.limit
	if !p.slowed {
		most = max(most, p.mayBeAhead)
	}
	return (most + 1) / 2
}

// measure updates the average time of deliveries in their slots.
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

// worthTelling reports whether the receiver is told its new limit: only after large
// changes, at the maximum, and when no more deliveries than slots may be prefetched any
// longer.
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

// aheadRoom returns how many deliveries to prefetch beyond the free slots of a limit: as
// many as there are slots, more if handlers are fast, fewer if they are slow, none while
// that is unknown or if one message at a time is attempted. One fast handler says nothing
// about the next: beyond the number of slots, no more are prefetched than were measured.
func (p *pump) aheadRoom(limit int) int {
	switch {
	case !p.ahead || p.measured == 0 || p.slowed || p.stalled:
		return 0
	case p.average > aheadWindow:
		return min(p.done(limit, aheadWindow), p.prefetched.room())
	}
	return min(max(limit, min(p.done(limit, quickWindow), p.mostAhead(), p.measured)), p.prefetched.room())
}

// mostAhead returns the most deliveries to prefetch beyond a smaller number of slots.
func (p *pump) mostAhead() int {
	if p.counts {
		return manyAheadCounted
	}
	return manyAhead
}

// done returns how many deliveries limit slots handle in a window.
func (p *pump) done(limit int, window time.Duration) int {
	return int(min(time.Duration(limit)*window/max(p.average, 1), math.MaxInt32))
}

// excess returns the number of unstarted deliveries above the limit.
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

// mayStay returns how many prefetched deliveries may go on waiting for handlers that were
// fast before: they are not given back because one handler took longer.
func (p *pump) mayStay() int {
	if !p.ahead || p.measured == 0 || p.stalled {
		return 0
	}
	return min(p.done(p.limit, aheadWindow), p.mostAhead())
}

// watchStall starts to check whether all slots hang while deliveries are prefetched: the
// duration of a handler is measured when it ends, and hanging handlers may never end.
//
// If the broker counts releases, the receiver may have prefetched deliveries that the
// pump does not know of, and keeps them while nothing is to be started.
func (p *pump) watchStall() {
	if !p.ahead || p.stallTimer != nil || p.stopping || p.buffered() == 0 && !p.mayHavePrefetched() {
		return
	}
	ended := p.ended
	p.stallTimer = time.AfterFunc(stallWindow, func() { p.checkStall(ended) })
}

// mayHavePrefetched reports whether the receiver may keep deliveries that wait for a
// slot, or until starting is allowed again.
func (p *pump) mayHavePrefetched() bool {
	return p.counts && (p.running > 0 || p.gated > 0 || p.waiting != nil)
}

// checkStall ends prefetching if no slot was released since the last check.
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

// hang gives back prefetched deliveries although the broker counts that as an attempt:
// nothing was started for too long, and other instances could handle them.
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

// returning is one run of returnPrefetched.
type returning struct {
	stop context.CancelFunc
	done chan struct{}
}

// returnPrefetched starts to take prefetched deliveries from the receiver and to give
// them back. If the broker does not count releases, the receiver does so by itself when
// its limit is 0.
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

// endReturning ends the run of returnPrefetched.
func (p *pump) endReturning() {
	if p.returning != nil {
		p.returning.stop()
		p.returning = nil
	}
}

// wait returns when all workers have ended, and no more deliveries are being given back.
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

// push reuses the room of removed deliveries, so that the buffer stays as small as its
// content.
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
