package core

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// backlog keeps deliveries whose slot has been released although they are not settled
// yet: a settlement failed, or a decision cannot be carried out. Each is tried again
// after a growing pause, with its lock renewed, until it is settled, its lock is lost or
// the endpoint stops. It takes no capacity from other messages: the receiver's limit
// grows by the number of kept deliveries (pump.retain).
//
// Sends of the engine without a delivery, such as an acknowledgement that could not be
// sent, are kept here too.
type backlog struct {
	retain func(n int)    // tells the pump how many more deliveries are kept
	full   func(now bool) // called when the bound is reached, and when it no longer is
	most   int            // deliveries; above it no more are fetched

	mu      sync.Mutex
	entries map[*unfinished]struct{}
	copies  map[string]*unfinished // entries with a copy, by that copy
	kept    int                    // entries with a delivery
	stopped bool
	empty   chan struct{} // closed when stopped and without entries

	// The length of copies, so that the usual case takes no lock.
	decided atomic.Int64
}

// unfinished is one entry of a backlog. Its functions are called by one goroutine
// at a time.
type unfinished struct {
	// try reports whether the entry is done.
	try func() (done bool)
	// giveUp is called instead of a further try when the endpoint stops.
	giveUp func()
	pause  pauses
	// owed: there is no delivery to keep.
	owed bool
	// copy is the key of the message's stored copy (pendingKey) for which a decision is
	// tried, or empty.
	copy string
	// early ends the first pause early when it ends, or is nil.
	early context.Context

	// Guarded by the backlog's mu.
	timer      *time.Timer
	stopEarly  func() bool
	superseded bool // the copy was delivered again
}

// pauses are the pauses between tries: they double from the first to the last.
type pauses struct {
	first, last time.Duration
}

// after returns the pause that follows the given number of tries.
func (p pauses) after(tries int) time.Duration {
	if tries > 30 {
		return p.last
	}
	return min(p.first<<max(tries-1, 0), p.last)
}

var (
	// settlementPauses are between the tries of a settlement.
	settlementPauses = pauses{50 * time.Millisecond, 10 * time.Second}
	// movePauses are between the tries of a decision (R25).
	movePauses = pauses{time.Second, longestUndeliveredHold}
)

// mostUnfinished bounds the deliveries of a backlog, and separately the entries
// without one.
const mostUnfinished = 1000

// leastUnsettled is the least bound of the deliveries.
const leastUnsettled = 10

func newBacklog(most int, retain func(n int), full func(now bool)) *backlog {
	return &backlog{most: most, retain: retain, full: full, entries: map[*unfinished]struct{}{}, copies: map[string]*unfinished{}, empty: make(chan struct{})}
}

// add keeps an entry after its first failed try. If the endpoint has stopped, or if there
// are too many entries without a delivery, it calls giveUp instead.
func (b *backlog) add(u *unfinished) {
	b.mu.Lock()
	if b.stopped || u.owed && len(b.entries)-b.kept >= mostUnfinished {
		b.mu.Unlock()
		u.giveUp()
		return
	}
	b.entries[u] = struct{}{}
	if u.copy != "" {
		b.copies[u.copy] = u
		b.decided.Store(int64(len(b.copies)))
	}
	b.wait(u, 1)
	if u.early != nil {
		u.stopEarly = context.AfterFunc(u.early, func() { b.hasten(u) })
	}
	if u.owed {
		b.mu.Unlock()
		return
	}
	b.kept++
	full := b.kept == b.most
	b.mu.Unlock()
	b.retain(1)
	if full {
		b.full(true)
	}
}

// wait sets the timer for the next try. b.mu is held.
func (b *backlog) wait(u *unfinished, tries int) {
	u.timer = time.AfterFunc(u.pause.after(tries), func() { b.again(u, tries+1) })
}

// hasten makes the next try of a waiting entry now.
func (b *backlog) hasten(u *unfinished) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, waits := b.entries[u]; waits && !b.stopped && u.timer.Stop() {
		u.timer.Reset(0)
	}
}

// again makes one more try.
func (b *backlog) again(u *unfinished, tries int) {
	b.mu.Lock()
	ended := b.stopped || u.superseded
	b.mu.Unlock()
	done := false
	defer func() { // also if users' code ended this goroutine: HandleFailed, an observer
		b.mu.Lock()
		if !done && !b.stopped && !u.superseded {
			b.wait(u, tries)
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		if !done {
			u.giveUp()
		}
		b.remove(u)
	}()
	if !ended {
		done = u.try()
	}
}

// supersede gives up the entry for a copy of a message that was redelivered: the earlier
// delivery was lost, which not every transport reports before the settlement. A further
// try would send the same message once more.
func (b *backlog) supersede(in *Incoming) {
	if b.decided.Load() == 0 || !mayBeRemembered(in) {
		return
	}
	key := pendingKey(in)
	b.mu.Lock()
	defer b.mu.Unlock()
	u := b.copies[key]
	if u == nil || b.stopped {
		return
	}
	b.forgetCopyLocked(u)
	u.superseded = true
	if u.timer.Stop() {
		go func() {
			u.giveUp()
			b.remove(u)
		}()
	}
}

func (b *backlog) forgetCopyLocked(u *unfinished) {
	if u.copy != "" && b.copies[u.copy] == u {
		delete(b.copies, u.copy)
		b.decided.Store(int64(len(b.copies)))
	}
}

func (b *backlog) remove(u *unfinished) {
	b.mu.Lock()
	delete(b.entries, u)
	if u.stopEarly != nil {
		u.stopEarly()
	}
	b.forgetCopyLocked(u)
	notFull := false
	if !u.owed {
		b.kept--
		notFull = b.kept == b.most-1
	}
	stopped := b.stopped
	if stopped && len(b.entries) == 0 {
		close(b.empty)
	}
	b.mu.Unlock()
	if stopped || u.owed {
		return
	}
	b.retain(-1)
	if notFull {
		b.full(false)
	}
}

// stop gives up all entries without a try in progress, and waits for the tries in
// progress, but not longer than the timeout.
func (b *backlog) stop(timeout time.Duration) bool {
	b.mu.Lock()
	b.stopped = true
	var waiting []*unfinished
	for u := range b.entries {
		if u.timer.Stop() {
			waiting = append(waiting, u)
		}
	}
	if len(b.entries) == 0 {
		close(b.empty)
	}
	b.mu.Unlock()
	go func() {
		for _, u := range waiting {
			u.giveUp()
			b.remove(u)
		}
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-b.empty:
		return true
	case <-timer.C:
		return false
	}
}

// size returns how many deliveries are kept.
func (b *backlog) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.kept
}
