package sqs

import (
	"sync/atomic"
	"time"
)

// clock has the difference of the service's clock to this machine's, from messages that were received for the first
// time, which carry the time of that. The zero value assumes that there is none.
type clock struct{ ahead atomic.Int64 }

// observe notes that the service's clock was at there when, or shortly before, this machine's was at here.
func (c *clock) observe(there, here time.Time) { c.ahead.Store(int64(there.Sub(here))) }

// now is the service's time.
func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
