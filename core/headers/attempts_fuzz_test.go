package headers

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzParseAttempts reads any text as the rounds of attempts at a message, and writes them
// again.
func FuzzParseAttempts(f *testing.F) {
	for _, text := range []string{
		`[{"at":"2026-01-02 03:04:05:000000 Z","error":"*fs.PathError","attempts":6,"deferrals":1,"action":"DelayedRetry","delay":"10s"},{"action":"MoveToError"}]`,
		`[null,{},{"attempts":-9223372036854775808}]`, `[{"attempts":1e400}]`, `{"at":""}`, "[" + strings.Repeat("{},", 1300) + "{}]", strings.Repeat("[", 4096), `[{"error":"\ud800"}]`, "null", "", "\xff",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		rounds := ParseAttempts(text)
		if len(rounds) > MaxAttempts/2 || len(text) > MaxAttempts && rounds != nil {
			t.Errorf("%d bytes are read as %d rounds", len(text), len(rounds))
		}
		size := 0
		for _, r := range rounds {
			for _, s := range []string{r.At, r.Error, r.Action, r.Delay} {
				if size += len(s); !utf8.ValidString(s) {
					t.Errorf("%q is read as %q", text, s)
				}
			}
		}
		if size > 3*len(text) {
			t.Errorf("%d bytes are read as %d", len(text), size)
		}
		written, err := json.Marshal(rounds)
		if err != nil {
			t.Fatal(err)
		}
		if reread := ParseAttempts(string(written)); len(written) <= MaxAttempts && !slices.Equal(reread, rounds) {
			t.Errorf("%+v is written as %s and read as %+v", rounds, written, reread)
		}
	})
}
