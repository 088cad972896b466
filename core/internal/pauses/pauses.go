// Package pauses computes the pauses of an endpoint after messages that were put back.
package pauses

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"
)

const (
	minPause = time.Second
	maxPause = 30 * time.Second
)

// Pauses has the pauses of one Run.
type Pauses struct {
	// Wait lets the endpoint wait for d from now. It is called by one goroutine at a time,
	// and must not call Pauses.
	Wait func(d time.Duration)

	active atomic.Bool // whether there is something to reset
	mu     sync.Mutex
	length time.Duration // of the newest pause that grows
	end    time.Time     // when the newest pause ends
}

// Begin lets the endpoint wait. A requested length of 0 is one that grows. It returns the
// time for which the endpoint waits, and whether a pause begins now or is part of one that
// began earlier.
func (p *Pauses) Begin(requested time.Duration) (length time.Duration, begins bool) {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active.Store(true)
	begins = !now.Before(p.end)
	if requested == 0 {
		if begins {
			p.length = min(2*p.length, maxPause)
		}
		p.length = max(p.length, minPause) // also after a pause with a length
	}
	if begins || requested > 0 {
		if end := now.Add(cmp.Or(requested, p.length)); end.After(p.end) {
			p.end = end
		}
	}
	length = p.end.Sub(now)
	p.Wait(length)
	return length, begins
}

// Reset is called after a message that ended in another way: the next pause that grows
// begins with the first length.
func (p *Pauses) Reset() {
	if !p.active.Load() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.length = 0
	p.active.Store(time.Now().Before(p.end))
}
