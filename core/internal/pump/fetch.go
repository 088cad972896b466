package pump

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// This file decides how many deliveries the pump fetches and prefetches.

// extraFetchTimeout limits the wait of a Receive beside another one: one Receive is
// enough for an idle queue.
const extraFetchTimeout = time.Second

// fetchBuffer is the buffer that a Receive fills.
type fetchBuffer[D any] struct {
	received []D
	ready    []Item[D]
	suspects []Item[D]
}

// takeFetchBufferLocked returns an unused buffer. There are few, regardless of the number
// of workers: most of the time one of them fetches.
func (p *Pump[D, A]) takeFetchBufferLocked() *fetchBuffer[D] {
	last := len(p.freeBuffers) - 1
	if last < 0 {
		return &fetchBuffer[D]{}
	}
	b := p.freeBuffers[last]
	p.freeBuffers = p.freeBuffers[:last]
	return b
}

// receiveLocked fetches into the buffer.
func (w *Worker[D, A]) receiveLocked(want int) {
	p := w.pump
	b := p.takeFetchBufferLocked()
	ctx := p.fetchCtx
	if p.fetching > 0 && !p.rules.FetchPerWorker {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, extraFetchTimeout)
		defer cancel()
	}
	p.fetching++
	p.requested += want
	p.mu.Unlock()
	if len(b.received) < want {
		b.received = make([]D, want)
	}
	dst := b.received[:want]
	n, err := p.receiver.Receive(ctx, dst)
	if n < 0 || n > want {
		err = fmt.Errorf("the adapter's Receive returned %d deliveries for %d places (C3)", n, want)
		n = 0
	}
	b.ready, b.suspects = b.ready[:0], b.suspects[:0]
	for i, d := range dst[:n] {
		if any(d) == nil {
			err = fmt.Errorf("the adapter's Receive returned %d deliveries, of which number %d is nil (C3)", n, i+1)
			continue
		}
		if item := p.calls.Fetched(d); p.rules.Isolates && p.calls.IsSuspect(item.Delivery) {
			b.suspects = append(b.suspects, item)
		} else {
			b.ready = append(b.ready, item)
		}
	}
	clear(dst[:n])
	p.mu.Lock()
	p.fetching--
	p.requested -= want
	p.lastFetchFull = n == want
	p.buffer.Push(b.ready...)
	p.isolateLocked(len(b.ready), b.suspects)
	p.watchStallLocked()
	clear(b.ready)
	clear(b.suspects)
	p.freeBuffers = append(p.freeBuffers, b)
	p.checkReceiveLocked(ctx, n, err)
}

// checkReceiveLocked distinguishes an interrupted Receive from one with a permanent
// error.
func (p *Pump[D, A]) checkReceiveLocked(ctx context.Context, n int, err error) {
	if err == nil && n == 0 {
		err = errors.New("the adapter's Receive returned neither a delivery nor an error (C3)")
	}
	switch {
	case err == nil || p.stopping || p.failed:
		return
	case p.base.Err() != nil:
		p.stopLocked() // as stop is about to do: until then each Receive would return at once
		return
	case ctx.Err() != nil:
		return
	}
	p.failed = true
	p.fetchPauses++
	p.applyLimitsLocked()
	p.calls.OnError(err)
}

// fetchSizeLocked returns how many deliveries a worker is to fetch now.
func (p *Pump[D, A]) fetchSizeLocked() int {
	room := p.limit - p.busySlots - p.buffer.Len() - p.requested
	switch {
	case p.isFetchStoppedLocked() && !p.handlesPrefetchedLocked():
		return 0
	case p.rules.FetchPerWorker:
		return max(min(room, 1), 0)
	case p.hasSuspectsLocked():
		if p.fetching > 0 || !p.drainsReceiverLocked() {
			return 0
		}
		return p.limit
	case p.isolation.probing:
		return max(min(room, 1-p.busySlots-p.buffer.Len()-p.requested), 0)
	}
	if !p.rateLimited && !p.buffer.IsFull() {
		room += p.prefetchLimit
	}
	switch {
	case p.fetching > 0 && (p.rules.MaxBatch == 0 || !p.lastFetchFull || room < p.rules.MaxBatch):
		return 0 // one at a time, unless small batches cannot keep up
	case p.buffer.Len() > 0 && room < p.minFetchSizeLocked():
		return 0 // a larger batch is soon due
	case p.rules.MaxBatch > 0:
		room = min(room, p.rules.MaxBatch)
	}
	return max(room, 0)
}

// minFetchSizeLocked returns the room that must be free before the buffer is filled up:
// half of the slots or of the deliveries that may be prefetched.
func (p *Pump[D, A]) minFetchSizeLocked() int {
	places := p.limit
	if !p.rateLimited {
		places = max(places, p.prefetchLimit)
	}
	return (places + 1) / 2
}

// overPrefetchedLocked returns the number of unstarted deliveries above the limit.
func (p *Pump[D, A]) overPrefetchedLocked() int {
	switch {
	case p.rules.ReceiveAndDelete:
		return 0
	case p.rules.CountsReleases:
		if p.stopping || p.hanging {
			return p.buffer.Len()
		}
		return 0
	case p.isFetchStoppedLocked():
		return p.buffer.Len()
	}
	allowed := max(p.limit-p.busySlots, 0)
	if !p.rateLimited {
		allowed += max(p.prefetchLimit, p.keepLimitLocked())
	}
	return p.buffer.Len() - allowed
}

// keepLimitLocked returns how many prefetched deliveries may go on waiting.
func (p *Pump[D, A]) keepLimitLocked() int {
	if !p.rules.Prefetches || p.stalled {
		return 0
	}
	return p.estimate.Keep(p.limit)
}
