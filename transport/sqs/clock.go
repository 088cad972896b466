package sqs

import (
	"sync/atomic"
	"time"
)

// clock has the difference of the service's clock to this machine's. The zero value assumes that there is none.
type clock struct {
	ahead atomic.Int64
	exact atomic.Bool
}

// observe notes the time of the service's clock when, or shortly before, this machine's was at here, to the millisecond: messages that
// are received for the first time carry it.
func (c *clock) observe(there, here time.Time) {
	c.ahead.Store(int64(there.Sub(here)))
	c.exact.Store(true)
}

// estimate does so to the second, which every answer carries, rounded down. It is for the time until observe.
func (c *clock) estimate(there, here time.Time) {
	if !c.exact.Load() {
		c.ahead.Store(int64(there.Sub(here)))
	}
}

// now is the service's time, or up to a second before it.
func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
