package sqs

import (
	"testing"
	"time"
)

// The date of an answer corrects the clock until a message tells it exactly, and not after that.
func TestClock_EstimateAndObservation(t *testing.T) {
	t.Parallel()
	var c clock
	here := time.Now()
	for i, step := range []struct {
		note  func(there, here time.Time)
		ahead time.Duration // of the service's clock
		want  time.Duration
	}{
		{c.estimate, time.Hour, time.Hour},
		{c.estimate, 2 * time.Hour, 2 * time.Hour},
		{c.observe, 3 * time.Hour, 3 * time.Hour},
		{c.estimate, 4 * time.Hour, 3 * time.Hour},
		{c.observe, -time.Hour, -time.Hour},
	} {
		step.note(here.Add(step.ahead), here)
		before := time.Now().Add(step.want)
		now := c.now()
		if now.Before(before) || now.After(time.Now().Add(step.want)) {
			t.Errorf("step %d: the service's time is %v, want %v after the machine's", i, now, step.want)
		}
	}
}
