// Package batch combines operations of several callers into requests, and makes these in goroutines that it reuses.
package batch

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// Batcher combines entries of several callers into requests of up to ten: a request costs
// the same with one entry or with ten. A full request leaves at once. A request that is
// not full leaves when fewer than Partly such requests are in progress, so that a single
// caller never waits for others, and many callers share requests. While Worthwhile
// reports that more entries may come, such a request first waits for Linger.
type Batcher[E any] struct {
	Life          *transport.Lifecycle
	Runners       *Runners
	MaxBytes      int           // of one request; 0: no limit
	Partly        int           // most concurrent requests that are not full
	MaxConcurrent int           // most concurrent requests
	Timeout       time.Duration // of one request
	Linger        time.Duration // how long a request that is not full waits for more entries
	// Worthwhile reports whether entries may come soon in addition to the n waiting ones.
	// nil: none may.
	Worthwhile func(n int) bool
	// Added is called for each entry before it may leave. Ended is called for entries
	// whose errors are known, before their callers return. Both may be called with mu
	// held, and both may be nil.
	Added func(*Entry[E])
	Ended func([]*Entry[E])
	// Do makes one request, and sets the error of each entry.
	Do func(ctx context.Context, entries []*Entry[E])

	mu       sync.Mutex // guards the fields below
	waiting  []*Entry[E]
	bytes    int // of waiting
	requests int
	partial  int // requests that are not full
	timer    *time.Timer
	due      bool // Linger has passed
}

// MaxEntries is the most operations of a request to the service.
const MaxEntries = 10

// Entry is one operation of a request.
type Entry[E any] struct {
	Item  E
	Bytes int
	Err   error         // valid once done is closed
	done  chan struct{} // closed when the operation has succeeded or failed

	request *request // once it has left; guarded by the batcher's mu
}

// request is a request in progress.
type request struct {
	ctx     context.Context
	cancel  context.CancelFunc
	waiting int // callers; guarded by the batcher's mu
}

// Add queues entries, in this order.
func (b *Batcher[E]) Add(entries ...*Entry[E]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range entries {
		e.done = make(chan struct{})
		b.waiting = append(b.waiting, e)
		b.bytes += e.Bytes
		if b.Added != nil {
			b.Added(e)
		}
	}
	b.startLocked()
}

// startLocked starts as many requests as allowed.
func (b *Batcher[E]) startLocked() {
	for len(b.waiting) > 0 && b.requests < b.MaxConcurrent {
		n, full := b.nextLocked()
		if !full {
			if b.partial >= b.Partly {
				return
			}
			if !b.due && b.Linger > 0 && b.Worthwhile != nil && b.Worthwhile(n) {
				if b.timer == nil {
					b.timer = time.AfterFunc(b.Linger, b.lingered)
				}
				return
			}
			b.partial++
		}
		entries := b.waiting[:n:n]
		b.waiting = b.waiting[n:]
		r := &request{waiting: n}
		r.ctx, r.cancel = context.WithTimeout(b.Life.Context(), b.Timeout)
		for _, e := range entries {
			e.request = r
			b.bytes -= e.Bytes
		}
		b.requests++
		b.stopTimerLocked()
		if !b.Runners.run(func() { b.run(r, entries, full) }) {
			r.cancel()
			b.requests--
			for _, e := range entries {
				e.Err = core.ErrClosed
			}
			b.end(entries)
		}
	}
	if len(b.waiting) == 0 {
		b.waiting = nil // the array has pointers to sent messages
		b.stopTimerLocked()
	}
}

// nextLocked returns the number of entries of the next request, and whether it is full.
func (b *Batcher[E]) nextLocked() (n int, full bool) {
	bytes := 0
	for n < len(b.waiting) && n < MaxEntries {
		if bytes += b.waiting[n].Bytes; b.MaxBytes > 0 && bytes > b.MaxBytes && n > 0 {
			return n, true
		}
		n++
	}
	return n, n == MaxEntries
}

func (b *Batcher[E]) stopTimerLocked() {
	b.due = false
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

func (b *Batcher[E]) lingered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer = nil
	b.due = true
	b.startLocked()
}

func (b *Batcher[E]) run(r *request, entries []*Entry[E], full bool) {
	b.Do(r.ctx, entries)
	r.cancel()
	b.end(entries)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests--
	if !full {
		b.partial--
	}
	b.startLocked()
}

// end lets the callers of entries return.
func (b *Batcher[E]) end(entries []*Entry[E]) {
	if b.Ended != nil {
		b.Ended(entries)
	}
	for _, e := range entries {
		close(e.done)
	}
}

// Await waits until an entry has succeeded or failed. If ctx ends before the entry's
// request has left, the entry is withdrawn, and begun is false; if ctx ends later, the
// request continues, and await waits for at most grace.
func (b *Batcher[E]) Await(ctx context.Context, e *Entry[E], grace time.Duration) (err error, begun bool) {
	select {
	case <-e.done:
		return e.Err, true
	default:
	}
	select {
	case <-e.done:
		return e.Err, true
	case <-ctx.Done():
	}
	if b.withdraw(e) {
		return ctx.Err(), false
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-e.done:
		return e.Err, true
	case <-timer.C:
		return ctx.Err(), true
	}
}

// Cancel cancels the request of an entry whose caller waits no longer, once no other caller
// waits for the request. Its error is then known soon, and nothing of it happens later.
func (b *Batcher[E]) Cancel(e *Entry[E]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.request != nil {
		if e.request.waiting--; e.request.waiting == 0 {
			e.request.cancel()
		}
	}
}

// ErrWithdrawn is the error of an entry that was withdrawn.
var ErrWithdrawn = errors.New("withdrawn")

// withdraw removes an entry whose request has not left yet, and reports whether it did.
func (b *Batcher[E]) withdraw(e *Entry[E]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.request != nil {
		return false
	}
	for i, w := range b.waiting {
		if w == e {
			b.waiting = append(b.waiting[:i:i], b.waiting[i+1:]...)
			b.bytes -= e.Bytes
			e.Err = ErrWithdrawn
			b.end([]*Entry[E]{e})
			return true
		}
	}
	return false
}
