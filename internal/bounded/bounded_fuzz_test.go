package bounded

import (
	"strings"
	"testing"
	"unicode/utf8"
)

// FuzzBounded bounds any text, which stays UTF-8 if it was.
func FuzzBounded(f *testing.F) {
	f.Add("order", 2)
	f.Add(strings.Repeat("é", 200), 255)
	f.Add(strings.Repeat("x", MaxName-1)+"😀", 1000)
	f.Add(strings.Repeat("\xbf", 300), 3)
	f.Fuzz(func(t *testing.T, text string, limit int) {
		text = strings.Repeat(text, 1+max(limit, -limit)%7)
		limit = 2 + max(limit, -limit-1)%1000
		for _, c := range []struct {
			got   string
			limit int
		}{{Name(text), MaxName}, {Text(text, limit), limit}, {Key(text), MaxKey + 1}} {
			if len(c.got) > c.limit+60 {
				t.Errorf("a text of %d bytes has become one of %d: %q", len(text), len(c.got), c.got)
			}
			if utf8.ValidString(text) && !utf8.ValidString(c.got) {
				t.Errorf("%q has become %q", text, c.got)
			}
		}
		if shown := Name(text); len(text) <= MaxName && shown != text {
			t.Errorf("%q has become %q", text, shown)
		}
	})
}
