// Package ratelimit counts consecutive failures and switches between normal and
// rate-limited mode (R40-R45).
package ratelimit

import (
	"sync"
	"sync/atomic"

	"github.com/reprise-go/reprise/core/internal/calls"
)

// Limiter counts failures. Its owner implements the switch between the modes.
type Limiter struct {
	Threshold int // 0 is off
	Filter    func(error) bool

	// The switches are called with mu held, and so in order. They must not block, and so
	// must not call users' code, log handlers included.
	OnLimit  func()          // entering the mode
	OnProbe  func()          // after a failed attempt in the mode and its action: wait
	OnNormal func()          // leaving the mode
	OnPanic  func(value any) // of the Filter

	mu      sync.Mutex
	failing atomic.Int64 // consecutive failures; 0 lets Succeeded return without the lock
	limited atomic.Bool  // changed with mu held
}

// Counts reports whether a failure with this error counts (R44).
func (l *Limiter) Counts(err error) bool {
	if l.Threshold == 0 || l.Filter == nil {
		return l.Threshold > 0
	}
	counts := true
	calls.Recover(l.OnPanic, func() { counts = l.Filter(err) })
	return counts
}

// Failed counts a failed attempt.
func (l *Limiter) Failed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.failing.Add(1)
	if !l.limited.Load() && n >= int64(l.Threshold) {
		l.limited.Store(true)
		l.OnLimit()
	}
}

// Probed is called after a failed attempt in the mode, when its action has been carried
// out.
func (l *Limiter) Probed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limited.Load() {
		l.OnProbe()
	}
}

// Succeeded resets the count, and ends the mode at once (R42).
func (l *Limiter) Succeeded() {
	if l.Threshold == 0 || l.failing.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failing.Store(0)
	if l.limited.Load() {
		l.limited.Store(false)
		l.OnNormal()
	}
}

// IsLimited takes no lock, so that the functions which are called at a switch may call
// it.
func (l *Limiter) IsLimited() bool { return l.limited.Load() }
