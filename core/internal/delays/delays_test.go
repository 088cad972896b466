package delays

import (
	"math"
	"testing"
	"time"
)

func TestDelay_NeverOverflows(t *testing.T) {
	for _, s := range []Schedule{
		{Increase: math.MaxInt64}, {Increase: time.Hour, Factor: 1e6}, {Increase: time.Hour, Factor: 2, Jitter: 1}, {Increase: time.Hour, Jitter: 1}, {Increase: 0, Factor: 2},
	} {
		for _, round := range []int{0, 1, 63, 1000, math.MaxInt - 1} {
			if d := s.Delay(round, "m"); d < 0 || d > 0 && s.Increase == 0 {
				t.Errorf("%+v, round %d: %v", s, round, d)
			}
		}
	}
}

func TestLongest_CeilingIsWithoutJitter(t *testing.T) {
	s := Schedule{Increase: time.Hour, Ceiling: time.Minute, Jitter: 1}
	if d := s.Longest(1); d != 2*time.Minute {
		t.Errorf("%v", d)
	}
}

func TestTotal(t *testing.T) {
	for _, test := range []struct {
		s       Schedule
		retries int
		want    time.Duration
	}{
		{Schedule{Increase: time.Second}, 0, 0},
		{Schedule{Increase: time.Second}, 3, 6 * time.Second},
		{Schedule{Increase: time.Second, Factor: 2, Jitter: 0.5}, 2, 4500 * time.Millisecond},
		{Schedule{List: []time.Duration{time.Hour, time.Second}}, 3, time.Hour + 2*time.Second},
		{Schedule{Increase: Max / 2}, 5, Max},
		{Schedule{Increase: 1}, math.MaxInt, Max},
	} {
		if got := test.s.Total(test.retries); got != test.want {
			t.Errorf("%+v, %d retries: %v, want %v", test.s, test.retries, got, test.want)
		}
	}
}

func TestBackoff(t *testing.T) {
	b := Backoff{First: time.Second, Last: 10 * time.Second}
	for tries, want := range map[int]int{0: 1, 1: 1, 2: 2, 3: 4, 4: 8, 5: 10, 31: 10, math.MaxInt: 10} {
		if got := b.After(tries); got != time.Duration(want)*time.Second {
			t.Errorf("after %d tries: %v, want %d s", tries, got, want)
		}
	}
}

func TestAddAndMultiply_StopAtMax(t *testing.T) {
	for got, want := range map[time.Duration]time.Duration{
		Add(1, 2):                          3,
		Add(Max-1, 2):                      Max,
		Multiply(2, 3):                     6,
		Multiply(Max/2+1, 2):               Max,
		Multiply(Max, 1):                   Max,
		Multiply(time.Second, math.MaxInt): Max,
	} {
		if got != want {
			t.Errorf("%v, want %v", got, want)
		}
	}
}
