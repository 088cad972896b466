package transport

import (
	"context"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Sleep pauses for d, or until wake gets a value or is closed; wake may be nil. If it
// ends before that, it returns ctx.Err(), or [core.ErrClosed] if life, the Context of the
// Lifecycle or of a receiver, has ended.
func Sleep(ctx, life context.Context, d time.Duration, wake <-chan struct{}) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-wake:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-life.Done():
		return core.ErrClosed
	}
}

// Signal wakes a goroutine that receives from it. It stores one wake-up: a goroutine that
// begins to receive after [Signal.Notify] wakes at once, and several calls of Notify
// before that wake one goroutine once. Call Notify after a change; the goroutine that
// wakes checks everything that may have changed.
type Signal chan struct{}

// NewSignal returns a Signal without a wake-up.
func NewSignal() Signal { return make(Signal, 1) }

// Notify wakes a goroutine that receives, or the next one that will. It never blocks.
func (s Signal) Notify() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// Await waits until the counter of a WaitGroup is zero, or ctx ends.
func Await(ctx context.Context, group *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}
