//go:build darwin || linux

package sqs

import (
	"sync/atomic"
	"time"
)

// An instant is a time on the server's clock, in nanoseconds since 1970.
type instant int64

func (i instant) add(d time.Duration) instant { return i + instant(d) }
func (i instant) sub(j instant) time.Duration { return time.Duration(i - j) }
func (i instant) time() time.Time             { return time.Unix(0, int64(i)) }
func (i instant) seconds() int64              { return int64(i) / int64(time.Second) }
func (i instant) milliseconds() int64         { return int64(i) / int64(time.Millisecond) }
func instantOf(t time.Time) instant           { return instant(t.UnixNano()) }
func seconds(n int) time.Duration             { return time.Duration(n) * time.Second }

// A clock runs like the machine's clock, ahead of it by an offset.
type clock struct {
	machine func() time.Time
	offset  atomic.Int64
}

func (c *clock) now() instant            { return instantOf(c.machine()) + instant(c.offset.Load()) }
func (c *clock) advance(d time.Duration) { c.offset.Add(int64(d)) }
func (c *clock) ahead() time.Duration    { return time.Duration(c.offset.Load()) }
