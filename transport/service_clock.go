package transport

import (
	"sync"
	"time"
)

// ServiceClock estimates a broker's clock from the times in the broker's answers and
// messages. With the zero value the clocks of the broker and of this process are taken to
// agree. It is safe for concurrent use.
type ServiceClock struct {
	mu       sync.Mutex    // guards the fields below
	current  time.Duration // the largest difference since began
	previous time.Duration // the largest one in the window before
	began    time.Time     // zero until the first Observe
	has      bool          // previous is known
}

// serviceClockWindow is how long an observation counts: clocks drift, and are adjusted.
const serviceClockWindow = 10 * time.Minute

// clocksAgree is the difference up to which a broker's clock that seems to be behind is
// taken to agree. Most of such a difference is the latency of the answer, and the
// fraction that is missing in a time in whole seconds.
const clocksAgree = 2 * time.Second

// Observe records that the broker's clock showed told, or a later time, when this
// process's clock showed at. The closer the two moments, the better the estimate. A later
// observation that is worse does not change the estimate for some minutes.
func (c *ServiceClock) Observe(told, at time.Time) {
	offset := told.Sub(at)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.began.IsZero():
		c.current, c.began = offset, at
	case at.Sub(c.began) > serviceClockWindow:
		c.previous, c.current, c.began, c.has = c.current, offset, at, true
	default:
		c.current = max(c.current, offset)
	}
}

// Ahead returns by how much the broker's clock is ahead of this process's; it is negative
// if the broker's clock is behind. The estimate tends to be too small rather than too
// large, except that a clock that is behind by less than two seconds is taken to agree.
func (c *ServiceClock) Ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	offset := c.current
	if c.has {
		offset = max(offset, c.previous)
	}
	if -clocksAgree < offset && offset < 0 {
		return 0
	}
	return offset
}

// Now returns the time by the broker's clock.
func (c *ServiceClock) Now() time.Time { return time.Now().Add(c.Ahead()) }
