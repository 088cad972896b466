package core

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core/headers"
)

// Rule R5.
func TestRetryAge_DayBetweenDelayedRetries(t *testing.T) {
	r := rulesOf(t, Recoverability{Immediate: Immediate{NumberOfRetries: Off}})
	for _, test := range []struct {
		name    string
		header  string // headers.RetriesTimestamp; "-" is none
		allowed bool
	}{
		{"an hour ago", headers.FormatTime(day.Add(-time.Hour)), true},
		{"exactly 24 hours ago", headers.FormatTime(day.Add(-24 * time.Hour)), true},
		{"a microsecond more", headers.FormatTime(day.Add(-24*time.Hour - time.Microsecond)), false},
		{"a year ago", headers.FormatTime(day.AddDate(-1, 0, 0)), false},
		{"in the future, by another machine's clock", headers.FormatTime(day.Add(time.Hour)), true},
		{"no timestamp", "-", true},
		{"an empty timestamp", "", true},
		{"a timestamp that is none", "yesterday", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := HeadersFromMap(map[string]string{headers.Retries: "1"})
			if test.header != "-" {
				h.Set(headers.RetriesTimestamp, test.header)
			}
			d := r.decide(t.Context(), failureOf(&Incoming{ID: "m1", Headers: h, DeliveryCount: 1}, "order", errFailed, day))
			want := MoveToError("error")
			if test.allowed {
				want = DelayedRetry(20 * time.Second)
			}
			if d.action != want {
				t.Errorf("%v, want %v", d.action, want)
			}
		})
	}
	t.Run("a nanosecond more is more", func(t *testing.T) {
		f := failureAfter(1, 1, errFailed)
		f.LastDelayedRetry = day.Add(-24*time.Hour - 1)
		if d := r.decide(t.Context(), f); d.action.Kind != ActionMoveToError {
			t.Errorf("%v", d.action)
		}
	})
	t.Run("immediate retries go on", func(t *testing.T) {
		f := failureAfter(1, 1, errFailed)
		f.LastDelayedRetry = day.AddDate(-1, 0, 0)
		if d := rulesOf(t, Recoverability{}).decide(t.Context(), f); d.action.Kind != ActionImmediateRetry {
			t.Errorf("%v", d.action)
		}
	})
	t.Run("a custom policy is not bound by it", func(t *testing.T) {
		r := rulesOf(t, Recoverability{Policy: func(context.Context, RecoverabilityConfig, ErrorContext) (Action, error) {
			return DelayedRetry(48 * time.Hour), nil
		}})
		f := failureAfter(1, 1, errFailed)
		f.LastDelayedRetry = day.AddDate(-1, 0, 0)
		if d := r.decide(t.Context(), f); d.action != DelayedRetry(48*time.Hour) {
			t.Errorf("%v", d.action)
		}
	})
}

// Rule R5.
func TestRetryAge_RefusesDelaysOfADay(t *testing.T) {
	forever := func(context.Context, RecoverabilityConfig, ErrorContext) (Action, error) {
		return ImmediateRetry(), nil
	}
	for _, test := range []struct {
		name    string
		config  Recoverability
		refused bool
	}{
		{"an increase that reaches 24 h", Recoverability{Delayed: Delayed{TimeIncrease: 8 * time.Hour}}, true},
		{"an increase that stays below", Recoverability{Delayed: Delayed{TimeIncrease: 8*time.Hour - 1}}, false},
		{"a listed delay of 24 h", Recoverability{Delayed: Delayed{Delays: []time.Duration{time.Second, 24 * time.Hour, time.Second}}}, true},
		{"a listed delay just below", Recoverability{Delayed: Delayed{Delays: []time.Duration{24*time.Hour - 1}}}, false},
		{"jitter that reaches it", Recoverability{Delayed: Delayed{NumberOfRetries: 1, TimeIncrease: 13 * time.Hour, Jitter: 1}}, true},
		{"growth that reaches it", Recoverability{Delayed: Delayed{NumberOfRetries: 20, TimeIncrease: time.Second, Factor: 2}}, true},
		{"growth under a ceiling", Recoverability{Delayed: Delayed{NumberOfRetries: 20, TimeIncrease: time.Second, Factor: 2, MaxDelay: time.Hour}}, false},
		{"a ceiling of 24 h that is reached", Recoverability{Delayed: Delayed{NumberOfRetries: 20, TimeIncrease: time.Second, Factor: 2, MaxDelay: 24 * time.Hour}}, true},
		{"very many small steps", Recoverability{Delayed: Delayed{NumberOfRetries: 8640}}, true},
		{"not quite as many", Recoverability{Delayed: Delayed{NumberOfRetries: 8639}}, false},
		{"as many as there can be", Recoverability{Delayed: Delayed{NumberOfRetries: 1<<63 - 1, Factor: 1.5}}, true},
		{"for one message type", Recoverability{MessageTypes: map[string]TypeRecoverability{"order": {Delayed: Delayed{TimeIncrease: 25 * time.Hour}}}}, true},
		{"beside a custom policy", Recoverability{Delayed: Delayed{TimeIncrease: 25 * time.Hour}, Policy: forever}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := resolve(Config{Recoverability: test.config}, fullCapabilities())
			if (err != nil) != test.refused {
				t.Fatalf("refused: %v, want %v", err, test.refused)
			}
			if err != nil && (!strings.Contains(err.Error(), "Delayed has a delay of ") || !strings.Contains(err.Error(), "24 h")) {
				t.Errorf("the message does not name the error: %v", err)
			}
		})
	}
}

// Rule R5.
func TestRetryAge_MaxRetryAge(t *testing.T) {
	r := rulesOf(t, Recoverability{Immediate: Immediate{NumberOfRetries: Off}, Delayed: Delayed{NumberOfRetries: 100}, MaxRetryAge: time.Hour})
	for _, test := range []struct {
		name    string
		first   time.Time
		allowed bool
	}{
		{"the first failure", time.Time{}, true},
		{"exactly as old", day.Add(-time.Hour), true},
		{"older", day.Add(-time.Hour - 1), false},
		{"younger", day.Add(-time.Minute), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := failureAfter(1, 1, errFailed)
			f.FirstFailure, f.LastDelayedRetry = test.first, day.Add(-time.Second)
			if got := r.decide(t.Context(), f).action.Kind == ActionDelayedRetry; got != test.allowed {
				t.Errorf("delayed retry: %v", got)
			}
		})
	}
	t.Run("counts from the first failure, over all rounds", func(t *testing.T) {
		// Rounds at 0, 10, 30 and 60 minutes; the next would be at 100.
		r := rulesOf(t, Recoverability{
			Immediate: Immediate{NumberOfRetries: Off}, Delayed: Delayed{NumberOfRetries: 100, TimeIncrease: 10 * time.Minute, MaxDelay: time.Hour},
			MaxRetryAge: time.Hour,
		})
		if actions := decisionsUntilMoved(t, r, errFailed); len(actions) != 5 {
			t.Errorf("%v", actions)
		}
	})
	t.Run("is not in force without being asked for", func(t *testing.T) {
		f := failureAfter(1, 1, errFailed)
		f.Err, f.FirstFailure = errFailed, day.AddDate(-10, 0, 0)
		r := rulesOf(t, Recoverability{Immediate: Immediate{NumberOfRetries: Off}})
		if d := r.decide(t.Context(), f); d.action.Kind != ActionDelayedRetry {
			t.Errorf("%v", d.action)
		}
	})
}
