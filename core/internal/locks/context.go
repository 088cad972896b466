package locks

import (
	"context"
	"sync"
	"time"
)

// Context is one delivery whose lock expires. For the handler it is a context that is
// cancelled when the lock is lost.
//
// The cancelable child context is created on the first call of Done or Err: most handlers
// never call them, and every child has to be registered in the handlers' context, and
// removed again, under one lock for all of them.
type Context struct {
	delivery Delivery

	// Guarded by the renewer's mu.
	renewAt    time.Time
	renewing   bool
	prev, next *Context // in the renewer's ring; nil when it is in none

	mu     sync.Mutex
	lost   bool
	ended  bool            // the attempt has ended, with or without success
	parent context.Context // nil until an attempt begins
	child  context.Context // parent's child, once it was needed
	cancel context.CancelCauseFunc
}

var _ context.Context = (*Context)(nil)

// endedContext is the context of attempts that have ended.
var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Begin makes l a context below parent, or returns false if the lock is lost.
func (l *Context) Begin(parent context.Context) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.parent = parent
	return !l.lost
}

// End cancels the contexts below that of an attempt that has ended.
func (l *Context) End() {
	l.mu.Lock()
	cancel := l.cancel
	l.ended = true
	l.mu.Unlock()
	if cancel != nil {
		cancel(nil)
	}
}

// lose records that the lock is lost, and cancels the handler's context.
func (l *Context) lose(cause error) {
	l.mu.Lock()
	l.lost = true
	var cancel context.CancelCauseFunc
	if l.parent != nil && !l.ended {
		l.childLocked()
		cancel = l.cancel
	}
	l.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}

// IsLost reports whether the lock is lost.
func (l *Context) IsLost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// childLocked returns the context that can be cancelled.
func (l *Context) childLocked() context.Context {
	switch {
	case l.child != nil:
	case l.ended:
		l.child = endedContext
	default:
		l.child, l.cancel = context.WithCancelCause(l.parent)
	}
	return l.child
}

// Deadline implements context.Context.
func (l *Context) Deadline() (time.Time, bool) { return l.parent.Deadline() }

// Done implements context.Context.
func (l *Context) Done() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.childLocked().Done()
}

// Err implements context.Context.
func (l *Context) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.child == nil && !l.ended {
		return l.parent.Err() // it was not cancelled alone
	}
	return l.childLocked().Err()
}

// Value implements context.Context. Package context finds by it the context that
// Done belongs to, and its cause.
func (l *Context) Value(key any) any {
	l.mu.Lock()
	var own context.Context
	if l.child != nil || l.ended {
		own = l.childLocked()
	}
	l.mu.Unlock()
	if own != nil {
		if value := own.Value(key); value != nil {
			return value
		}
	}
	return l.parent.Value(key)
}
