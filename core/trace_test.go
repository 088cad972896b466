package core

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core/headers"
)

// rounds lets a message go through n delayed retries, an hour apart, and
// returns its headers.
func rounds(h Headers, n int, from time.Time) Headers {
	for i := range n {
		f := failureAfter(6, i, fmt.Errorf("round %d: %w", i, codeError{i}))
		f.headers, f.FailedAt = h, from.Add(time.Duration(i)*time.Hour)
		h = copyForRetry(&f, DelayedRetry(time.Hour))
	}
	return h
}

// Rule R33.
func TestTrace_HasEveryStep(t *testing.T) {
	h := rounds(Headers{}, 2, day)
	f := failureAfter(3, 2, fmt.Errorf("last: %w", errFailed))
	f.headers, f.FailedAt, f.deferrals = h, day.Add(5*time.Hour), 2
	h = copyForError(&f, &decision{action: MoveToError("error")}, testHost, Capabilities{})
	const want = `[{"at":"2026-03-01 12:00:00:000000 Z","error":"core.codeError","attempts":6,"action":"DelayedRetry","delay":"1h0m0s"},` +
		`{"at":"2026-03-01 13:00:00:000000 Z","error":"core.codeError","attempts":6,"action":"DelayedRetry","delay":"1h0m0s"},` +
		`{"at":"2026-03-01 17:00:00:000000 Z","error":"*errors.errorString","attempts":3,"deferrals":2,"action":"MoveToError"}]`
	if got := h.Get(headers.Attempts); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	told := headers.ParseAttempts(h.Get(headers.Attempts))
	if len(told) != 3 || told[0].Attempts != 6 || told[2].Action != "MoveToError" || told[1].Delay != "1h0m0s" {
		t.Errorf("%+v", told)
	}
	t.Run("a deferral adds nothing", func(t *testing.T) {
		f := failureAfter(1, 0, Defer(errors.New("not yet"), 0))
		if _, ok := copyForDeferral(&f).Lookup(headers.Attempts); ok {
			t.Error("it does")
		}
	})
}

// Rule R33.
func TestTrace_IsBounded(t *testing.T) {
	for _, n := range []int{19, 20, 21, 100} {
		t.Run(fmt.Sprint(n, " rounds"), func(t *testing.T) {
			h := rounds(Headers{}, n, day)
			told := headers.ParseAttempts(h.Get(headers.Attempts))
			if len(told) != min(n, 20) || len(h.Get(headers.Attempts)) > 4<<10 {
				t.Errorf("%d rounds, %d bytes", len(told), len(h.Get(headers.Attempts)))
			}
			if told[0].At != headers.FormatTime(day) {
				t.Errorf("the first is of %s", told[0].At)
			}
			for i, round := range told[1:] {
				if want := headers.FormatTime(day.Add(time.Duration(n-len(told)+1+i) * time.Hour)); round.At != want {
					t.Errorf("round %d is of %s, want %s", i+1, round.At, want)
				}
			}
		})
	}
	t.Run("with long names of errors too", func(t *testing.T) {
		var h Headers
		for i := range 40 {
			f := failureAfter(6, i, errLongName{})
			f.headers = h
			h = copyForRetry(&f, DelayedRetry(time.Hour))
			if size, told := len(h.Get(headers.Attempts)), headers.ParseAttempts(h.Get(headers.Attempts)); size > 4<<10 || len(told) < min(i+1, 10) {
				t.Fatalf("round %d: %d bytes, %d rounds", i, size, len(told))
			}
		}
	})
}

type errLongName struct {
	_ struct {
		F [0]struct{}
	}
}

func (errLongName) Error() string { return "x" }

// Rule R33.
func TestTrace_SurvivesGarbage(t *testing.T) {
	for name, text := range map[string]string{
		"no JSON":                         "x",
		"empty":                           "",
		"null":                            "null",
		"an empty list":                   "[]",
		"a list of null":                  "[null,null]",
		"a list of numbers":               "[1]",
		"an object":                       "{}",
		"other fields":                    `[{"x":1}]`,
		"fields of another kind":          `[{"attempts":"six"}]`,
		"half a trace":                    `[{"at":"2026`,
		"one long round":                  `[{"error":"` + strings.Repeat("x", 4000) + `"}]`,
		"one round that grows":            `[{"error":"` + strings.Repeat("<", 4000) + `"}]`,
		"two long rounds":                 `[{"error":"` + strings.Repeat("x", 2000) + `"},{"error":"` + strings.Repeat("x", 2000) + `"}]`,
		"many rounds":                     "[" + strings.Repeat("{},", 1000) + "{}]",
		"longer than any":                 "[" + strings.Repeat("{},", 10000) + "{}]",
		"nested deeper than a stack goes": strings.Repeat("[", 4000),
		"not UTF-8":                       "[{\"error\":\"\xff\xff\"}]",
	} {
		t.Run(name, func(t *testing.T) {
			f := failureAfter(6, 0, errFailed)
			f.headers = HeadersFromMap(map[string]string{headers.Attempts: text})
			for i := range 3 {
				f.headers = copyForRetry(&f, DelayedRetry(time.Duration(i)))
				got := f.headers.Get(headers.Attempts)
				if len(got) > 4<<10 || !json.Valid([]byte(got)) || !utf8.ValidString(got) {
					t.Fatalf("%d bytes: %.100s", len(got), got)
				}
				told := headers.ParseAttempts(f.headers.Get(headers.Attempts))
				if len(told) <= i || told[len(told)-1].Attempts != 6 || told[len(told)-1].Delay != time.Duration(i).String() {
					t.Fatalf("retry %d is not told: %.200s", i, got)
				}
			}
		})
	}
}

// Rule R5.
func TestRetryAge_FirstFailureOfALife(t *testing.T) {
	moved := func(h Headers, at time.Time) Headers {
		f := failureAfter(6, 0, errFailed)
		f.headers, f.FailedAt = h, at
		return copyForError(&f, &decision{action: MoveToError("error")}, testHost, Capabilities{})
	}
	second := day.AddDate(0, 1, 0)
	for _, test := range []struct {
		name string
		h    Headers
		want time.Time
	}{
		{"none before the first failure", Headers{}, time.Time{}},
		{"the first round's", rounds(Headers{}, 3, day), day},
		{"however many followed", rounds(Headers{}, 100, day), day},
		{"none when it comes back from the error queue", moved(rounds(Headers{}, 3, day), day.AddDate(0, 0, 1)), time.Time{}},
		{"the first round's since then", rounds(moved(rounds(Headers{}, 3, day), day.AddDate(0, 0, 1)), 3, second), second},
		{"however many followed since then", rounds(moved(rounds(Headers{}, 3, day), day.AddDate(0, 0, 1)), 40, second), second},
		{"also when it has been there without a retry", rounds(moved(Headers{}, day), 40, second), second},
		{"none where the trace is not ours", HeadersFromMap(map[string]string{headers.Attempts: "x"}), time.Time{}},
		{"none where its time is not", HeadersFromMap(map[string]string{headers.Attempts: `[{"at":"x","action":"DelayedRetry"}]`}), time.Time{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := firstFailure(test.h); !got.Equal(test.want) {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}
