// Package operation has the contexts of statements that may outlast their callers for a
// short time.
package operation

import (
	"context"
	"errors"
	"sync"
	"time"
)

const (
	// Timeout is the time after which a statement counts as lost, because the
	// network dropped it or its answer. No statement waits that long in the server.
	Timeout = 30 * time.Second
	// Grace is how long an operation may continue after its caller stopped waiting:
	// cancelling it costs the connection, and its outcome remains unknown.
	Grace = 2 * time.Second
)

// watchEvery is the interval at which operations in progress are checked.
const watchEvery = 100 * time.Millisecond

// Tracker are the operations of a receiver that are in progress. A periodic check
// covers all of them: a timer and two callbacks for each would be a tenth of this side's
// work for a message in a transaction.
type Tracker struct {
	Life, Closing context.Context // the transport's and the receiver's

	mu       sync.Mutex // guards the fields below, and the operations
	first    *Operation
	watching *time.Timer // while there are operations
	closed   bool
}

// Operation is the context of statements that must not be cancelled as soon as their
// caller's context ends. They then get some more time, as the contract requires (C3), and
// also when the receiver is closed.
type Operation struct {
	tracker  *Tracker
	caller   context.Context
	deadline time.Time
	settles  bool // it ends with the caller's deadline
	done     chan struct{}

	next, last *Operation // in the list of operations in progress
	unwanted   time.Time  // when the end of the caller's context was noticed
	err        error
	callbacks  []*callback
}

// callback is called when an operation is cancelled.
type callback struct{ f func() }

var _ context.Context = (*Operation)(nil)

// Begin returns a context for statements that begin now. The caller has to call End.
func (s *Tracker) Begin(caller context.Context) *Operation {
	return s.begin(&Operation{tracker: s, caller: caller})
}

// BeginSettlement is Begin for the statements of a settlement, which end when the deadline of
// the caller's context passes, soon after it.
func (s *Tracker) BeginSettlement(caller context.Context) *Operation {
	return s.begin(&Operation{tracker: s, caller: caller, settles: true})
}

func (s *Tracker) begin(o *Operation) *Operation {
	o.deadline, o.done = time.Now().Add(Timeout), make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.Life.Err() != nil {
		o.cancel(context.Canceled)
	}
	o.next = s.first
	if o.next != nil {
		o.next.last = o
	}
	s.first = o
	if s.watching == nil && !s.closed {
		s.watching = time.AfterFunc(watchEvery, s.watch)
	}
	return o
}

// Close cancels operations in progress, and later ones.
func (s *Tracker) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.watching != nil {
		s.watching.Stop()
	}
	for o := s.first; o != nil; o = o.next {
		o.cancel(context.Canceled)
	}
}

// End is called when the statements have ended.
func (o *Operation) End() {
	o.tracker.mu.Lock()
	defer o.tracker.mu.Unlock()
	o.cancel(context.Canceled)
	if o.next != nil {
		o.next.last = o.last
	}
	if o.last != nil {
		o.last.next = o.next
	} else {
		o.tracker.first = o.next
	}
}

// watch cancels operations that take too long, or whose caller no longer waits.
func (s *Tracker) watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watching = nil; s.closed || s.first == nil {
		return
	}
	s.watching = time.AfterFunc(watchEvery, s.watch)
	now := time.Now()
	for o := s.first; o != nil; o = o.next {
		switch {
		case s.Life.Err() != nil:
			o.cancel(context.Canceled)
		case now.After(o.deadline):
			o.cancel(context.DeadlineExceeded)
		case o.settles && errors.Is(o.caller.Err(), context.DeadlineExceeded):
			o.cancel(context.DeadlineExceeded)
		case o.caller.Err() == nil && s.Closing.Err() == nil:
		case o.unwanted.IsZero():
			o.unwanted = now
		case now.Sub(o.unwanted) >= Grace:
			o.cancel(context.Canceled)
		}
	}
}

// Extend postpones the deadline by d.
func (o *Operation) Extend(d time.Duration) {
	o.tracker.mu.Lock()
	defer o.tracker.mu.Unlock()
	o.deadline = o.deadline.Add(d)
}

// cancel ends the context. mu is held.
func (o *Operation) cancel(why error) {
	if o.err != nil {
		return
	}
	o.err = why
	close(o.done)
	for _, c := range o.callbacks {
		if c.f != nil {
			go c.f()
			c.f = nil
		}
	}
}

// WasCut reports whether the operation was cancelled before its deadline: its caller no
// longer waits, or the receiver or the transport is closed.
func (o *Operation) WasCut() bool {
	o.tracker.mu.Lock()
	defer o.tracker.mu.Unlock()
	return o.err != nil && time.Now().Before(o.deadline)
}

// Deadline implements context.Context.
func (o *Operation) Deadline() (time.Time, bool) {
	o.tracker.mu.Lock()
	defer o.tracker.mu.Unlock()
	return o.deadline, true
}

// Done implements context.Context.
func (o *Operation) Done() <-chan struct{} { return o.done }

// Err implements context.Context.
func (o *Operation) Err() error {
	o.tracker.mu.Lock()
	defer o.tracker.mu.Unlock()
	return o.err
}

// Value implements context.Context: tracers of statements find the caller's values.
func (o *Operation) Value(key any) any { return o.caller.Value(key) }

// AfterFunc is for context.AfterFunc, which then needs no goroutine to wait for the end.
func (o *Operation) AfterFunc(f func()) (stop func() bool) {
	o.tracker.mu.Lock()
	defer o.tracker.mu.Unlock()
	if o.err != nil {
		go f()
		return func() bool { return false }
	}
	c := &callback{f}
	o.callbacks = append(o.callbacks, c)
	return func() bool {
		o.tracker.mu.Lock()
		defer o.tracker.mu.Unlock()
		waits := c.f != nil
		c.f = nil
		return waits
	}
}
