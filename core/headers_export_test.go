package core

import "sync/atomic"

// CountHeaders counts the headers that are compared or copied until stop is called.
func CountHeaders() (count *atomic.Int64, stop func()) {
	count = &atomic.Int64{}
	headerWork.Store(count)
	return count, func() { headerWork.Store(nil) }
}
