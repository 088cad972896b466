package main

import (
	"context"
	"time"
)

// rawPause is the time for which a loop waits that found no message.
const rawPause = time.Millisecond

// idle waits, and reports whether to go on.
func idle(ctx context.Context) bool {
	select {
	case <-time.After(rawPause):
		return true
	case <-ctx.Done():
		return false
	}
}
