package sqs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// batcher combines entries of several callers into requests of up to ten: a request costs
// the same with one entry or with ten. A full request leaves at once. A request that is
// not full leaves when fewer than partly such requests are in progress, so that a single
// caller never waits for others, and many callers share requests. While worthwhile
// reports that more entries may come, such a request first waits for linger.
type batcher[E any] struct {
	life      *transport.Lifecycle
	runners   *runners
	mostBytes int           // of one request; 0: no limit
	partly    int           // most concurrent requests that are not full
	most      int           // most concurrent requests
	linger    time.Duration // how long a request that is not full waits for more entries
	// worthwhile reports whether entries may come soon in addition to the n waiting ones.
	// nil: none may.
	worthwhile func(n int) bool
	// added is called for each entry before it may leave. ended is called for entries
	// whose errors are known, before their callers return. Both may be called with mu
	// held, and both may be nil.
	added func(*entry[E])
	ended func([]*entry[E])
	// do makes one request, and sets the error of each entry.
	do func(ctx context.Context, entries []*entry[E])

	mu       sync.Mutex // guards the fields below
	waiting  []*entry[E]
	bytes    int // of waiting
	requests int
	partial  int // requests that are not full
	timer    *time.Timer
	due      bool // linger has passed
}

// entry is one operation of a request.
type entry[E any] struct {
	item  E
	bytes int
	err   error         // valid once done is closed
	done  chan struct{} // closed when the operation has succeeded or failed
	begun bool          // its request has left; guarded by the batcher's mu
}

// add queues entries, in this order.
func (b *batcher[E]) add(entries ...*entry[E]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range entries {
		e.done = make(chan struct{})
		b.waiting = append(b.waiting, e)
		b.bytes += e.bytes
		if b.added != nil {
			b.added(e)
		}
	}
	b.startLocked()
}

// startLocked starts as many requests as allowed.
func (b *batcher[E]) startLocked() {
	for len(b.waiting) > 0 && b.requests < b.most {
		n, full := b.nextLocked()
		if !full {
			if b.partial >= b.partly {
				return
			}
			if !b.due && b.linger > 0 && b.worthwhile != nil && b.worthwhile(n) {
				if b.timer == nil {
					b.timer = time.AfterFunc(b.linger, b.lingered)
				}
				return
			}
			b.partial++
		}
		entries := b.waiting[:n:n]
		b.waiting = b.waiting[n:]
		for _, e := range entries {
			e.begun = true
			b.bytes -= e.bytes
		}
		b.requests++
		b.stopTimerLocked()
		if !b.runners.run(func() { b.run(entries, full) }) {
			b.requests--
			for _, e := range entries {
				e.err = core.ErrClosed
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
func (b *batcher[E]) nextLocked() (n int, full bool) {
	bytes := 0
	for n < len(b.waiting) && n < receiveBatch {
		if bytes += b.waiting[n].bytes; b.mostBytes > 0 && bytes > b.mostBytes && n > 0 {
			return n, true
		}
		n++
	}
	return n, n == receiveBatch
}

func (b *batcher[E]) stopTimerLocked() {
	b.due = false
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

func (b *batcher[E]) lingered() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.timer = nil
	b.due = true
	b.startLocked()
}

func (b *batcher[E]) run(entries []*entry[E], full bool) {
	ctx, cancel := context.WithTimeout(b.life.Context(), requestTimeout)
	b.do(ctx, entries)
	cancel()
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
func (b *batcher[E]) end(entries []*entry[E]) {
	if b.ended != nil {
		b.ended(entries)
	}
	for _, e := range entries {
		close(e.done)
	}
}

// await waits until an entry has succeeded or failed. If ctx ends before the entry's
// request has left, the entry is withdrawn, and begun is false; if ctx ends later, the
// request continues, and await waits for at most grace.
func (b *batcher[E]) await(ctx context.Context, e *entry[E], grace time.Duration) (err error, begun bool) {
	select {
	case <-e.done:
		return e.err, true
	default:
	}
	select {
	case <-e.done:
		return e.err, true
	case <-ctx.Done():
	}
	if b.withdraw(e) {
		return ctx.Err(), false
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-e.done:
		return e.err, true
	case <-timer.C:
		return ctx.Err(), true
	}
}

// errWithdrawn is the error of an entry that was withdrawn.
var errWithdrawn = errors.New("withdrawn")

// withdraw removes an entry whose request has not left yet, and reports whether it did.
func (b *batcher[E]) withdraw(e *entry[E]) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.begun {
		return false
	}
	for i, w := range b.waiting {
		if w == e {
			b.waiting = append(b.waiting[:i:i], b.waiting[i+1:]...)
			b.bytes -= e.bytes
			e.err = errWithdrawn
			b.end([]*entry[E]{e})
			return true
		}
	}
	return false
}
