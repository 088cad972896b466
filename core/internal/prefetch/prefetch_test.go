package prefetch

import (
	"math"
	"testing"
	"time"
)

// measured returns an estimate after n deliveries that took equally long.
func measured(n int, each time.Duration) *Estimate {
	e := &Estimate{Max: Max}
	for range n {
		e.Measure(each)
	}
	return e
}

func TestEstimate(t *testing.T) {
	const ms = time.Millisecond
	for name, test := range map[string]struct {
		e            *Estimate
		slots, room  int
		target, keep int
	}{
		"nothing measured":                     {measured(0, 0), 10, math.MaxInt, 0, 0},
		"one fast handler":                     {measured(1, 1), 10, math.MaxInt, 10, Max},
		"many fast handlers":                   {measured(5000, 1), 10, math.MaxInt, Max, Max},
		"more slots than the maximum":          {measured(5000, 1), 2 * Max, math.MaxInt, 2 * Max, Max},
		"1 ms":                                 {measured(5000, ms), 10, math.MaxInt, 200, Max},
		"no more than measured":                {measured(50, ms), 10, math.MaxInt, 50, Max},
		"no more than there is room for":       {measured(5000, ms), 10, 7, 7, Max},
		"at least the slots, up to 500 ms":     {measured(5000, 500*ms), 10, math.MaxInt, 10, 10},
		"fewer than the slots for slow ones":   {measured(5000, time.Second), 10, math.MaxInt, 5, 5},
		"none for handlers that take too long": {measured(5000, time.Minute), 10, math.MaxInt, 0, 0},
	} {
		if got := test.e.Target(test.slots, test.room); got != test.target {
			t.Errorf("%s: target %d, want %d", name, got, test.target)
		}
		if got := test.e.Keep(test.slots); got != test.keep {
			t.Errorf("%s: keep %d, want %d", name, got, test.keep)
		}
	}
}

func TestReplaces(t *testing.T) {
	e := &Estimate{Max: Max}
	for _, test := range []struct {
		target, limit, slots int
		want                 bool
	}{
		{100, 100, 10, false},
		{150, 100, 10, false},
		{200, 100, 10, true},
		{Max, Max - 1, 10, true},
		{60, 100, 10, false},
		{50, 100, 10, true},
		{9, 12, 10, true},  // no more than the slots
		{9, 10, 10, false}, // as before
	} {
		if got := e.Replaces(test.target, test.limit, test.slots); got != test.want {
			t.Errorf("%+v", test)
		}
	}
}

func TestBytes(t *testing.T) {
	unlimited := &Bytes{}
	if unlimited.IsFull() || unlimited.Room() != math.MaxInt {
		t.Error("full without a limit")
	}
	b := &Bytes{Limit: 1000}
	if got := b.Room(); got != 1000 {
		t.Errorf("room for %d before the first", got)
	}
	b.Add(499)
	if got := b.Room(); b.IsFull() || got != 2 {
		t.Errorf("full %t, room %d", b.IsFull(), got)
	}
	b.Add(1)
	if !b.IsFull() {
		t.Error("half of the limit is not full")
	}
	b.Remove(499)
	for range 100 {
		b.Add(1)
		b.Remove(1)
	}
	if got := b.Room(); b.IsFull() || got < 50 {
		t.Errorf("full %t, room %d after a hundred small ones", b.IsFull(), got)
	}
	b.Add(5000)
	if got := b.Room(); got != 1 {
		t.Errorf("room for %d of more than the limit", got)
	}
}
