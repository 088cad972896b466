package main

import (
	"context"
	"time"
)

// sample is one measurement.
type sample struct {
	messages int
	elapsed  time.Duration
	allocs   uint64 // of the whole process
	bytes    uint64
	requests float64 // to the server, if the store counts them
}

func (s sample) rate() float64         { return float64(s.messages) / s.elapsed.Seconds() }
func (s sample) micros() float64       { return s.elapsed.Seconds() * 1e6 / float64(s.messages) }
func (s sample) allocsEach() float64   { return float64(s.allocs) / float64(s.messages) }
func (s sample) requestsEach() float64 { return s.requests / float64(s.messages) }
func (s sample) bytesEach() float64    { return float64(s.bytes) / float64(s.messages) }

// trial is a contender with some work. Its name is that of its row.
type trial struct {
	name    string
	measure func(ctx context.Context) (sample, error)
}

// warmUp is the part of a sample before the measurement starts.
const warmUp = 10
