package pump

import "time"

// run is a worker's goroutine: it does the most urgent work, until it is surplus or the
// pump has stopped.
func (w *Worker[D, A]) run() {
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
				p.calls.Release(item)
			}
			p.mu.Lock()
		case p.surplusSuspectsLocked() > 0:
			items := p.takeSuspectsLocked(p.surplusSuspectsLocked())
			p.mu.Unlock()
			for _, item := range items {
				p.calls.Release(item)
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
func (w *Worker[D, A]) startLocked(item Item[D]) {
	p := w.pump
	w.handling = true
	p.isolation.handling++
	p.wakeAnotherLocked()
	p.mu.Unlock()
	p.calls.Handle(w, item)
	p.mu.Lock()
	w.finishLocked()
}

// finishLocked updates the worker after handle has returned.
func (w *Worker[D, A]) finishLocked() {
	w.releaseSlotLocked()
	if w.handling {
		w.handling = false
		w.pump.isolation.handling--
		w.endIsolatedLocked()
	}
}

// waitLocked waits until the worker may have something to do. It releases mu for that
// time.
func (w *Worker[D, A]) waitLocked() {
	pool := &w.pump.pool
	pool.idle++
	w.pump.wakeUp.Wait()
	pool.idle--
	pool.minIdle = min(pool.minIdle, pool.idle)
}

// ReleaseSlotEarly releases the slot before the worker has settled its delivery, if
// Rules.Prefetches. If one message at a time is attempted, the attempt includes the
// settlement.
func (w *Worker[D, A]) ReleaseSlotEarly() {
	p := w.pump
	if !p.rules.Prefetches {
		return
	}
	p.mu.Lock()
	if !p.rateLimited && p.isolation.isolated != w {
		w.releaseSlotLocked()
		p.wakeAnotherLocked()
	}
	p.mu.Unlock()
}

// ReacquireSlot undoes releaseSlotEarly if the settlement failed: the failure is handled
// in a slot, as any other, even if that exceeds the limit by one.
func (w *Worker[D, A]) ReacquireSlot() {
	p := w.pump
	p.mu.Lock()
	defer p.mu.Unlock()
	if !w.hasSlot {
		w.acquireSlotLocked()
	}
}

func (w *Worker[D, A]) acquireSlotLocked() {
	p := w.pump
	w.hasSlot, w.slowReported = true, false
	w.slotStart = time.Now()
	p.busySlots++
	if p.rules.SlowAfter > 0 && p.slowTimer == nil && !p.stopping {
		p.slowTimer = time.AfterFunc(p.rules.SlowAfter, p.reportSlow)
	}
}

// releaseSlotLocked also ends the measured time of the slot, which covers the handler
// only: the wait for the settlement grows with the number of waiting deliveries.
func (w *Worker[D, A]) releaseSlotLocked() {
	if !w.hasSlot {
		return
	}
	p := w.pump
	w.hasSlot = false
	p.busySlots--
	p.releasedSlots++
	p.endStallLocked()
	if p.rules.Prefetches {
		p.measureLocked(time.Since(w.slotStart))
	}
}

// shareLocked is an idle worker's part of n tasks. It takes one more if they are not
// divided evenly.
func (p *Pump[D, A]) shareLocked(n int) int { return (n + p.pool.idle) / (p.pool.idle + 1) }

// wakeAnotherLocked wakes or starts one more worker if there is something to do.
func (p *Pump[D, A]) wakeAnotherLocked() {
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

// reportSlow calls OnSlow for attempts that have been running for Rules.SlowAfter.
func (p *Pump[D, A]) reportSlow() {
	p.mu.Lock()
	if p.slowTimer == nil {
		p.mu.Unlock()
		return
	}
	next := time.Duration(-1)
	var found []*A
	var running []time.Duration
	for w := range p.workers {
		if !w.hasSlot || w.slowReported {
			continue
		}
		age := time.Since(w.slotStart)
		if left := p.rules.SlowAfter - age; left > 0 {
			if next < 0 || left < next {
				next = left
			}
			continue
		}
		w.slowReported = true
		if a := w.Current.Load(); a != nil {
			found, running = append(found, a), append(running, age)
		}
	}
	p.slowTimer = nil
	if next >= 0 {
		p.slowTimer = time.AfterFunc(next, p.reportSlow)
	}
	p.mu.Unlock()
	for i, a := range found { // without the lock: it logs
		p.calls.OnSlow(a, running[i])
	}
}

// Wait returns when all workers have ended, and no more deliveries are being released.
func (p *Pump[D, A]) Wait() {
	p.wg.Wait()
	p.mu.Lock()
	r := p.prefetchRelease
	p.endPrefetchReleaseLocked()
	p.mu.Unlock()
	if r != nil {
		<-r.done
	}
}
