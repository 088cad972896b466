package pauses

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// recorded returns the pauses of an endpoint whose waits are written to waits.
func recorded(waits *[]time.Duration) *Pauses {
	return &Pauses{Wait: func(d time.Duration) { *waits = append(*waits, d) }}
}

func TestBegin_GrowsUntilReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []time.Duration
		p := recorded(&waits)
		for _, reset := range []bool{false, false, false, false, false, false, true, false} {
			if reset {
				p.Reset()
			}
			length, begins := p.Begin(0)
			if !begins {
				t.Error("a message after the end of a pause begins none")
			}
			time.Sleep(length)
		}
		const s = time.Second
		if want := []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 30 * s, s, 2 * s}; !slices.Equal(waits, want) {
			t.Errorf("pauses of %v, want %v", waits, want)
		}
	})
}

func TestBegin_DuringAPause(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		first, second, after time.Duration
		want                 time.Duration // of the second
	}{
		"one that grows lasts until the end of the first":  {0, 0, s / 4, 3 * s / 4},
		"a shorter length does not shorten it":             {10 * s, s, s, 9 * s},
		"a longer length extends it":                       {s, 10 * s, s / 2, 10 * s},
		"one that grows does not extend one with a length": {10 * s, 0, s, 9 * s},
	} {
		synctest.Test(t, func(t *testing.T) {
			var waits []time.Duration
			p := recorded(&waits)
			p.Begin(test.first)
			time.Sleep(test.after)
			length, begins := p.Begin(test.second)
			if length != test.want || begins {
				t.Errorf("%s: %v, begins %t, want %v and false", name, length, begins, test.want)
			}
			if last := waits[len(waits)-1]; last != length {
				t.Errorf("%s: the endpoint waits for %v, the message for %v", name, last, length)
			}
		})
	}
}
