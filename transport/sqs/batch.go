package sqs

import (
	"context"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
)

// batcher makes requests of up to ten entries of what callers have to do at the same time: each request costs
// the same, whatever is in it. A full request leaves at once. One that is not
// full leaves when fewer such requests than partly are under way, so that a lone caller never
// waits for others, and many share requests; and no sooner than linger says.
type batcher[E any] struct {
	life      *transport.Lifecycle
	mostBytes int           // of one request; 0: no bound
	partly    int           // requests at a time that are not full
	most      int           // requests at a time
	linger    time.Duration // how long one that is not full waits for more while worthwhile says so
	// worthwhile reports whether more may come soon than the n entries that wait; nil: it is not.
	worthwhile func(n int) bool
	// do makes one request, and gives each entry its error.
	do func(ctx context.Context, entries []*entry[E])

	mu       sync.Mutex // guards what follows
	waiting  []*entry[E]
	bytes    int // of waiting
	requests int
	partial  int // of them
	timer    *time.Timer
	due      bool // linger is over
}

// entry is one thing to do.
type entry[E any] struct {
	what  E
	bytes int
	err   error         // its outcome, once done is closed
	done  chan struct{} // closed when it is known
	begun bool          // the batcher's mu guards it
}

// add orders entries, in this order.
func (b *batcher[E]) add(entries ...*entry[E]) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range entries {
		e.done = make(chan struct{})
		b.waiting = append(b.waiting, e)
		b.bytes += e.bytes
	}
	b.start()
}

// start begins as many requests as it may. mu is held.
func (b *batcher[E]) start() {
	for len(b.waiting) > 0 && b.requests < b.most {
		n, full := b.next()
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
		b.stopTimer()
		if !b.life.Go(func() { b.run(entries, full) }) {
			b.requests--
			for _, e := range entries {
				e.err = core.ErrClosed
				close(e.done)
			}
		}
	}
	if len(b.waiting) == 0 {
		b.stopTimer()
	}
}

// next is how many entries the next request has, and whether it has room for more.
func (b *batcher[E]) next() (n int, full bool) {
	bytes := 0
	for n < len(b.waiting) && n < receiveBatch {
		if bytes += b.waiting[n].bytes; b.mostBytes > 0 && bytes > b.mostBytes && n > 0 {
			return n, true
		}
		n++
	}
	return n, n == receiveBatch
}

func (b *batcher[E]) stopTimer() {
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
	b.start()
}

func (b *batcher[E]) run(entries []*entry[E], full bool) {
	ctx, cancel := context.WithTimeout(b.life.Context(), requestTimeout)
	b.do(ctx, entries)
	cancel()
	for _, e := range entries {
		close(e.done)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.requests--
	if !full {
		b.partial--
	}
	b.start()
}

// await waits for the outcome of an entry. begun says of a caller that gave up whether it may happen all
// the same; before it has begun it is not done any more.
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

// withdraw takes an entry back that is not under way yet.
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
			return true
		}
	}
	return false
}
