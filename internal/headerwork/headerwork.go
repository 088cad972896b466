// Package headerwork counts, in tests, how often the headers of messages are compared or
// copied. Senders decide how many headers a message has, so the work for a message must grow
// in proportion to them.
package headerwork

import "sync/atomic"

var counter atomic.Pointer[atomic.Int64]

// Add adds n headers that were compared or copied. It does nothing while nothing counts.
func Add(n int) {
	if count := counter.Load(); count != nil {
		count.Add(int64(n))
	}
}

// Count counts, in the whole process, until stop is called.
func Count() (count *atomic.Int64, stop func()) {
	count = &atomic.Int64{}
	counter.Store(count)
	return count, func() { counter.Store(nil) }
}
