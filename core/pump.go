package core

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// pump fetches deliveries and runs them on a set of workers, never more than limit at a
// time. Messages have no goroutine or channel of their own: an idle worker becomes the
// fetcher, puts the fetched deliveries into the buffer, and wakes one other worker, which
// wakes the next if there is more to do.
//
// If a Receive returns few deliveries at a time (maxBatch), and returned as many as it
// could, more workers fetch at the same time. If deliveries are native transactions
// (perWorker), each worker fetches for itself, so that no delivery waits unstarted.
type pump struct {
	receiver  Receiver
	base      context.Context // ends when fetching ends
	perWorker bool
	consumed  bool // fetched deliveries cannot be given back (TransactionNone)
	counts    bool // the broker counts a delivery that is given back as an attempt
	ahead     bool // unstarted deliveries may be fetched beyond the free slots
	overlap   bool // a slot is free while its delivery is being settled
	maxBatch  int  // 0 = none

	watch    func(Delivery) *hold
	adjust   func(Delivery) Delivery // returns the delivery as the engine is to see it
	handle   func(w *worker, item held)
	giveBack func(item held)
	onError  func(error) // the receiver failed permanently; called once, must not block
	onSlow   func(a *attempt, running time.Duration)
	slow     time.Duration // after which onSlow is called, once an attempt; 0 = never

	isolation isolation

	wg sync.WaitGroup

	mu          sync.Mutex
	wakeUp      *sync.Cond
	staffing    staffing
	everyWorker map[*worker]struct{}
	wanted      int          // requested slots
	slowed      bool         // one slot, regardless of wanted
	limit       int          // slots in force
	mayHold     int          // the receiver's MaxInFlight in force
	running     int          // slots taken
	fetching    int          // workers in Receive
	asked       int          // the deliveries that these workers have room for
	full        bool         // the newest Receive returned as many as it could
	gated       int          // reasons for which nothing is fetched or started
	paused      bool         // by the application
	parked      bool         // too many messages failed permanently
	waiting     *time.Timer  // while one of the waits lasts: one more such reason
	waits       [2]time.Time // when each ends, by its reason; zero: no such wait
	stopping    bool
	failed      bool
	prefetched  prefetched // the bytes of buffer
	buffer      []held     // fetched, not started
	head        int        // of buffer
	fetch       context.Context
	interrupt   context.CancelFunc // ends Receive calls in progress
	average     time.Duration      // moving average of the time a delivery has its slot; only if ahead
	measured    int                // deliveries in average, up to manyAhead
	mayBeAhead  int                // deliveries to fetch beyond the slots
	landings    []*landing         // not in use
	retained    int                // deliveries kept without a slot, see backlog
	ended       int                // slots released so far
	stallTimer  *time.Timer        // set while unstarted deliveries wait, if ahead
	stalls      int                // times in a row that the timer found no slot released
	stalled     bool               // all slots hang: nothing is prefetched until one is released
	hanging     bool               // nothing was started for hangWindow, so that prefetched messages are released; only if counts
	returning   *returning         // of the receiver's prefetched deliveries, or nil
	slowTimer   *time.Timer        // while an attempt runs
}

// held is a delivery with the renewal of its lock, if it has one.
type held struct {
	delivery Delivery
	hold     *hold
}

// worker is one goroutine of a pump.
type worker struct {
	pump     *pump
	occupied bool                    // it has a slot
	handling bool                    // it has a delivery
	since    time.Time               // when it got it
	told     bool                    // onSlow was called for this slot's attempt
	current  atomic.Pointer[attempt] // the attempt in progress, for the report of handlers that never return
}

func newPump(base context.Context, r Receiver) *pump {
	// mayHold begins with an impossible value, so that the receiver is told the first one in
	// any case.
	p := &pump{receiver: r, base: base, everyWorker: map[*worker]struct{}{}, mayHold: -1}
	p.wakeUp = sync.NewCond(&p.mu)
	p.fetch, p.interrupt = context.WithCancel(base)
	return p
}

