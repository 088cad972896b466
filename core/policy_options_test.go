package core

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
)

// Rule R13.
func TestSettings_DelaySchedules(t *testing.T) {
	const s, m, h = time.Second, time.Minute, time.Hour
	for _, test := range []struct {
		name    string
		delayed Delayed
		want    []time.Duration
	}{
		{"a factor multiplies", Delayed{NumberOfRetries: 5, TimeIncrease: s, Factor: 2}, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s}},
		{"a broken factor too", Delayed{NumberOfRetries: 3, TimeIncrease: 10 * s, Factor: 1.5}, []time.Duration{10 * s, 15 * s, 22500 * time.Millisecond}},
		{"a factor of 1 repeats", Delayed{NumberOfRetries: 3, TimeIncrease: s, Factor: 1}, []time.Duration{s, s, s}},
		{"a ceiling bounds growth", Delayed{NumberOfRetries: 5, TimeIncrease: s, Factor: 3, MaxDelay: 10 * s}, []time.Duration{s, 3 * s, 9 * s, 10 * s, 10 * s}},
		{"a ceiling bounds the linear increase", Delayed{NumberOfRetries: 4, TimeIncrease: 10 * s, MaxDelay: 25 * s}, []time.Duration{10 * s, 20 * s, 25 * s, 25 * s}},
		{"a ceiling as long as the first delay is the delay", Delayed{NumberOfRetries: 2, TimeIncrease: m, MaxDelay: m}, []time.Duration{m, m}},
		{"delays are taken as listed", Delayed{Delays: []time.Duration{h, 0, s}}, []time.Duration{h, 0, s}},
		{"as many retries as listed may be said", Delayed{NumberOfRetries: 2, Delays: []time.Duration{s, s}}, []time.Duration{s, s}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := delaysOf(t, Recoverability{Delayed: test.delayed}); !slices.Equal(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// Rule R13.
func TestSettings_JitterOnlyLengthens(t *testing.T) {
	r := rulesOf(t, Recoverability{Immediate: Immediate{NumberOfRetries: Off}, Delayed: Delayed{NumberOfRetries: 2, TimeIncrease: 10 * time.Second, Jitter: 0.5}})
	delay := func(message string, round int) time.Duration {
		f := failureAfter(1, round, errFailed)
		f.messageID = message
		return r.decide(t.Context(), f).action.Delay
	}
	different := map[time.Duration]bool{}
	shortest, longest := time.Hour, time.Duration(0)
	for i := range 1000 {
		d := delay(fmt.Sprint("message-", i), 0)
		different[d] = true
		shortest, longest = min(shortest, d), max(longest, d)
	}
	if shortest < 10*time.Second || longest > 15*time.Second {
		t.Errorf("between %v and %v, want between 10 s and 15 s", shortest, longest)
	}
	if shortest > 10500*time.Millisecond || longest < 14500*time.Millisecond || len(different) < 990 {
		t.Errorf("%d different ones between %v and %v: messages that failed together come back together", len(different), shortest, longest)
	}
	t.Run("the same failure gets the same delay", func(t *testing.T) {
		if a, b := delay("m1", 0), delay("m1", 0); a != b {
			t.Errorf("%v and %v", a, b)
		}
	})
	t.Run("but another one in the next round", func(t *testing.T) {
		near := 0
		for i := range 1000 {
			m := fmt.Sprint("message-", i)
			first, second := delay(m, 0).Seconds()/10, delay(m, 1).Seconds()/20
			if math.Abs(first-second) < 0.005 { // of 0.5
				near++
			}
		}
		if near > 50 { // about 20, were they drawn by lot
			t.Errorf("%d of 1000 have the same in both", near)
		}
	})
	t.Run("and so do messages with neighbouring ids", func(t *testing.T) {
		near := 0
		for i := range 1000 {
			difference := delay(fmt.Sprint("message-", 1000+i), 0) - delay(fmt.Sprint("message-", 1001+i), 0)
			if difference.Abs() < 50*time.Millisecond { // of 5 s
				near++
			}
		}
		if near > 50 { // about 20, were they drawn by lot
			t.Errorf("%d of 1000 have the same as the next one", near)
		}
	})
}

// Rule R13.
func TestSettings_OfAMessageType(t *testing.T) {
	r := rulesOf(t, Recoverability{
		Immediate:  Immediate{NumberOfRetries: 2},
		Delayed:    Delayed{NumberOfRetries: 2, TimeIncrease: time.Second},
		ErrorQueue: "failed",
		MessageTypes: map[string]TypeRecoverability{
			"immediate": {Immediate: Immediate{NumberOfRetries: 1}},
			"delayed":   {Delayed: Delayed{Delays: []time.Duration{time.Minute}}},
			"hopeless":  {Immediate: Immediate{NumberOfRetries: Off}, Delayed: Delayed{NumberOfRetries: Off}},
			"inherited": {HandlerTimeout: time.Hour},
		},
	})
	i, e := ImmediateRetry(), MoveToError("failed")
	usual := []Action{i, i, DelayedRetry(time.Second), i, i, DelayedRetry(2 * time.Second), i, i, e}
	for messageType, want := range map[string][]Action{
		"other":     usual,
		"inherited": usual,
		"immediate": {i, DelayedRetry(time.Second), i, DelayedRetry(2 * time.Second), i, e},
		"delayed":   {i, i, DelayedRetry(time.Minute), i, i, e},
		"hopeless":  {e},
	} {
		t.Run(messageType, func(t *testing.T) {
			only := *r
			only.config = r.configFor(messageType)
			only.perType = nil
			if got := decisionsUntilMoved(t, &only, errFailed); !slices.Equal(got, want) {
				t.Errorf("got  %v\nwant %v", got, want)
			}
			f := failureAfter(1, 0, errFailed)
			f.messageType = messageType
			if got := r.decide(t.Context(), f).action; got != want[0] {
				t.Errorf("decide begins with %v", got)
			}
		})
	}
}

// Rule R13.
func TestSettings_ContradictionsAreRefused(t *testing.T) {
	perType := func(own TypeRecoverability) Recoverability {
		return Recoverability{MessageTypes: map[string]TypeRecoverability{"order": own}}
	}
	for _, test := range []struct {
		name   string
		config Recoverability
		says   []string // field, value, remedy
	}{
		{"a pause and off", Recoverability{Immediate: Immediate{NumberOfRetries: Off, Pause: 1}}, []string{"Recoverability.Immediate has a Pause or MaxPause, but NumberOfRetries is Off", "remove one"}},
		{"an increase and off", Recoverability{Delayed: Delayed{NumberOfRetries: Off, TimeIncrease: 3}}, []string{"Recoverability.Delayed has TimeIncrease, but NumberOfRetries is Off", "remove one"}},
		{"delays and off", Recoverability{Delayed: Delayed{Delays: []time.Duration{1}, NumberOfRetries: Off}}, []string{"Recoverability.Delayed", "Delays, but NumberOfRetries is Off", "remove one"}},
		{"both for a message type", perType(TypeRecoverability{Immediate: Immediate{NumberOfRetries: Off, Pause: 1}}), []string{`Recoverability.MessageTypes["order"].Immediate has a Pause or MaxPause, but NumberOfRetries is Off`}},
		{"negative immediate retries", Recoverability{Immediate: Immediate{NumberOfRetries: -2}}, []string{"Recoverability.Immediate.NumberOfRetries is -2", "cannot be negative", "0 is the default, core.Off is none"}},
		{"negative delayed retries", Recoverability{Delayed: Delayed{NumberOfRetries: -2}}, []string{"Recoverability.Delayed.NumberOfRetries is -2", "cannot be negative"}},
		{"negative immediate retries of a type", perType(TypeRecoverability{Immediate: Immediate{NumberOfRetries: -2}}), []string{`Recoverability.MessageTypes["order"].Immediate.NumberOfRetries is -2`}},
		{"negative delayed retries of a type", perType(TypeRecoverability{Delayed: Delayed{NumberOfRetries: -2}}), []string{`Recoverability.MessageTypes["order"].Delayed.NumberOfRetries is -2`}},
		{"a negative increase", Recoverability{Delayed: Delayed{TimeIncrease: -time.Second}}, []string{"Recoverability.Delayed.TimeIncrease is -1s", "cannot be negative"}},
		{"a negative ceiling", Recoverability{Delayed: Delayed{MaxDelay: -time.Second}}, []string{"Recoverability.Delayed.MaxDelay is -1s", "cannot be negative"}},
		{"a negative listed delay", Recoverability{Delayed: Delayed{Delays: []time.Duration{0, -time.Second}}}, []string{"Recoverability.Delayed.Delays[1] is -1s", "cannot be negative"}},
		{"a factor that shrinks", Recoverability{Delayed: Delayed{Factor: 0.5}}, []string{"Recoverability.Delayed.Factor is 0.5", "use 1 or more"}},
		{"a negative factor", Recoverability{Delayed: Delayed{Factor: -2}}, []string{"Recoverability.Delayed.Factor is -2", "use 1 or more"}},
		{"a factor that is no number", Recoverability{Delayed: Delayed{Factor: math.NaN()}}, []string{"Recoverability.Delayed.Factor is NaN"}},
		{"an infinite factor", Recoverability{Delayed: Delayed{Factor: math.Inf(1)}}, []string{"Recoverability.Delayed.Factor is +Inf"}},
		{"negative jitter", Recoverability{Delayed: Delayed{Jitter: -0.1}}, []string{"Recoverability.Delayed.Jitter is -0.1", "between 0 and 1"}},
		{"jitter above 1", Recoverability{Delayed: Delayed{Jitter: 1.1}}, []string{"Recoverability.Delayed.Jitter is 1.1", "between 0 and 1"}},
		{"jitter that is no number", Recoverability{Delayed: Delayed{Jitter: math.NaN()}}, []string{"Recoverability.Delayed.Jitter is NaN"}},
		{"a number of retries and another of delays", Recoverability{Delayed: Delayed{NumberOfRetries: 3, Delays: []time.Duration{1, 2}}}, []string{"Recoverability.Delayed.NumberOfRetries is 3", "Delays lists 2", "remove NumberOfRetries"}},
		{"delays and an increase", Recoverability{Delayed: Delayed{Delays: []time.Duration{1}, TimeIncrease: 1}}, []string{"Recoverability.Delayed has Delays", "remove them"}},
		{"delays and a factor", Recoverability{Delayed: Delayed{Delays: []time.Duration{1}, Factor: 2}}, []string{"Recoverability.Delayed has Delays", "remove them"}},
		{"delays and a ceiling", Recoverability{Delayed: Delayed{Delays: []time.Duration{1}, MaxDelay: 1}}, []string{"Recoverability.Delayed has Delays", "remove them"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			refusedBecause(t, Config{Recoverability: test.config}, fullCapabilities(), test.says...)
		})
	}
	t.Run("zero is the default and off is none", func(t *testing.T) {
		off := rulesOf(t, Recoverability{Immediate: Immediate{NumberOfRetries: Off}, Delayed: Delayed{NumberOfRetries: Off}})
		if got := decisionsUntilMoved(t, off, errFailed); len(got) != 1 {
			t.Errorf("%v", got)
		}
	})
	t.Run("values at their bounds are accepted", func(t *testing.T) {
		for _, d := range []Delayed{{Jitter: 1}, {Jitter: 0}, {Factor: 1}, {Delays: []time.Duration{0}}} {
			if _, err := resolve(Config{Recoverability: Recoverability{Delayed: d}}, fullCapabilities()); err != nil {
				t.Errorf("%+v: %v", d, err)
			}
		}
	})
	t.Run("each is told once", func(t *testing.T) {
		_, err := resolve(Config{Recoverability: Recoverability{Delayed: Delayed{NumberOfRetries: -2}}}, fullCapabilities())
		if n := strings.Count(err.Error(), "Recoverability.Delayed"); n != 1 {
			t.Errorf("told %d times: %v", n, err)
		}
		inherited := map[string]TypeRecoverability{"a": {RequeueDelay: 1}, "b": {Immediate: Immediate{NumberOfRetries: 1}}}
		_, err = resolve(Config{Recoverability: Recoverability{Delayed: Delayed{NumberOfRetries: -2}, MessageTypes: inherited}}, fullCapabilities())
		if n := strings.Count(err.Error(), "Delayed.NumberOfRetries is -2"); n != 1 {
			t.Errorf("told %d times, where message types inherit it: %v", n, err)
		}
	})
}
