package core

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// This file is the pump's judgement of what to fetch and what to hold, and the
// buffer between the two. All but receive is called with the pump's mu held.

// aheadWindow is how long an unstarted delivery may be expected to wait. With
// slow handlers little or nothing is held ahead: other instances could have it.
const aheadWindow = 500 * time.Millisecond

// extraFetchWait is how long a Receive beside another one may wait: an idle queue
// is watched by one.
const extraFetchWait = time.Second

// receive fetches into the buffer.
func (w *worker) receive(want int) {
	p := w.pump
	ctx := p.fetch
	if p.fetching > 0 && !p.perWorker {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, extraFetchWait)
		defer cancel()
	}
	p.fetching++
	p.asked += want
	p.mu.Unlock()
	if len(w.arrivals) < want {
		w.arrivals = make([]Delivery, want)
	}
	dst := w.arrivals[:want]
	n, err := p.receiver.Receive(ctx, dst)
	if n < 0 || n > want {
		err = fmt.Errorf("the adapter's Receive returned %d deliveries for %d places (C3)", n, want)
		n = 0
	}
	w.arrived = w.arrived[:0]
	for i, d := range dst[:n] {
		if d == nil {
			err = fmt.Errorf("the adapter's Receive returned %d deliveries, of which number %d is nil (C3)", n, i+1)
			continue
		}
		w.arrived = append(w.arrived, held{d, p.watch(d)})
		dst[i] = nil
	}
	p.mu.Lock()
	p.fetching--
	p.asked -= want
	p.full = n == want
	p.push(w.arrived...)
	clear(w.arrived)
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
	case p.closed():
		return 0
	case p.perWorker:
		return max(min(room, 1), 0)
	}
	if !p.slowed {
		room += p.mayBeAhead
	}
	switch {
	case p.fetching > 0 && (p.maxBatch == 0 || !p.full || room < p.maxBatch):
		return 0 // one at a time, unless small batches cannot keep up
	case p.buffered() > 0 && room < (p.limit+1)/2:
		return 0 // a larger batch is soon due
	case p.maxBatch > 0:
		room = min(room, p.maxBatch)
	}
	return max(room, 0)
}

// aheadRoom is how many deliveries to hold beyond the free slots: as many as
// there are slots, fewer where handlers are slow, none while that is unknown or
// where one message at a time is attempted.
func (p *pump) aheadRoom() int {
	if !p.ahead || !p.measured || p.slowed {
		return 0
	}
	if p.average <= aheadWindow {
		return p.limit
	}
	return int(time.Duration(p.limit) * aheadWindow / p.average)
}

// excess is how many unstarted deliveries are too many.
func (p *pump) excess() int {
	if p.consumed {
		return 0
	}
	if p.closed() {
		return p.buffered()
	}
	allowed := max(p.limit-p.running, 0)
	if !p.slowed {
		allowed += p.mayBeAhead
	}
	return p.buffered() - allowed
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
}

func (p *pump) take() held {
	item := p.buffer[p.head]
	p.buffer[p.head] = held{}
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
	clear(p.buffer[at:])
	p.buffer = p.buffer[:at]
	if p.head == len(p.buffer) {
		p.buffer, p.head = p.buffer[:0], 0
	}
	return items
}
