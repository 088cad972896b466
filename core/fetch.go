package core

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/reprise-go/reprise/core/internal/prefetch"
)

// This file decides how many deliveries the pump fetches and prefetches.

const (
	// stallTimeout is the time for which all slots may hang before unstarted deliveries are
	// released to other instances.
	stallTimeout = time.Second
	// hangTimeout is the time without a start after which unstarted deliveries are released
	// if the broker counts that as an attempt: longer than handlers wait for a service that
	// is unavailable.
	hangTimeout = 2 * time.Minute
)

// extraFetchTimeout limits the wait of a Receive beside another one: one Receive is
// enough for an idle queue.
const extraFetchTimeout = time.Second

// fetchBuffer is the buffer that a Receive fills.
type fetchBuffer struct {
	received []Delivery
	ready    []fetchedDelivery
	suspects []fetchedDelivery
}

// takeFetchBufferLocked returns an unused buffer. There are few, regardless of the number
// of workers: most of the time one of them fetches.
func (p *pump) takeFetchBufferLocked() *fetchBuffer {
	last := len(p.freeBuffers) - 1
	if last < 0 {
		return &fetchBuffer{}
	}
	b := p.freeBuffers[last]
	p.freeBuffers = p.freeBuffers[:last]
	return b
}

// receiveLocked fetches into the buffer.
func (w *worker) receiveLocked(want int) {
	p := w.pump
	b := p.takeFetchBufferLocked()
	ctx := p.fetchCtx
	if p.fetching > 0 && !p.fetchPerWorker {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, extraFetchTimeout)
		defer cancel()
	}
	p.fetching++
	p.requested += want
	p.mu.Unlock()
	if len(b.received) < want {
		b.received = make([]Delivery, want)
	}
	dst := b.received[:want]
	n, err := p.receiver.Receive(ctx, dst)
	if n < 0 || n > want {
		err = fmt.Errorf("the adapter's Receive returned %d deliveries for %d places (C3)", n, want)
		n = 0
	}
	b.ready, b.suspects = b.ready[:0], b.suspects[:0]
	for i, d := range dst[:n] {
		if d == nil {
			err = fmt.Errorf("the adapter's Receive returned %d deliveries, of which number %d is nil (C3)", n, i+1)
			continue
		}
		if item := (fetchedDelivery{p.adjust(d), p.watch(d)}); p.isSuspect(item.delivery) {
			b.suspects = append(b.suspects, item)
		} else {
			b.ready = append(b.ready, item)
		}
		dst[i] = nil
	}
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
func (p *pump) checkReceiveLocked(ctx context.Context, n int, err error) {
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
	p.onError(err)
}

// fetchSizeLocked returns how many deliveries a worker is to fetch now.
func (p *pump) fetchSizeLocked() int {
	room := p.limit - p.busySlots - p.buffer.Len() - p.requested
	switch {
	case p.isFetchStoppedLocked() && !p.handlesPrefetchedLocked():
		return 0
	case p.fetchPerWorker:
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
	case p.fetching > 0 && (p.maxBatch == 0 || !p.lastFetchFull || room < p.maxBatch):
		return 0 // one at a time, unless small batches cannot keep up
	case p.buffer.Len() > 0 && room < p.minFetchSizeLocked():
		return 0 // a larger batch is soon due
	case p.maxBatch > 0:
		room = min(room, p.maxBatch)
	}
	return max(room, 0)
}

// minFetchSizeLocked returns the room that must be free before the buffer is filled up:
// half of the slots or of the deliveries that may be prefetched.
func (p *pump) minFetchSizeLocked() int {
	places := p.limit
	if !p.rateLimited {
		places = max(places, p.prefetchLimit)
	}
	return (places + 1) / 2
}

// measureLocked adds the time that a delivery had its slot.
func (p *pump) measureLocked(duration time.Duration) {
	p.estimate.Measure(duration)
	if target := p.prefetchTargetLocked(p.limit); p.estimate.Replaces(target, p.prefetchLimit, p.limit) {
		p.prefetchLimit = target
		p.applyLimitsLocked()
	}
}

// prefetchTargetLocked returns how many deliveries to prefetch beyond the free slots of a
// limit: none if one message at a time is attempted.
func (p *pump) prefetchTargetLocked(limit int) int {
	if !p.prefetches || p.rateLimited || p.stalled {
		return 0
	}
	return p.estimate.Target(limit, p.buffer.Room())
}