// maxInFlight returns the receiver's MaxInFlight for a given number of slots.
func (p *pump) maxInFlight(limit int) int {
	if p.slowed || p.isolation.probing {
		return 1 + p.retained
	}
	n := limit + p.mayBeAhead + p.retained
	if p.overlap {
		n += p.besideSlots(limit)
	}
	return n
}

// besideSlots returns how many deliveries may be in settlement without a slot: the number
// of slots, or of deliveries that may wait unstarted. A batch settles only deliveries
// that wait for it, so this also limits its size.
func (p *pump) besideSlots(limit int) int { return max(limit, p.mayBeAhead) }

// setLimit changes the number of slots. If it becomes smaller, unstarted deliveries are
// given back.
func (p *pump) setLimit(limit int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = limit
	p.apply()
}

// setSlowed reduces the slots to one, or ends this mode and its wait.
func (p *pump) setSlowed(slowed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.slowed = slowed
	if !slowed {
		p.endWaitLocked(waitRateLimited)
	}
	p.apply()
}

// apply updates the slots, the workers and the receiver's MaxInFlight to the current
// settings.
func (p *pump) apply() {
	limit := p.wanted
	if p.slowed {
		limit = 1
	}
	p.mayBeAhead = min(p.mayBeAhead, p.aheadRoom(limit))
	mayHold := p.maxInFlight(limit)
	if p.closed() || p.isolating() && !p.holdsOne() {
		mayHold = 0
	}
	fewer := mayHold < p.mayHold || limit < p.limit
	p.limit = limit
	if mayHold != p.mayHold {
		p.mayHold = mayHold
		p.receiver.SetMaxInFlight(mayHold)
	}
	p.adjustStaff()
	if fewer {
		p.restartFetch()
	}
	p.wakeUp.Broadcast()
}

// retain adds n, which may be negative, to the number of deliveries kept without a slot:
// the receiver's MaxInFlight grows by n, so that none takes the place of another message.
func (p *pump) retain(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retained += n
	p.apply()
}

// setPaused stops or resumes fetching. Unstarted deliveries are given back or, if the
// broker would count that as an attempt, handled.
func (p *pump) setPaused(paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.paused = paused
	p.apply()
}

// gate stops fetching and starting, until ungate was called as often.
func (p *pump) gate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gated++
	p.apply()
	p.watchStall()
}

func (p *pump) ungate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gated--
	p.endStall()
	p.apply()
}

// stop ends fetching; workers end with the deliveries they have.
func (p *pump) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
}

// end is stop, with mu held.
func (p *pump) end() {
	p.stopping = true
	p.endWaitsLocked()
	stopTimer(&p.stallTimer)
	stopTimer(&p.slowTimer)
	p.isolation.stopTimers()
	p.apply()
	p.interrupt()
	p.returnPrefetched()
}

// inFlight returns the number of deliveries being handled.
func (p *pump) inFlight() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

// attempts returns the attempts in progress.
func (p *pump) attempts() []*attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*attempt
	for w := range p.everyWorker {
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
	for w := range p.everyWorker {
		if a := w.current.Load(); a != nil && a.settled.Load() && a.delivery.Incoming().NativeID == nativeID {
			return true
		}
	}
	return false
}

// restartFetch ends Receive calls in progress, so that they begin again with the current
// settings.
func (p *pump) restartFetch() {
	p.interrupt()
	p.fetch, p.interrupt = context.WithCancel(p.base)
}

func (w *worker) run() {
	p := w.pump
	p.mu.Lock()
	p.staffing.coming--
	regular := false
	defer func() {
		if !regular { // a handler ended its goroutine (runtime.Goexit)
			p.mu.Lock()
			w.handled()
		}
		delete(p.everyWorker, w)
		if !regular && (!p.stopping || p.startable()) {
			p.hire()
		}
		if p.stopping {
			p.wakeUp.Broadcast()
		} else {
			p.wakeAnother() // it may have been woken for something
		}
		p.mu.Unlock()
	}()
	for {
		switch {
		case p.excess() > 0:
			items := p.takeLast(p.share(p.excess()))
			p.mu.Unlock()
			for _, item := range items {
				p.giveBack(item)
			}
			p.mu.Lock()
		case p.unwantedSuspects() > 0:
			items := p.takeSuspects(p.unwantedSuspects())
			p.mu.Unlock()
			for _, item := range items {
				p.giveBack(item)
			}
			p.mu.Lock()
		case p.stopping && !p.startable(), len(p.everyWorker) > p.staffing.wanted:
			regular = true
			return
		case p.startable() && p.running < p.limit:
			w.occupy()
			w.start(p.take())
		case p.suspectReady():
			w.occupy()
			w.start(w.takeSuspect())
		case p.closed() && !p.finishesPrefetched():
			w.wait()
		case p.want() > 0:
			w.receive(p.want())
		default:
			w.wait()
		}
	}
}

