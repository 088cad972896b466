package core

import (
	"context"
	"sync"
	"time"
)

// newPump returns a pump without slots, which setLimit gives it.
func newPump(base context.Context, r Receiver) *pump {
	// maxInFlight begins with an impossible value, so that the receiver is told the first
	// one in any case.
	p := &pump{receiver: r, base: base, workers: map[*worker]struct{}{}, maxInFlight: -1}
	p.buffer.Size = messageBytes
	p.pool.run = (*worker).run
	p.wakeUp = sync.NewCond(&p.mu)
	p.fetchCtx, p.interrupt = context.WithCancel(base)
	return p
}

// run is a worker's goroutine: it does the most urgent work, until it is surplus or the
// pump has stopped.
func (w *worker) run() {
	p := w.pump
	p.mu.Lock()
	p.pool.starting--
	regular := false
	defer func() {
		if !regular { // a handler ended its goroutine (runtime.Goexit)
			p.mu.Lock()
			w.finishLocked()
		}
		delete(p.workers, w)
		if !regular && (!p.stopping || p.canStartLocked()) {
			p.spawnLocked()
		}
		if p.stopping {
			p.wakeUp.Broadcast()
		} else {
			p.wakeAnotherLocked() // it may have been woken for something
		}
		p.mu.Unlock()
	}()
	for {
		switch {
		case p.overPrefetchedLocked() > 0:
			items := p.buffer.TakeLast(p.shareLocked(p.overPrefetchedLocked()))
			p.mu.Unlock()
			for _, item := range items {
				p.release(item)
			}
			p.mu.Lock()
		case p.surplusSuspectsLocked() > 0:
			items := p.takeSuspectsLocked(p.surplusSuspectsLocked())
			p.mu.Unlock()
			for _, item := range items {
				p.release(item)
			}
			p.mu.Lock()
		case p.stopping && !p.canStartLocked(), len(p.workers) > p.pool.target:
			regular = true
			return
		case p.canStartLocked() && p.busySlots < p.limit:
			w.acquireSlotLocked()
			w.startLocked(p.buffer.Take())
		case p.canStartSuspectLocked():
			w.acquireSlotLocked()
			w.startLocked(w.takeSuspectLocked())
		case p.isFetchStoppedLocked() && !p.handlesPrefetchedLocked():
			w.waitLocked()
		case p.fetchSizeLocked() > 0:
			w.receiveLocked(p.fetchSizeLocked())
		default:
			w.waitLocked()
		}
	}
}

// startLocked handles a delivery.
func (w *worker) startLocked(item fetchedDelivery) {
	p := w.pump
	w.handling = true
	p.isolation.handling++
	p.wakeAnotherLocked()
	p.mu.Unlock()
	p.handle(w, item)
	p.mu.Lock()
	w.finishLocked()
}

// finishLocked updates the worker after handle has returned.
func (w *worker) finishLocked() {
	w.releaseSlotLocked()
	if w.handling {
		w.handling = false
		w.pump.isolation.handling--
		w.endIsolatedLocked()
	}
}

// waitLocked waits until the worker may have something to do. It releases mu for that
// time.
func (w *worker) waitLocked() {
	pool := &w.pump.pool
	pool.idle++
	w.pump.wakeUp.Wait()
	pool.idle--
	pool.minIdle = min(pool.minIdle, pool.idle)
}

// releaseSlotEarly releases the slot before the worker has settled its delivery, if
// settlesOffSlot. If one message at a time is attempted, the attempt includes the
// settlement.
func (w *worker) releaseSlotEarly() {
	p := w.pump
	if !p.settlesOffSlot {
		return
	}
	p.mu.Lock()
	if !p.rateLimited && p.isolation.isolated != w {
		w.releaseSlotLocked()
		p.wakeAnotherLocked()
	}
	p.mu.Unlock()
}

// reacquireSlot undoes releaseSlotEarly if the settlement failed: the failure is handled
// in a slot, as any other, even if that exceeds the limit by one.
func (w *worker) reacquireSlot() {
	p := w.pump
	p.mu.Lock()
	defer p.mu.Unlock()
	if !w.hasSlot {
		w.acquireSlotLocked()
	}
}

func (w *worker) acquireSlotLocked() {
	p := w.pump
	w.hasSlot, w.slowReported = true, false
	w.slotStart = time.Now()
	p.busySlots++
	if p.slowAfter > 0 && p.slowTimer == nil && !p.stopping {
		p.slowTimer = time.AfterFunc(p.slowAfter, p.reportSlow)
	}
}

// releaseSlotLocked also ends the measured time of the slot, which covers the handler
// only: the wait for the settlement grows with the number of waiting deliveries.
func (w *worker) releaseSlotLocked() {
	if !w.hasSlot {
		return
	}
	p := w.pump
	w.hasSlot = false
	p.busySlots--
	p.releasedSlots++
	p.endStallLocked()
	if p.prefetches {
		p.measureLocked(time.Since(w.slotStart))
	}
}

// shareLocked is an idle worker's part of n tasks. It takes one more if they are not
// divided evenly.
func (p *pump) shareLocked(n int) int { return (n + p.pool.idle) / (p.pool.idle + 1) }

// wakeAnotherLocked wakes or starts one more worker if there is something to do.
func (p *pump) wakeAnotherLocked() {
	if p.pool.idle == 0 && !p.canSpawnLocked() {
		return
	}
	switch {
	case (!p.canStartLocked() || p.busySlots >= p.limit) && p.fetchSizeLocked() == 0 && !p.canStartSuspectLocked():
	case p.pool.idle > 0:
		p.wakeUp.Signal()
	default:
		p.spawnOneLocked()
	}
}

// reportSlow calls onSlow for attempts that have been running for slowAfter
// (Config.SlowHandler).
func (p *pump) reportSlow() {
	p.mu.Lock()
	if p.slowTimer == nil {
		p.mu.Unlock()
		return
	}
	next := time.Duration(-1)
	var found []*attempt
	var running []time.Duration
	for w := range p.workers {
		if !w.hasSlot || w.slowReported {
			continue
		}
		age := time.Since(w.slotStart)
		if left := p.slowAfter - age; left > 0 {
			if next < 0 || left < next {
				next = left
			}
			continue
		}
		w.slowReported = true
		if a := w.current.Load(); a != nil {
			found, running = append(found, a), append(running, age)
		}
	}
	p.slowTimer = nil
	if next >= 0 {
		p.slowTimer = time.AfterFunc(next, p.reportSlow)
	}
	p.mu.Unlock()
	for i, a := range found { // without the lock: it logs
		p.onSlow(a, running[i])
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
