// Package clock has the clocks of a broker, and the agenda of its future events.
package clock

import (
	"slices"
	"sync"
	"time"
)

// A Clock returns the time and calls functions later. It is safe for concurrent use.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f in a goroutine of the clock's choice once d has passed. The returned
	// function stops the call if it has not begun.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// System is the clock of the machine, or of the bubble in a test with testing/synctest.
type System struct{}

// Now returns the machine's time.
func (System) Now() time.Time { return time.Now() }

// AfterFunc calls f in a goroutine once d has passed.
func (System) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, f).Stop
}

// A Fake stands still until a test moves it with [Fake.Advance].
type Fake struct {
	mu     sync.Mutex
	now    time.Time
	serial int
	calls  []*fakeCall
}

type fakeCall struct {
	at     time.Time
	serial int
	f      func()
}

// NewFake returns a clock that stands at a time.
func NewFake(now time.Time) *Fake { return &Fake{now: now} }

// Now returns the time at which the clock stands.
func (c *Fake) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// AfterFunc calls f from the call of [Fake.Advance] that moves the clock by d or more.
func (c *Fake) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	call := &fakeCall{at: c.now.Add(d), serial: c.serial, f: f}
	c.calls = append(c.calls, call)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.Index(c.calls, call)
		if i < 0 {
			return false
		}
		c.calls = slices.Delete(c.calls, i, i+1)
		return true
	}
}

// Advance moves the clock and makes the calls that become due, in their order and at
// their times. It returns when all of them have returned.
func (c *Fake) Advance(d time.Duration) {
	c.mu.Lock()
	end := c.now.Add(d)
	for {
		next := -1
		for i, call := range c.calls {
			if call.at.After(end) {
				continue
			}
			if next < 0 || call.at.Before(c.calls[next].at) || call.at.Equal(c.calls[next].at) && call.serial < c.calls[next].serial {
				next = i
			}
		}
		if next < 0 {
			break
		}
		call := c.calls[next]
		c.calls = slices.Delete(c.calls, next, next+1)
		if call.at.After(c.now) {
			c.now = call.at
		}
		c.mu.Unlock()
		call.f()
		c.mu.Lock()
	}
	c.now = end
	c.mu.Unlock()
}

// An Instant is a time on the broker's clock in milliseconds since 1970, the precision of
// a timestamp in AMQP. Zero means none.
type Instant int64

// At returns the instant of a time.
func At(t time.Time) Instant { return Instant(t.UnixMilli()) }

// Time returns the instant as a time.
func (i Instant) Time() time.Time { return time.UnixMilli(int64(i)).UTC() }

// Add returns the instant after d.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d/time.Millisecond) }

// Until returns the time from the instant to a later one.
func (i Instant) Until(j Instant) time.Duration { return time.Duration(j-i) * time.Millisecond }
