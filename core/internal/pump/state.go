package pump

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core/internal/prefetch"
)

// This file has the state of the pump and the questions about it. The other files change
// the state, and end with the limits that follow from it (limits.go). The loop of a worker
// (loop.go) calls all of them.

// Pump fetches deliveries and runs them on a set of workers, never more than its limit at a
// time. Its methods may be called concurrently, before [Pump.Wait] has returned.
type Pump[D, A any] struct {
	receiver  Receiver[D]
	base      context.Context // ends when fetching ends
	rules     Rules
	calls     Calls[D, A]
	isolation isolation[D, A]

	wg sync.WaitGroup

	mu              sync.Mutex
	wakeUp          *sync.Cond
	pool            workerPool[D, A]
	workers         map[*Worker[D, A]]struct{}
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
	waitTimer       *time.Timer  // while one of the waits lasts: one more such reason
	waitEnds        [2]time.Time // when each ends, by its reason; zero: no such wait
	stopping        bool
	failed          bool
	buffer          prefetch.Buffer[Item[D]]
	fetchCtx        context.Context
	interrupt       context.CancelFunc // ends Receive calls in progress
	estimate        prefetch.Estimate  // of the deliveries to prefetch; only if Rules.Prefetches
	prefetchLimit   int                // deliveries to fetch beyond the slots
	freeBuffers     []*fetchBuffer[D]  // not in use
	retained        int                // deliveries kept without a slot
	releasedSlots   int                // slots released so far
	stallTimer      *time.Timer        // set while unstarted deliveries wait, if Rules.Prefetches
	stallCount      int                // times in a row that the timer found no slot released
	stalled         bool               // all slots hang: nothing is prefetched until one is released
	hanging         bool               // nothing was started for hangTimeout, so that prefetched messages are released; only if Rules.CountsReleases
	prefetchRelease *prefetchRelease   // of the receiver's prefetched deliveries, or nil
	slowTimer       *time.Timer        // while an attempt runs
}

// Worker is one goroutine of a pump, which handles one delivery at a time. Its methods are
// for [Calls].Handle, in that goroutine.
type Worker[D, A any] struct {
	// Current is the attempt in progress, which Handle sets and clears; nil: there is none.
	// The pump reports it if it takes long or never ends.
	Current atomic.Pointer[A]

	pump         *Pump[D, A]
	hasSlot      bool      // it has a slot
	handling     bool      // it has a delivery
	slotStart    time.Time // when it got it
	slowReported bool      // OnSlow was called for this slot's attempt
}

// settlingLimitLocked returns how many deliveries may be in settlement without a slot:
// the number of slots, or of deliveries that may wait unstarted. A batch settles only
// deliveries that wait for it, so this also limits its size.
func (p *Pump[D, A]) settlingLimitLocked(limit int) int { return max(limit, p.prefetchLimit) }

// isFetchStoppedLocked reports whether fetching from the broker is stopped.
func (p *Pump[D, A]) isFetchStoppedLocked() bool {
	return p.stopping || p.fetchPauses > 0 || p.paused || p.waitTimer != nil || p.hanging
}

// canStartLocked reports whether an unstarted delivery is to be handled. A delivery that
// cannot be released is always handled, except during a wait.
func (p *Pump[D, A]) canStartLocked() bool {
	return p.buffer.Len() > 0 && p.isolation.isolated == nil && (!p.isFetchStoppedLocked() || p.rules.ReceiveAndDelete && p.waitTimer == nil || p.handlesPrefetchedLocked())
}

// handlesPrefetchedLocked reports whether the endpoint is paused and handles its
// prefetched deliveries, because the broker would count their release as an attempt.
func (p *Pump[D, A]) handlesPrefetchedLocked() bool {
	return p.paused && p.rules.CountsReleases && !p.stopping && p.fetchPauses == 0 && p.waitTimer == nil && !p.hanging
}

// hasSuspectsLocked reports whether there are suspects.
func (p *Pump[D, A]) hasSuspectsLocked() bool {
	return len(p.isolation.suspects) > 0 || p.isolation.isolated != nil
}

// InFlight returns the number of deliveries being handled.
func (p *Pump[D, A]) InFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.busySlots
}

// Attempts returns the attempts in progress.
func (p *Pump[D, A]) Attempts() []*A {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*A
	for w := range p.workers {
		if a := w.Current.Load(); a != nil {
			all = append(all, a)
		}
	}
	return all
}

// AnyAttempt reports whether is returns true for an attempt in progress. It looks at all
// workers, and calls is under the pump's lock.
func (p *Pump[D, A]) AnyAttempt(is func(*A) bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.workers {
		if a := w.Current.Load(); a != nil && is(a) {
			return true
		}
	}
	return false
}

// SlotStart returns when the worker got its slot.
func (w *Worker[D, A]) SlotStart() time.Time { return w.slotStart }

// OldestAttempt returns the duration of the longest running attempt.
func (p *Pump[D, A]) OldestAttempt() time.Duration {
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
