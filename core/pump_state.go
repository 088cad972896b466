package core

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core/internal/locks"
	"github.com/reprise-go/reprise/core/internal/prefetch"
)

// This file has the state of the pump and the questions about it. The other files of the
// pump change the state, and end with the limits that follow from it (pump_limits.go). The
// loop of a worker (pump.go) calls all of them.

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

// settlingLimitLocked returns how many deliveries may be in settlement without a slot:
// the number of slots, or of deliveries that may wait unstarted. A batch settles only
// deliveries that wait for it, so this also limits its size.
func (p *pump) settlingLimitLocked(limit int) int { return max(limit, p.prefetchLimit) }

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

// hasSuspectsLocked reports whether there are suspects.
func (p *pump) hasSuspectsLocked() bool {
	return len(p.isolation.suspects) > 0 || p.isolation.isolated != nil
}

// limitedToOneLocked reports whether the receiver is limited to one delivery, which is
// the suspect.
func (p *pump) limitedToOneLocked() bool { return p.isolation.probing && p.isolation.single }

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

// stopTimer stops a timer if it is set, and forgets it.
func stopTimer(t **time.Timer) {
	if *t != nil {
		(*t).Stop()
		*t = nil
	}
}
