package sqs

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// batcher makes requests of up to ten entries, of several callers: each request costs the same, with one entry
// or with ten. A full request leaves at once. One that is not full leaves when fewer such requests than partly are in
// progress, so that a single caller never waits for others, and many share requests. It waits for linger before that, while
// worthwhile reports that more entries may come.
type batcher[E any] struct {
	life      *transport.Lifecycle
	runners   *runners
	mostBytes int           // of one request; 0: no bound
	partly    int           // most requests at a time that are not full
	most      int           // most requests at a time
	linger    time.Duration // how long a request that is not full waits for more entries
	// worthwhile reports whether entries besides the n that wait may come soon. nil: none may.
	worthwhile func(n int) bool
	// added is called for each entry before it may leave, and ended for entries whose errors are known, before their callers
	// return. Both may be called with mu held. nil: neither is called.
	added func(*entry[E])
	ended func([]*entry[E])
	// do makes one request, and gives each entry its error.
	do func(ctx context.Context, entries []*entry[E])

	mu       sync.Mutex // guards the fields below
	waiting  []*entry[E]
	bytes    int // of waiting
	requests int
	partial  int // of them
	timer    *time.Timer
	due      bool // linger has passed
}

// entry is one operation of a request.
type entry[E any] struct {
	item  E
	bytes int
	err   error         // valid once done is closed
	done  chan struct{} // closed when the operation has succeeded or failed
	begun bool          // its request has left; the batcher's mu guards it
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

// startLocked begins as many requests as it may.
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
		b.waiting = nil // the array has pointers to the messages that were sent
		b.stopTimerLocked()
	}
}

// nextLocked returns how many entries the next request has, and whether it is full.
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

// await waits until an entry has succeeded or failed. When ctx ends before its request has left, the entry is withdrawn, and begun
// is false; after that the request goes on, and await waits for grace.
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
