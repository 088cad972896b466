package core

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core/headers"
)

func TestRetryAfter_IsBoundedByTime(t *testing.T) {
	for name, test := range map[string]struct {
		limit   time.Duration // 0 is the default
		since   time.Duration // since the first failure; 0 is the first one
		future  bool          // the time of the first failure is in the future, which counts as now
		delayed int
		granted bool
	}{
		"the first":                               {granted: true},
		"any number within the default":           {since: time.Hour, delayed: 1000, granted: true},
		"beyond the default":                      {since: time.Hour + 1, delayed: 1},
		"within a limit":                          {limit: time.Minute, since: time.Minute, delayed: 9, granted: true},
		"beyond it":                               {limit: time.Minute, since: time.Minute + 1, delayed: 1},
		"without a limit":                         {limit: Off, since: 1000 * time.Hour, delayed: 1000, granted: true},
		"no time, but within the number":          {delayed: 2, granted: true},
		"no time of the first failure, and later": {delayed: 3},
		"a forged time, but within the number":    {future: true, delayed: 2, granted: true},
		"a forged time, and later":                {future: true, delayed: 3},
	} {
		t.Run(name, func(t *testing.T) {
			f := failureAfter(1, test.delayed, RetryAfter(errFailed, time.Second))
			if test.since > 0 || test.future {
				f.FirstFailure = f.FailedAt.Add(-test.since)
			}
			d := rulesOf(t, Recoverability{RetryAfterLimit: test.limit}).decide(t.Context(), f)
			if want := DelayedRetry(time.Second); test.granted && d.action != want {
				t.Errorf("%+v, want %v", d, want)
			}
			if want := MoveToError("error"); !test.granted && (d.action != want || d.reason.kind != headers.FailureRetriesExhausted) {
				t.Errorf("%+v, want %v", d, want)
			}
		})
	}
	t.Run("of a message type", func(t *testing.T) {
		types := map[string]TypeRecoverability{"own": {RetryAfterLimit: time.Second}, "endless": {RetryAfterLimit: Off}, "other": {RequeueLimit: 1}}
		r := rulesOf(t, Recoverability{RetryAfterLimit: time.Minute, MessageTypes: types})
		for messageType, want := range map[string]time.Duration{"own": time.Second, "endless": Off, "other": time.Minute, "none": time.Minute} {
			if got := r.configFor(messageType).settings.RetryAfterLimit; got != want {
				t.Errorf("%s: %v, want %v", messageType, got, want)
			}
		}
	})
}

// A sender may forge the time of the first failure: it is not in the future, and the rounds
// that follow do not forget when the message was first handled.
func TestRetryAfter_ForgedFirstFailure(t *testing.T) {
	start := time.Now().Truncate(time.Second)
	for name, forged := range map[string]string{
		"in the future": headers.FormatTime(start.Add(100 * 365 * 24 * time.Hour)),
		"no time":       "soon",
		"long ago":      headers.FormatTime(time.Unix(-60_000_000_000, 0)),
	} {
		t.Run(name, func(t *testing.T) {
			trace, err := json.Marshal([]headers.Round{{At: forged, Action: "DelayedRetry"}})
			if err != nil {
				t.Fatal(err)
			}
			in := &Incoming{Headers: HeadersFromMap(map[string]string{headers.Attempts: string(trace)})}
			r := rulesOf(t, Recoverability{})
			tries := 0
			for now := start; ; now = now.Add(time.Minute) {
				f := failureAfter(1, tries, RetryAfter(errFailed, time.Minute))
				f.headers, f.FailedAt, f.FirstFailure = in.Headers, now, in.firstFailure(now)
				if f.FirstFailure.After(now) {
					t.Fatalf("the first failure at %v is after %v", f.FirstFailure, now)
				}
				d := r.decide(t.Context(), f)
				if d.action.Kind != ActionDelayedRetry {
					break
				}
				if tries++; tries > 61 {
					t.Fatal("it is granted after an hour")
				}
				in.Headers = copyForRetry(&f, d.action)
			}
			if want := 61; name != "long ago" && tries != want {
				t.Errorf("granted %d times, want %d in an hour", tries, want)
			}
		})
	}
}
