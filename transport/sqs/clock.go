package sqs

import (
	"sync/atomic"
	"time"
)

// clock knows how far the service's clock is ahead of this machine's, from messages that it has just
// received for the first time: it tells when that was. The zero value takes them for the same.
type clock struct{ ahead atomic.Int64 }

// observe notes that the service's clock was at there when this machine's was at here, or up to the time of an answer
// before.
func (c *clock) observe(there, here time.Time) { c.ahead.Store(int64(there.Sub(here))) }

// now is the service's time.
func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
