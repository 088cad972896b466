package delays

import "time"

// Backoff has the pauses between tries, which double from the first to the last.
type Backoff struct {
	First, Last time.Duration
}

// After returns the pause that follows the given number of tries.
func (b Backoff) After(tries int) time.Duration {
	if tries > 30 {
		return b.Last
	}
	return min(b.First<<max(tries-1, 0), b.Last)
}
