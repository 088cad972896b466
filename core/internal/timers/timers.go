// Package timers stops timers that may not be set.
package timers

import "time"

// Stop stops a timer if it is set, and forgets it.
func Stop(t **time.Timer) {
	if *t != nil {
		(*t).Stop()
		*t = nil
	}
}