// start handles a delivery.
func (w *worker) start(item held) {
	p := w.pump
	w.handling = true
	p.isolation.handling++
	p.wakeAnother()
	p.mu.Unlock()
	p.handle(w, item)
	p.mu.Lock()
	w.handled()
}

// handled updates the worker after handle has returned.
func (w *worker) handled() {
	w.vacate()
	if w.handling {
		w.handling = false
		w.pump.isolation.handling--
		w.endIsolated()
	}
}

// wait is called, and returns, with mu held, as are all methods below but freeSlot.
func (w *worker) wait() {
	staffing := &w.pump.staffing
	staffing.idle++
	w.pump.wakeUp.Wait()
	staffing.idle--
	staffing.spare = min(staffing.spare, staffing.idle)
}

// freeSlot gives the slot back before the worker has settled its delivery, if overlap. If
// one message at a time is attempted, the attempt includes the settlement.
func (w *worker) freeSlot() {
	p := w.pump
	if !p.overlap {
		return
	}
	p.mu.Lock()
	if !p.slowed && p.isolation.isolated != w {
		w.vacate()
		p.wakeAnother()
	}
	p.mu.Unlock()
}

// takeSlotBack undoes freeSlot if the settlement failed: the failure is handled in a
// slot, as any other, even if that exceeds the limit by one.
func (w *worker) takeSlotBack() {
	p := w.pump
	p.mu.Lock()
	defer p.mu.Unlock()
	if !w.occupied {
		w.occupy()
	}
}

func (w *worker) occupy() {
	p := w.pump
	w.occupied, w.told = true, false
	w.since = time.Now()
	p.running++
	if p.slow > 0 && p.slowTimer == nil && !p.stopping {
		p.slowTimer = time.AfterFunc(p.slow, p.watchSlow)
	}
}

// vacate ends the measured time of the slot, which covers the handler only: the wait for
// the settlement grows with the number of waiting deliveries.
func (w *worker) vacate() {
	if !w.occupied {
		return
	}
	p := w.pump
	w.occupied = false
	p.running--
	p.ended++
	p.endStall()
	if p.ahead {
		p.measure(time.Since(w.since))
	}
}

// closed reports whether fetching from the broker is stopped.
func (p *pump) closed() bool {
	return p.stopping || p.gated > 0 || p.paused || p.parked || p.waiting != nil || p.hanging
}

// startable reports whether an unstarted delivery is to be handled. A delivery that
// cannot be given back is always handled, except during a wait.
func (p *pump) startable() bool {
	return p.buffered() > 0 && p.isolation.isolated == nil && (!p.closed() || p.consumed && p.waiting == nil || p.finishesPrefetched())
}

// finishesPrefetched reports whether the endpoint is paused and handles what it has
// prefetched, because the broker would count giving it back as an attempt.
func (p *pump) finishesPrefetched() bool {
	return p.paused && p.counts && !p.stopping && p.gated == 0 && p.waiting == nil && !p.hanging
}

// share is an idle worker's part of n tasks. It takes one more if they are not
// divided evenly.
func (p *pump) share(n int) int { return (n + p.staffing.idle) / (p.staffing.idle + 1) }

// wakeAnother wakes or starts one more worker if there is something to do.
func (p *pump) wakeAnother() {
	if p.staffing.idle == 0 && !p.mayHire() {
		return
	}
	switch {
	case (!p.startable() || p.running >= p.limit) && p.want() == 0 && !p.suspectReady():
	case p.staffing.idle > 0:
		p.wakeUp.Signal()
	default:
		p.hireOneMore()
	}
}
