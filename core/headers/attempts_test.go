package headers

import (
	"strings"
	"testing"
)

// A sender may have written the value.
func TestParseAttempts(t *testing.T) {
	const one = `{"at":"2026-01-02 03:04:05:000000 Z","error":"*fs.PathError","attempts":6,"deferrals":1,"action":"DelayedRetry","delay":"10s"}`
	padded := func(size int) string { return "[" + one + strings.Repeat(" ", size-len(one)-2) + "]" }
	for name, test := range map[string]struct {
		value  string
		rounds int
	}{
		"none":                       {"", 0},
		"two rounds":                 {"[" + one + "," + one + "]", 2},
		"no JSON":                    {"[" + one, 0},
		"another shape":              {one, 0},
		"a value of another type":    {`[{"attempts":"6"}]`, 0},
		"as long as it may be":       {padded(MaxAttempts), 1},
		"a byte more, from a sender": {padded(MaxAttempts + 1), 0},
	} {
		if got := ParseAttempts(test.value); len(got) != test.rounds {
			t.Errorf("%s: %d rounds, want %d", name, len(got), test.rounds)
		}
	}
	want := Round{At: "2026-01-02 03:04:05:000000 Z", Error: "*fs.PathError", Attempts: 6, Deferrals: 1, Action: "DelayedRetry", Delay: "10s"}
	if got := ParseAttempts("[" + one + "]"); len(got) != 1 || got[0] != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
