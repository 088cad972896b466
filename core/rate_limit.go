package core

import (
	"sync"
	"sync/atomic"
)

// rateLimiter counts consecutive failures and switches between normal and rate-limited
// mode (R40-R45). Its owner implements the switch.
type rateLimiter struct {
	threshold int // 0 is off
	filter    func(error) bool

	// The switches are called with mu held, and so in order. They must not block, and so
	// must not call users' code, log handlers included.
	onLimit  func()          // entering the mode
	onProbe  func()          // after a failed attempt in the mode and its action: wait
	onNormal func()          // leaving the mode
	onPanic  func(value any) // of the filter

	mu      sync.Mutex
	failing atomic.Int64 // consecutive failures; 0 lets succeeded return without the lock
	limited atomic.Bool  // changed with mu held
}

// counts reports whether a failure with this error counts (R44).
func (l *rateLimiter) counts(err error) bool {
	if l.threshold == 0 || l.filter == nil {
		return l.threshold > 0
	}
	counts := true
	recoverTo(l.onPanic, func() { counts = l.filter(err) })
	return counts
}

// failed counts a failed attempt.
func (l *rateLimiter) failed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.failing.Add(1)
	if !l.limited.Load() && n >= int64(l.threshold) {
		l.limited.Store(true)
		l.onLimit()
	}
}

// probed is called after a failed attempt in the mode, when its action has been carried
// out.
func (l *rateLimiter) probed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.limited.Load() {
		l.onProbe()
	}
}

// succeeded resets the count, and ends the mode at once (R42).
func (l *rateLimiter) succeeded() {
	if l.threshold == 0 || l.failing.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failing.Store(0)
	if l.limited.Load() {
		l.limited.Store(false)
		l.onNormal()
	}
}

// isLimited takes no lock, so that the functions which are called at a switch may call
// it.
func (l *rateLimiter) isLimited() bool { return l.limited.Load() }
