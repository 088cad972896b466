package transport

import (
	"context"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/reprise-go/reprise/core"
)

// Lifecycle is the part of a Transport that opens and closes: it knows whether the
// transport is open, its open receivers, and its goroutines, which must have ended when
// [Lifecycle.Close] returns. An adapter's New creates one with [NewLifecycle]. It
// is safe for concurrent use.
type Lifecycle struct {
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{} // closed when Close has finished

	closed atomic.Bool // written with mu held

	mu         sync.Mutex // guards receivers, and prevents additions after Close
	receivers  map[core.Receiver]struct{}
	goroutines sync.WaitGroup
}

// NewLifecycle returns the Lifecycle of an open transport.
func NewLifecycle() *Lifecycle {
	l := &Lifecycle{done: make(chan struct{}), receivers: map[core.Receiver]struct{}{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Context ends in [Lifecycle.Close], once all receivers are closed. Goroutines and
// connections of the transport use it.
func (l *Lifecycle) Context() context.Context { return l.ctx }

// Err returns [core.ErrClosed] after [Lifecycle.Close], otherwise ctx.Err(). Every
// operation calls it first.
func (l *Lifecycle) Err(ctx context.Context) error {
	if l.closed.Load() {
		return core.ErrClosed
	}
	return ctx.Err()
}

// Add registers an opened receiver for [Lifecycle.Close]. It returns [core.ErrClosed] if
// the transport was closed while the receiver was being opened; Close does not close that
// receiver.
func (l *Lifecycle) Add(r core.Receiver) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return core.ErrClosed
	}
	l.receivers[r] = struct{}{}
	return nil
}

// Remove unregisters a receiver. A receiver's Close calls it last.
func (l *Lifecycle) Remove(r core.Receiver) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.receivers, r)
}

// Receivers returns the open receivers.
func (l *Lifecycle) Receivers() []core.Receiver {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.receivers))
}

// Go runs f in a goroutine that [Lifecycle.Close] waits for. f must return when
// [Lifecycle.Context] has ended, or when the function given to Close has disconnected it.
// After Close, Go does not run f and returns false.
func (l *Lifecycle) Go(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed.Load() {
		return false
	}
	l.goroutines.Go(f)
	return true
}

// Close closes all receivers, at the same time and with ctx, ends [Lifecycle.Context],
// calls disconnect unless it is nil, and waits for the goroutines. As soon as Close
// begins, everything else is refused. The first call returns true; all other calls wait
// for the first one and return false.
func (l *Lifecycle) Close(ctx context.Context, disconnect func()) bool {
	l.mu.Lock()
	first := !l.closed.Swap(true)
	l.mu.Unlock()
	if !first {
		<-l.done
		return false
	}
	defer close(l.done)
	var closing sync.WaitGroup
	for _, r := range l.Receivers() {
		closing.Go(func() { _ = r.Close(ctx) })
	}
	closing.Wait()
	l.cancel()
	if disconnect != nil {
		disconnect()
	}
	l.goroutines.Wait()
	return true
}
