package nservicebus

import (
	"strings"
	"testing"
)

func TestCompare_FindsDifferencesThatTheTableDoesNotAllow(t *testing.T) {
	t.Parallel()
	table := []Allowed{
		{Name: "added", Kind: Added, Reason: "r"},
		{Name: "missing", Kind: Missing, Situations: []string{"send"}, Reason: "r"},
		{Name: "time", Kind: Differs, Form: Time, Reason: "r"},
		{Name: "x-*", Kind: Missing, Reason: "r"},
	}
	const at, after = "2026-11-22 14:27:15:414558 Z", "2026-11-22 14:27:16:414558 Z"
	for name, c := range map[string]struct {
		situation    string
		theirs, ours map[string]string
		want         string // part of the difference; "": none
	}{
		"the same":                      {"send", map[string]string{"a": "1"}, map[string]string{"a": "1"}, ""},
		"another value":                 {"send", map[string]string{"a": "1"}, map[string]string{"a": "2"}, `a is "2"`},
		"an empty value":                {"send", map[string]string{"a": ""}, nil, `a is missing`},
		"missing":                       {"send", map[string]string{"a": "1"}, nil, `a is missing`},
		"added":                         {"send", nil, map[string]string{"a": "1"}, `does not write`},
		"allowed":                       {"send", map[string]string{"missing": "1", "time": at}, map[string]string{"added": "1", "time": after}, ""},
		"of another kind":               {"send", map[string]string{"added": "1"}, nil, "added is missing"},
		"of another form":               {"send", map[string]string{"time": at}, map[string]string{"time": "now"}, `time is "now"`},
		"in another situation":          {"reply", map[string]string{"missing": "1"}, nil, "missing is missing"},
		"with the prefix":               {"send", map[string]string{"x-1": "1", "x-2": "2"}, nil, ""},
		"with the prefix of the prefix": {"send", map[string]string{"x": "1"}, nil, "x is missing"},
	} {
		c2 := Comparison{Table: table}
		found := strings.Join(c2.differences(c.situation, c.theirs, c.ours), "\n")
		if (c.want == "") != (found == "") || !strings.Contains(found, c.want) {
			t.Errorf("%s: %q, want %q", name, found, c.want)
		}
	}
}

func TestUsed_FindsUnusedEntries(t *testing.T) {
	t.Parallel()
	c := Comparison{Table: []Allowed{{Name: "seen", Kind: Added, Reason: "r"}, {Name: "unseen", Kind: Added, Reason: "r"}, {Name: "bare", Kind: Added}, {Name: "elsewhere", Kind: Added, Optional: true, Reason: "r"}}}
	c.differences("send", nil, map[string]string{"seen": "1", "bare": "1"})
	if found := strings.Join(c.unused(), "\n"); !strings.Contains(found, "that unseen") || !strings.Contains(found, "bare added without a reason") || strings.Contains(found, "that seen") || strings.Contains(found, "elsewhere") {
		t.Errorf("found %s", found)
	}
}
