package inbox

import (
	"maps"
	"slices"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// FuzzDecode reads any bytes as the messages of an entry, and writes them again.
func FuzzDecode(f *testing.F) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	var out core.Outgoing
	out.ID, out.Queue, out.Body, out.Delay, out.TimeToBeReceived, out.GroupKey = "m1", "orders", []byte("body"), time.Minute, time.Hour, "g"
	out.Headers.Set("a", "1")
	written, err := encode([]core.Outgoing{out, {ID: "m2", Topic: "placed", BaseTopics: []string{"base"}, Properties: map[string]string{"p": "v"}}}, at)
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{
		string(written), `[{"id":"m1","queue":"q","headers":[["","no name"],["a","1"],["a","2"]],"properties":{"":"x"}}]`, `[{"id":"m1","headers":[["a"],["a","b","c"],null]}]`,
		`[{"id":"m1","due":"0001-01-01T00:00:00Z","expires":"9999-12-31T23:59:59Z"}]`, `[{"id":"m1","due":"9999-12-31T23:59:59+23:59","body":"//8="}]`,
		`[{"id":"m1","expires":"0001-01-01T00:00:00Z"}]`, `[null]`, `[{}]`, `null`, `{}`, `[{"id":"\ud800","headers":[["\ud800","\ud800"]]}]`, "", "\xff",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		read, err := decode(text, at)
		if err != nil {
			if read != nil {
				t.Errorf("%q: %v and %v", text, read, err)
			}
			return
		}
		for i := range read {
			out := &read[i]
			if out.ID == "" || !utf8.ValidString(out.ID) || out.Delay < 0 || out.TimeToBeReceived < 0 {
				t.Errorf("%q is read as %+v", text, out)
			}
			for key, value := range out.Headers.All() { // Send refuses an empty key
				if !utf8.ValidString(key) || !utf8.ValidString(value) {
					t.Errorf("no header may be %q: %q", key, value)
				}
			}
		}
		written, err := encode(read, at)
		if err != nil {
			t.Fatal(err)
		}
		reread, err := decode(written, at)
		if err != nil || !slices.EqualFunc(read, reread, isSame) {
			t.Errorf("%+v is written as %s and read as %+v, %v", read, written, reread, err)
		}
	})
}

// isSame reports whether messages are the same, but for a due time in a header, which is
// the exact one.
func isSame(a, b core.Outgoing) bool {
	_, hasDue := a.Headers.Lookup(headers.DeliverAt)
	return a.ID == b.ID && a.Queue == b.Queue && a.Topic == b.Topic && slices.Equal(a.BaseTopics, b.BaseTopics) && slices.Equal(a.Body, b.Body) &&
		maps.Equal(a.Headers.Map(), b.Headers.Map()) && (hasDue || a.Delay == b.Delay) && a.TimeToBeReceived == b.TimeToBeReceived &&
		a.GroupKey == b.GroupKey && maps.Equal(a.Properties, b.Properties) && a.Reason == b.Reason
}