// overPrefetchedLocked returns the number of unstarted deliveries above the limit.
func (p *pump) overPrefetchedLocked() int {
	switch {
	case p.receiveAndDelete:
		return 0
	case p.countsReleases:
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
func (p *pump) keepLimitLocked() int {
	if !p.prefetches || p.stalled {
		return 0
	}
	return p.estimate.Keep(p.limit)
}

// watchStallLocked starts to check whether all slots hang while deliveries are
// prefetched: the duration of a handler is measured when it ends, and hanging handlers
// may never end.
//
// If the broker counts releases, the receiver may have prefetched deliveries that the
// pump does not know of, and keeps them while nothing is to be started.
func (p *pump) watchStallLocked() {
	if !p.prefetches || p.stallTimer != nil || p.stopping || p.buffer.Len() == 0 && !p.mayHavePrefetchedLocked() {
		return
	}
	released := p.releasedSlots
	p.stallTimer = time.AfterFunc(stallTimeout, func() { p.checkStall(released) })
}

// mayHavePrefetchedLocked reports whether the receiver may keep deliveries that wait for
// a slot, or until starting is allowed again.
func (p *pump) mayHavePrefetchedLocked() bool {
	return p.countsReleases && (p.busySlots > 0 || p.fetchPauses > 0 || p.waitTimer != nil)
}

// checkStall ends prefetching if no slot was released since the last check.
func (p *pump) checkStall(released int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stallTimer == nil { // stopped
		return
	}
	p.stallTimer = nil
	starts := p.busySlots < p.limit && (!p.isFetchStoppedLocked() || p.handlesPrefetchedLocked())
	if p.releasedSlots != released || starts || p.buffer.Len() == 0 && !p.countsReleases {
		p.stallCount = 0
		p.watchStallLocked()
		return
	}
	p.stallCount++
	p.stalled = true
	p.applyLimitsLocked()
	if p.countsReleases && time.Duration(p.stallCount)*stallTimeout >= hangTimeout {
		p.releaseHungLocked()
	}
	p.watchStallLocked()
}

// releaseHungLocked releases prefetched deliveries although the broker counts that as an
// attempt: nothing was started for too long, and other instances could handle them.
func (p *pump) releaseHungLocked() {
	if !p.countsReleases || p.hanging {
		return
	}
	p.hanging = true
	p.applyLimitsLocked() // the receiver fetches nothing more
	p.releasePrefetchedLocked()
}

// endStallLocked is called when a slot is released, or a wait has ended.
func (p *pump) endStallLocked() {
	p.stalled, p.stallCount = false, 0
	if p.hanging && !p.stopping && !p.parked && p.fetchPauses == 0 && p.waitTimer == nil {
		p.hanging = false
		p.endPrefetchReleaseLocked()
		p.applyLimitsLocked()
	}
}

// prefetchRelease is one run of releasePrefetchedLocked.
type prefetchRelease struct {
	stop context.CancelFunc
	done chan struct{}
}

// releasePrefetchedLocked starts to take prefetched deliveries from the receiver and to
// release them. If the broker does not count releases, the receiver does so by itself
// when its limit is 0.
func (p *pump) releasePrefetchedLocked() {
	if !p.countsReleases || !p.prefetches || p.prefetchRelease != nil {
		return
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(p.base))
	r := &prefetchRelease{stop, make(chan struct{})}
	p.prefetchRelease = r
	go func() {
		defer close(r.done)
		deliveries := make([]Delivery, prefetch.MaxCounted)
		for {
			n, err := p.receiver.Receive(ctx, deliveries)
			for _, d := range deliveries[:min(max(n, 0), len(deliveries))] {
				if d != nil {
					p.release(fetchedDelivery{d, p.watch(d)})
				}
			}
			if err != nil || n <= 0 {
				return
			}
		}
	}()
}

// endPrefetchReleaseLocked ends the run of releasePrefetchedLocked.
func (p *pump) endPrefetchReleaseLocked() {
	if p.prefetchRelease != nil {
		p.prefetchRelease.stop()
		p.prefetchRelease = nil
	}
}

// wait returns when all workers have ended, and no more deliveries are being released.
func (p *pump) wait() {
	p.wg.Wait()
	p.mu.Lock()
	r := p.prefetchRelease
	p.endPrefetchReleaseLocked()
	p.mu.Unlock()
	if r != nil {
		<-r.done
	}
}

// messageBytes returns the memory that a delivery's message takes.
func messageBytes(item fetchedDelivery) int {
	in := item.delivery.Incoming()
	n := len(in.Body)
	for _, pair := range in.Headers.pairs {
		n += len(pair.key) + len(pair.value)
	}
	return n
}

// maxPrefetchBytes returns the limit for unstarted deliveries; 0 = no limit, as without
// prefetching.
func (ep *Endpoint) maxPrefetchBytes() int {
	if !ep.caps.Prefetch || ep.mode == TransactionNone || ep.connectionPerMessage() {
		return 0
	}
	return ep.config.MaxPrefetchBytes
}

// maxReceiveBytes returns the part of it that one Receive of a queue may fetch.
func (ep *Endpoint) maxReceiveBytes() int {
	half := (ep.maxPrefetchBytes() + 1) / 2
	if ep.instanceAddress != "" { // there are two queues
		return (half + 1) / 2
	}
	return half
}

// connectionPerMessage reports whether each message takes a connection of the transport
// from its receipt on.
func (ep *Endpoint) connectionPerMessage() bool {
	return ep.mode == TransactionSendsAtomicWithReceive && !ep.caps.AtomicLeases
}
