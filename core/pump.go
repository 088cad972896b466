package core

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core/internal/locks"
	"github.com/reprise-go/reprise/core/internal/prefetch"
)

// pump fetches deliveries and runs them on a set of workers, never more than limit at a
// time. Messages have no goroutine or channel of their own: an idle worker becomes the
// fetcher, puts the fetched deliveries into the buffer, and wakes one other worker, which
// wakes the next if there is more to do.
//
// If a Receive returns few deliveries at a time (maxBatch), and returned as many as it
// could, more workers fetch at the same time. If deliveries are native transactions
// (fetchPerWorker), each worker fetches for itself, so that no delivery waits unstarted.
type pump struct {
	receiver         Receiver
	base             context.Context // ends when fetching ends
	fetchPerWorker   bool
	receiveAndDelete bool // fetched deliveries cannot be released (TransactionNone)
	countsReleases   bool // the broker counts a delivery that is released as an attempt
	prefetches       bool // unstarted deliveries may be fetched beyond the free slots
	settlesOffSlot   bool // a slot is free while its delivery is being settled
	maxBatch         int  // 0 = none

	watch     func(Delivery) *locks.Context
	adjust    func(Delivery) Delivery // returns the delivery as the engine is to see it
	handle    func(w *worker, item fetchedDelivery)
	release   func(item fetchedDelivery)
	onError   func(error) // the receiver failed permanently; called once, must not block
	onSlow    func(a *attempt, running time.Duration)
	slowAfter time.Duration // after which onSlow is called, once an attempt; 0 = never

	isolation isolation

	wg sync.WaitGroup

	mu              sync.Mutex
	wakeUp          *sync.Cond
	pool            workerPool
	workers         map[*worker]struct{}
	requestedLimit  int          // requested slots
	rateLimited     bool         // one slot, regardless of requestedLimit
	limit           int          // slots in force
	maxInFlight     int          // the receiver's MaxInFlight in force
	busySlots       int          // slots taken
	fetching        int          // workers in Receive
	requested       int          // deliveries that these workers have room for
	lastFetchFull   bool         // the newest Receive returned as many as it could
	fetchPauses     int          // reasons for which nothing is fetched or started
	paused          bool         // by the application
	parked          bool         // too many messages failed permanently
	waitTimer       *time.Timer  // while one of the waits lasts: one more such reason
	waitEnds        [2]time.Time // when each ends, by its reason; zero: no such wait
	stopping        bool
	failed          bool
	buffer          prefetch.Buffer[fetchedDelivery]
	fetchCtx        context.Context
	interrupt       context.CancelFunc // ends Receive calls in progress
	estimate        prefetch.Estimate  // of the deliveries to prefetch; only if prefetches
	prefetchLimit   int                // deliveries to fetch beyond the slots
	freeBuffers     []*fetchBuffer     // not in use
	retained        int                // deliveries kept without a slot, see backlog.Backlog
	releasedSlots   int                // slots released so far
	stallTimer      *time.Timer        // set while unstarted deliveries wait, if prefetches
	stallCount      int                // times in a row that the timer found no slot released
	stalled         bool               // all slots hang: nothing is prefetched until one is released
	hanging         bool               // nothing was started for hangTimeout, so that prefetched messages are released; only if countsReleases
	prefetchRelease *prefetchRelease   // of the receiver's prefetched deliveries, or nil
	slowTimer       *time.Timer        // while an attempt runs
}

// fetchedDelivery is a delivery with the renewal of its lock, if it has one.
type fetchedDelivery struct {
	delivery Delivery
	lock     *locks.Context
}

// worker is one goroutine of a pump.
type worker struct {
	pump         *pump
	hasSlot      bool                    // it has a slot
	handling     bool                    // it has a delivery
	slotStart    time.Time               // when it got it
	slowReported bool                    // onSlow was called for this slot's attempt
	current      atomic.Pointer[attempt] // the attempt in progress, for the report of handlers that never return
}

func newPump(base context.Context, r Receiver) *pump {
	// maxInFlight begins with an impossible value, so that the receiver is told the first
	// one in any case.
	p := &pump{receiver: r, base: base, workers: map[*worker]struct{}{}, maxInFlight: -1}
	p.buffer.Size = messageBytes
	p.wakeUp = sync.NewCond(&p.mu)
	p.fetchCtx, p.interrupt = context.WithCancel(base)
	return p
}

// receiverLimitLocked returns the receiver's MaxInFlight for a given number of slots.
func (p *pump) receiverLimitLocked(limit int) int {
	if p.rateLimited || p.isolation.probing {
		return 1 + p.retained
	}
	n := limit + p.prefetchLimit + p.retained
	if p.settlesOffSlot {
		n += p.settlingLimitLocked(limit)
	}
	return n
}

// settlingLimitLocked returns how many deliveries may be in settlement without a slot:
// the number of slots, or of deliveries that may wait unstarted. A batch settles only
// deliveries that wait for it, so this also limits its size.
func (p *pump) settlingLimitLocked(limit int) int { return max(limit, p.prefetchLimit) }

