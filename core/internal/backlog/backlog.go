// Package backlog tries deliveries again whose slot has been released.
package backlog

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/reprise-go/reprise/core/internal/delays"
)

// Backlog keeps deliveries whose slot has been released although they are not settled
// yet: a settlement failed, or a decision cannot be carried out. Each is tried again
// after a growing pause, with its lock renewed, until it is settled, its lock is lost or
// the endpoint stops. It takes no capacity from other messages: the receiver's limit
// grows by the number of kept deliveries.
//
// Sends of the engine without a delivery, such as an acknowledgement that could not be
// sent, are kept here too.
type Backlog struct {
	pump   Pump
	onFull func(now bool)
	limit  int // deliveries; above it no more are fetched

	mu         sync.Mutex
	entries    map[*Entry]struct{}
	copies     map[string]*Entry // entries with a CopyKey, by it
	deliveries int               // entries with a delivery
	stopped    bool
	empty      chan struct{} // closed when stopped and without entries

	// The length of copies, so that the usual case takes no lock.
	copyCount atomic.Int64
}

// Entry is one entry of a [Backlog]. Its functions are called by one goroutine at a
// time.
type Entry struct {
	// Try reports whether the entry is done.
	Try func() (done bool)
	// Cancel is called instead of a further try when the endpoint stops.
	Cancel  func()
	Backoff delays.Backoff
	// WithoutDelivery: there is no delivery to keep.
	WithoutDelivery bool
	// CopyKey is the key of the message's stored copy for which a decision is
	// tried, or empty.
	CopyKey string

	// Guarded by the backlog's mu.
	timer      *time.Timer
	superseded bool // the copy was delivered again
}

// Max limits the deliveries of a backlog, and separately the entries without one.
const Max = 1000

// Min is the lowest limit of the deliveries.
const Min = 10

// Pump has the functions by which a backlog controls the pump. They are called with the backlog
// locked, so that no further delivery is kept before fetching has stopped, and must not
// call the backlog.
type Pump struct {
	Retain         func(n int) // keeps n more deliveries without a slot; n may be negative
	PauseFetching  func()      // the limit is reached
	ResumeFetching func()      // it no longer is
}

// New returns an empty backlog. onFull, which may be nil, is called after the limit was
// reached, and after it no longer is.
func New(limit int, pump Pump, onFull func(now bool)) *Backlog {
	return &Backlog{limit: limit, pump: pump, onFull: onFull, entries: map[*Entry]struct{}{}, copies: map[string]*Entry{}, empty: make(chan struct{})}
}

// Add keeps an entry after its first failed try. If the endpoint has stopped, or if there
// are too many entries without a delivery, it calls Cancel instead.
func (b *Backlog) Add(e *Entry) {
	b.mu.Lock()
	if b.stopped || e.WithoutDelivery && len(b.entries)-b.deliveries >= Max {
		b.mu.Unlock()
		e.Cancel()
		return
	}
	b.entries[e] = struct{}{}
	if e.CopyKey != "" {
		b.copies[e.CopyKey] = e
		b.copyCount.Store(int64(len(b.copies)))
	}
	b.scheduleLocked(e, 1)
	if e.WithoutDelivery {
		b.mu.Unlock()
		return
	}
	b.deliveries++
	b.pump.Retain(1)
	full := b.deliveries == b.limit
	if full {
		b.pump.PauseFetching()
	}
	b.mu.Unlock()
	if full && b.onFull != nil {
		b.onFull(true)
	}
}

// scheduleLocked sets the timer for the next try.
func (b *Backlog) scheduleLocked(e *Entry, tries int) {
	e.timer = time.AfterFunc(e.Backoff.After(tries), func() { b.retry(e, tries+1) })
}

// retry makes one more try.
func (b *Backlog) retry(e *Entry, tries int) {
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
			e.Cancel()
		}
		b.remove(e)
	}()
	if !ended {
		done = e.Try()
	}
}

// HasCopies reports whether there may be entries with a CopyKey.
func (b *Backlog) HasCopies() bool { return b.copyCount.Load() > 0 }

// Limit returns the number of deliveries above which no more are fetched.
func (b *Backlog) Limit() int { return b.limit }

// Supersede cancels the entry for a copy of a message that was redelivered: the earlier
// delivery was lost, which not every transport reports before the settlement. A further
// Try would send the same message once more.
func (b *Backlog) Supersede(copyKey string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.copies[copyKey]
	if e == nil || b.stopped {
		return
	}
	b.forgetCopyLocked(e)
	e.superseded = true
	if e.timer.Stop() {
		go func() {
			e.Cancel()
			b.remove(e)
		}()
	}
}

// IsSuperseded reports whether the copy of an entry was delivered again (Supersede).
func (b *Backlog) IsSuperseded(e *Entry) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return e.superseded
}

func (b *Backlog) forgetCopyLocked(e *Entry) {
	if e.CopyKey != "" && b.copies[e.CopyKey] == e {
		delete(b.copies, e.CopyKey)
		b.copyCount.Store(int64(len(b.copies)))
	}
}

func (b *Backlog) remove(e *Entry) {
	b.mu.Lock()
	delete(b.entries, e)
	b.forgetCopyLocked(e)
	hasRoom := false
	if !e.WithoutDelivery {
		b.deliveries--
		hasRoom = b.deliveries == b.limit-1
	}
	if b.stopped {
		if len(b.entries) == 0 {
			close(b.empty)
		}
		b.mu.Unlock()
		return
	}
	if !e.WithoutDelivery {
		b.pump.Retain(-1)
	}
	if hasRoom {
		b.pump.ResumeFetching()
	}
	b.mu.Unlock()
	if hasRoom && b.onFull != nil {
		b.onFull(false)
	}
}

// Stop cancels all entries without a try in progress, and waits for the tries in
// progress, but not longer than the timeout.
func (b *Backlog) Stop(timeout time.Duration) bool {
	b.mu.Lock()
	b.stopped = true
	var waiting []*Entry
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
			e.Cancel()
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

// Size returns how many deliveries are kept.
func (b *Backlog) Size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.deliveries
}
