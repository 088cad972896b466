package ratelimit

import (
	"errors"
	"slices"
	"testing"
)

func TestLimiter(t *testing.T) {
	var switches []string
	record := func(name string) func() { return func() { switches = append(switches, name) } }
	l := &Limiter{Threshold: 2, OnLimit: record("limit"), OnProbe: record("probe"), OnNormal: record("normal")}
	for _, step := range []func(){l.Failed, l.Probed, l.Succeeded, l.Failed, l.Failed, l.Failed, l.Probed, l.Succeeded, l.Succeeded, l.Failed} {
		step()
	}
	if want := []string{"limit", "probe", "normal"}; !slices.Equal(switches, want) {
		t.Errorf("%v, want %v", switches, want)
	}
	if l.IsLimited() {
		t.Error("one failure after a success limits")
	}
}

func TestCounts(t *testing.T) {
	counted, other := errors.New("counted"), errors.New("other")
	var panicked any
	for name, test := range map[string]struct {
		l    *Limiter
		err  error
		want bool
	}{
		"off":              {&Limiter{}, counted, false},
		"without a filter": {&Limiter{Threshold: 1}, other, true},
		"filter accepts":   {&Limiter{Threshold: 1, Filter: func(err error) bool { return errors.Is(err, counted) }}, counted, true},
		"filter refuses":   {&Limiter{Threshold: 1, Filter: func(err error) bool { return errors.Is(err, counted) }}, other, false},
		"filter panics":    {&Limiter{Threshold: 1, Filter: func(error) bool { panic("filter") }, OnPanic: func(value any) { panicked = value }}, other, true},
	} {
		if got := test.l.Counts(test.err); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if panicked != "filter" {
		t.Errorf("reported %v", panicked)
	}
}
