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
		{"a factor multiplies", Delayed{Retries: 5, Increase: s, Factor: 2}, []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s}},
		{"a broken factor too", Delayed{Retries: 3, Increase: 10 * s, Factor: 1.5}, []time.Duration{10 * s, 15 * s, 22500 * time.Millisecond}},
		{"a factor of 1 repeats", Delayed{Retries: 3, Increase: s, Factor: 1}, []time.Duration{s, s, s}},
		{"a ceiling bounds growth", Delayed{Retries: 5, Increase: s, Factor: 3, MaxDelay: 10 * s}, []time.Duration{s, 3 * s, 9 * s, 10 * s, 10 * s}},
		{"a ceiling bounds the linear increase", Delayed{Retries: 4, Increase: 10 * s, MaxDelay: 25 * s}, []time.Duration{10 * s, 20 * s, 25 * s, 25 * s}},
		{"a ceiling as long as the first delay is the delay", Delayed{Retries: 2, Increase: m, MaxDelay: m}, []time.Duration{m, m}},
		{"delays are taken as listed", Delayed{Delays: []time.Duration{h, 0, s}}, []time.Duration{h, 0, s}},
		{"as many retries as listed may be said", Delayed{Retries: 2, Delays: []time.Duration{s, s}}, []time.Duration{s, s}},
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
	r := rulesOf(t, Recoverability{Immediate: Immediate{Off: true}, Delayed: Delayed{Retries: 2, Increase: 10 * time.Second, Jitter: 0.5}})
	delay := func(message string, round int) time.Duration {
		f := failureAfter(1, round, errFailed)
		f.MessageID = message
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
		Immediate:  Immediate{Retries: 2},
		Delayed:    Delayed{Retries: 2, Increase: time.Second},
		ErrorQueue: "failed",
		MessageTypes: map[string]TypeRecoverability{
			"immediate": {Immediate: Immediate{Retries: 1}},
			"delayed":   {Delayed: Delayed{Delays: []time.Duration{time.Minute}}},
			"hopeless":  {Immediate: Immediate{Off: true}, Delayed: Delayed{Off: true}},
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
			f.MessageType = messageType
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
		{"immediate retries and off", Recoverability{Immediate: Immediate{Retries: 3, Off: true}}, []string{"Recoverability.Immediate has Retries 3 and Off", "remove one"}},
		{"delayed retries and off", Recoverability{Delayed: Delayed{Retries: 3, Off: true}}, []string{"Recoverability.Delayed has Retries", "and Off", "remove one"}},
		{"delays and off", Recoverability{Delayed: Delayed{Delays: []time.Duration{1}, Off: true}}, []string{"Recoverability.Delayed", "Delays and Off", "remove one"}},
		{"both for a message type", perType(TypeRecoverability{Immediate: Immediate{Retries: 1, Off: true}}), []string{`Recoverability.MessageTypes["order"].Immediate has Retries 1 and Off`}},
		{"negative immediate retries", Recoverability{Immediate: Immediate{Retries: -1}}, []string{"Recoverability.Immediate.Retries is -1", "cannot be negative", "0 is the default"}},
		{"negative delayed retries", Recoverability{Delayed: Delayed{Retries: -2}}, []string{"Recoverability.Delayed.Retries is -2", "cannot be negative"}},
		{"negative immediate retries of a type", perType(TypeRecoverability{Immediate: Immediate{Retries: -1}}), []string{`Recoverability.MessageTypes["order"].Immediate.Retries is -1`}},
		{"negative delayed retries of a type", perType(TypeRecoverability{Delayed: Delayed{Retries: -1}}), []string{`Recoverability.MessageTypes["order"].Delayed.Retries is -1`}},
		{"a negative increase", Recoverability{Delayed: Delayed{Increase: -time.Second}}, []string{"Recoverability.Delayed.Increase is -1s", "cannot be negative"}},
		{"a negative ceiling", Recoverability{Delayed: Delayed{MaxDelay: -time.Second}}, []string{"Recoverability.Delayed.MaxDelay is -1s", "cannot be negative"}},
		{"a negative listed delay", Recoverability{Delayed: Delayed{Delays: []time.Duration{0, -time.Second}}}, []string{"Recoverability.Delayed.Delays[1] is -1s", "cannot be negative"}},
		{"a factor that shrinks", Recoverability{Delayed: Delayed{Factor: 0.5}}, []string{"Recoverability.Delayed.Factor is 0.5", "use 1 or more"}},
		{"a negative factor", Recoverability{Delayed: Delayed{Factor: -2}}, []string{"Recoverability.Delayed.Factor is -2", "use 1 or more"}},
		{"a factor that is no number", Recoverability{Delayed: Delayed{Factor: math.NaN()}}, []string{"Recoverability.Delayed.Factor is NaN"}},
		{"an infinite factor", Recoverability{Delayed: Delayed{Factor: math.Inf(1)}}, []string{"Recoverability.Delayed.Factor is +Inf"}},
		{"negative jitter", Recoverability{Delayed: Delayed{Jitter: -0.1}}, []string{"Recoverability.Delayed.Jitter is -0.1", "between 0 and 1"}},
		{"jitter above 1", Recoverability{Delayed: Delayed{Jitter: 1.1}}, []string{"Recoverability.Delayed.Jitter is 1.1", "between 0 and 1"}},
		{"jitter that is no number", Recoverability{Delayed: Delayed{Jitter: math.NaN()}}, []string{"Recoverability.Delayed.Jitter is NaN"}},
		{"a number of retries and another of delays", Recoverability{Delayed: Delayed{Retries: 3, Delays: []time.Duration{1, 2}}}, []string{"Recoverability.Delayed.Retries is 3", "Delays lists 2", "remove Retries"}},
		{"delays and an increase", Recoverability{Delayed: Delayed{Delays: []time.Duration{1}, Increase: 1}}, []string{"Recoverability.Delayed has Delays", "remove them"}},
		{"delays and a factor", Recoverability{Delayed: Delayed{Delays: []time.Duration{1}, Factor: 2}}, []string{"Recoverability.Delayed has Delays", "remove them"}},
		{"delays and a ceiling", Recoverability{Delayed: Delayed{Delays: []time.Duration{1}, MaxDelay: 1}}, []string{"Recoverability.Delayed has Delays", "remove them"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			refusedBecause(t, Config{Recoverability: test.config}, fullCapabilities(), test.says...)
		})
	}
	t.Run("zero is the default and off is none", func(t *testing.T) {
		off := rulesOf(t, Recoverability{Immediate: Immediate{Off: true}, Delayed: Delayed{Off: true}})
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
		_, err := resolve(Config{Recoverability: Recoverability{Delayed: Delayed{Retries: -1}}}, fullCapabilities())
		if n := strings.Count(err.Error(), "Recoverability.Delayed"); n != 1 {
			t.Errorf("told %d times: %v", n, err)
		}
		inherited := map[string]TypeRecoverability{"a": {RequeueDelay: 1}, "b": {Immediate: Immediate{Retries: 1}}}
		_, err = resolve(Config{Recoverability: Recoverability{Delayed: Delayed{Retries: -1}, MessageTypes: inherited}}, fullCapabilities())
		if n := strings.Count(err.Error(), "Delayed.Retries is -1"); n != 1 {
			t.Errorf("told %d times, where message types inherit it: %v", n, err)
		}
	})
}