// setLimit changes the number of slots. If it becomes smaller, unstarted deliveries are
// released.
func (p *pump) setLimit(limit int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requestedLimit = limit
	p.applyLimitsLocked()
}

// setRateLimited reduces the slots to one, or ends this mode and its wait.
func (p *pump) setRateLimited(limited bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rateLimited = limited
	if !limited {
		p.endWaitLocked(waitRateLimited)
	}
	p.applyLimitsLocked()
}

// applyLimitsLocked updates the slots, the workers and the receiver's MaxInFlight to the
// current settings.
func (p *pump) applyLimitsLocked() {
	limit := p.requestedLimit
	if p.rateLimited {
		limit = 1
	}
	p.prefetchLimit = min(p.prefetchLimit, p.prefetchTargetLocked(limit))
	maxInFlight := p.receiverLimitLocked(limit)
	if p.isFetchStoppedLocked() || p.hasSuspectsLocked() && !p.limitedToOneLocked() {
		maxInFlight = 0
	}
	fewer := maxInFlight < p.maxInFlight || limit < p.limit
	p.limit = limit
	if maxInFlight != p.maxInFlight {
		p.maxInFlight = maxInFlight
		p.receiver.SetMaxInFlight(maxInFlight)
	}
	p.resizePoolLocked()
	if fewer {
		p.restartFetchLocked()
	}
	p.wakeUp.Broadcast()
}

// retain adds n, which may be negative, to the number of deliveries kept without a slot:
// the receiver's MaxInFlight grows by n, so that none takes the place of another message.
func (p *pump) retain(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retained += n
	p.applyLimitsLocked()
}

// setPaused stops or resumes fetching for the application. Unstarted deliveries are
// released or, if the broker would count that as an attempt, handled.
func (p *pump) setPaused(paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = paused
	p.applyLimitsLocked()
}

// pauseFetching stops fetching and starting, until resumeFetching was called as often.
func (p *pump) pauseFetching() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetchPauses++
	p.applyLimitsLocked()
	p.watchStallLocked()
}

func (p *pump) resumeFetching() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fetchPauses--
	p.endStallLocked()
	p.applyLimitsLocked()
}

// stop ends fetching; workers end with the deliveries they have.
func (p *pump) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopLocked()
}

func (p *pump) stopLocked() {
	p.stopping = true
	p.endWaitsLocked()
	stopTimer(&p.stallTimer)
	stopTimer(&p.slowTimer)
	p.isolation.stopTimersLocked()
	p.applyLimitsLocked()
	p.interrupt()
	p.releasePrefetchedLocked()
}

// inFlight returns the number of deliveries being handled.
func (p *pump) inFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busySlots
}

// attempts returns the attempts in progress.
func (p *pump) attempts() []*attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*attempt
	for w := range p.workers {
		if a := w.current.Load(); a != nil {
			all = append(all, a)
		}
	}
	return all
}

// isCompleting reports whether a worker waits for a delivery of the message to be
// completed: in an outage the call takes a while, and the broker may redeliver the
// message before it returns (R28). It looks at all workers, and is called for
// redeliveries only.
func (p *pump) isCompleting(nativeID string) bool {
	if nativeID == "" {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.workers {
		if a := w.current.Load(); a != nil && a.settled.Load() && a.delivery.Incoming().NativeID == nativeID {
			return true
		}
	}
	return false
}

// restartFetchLocked ends Receive calls in progress, so that they begin again with the
// current settings.
func (p *pump) restartFetchLocked() {
	p.interrupt()
	p.fetchCtx, p.interrupt = context.WithCancel(p.base)
}

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

// isFetchStoppedLocked reports whether fetching from the broker is stopped.
func (p *pump) isFetchStoppedLocked() bool {
	return p.stopping || p.fetchPauses > 0 || p.paused || p.parked || p.waitTimer != nil || p.hanging
}

// canStartLocked reports whether an unstarted delivery is to be handled. A delivery that
// cannot be released is always handled, except during a wait.
func (p *pump) canStartLocked() bool {
	return p.buffer.Len() > 0 && p.isolation.isolated == nil && (!p.isFetchStoppedLocked() || p.receiveAndDelete && p.waitTimer == nil || p.handlesPrefetchedLocked())
}

// handlesPrefetchedLocked reports whether the endpoint is paused and handles its
// prefetched deliveries, because the broker would count their release as an attempt.
func (p *pump) handlesPrefetchedLocked() bool {
	return p.paused && p.countsReleases && !p.stopping && p.fetchPauses == 0 && p.waitTimer == nil && !p.hanging
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

// oldestAttempt returns the duration of the longest running attempt.
func (p *pump) oldestAttempt() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var oldest time.Duration
	for w := range p.workers {
		if w.hasSlot {
			oldest = max(oldest, time.Since(w.slotStart))
		}
	}
	return oldest
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
