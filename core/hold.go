package core

import (
	"context"
	"sync"
	"time"
)

// hold is one delivery whose lock expires. For the handler it is a context that is
// cancelled with ErrLockLost when the lock is lost.
//
// The cancelable child context is created on the first call of Done or Err: most handlers
// never call them, and every child has to be registered in the work context, and removed
// again, under one lock for all of them.
type hold struct {
	delivery Delivery

	// Guarded by the renewer's mu.
	next          time.Time
	renewing      bool
	before, after *hold // in the renewer's ring; nil when it is in none

	mu     sync.Mutex
	lost   bool
	over   bool            // the attempt has ended, with or without success
	parent context.Context // nil until an attempt begins
	own    context.Context // parent's child, once it was needed
	cancel context.CancelCauseFunc
}

var _ context.Context = (*hold)(nil)

// ended is the context of attempts that have ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// begin makes h a context below parent, or returns false if the lock is lost.
func (h *hold) begin(parent context.Context) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.parent = parent
	return !h.lost
}

// end cancels the contexts below that of an attempt that has ended.
func (h *hold) end() {
	h.mu.Lock()
	cancel := h.cancel
	h.over = true
	h.mu.Unlock()
	if cancel != nil {
		cancel(nil)
	}
}

// lose notes that the lock is lost, and cancels the handler's context.
func (h *hold) lose() {
	h.mu.Lock()
	h.lost = true
	var cancel context.CancelCauseFunc
	if h.parent != nil && !h.over {
		h.child()
		cancel = h.cancel
	}
	h.mu.Unlock()
	if cancel != nil {
		cancel(ErrLockLost)
	}
}

func (h *hold) isLost() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lost
}

// child returns the context that can be cancelled. It is called with mu held.
func (h *hold) child() context.Context {
	switch {
	case h.own != nil:
	case h.over:
		h.own = ended
	default:
		h.own, h.cancel = context.WithCancelCause(h.parent)
	}
	return h.own
}

// Deadline implements context.Context.
func (h *hold) Deadline() (time.Time, bool) { return h.parent.Deadline() }

// Done implements context.Context.
func (h *hold) Done() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.child().Done()
}

// Err implements context.Context.
func (h *hold) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.own == nil && !h.over {
		return h.parent.Err() // it was not cancelled alone
	}
	return h.child().Err()
}

// Value implements context.Context. Package context finds by it the context that
// Done belongs to, and its cause.
func (h *hold) Value(key any) any {
	h.mu.Lock()
	var own context.Context
	if h.own != nil || h.over {
		own = h.child()
	}
	h.mu.Unlock()
	if own != nil {
		if value := own.Value(key); value != nil {
			return value
		}
	}
	return h.parent.Value(key)
}
