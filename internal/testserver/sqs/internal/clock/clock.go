// Package clock has the clock of the server, which a test can move.
package clock

import (
	"sync/atomic"
	"time"
)

// An Instant is a time on the server's clock, in nanoseconds since 1970.
type Instant int64

// Add returns the instant after d.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub returns the time from j to i.
func (i Instant) Sub(j Instant) time.Duration { return time.Duration(i - j) }

// Time returns the instant as a time.
func (i Instant) Time() time.Time { return time.Unix(0, int64(i)) }

// Seconds returns the seconds since 1970.
func (i Instant) Seconds() int64 { return int64(i) / int64(time.Second) }

// Milliseconds returns the milliseconds since 1970.
func (i Instant) Milliseconds() int64 { return int64(i) / int64(time.Millisecond) }

// At returns the instant of a time.
func At(t time.Time) Instant { return Instant(t.UnixNano()) }

// Seconds returns a duration of n seconds.
func Seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// A Clock runs like the machine's clock, ahead of it by an offset.
type Clock struct {
	machine func() time.Time
	offset  atomic.Int64
}

// New returns a clock that shows the time of another one.
func New(machine func() time.Time) *Clock { return &Clock{machine: machine} }

// SetAhead sets the clock ahead of the machine's.
func (c *Clock) SetAhead(d time.Duration) { c.offset.Store(int64(d)) }

// Now returns the time on the clock.
func (c *Clock) Now() Instant { return At(c.machine()) + Instant(c.offset.Load()) }

// Advance moves the clock forward.
func (c *Clock) Advance(d time.Duration) { c.offset.Add(int64(d)) }

// Ahead returns by how much the clock is ahead of the machine's.
func (c *Clock) Ahead() time.Duration { return time.Duration(c.offset.Load()) }
