package measure

import (
	"context"
	"time"
)

// PollInterval is the time for which a loop waits that found no message.
const PollInterval = time.Millisecond

// WaitPollInterval waits, and reports whether to go on.
func WaitPollInterval(ctx context.Context) bool {
	select {
	case <-time.After(PollInterval):
		return true
	case <-ctx.Done():
		return false
	}
}
