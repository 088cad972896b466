package measure

import (
	"context"
	"time"
)

// Sample is one measurement.
type Sample struct {
	messages int
	elapsed  time.Duration
	allocs   uint64 // of the whole process
	bytes    uint64
	requests float64 // to the server, if the store counts them
}

// Rate returns the messages per second.
func (s Sample) Rate() float64 { return float64(s.messages) / s.elapsed.Seconds() }

// Micros returns the microseconds per message.
func (s Sample) Micros() float64 { return s.elapsed.Seconds() * 1e6 / float64(s.messages) }

// AllocsEach returns the allocations per message.
func (s Sample) AllocsEach() float64 { return float64(s.allocs) / float64(s.messages) }

// BytesEach returns the allocated bytes per message.
func (s Sample) BytesEach() float64 { return float64(s.bytes) / float64(s.messages) }

// RequestsEach returns the requests to the server per message; it is 0 if the store does not count them.
func (s Sample) RequestsEach() float64 { return s.requests / float64(s.messages) }

// Trial is a contender with some work. Its name is that of its row.
type Trial struct {
	Name    string
	Measure func(ctx context.Context) (Sample, error)
}

// warmUp is the part of a sample before the measurement starts.
const warmUp = 10
