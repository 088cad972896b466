package sqlserver

import (
	"context"
	"sync"
	"time"
)

const (
	// operationTimeout is the time after which a statement counts as lost, because the
	// network dropped it or its answer. No statement waits that long in the server.
	operationTimeout = 30 * time.Second
	// grace is how long an operation may continue after its caller stopped waiting:
	// cancelling it costs the connection, and its outcome remains unknown.
	grace = 2 * time.Second
)

// watchEvery is the interval at which operations in progress are checked.
const watchEvery = 100 * time.Millisecond

// operationTracker are the operations of a receiver that are in progress. A periodic check
// covers all of them: a timer and two callbacks for each would be a tenth of this side's
// work for a message in a transaction.
type operationTracker struct {
	life, closing context.Context // the transport's and the receiver's

	mu       sync.Mutex // guards the fields below, and the operations
	first    *operation
	watching *time.Timer // while there are operations
	closed   bool
}

// operation is the context of statements that must not be cancelled as soon as their
// caller's context ends. They then get some more time, as the contract requires (C3), and
// also when the receiver is closed.
type operation struct {
	of       *operationTracker
	caller   context.Context
	deadline time.Time
	done     chan struct{}

	next, last *operation // in the list of operations in progress
	unwanted   time.Time  // when the end of the caller's context was noticed
	err        error
	callbacks  []*callback
}

// callback is called when an operation is cancelled.
type callback struct{ f func() }

var _ context.Context = (*operation)(nil)

// begin returns a context for statements that begin now. The caller has to call end.
func (s *operationTracker) begin(caller context.Context) *operation {
	o := &operation{of: s, caller: caller, deadline: time.Now().Add(operationTimeout), done: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.life.Err() != nil {
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

// close cancels operations in progress, and later ones.
func (s *operationTracker) close() {
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

// end is called when the statements have ended.
func (o *operation) end() {
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.cancel(context.Canceled)
	if o.next != nil {
		o.next.last = o.last
	}
	if o.last != nil {
		o.last.next = o.next
	} else {
		o.of.first = o.next
	}
}

// watch cancels operations that take too long, or whose caller no longer waits.
func (s *operationTracker) watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watching = nil; s.closed || s.first == nil {
		return
	}
	s.watching = time.AfterFunc(watchEvery, s.watch)
	now := time.Now()
	for o := s.first; o != nil; o = o.next {
		switch {
		case s.life.Err() != nil:
			o.cancel(context.Canceled)
		case now.After(o.deadline):
			o.cancel(context.DeadlineExceeded)
		case o.caller.Err() == nil && s.closing.Err() == nil:
		case o.unwanted.IsZero():
			o.unwanted = now
		case now.Sub(o.unwanted) >= grace:
			o.cancel(context.Canceled)
		}
	}
}

// extend postpones the deadline by d.
func (o *operation) extend(d time.Duration) {
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	o.deadline = o.deadline.Add(d)
}

// cancel ends the context. mu is held.
func (o *operation) cancel(why error) {
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

// Deadline implements context.Context.
func (o *operation) Deadline() (time.Time, bool) {
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	return o.deadline, true
}

// Done implements context.Context.
func (o *operation) Done() <-chan struct{} { return o.done }

// Err implements context.Context.
func (o *operation) Err() error {
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	return o.err
}

// Value implements context.Context: tracers of statements find the caller's values.
func (o *operation) Value(key any) any { return o.caller.Value(key) }

// AfterFunc is for context.AfterFunc, which then needs no goroutine to wait for the end.
func (o *operation) AfterFunc(f func()) (stop func() bool) {
	o.of.mu.Lock()
	defer o.of.mu.Unlock()
	if o.err != nil {
		go f()
		return func() bool { return false }
	}
	c := &callback{f}
	o.callbacks = append(o.callbacks, c)
	return func() bool {
		o.of.mu.Lock()
		defer o.of.mu.Unlock()
		waits := c.f != nil
		c.f = nil
		return waits
	}
}
