package core

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core/internal/delays"
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
	onFull func(now bool) // called when the limit is reached, and when it no longer is
	limit  int            // deliveries; above it no more are fetched

	mu         sync.Mutex
	entries    map[*backlogEntry]struct{}
	copies     map[string]*backlogEntry // entries with a copyKey, by it
	deliveries int                      // entries with a delivery
	stopped    bool
	empty      chan struct{} // closed when stopped and without entries

	// The length of copies, so that the usual case takes no lock.
	copyCount atomic.Int64
}

// backlogEntry is one entry of a backlog. Its functions are called by one goroutine at a
// time.
type backlogEntry struct {
	// try reports whether the entry is done.
	try func() (done bool)
	// cancel is called instead of a further try when the endpoint stops.
	cancel  func()
	backoff delays.Backoff
	// withoutDelivery: there is no delivery to keep.
	withoutDelivery bool
	// copyKey is the key of the message's stored copy (pendingKey) for which a decision is
	// tried, or empty.
	copyKey string
	// skipPause ends the first pause early when it ends, or is nil.
	skipPause context.Context

	// Guarded by the backlog's mu.
	timer         *time.Timer
	stopSkipPause func() bool
	superseded    bool // the copy was delivered again
}

var (
	// settlementBackoff is for the tries of a settlement.
	settlementBackoff = delays.Backoff{First: 50 * time.Millisecond, Last: 10 * time.Second}
	// moveBackoff is for the tries of a decision (R25).
	moveBackoff = delays.Backoff{First: time.Second, Last: maxUndeliveredPause}
)

// maxBacklog limits the deliveries of a backlog, and separately the entries without one.
const maxBacklog = 1000

// minBacklog is the lowest limit of the deliveries.
const minBacklog = 10

func newBacklog(limit int, retain func(n int), onFull func(now bool)) *backlog {
	return &backlog{limit: limit, retain: retain, onFull: onFull, entries: map[*backlogEntry]struct{}{}, copies: map[string]*backlogEntry{}, empty: make(chan struct{})}
}

// add keeps an entry after its first failed try. If the endpoint has stopped, or if there
// are too many entries without a delivery, it calls cancel instead.
func (b *backlog) add(e *backlogEntry) {
	b.mu.Lock()
	if b.stopped || e.withoutDelivery && len(b.entries)-b.deliveries >= maxBacklog {
		b.mu.Unlock()
		e.cancel()
		return
	}
	b.entries[e] = struct{}{}
	if e.copyKey != "" {
		b.copies[e.copyKey] = e
		b.copyCount.Store(int64(len(b.copies)))
	}
	b.scheduleLocked(e, 1)
	if e.skipPause != nil {
		e.stopSkipPause = context.AfterFunc(e.skipPause, func() { b.retryNow(e) })
	}
	if e.withoutDelivery {
		b.mu.Unlock()
		return
	}
	b.deliveries++
	full := b.deliveries == b.limit
	b.mu.Unlock()
	b.retain(1)
	if full {
		b.onFull(true)
	}
}

// scheduleLocked sets the timer for the next try.
func (b *backlog) scheduleLocked(e *backlogEntry, tries int) {
	e.timer = time.AfterFunc(e.backoff.After(tries), func() { b.retry(e, tries+1) })
}

// retryNow makes the next try of a waiting entry now.
func (b *backlog) retryNow(e *backlogEntry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, waiting := b.entries[e]; waiting && !b.stopped && e.timer.Stop() {
		e.timer.Reset(0)
	}
}

// retry makes one more try.
func (b *backlog) retry(e *backlogEntry, tries int) {
	b.mu.Lock()
	ended := b.stopped || e.superseded
	b.mu.Unlock()
	done := false
	defer func() { // also if users' code ended this goroutine: HandleFailed, an observer
		b.mu.Lock()
		if !done && !b.stopped && !e.superseded {
			b.scheduleLocked(e, tries)
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		if !done {
			e.cancel()
		}
		b.remove(e)
	}()
	if !ended {
		done = e.try()
	}
}

// supersede cancels the entry for a copy of a message that was redelivered: the earlier
// delivery was lost, which not every transport reports before the settlement. A further
// try would send the same message once more.
func (b *backlog) supersede(in *Incoming) {
	if b.copyCount.Load() == 0 || !mayBeRedelivery(in) {
		return
	}
	key := pendingKey(in)
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.copies[key]
	if e == nil || b.stopped {
		return
	}
	b.forgetCopyLocked(e)
	e.superseded = true
	if e.timer.Stop() {
		go func() {
			e.cancel()
			b.remove(e)
		}()
	}
}

func (b *backlog) forgetCopyLocked(e *backlogEntry) {
	if e.copyKey != "" && b.copies[e.copyKey] == e {
		delete(b.copies, e.copyKey)
		b.copyCount.Store(int64(len(b.copies)))
	}
}

func (b *backlog) remove(e *backlogEntry) {
	b.mu.Lock()
	delete(b.entries, e)
	if e.stopSkipPause != nil {
		e.stopSkipPause()
	}
	b.forgetCopyLocked(e)
	hasRoom := false
	if !e.withoutDelivery {
		b.deliveries--
		hasRoom = b.deliveries == b.limit-1
	}
	stopped := b.stopped
	if stopped && len(b.entries) == 0 {
		close(b.empty)
	}
	b.mu.Unlock()
	if stopped || e.withoutDelivery {
		return
	}
	b.retain(-1)
	if hasRoom {
		b.onFull(false)
	}
}

// stop cancels all entries without a try in progress, and waits for the tries in
// progress, but not longer than the timeout.
func (b *backlog) stop(timeout time.Duration) bool {
	b.mu.Lock()
	b.stopped = true
	var waiting []*backlogEntry
	for e := range b.entries {
		if e.timer.Stop() {
			waiting = append(waiting, e)
		}
	}
	if len(b.entries) == 0 {
		close(b.empty)
	}
	b.mu.Unlock()
	go func() {
		for _, e := range waiting {
			e.cancel()
			b.remove(e)
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
	return b.deliveries
}
