package transport_test

import (
	"testing"
	"time"

	"github.com/reprise-go/reprise/transport"
)

func TestServiceClock_TakesTheQuickestAnswer(t *testing.T) {
	t.Parallel()
	for _, offset := range []time.Duration{-90 * time.Second, time.Hour, 1500 * time.Millisecond} {
		var c transport.ServiceClock
		at := time.Now()
		for i, latency := range []time.Duration{5 * time.Second, 20 * time.Millisecond, time.Second, 400 * time.Millisecond} {
			c.Observe(at.Add(offset-latency), at)
			if got := c.Ahead(); got > offset {
				t.Errorf("after %d answers the broker is ahead by %v; it is by %v", i+1, got, offset)
			}
		}
		if got := c.Ahead(); got < offset-20*time.Millisecond {
			t.Errorf("the broker is ahead by %v, although an answer took 20 ms: want %v", got, offset)
		}
		before := time.Now()
		if now := c.Now().Add(-c.Ahead()); now.Before(before) || now.After(time.Now()) {
			t.Errorf("Now is %v, want it %v after this process's time", c.Now(), c.Ahead())
		}
	}
}

// A busy machine sees an answer late, and a date in whole seconds is up to a second before the time that it was written at.
func TestServiceClock_TakesClocksToAgreeWhereAnAnswerExplainsTheDifference(t *testing.T) {
	t.Parallel()
	at := time.Now()
	for late, want := range map[time.Duration]time.Duration{
		0: 0, 300 * time.Millisecond: 0, 1900 * time.Millisecond: 0, 2 * time.Second: -2 * time.Second, time.Minute: -time.Minute,
	} {
		var c transport.ServiceClock
		c.Observe(at.Add(-late), at)
		if got := c.Ahead(); got != want {
			t.Errorf("a time that is told %v late: the broker is ahead by %v, want %v", late, got, want)
		}
	}
}

func TestServiceClock_ForgetsOldObservations(t *testing.T) {
	t.Parallel()
	var c transport.ServiceClock
	at := time.Now()
	for i := range 4 { // the clock of the machine is set a minute forward
		offset := time.Duration(0)
		if i > 0 {
			offset = -time.Minute
		}
		c.Observe(at.Add(offset), at)
		at = at.Add(11 * time.Minute)
	}
	if got := c.Ahead(); got != -time.Minute {
		t.Errorf("half an hour later the broker is ahead by %v", got)
	}
}
