package bounded

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestName(t *testing.T) {
	long := strings.Repeat("x", MaxName)
	for name, want := range map[string]string{
		"":                    "",
		"order":               "order",
		long:                  long,
		long + "y":            long + "... (257 bytes)",
		long[1:] + "é":        long[1:] + "... (257 bytes)",
		long[2:] + "é":        long[2:] + "é",
		long[1:] + "😀":        long[1:] + "... (259 bytes)",
		long[3:] + "😀":        long[3:] + "... (257 bytes)",
		long[1:] + "\xff\xff": long[1:] + "\xff... (257 bytes)",
	} {
		if got := Name(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

func TestText_KeepsBeginningAndEnd(t *testing.T) {
	for text, want := range map[string]string{
		"0123456789":  "0123456789",
		"0123456789x": "01234... (1 bytes left out) ...6789x",
		"send: " + strings.Repeat("é", 100) + ": refused": "send:... (205 bytes left out) ...fused",
	} {
		got := Text(text, 10)
		if want != got {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
		if !utf8.ValidString(got) {
			t.Errorf("%q is not UTF-8", got)
		}
	}
	for limit := 2; limit < 12; limit++ {
		if got := Text(strings.Repeat("😀", 50), limit); !utf8.ValidString(got) || len(got) > limit+2*utf8.UTFMax+40 {
			t.Errorf("limit %d: %q", limit, got)
		}
	}
}

func TestKey_TellsTextsApart(t *testing.T) {
	seen := map[string]bool{}
	for _, text := range []string{"", "a", strings.Repeat("a", 64), strings.Repeat("a", 65), strings.Repeat("a", 1<<20), strings.Repeat("a", 1<<20) + "b"} {
		key := Key(text)
		if seen[key] || len(key) > 65 || Key(text) != key {
			t.Errorf("a text of %d bytes has the key %q", len(text), key)
		}
		seen[key] = true
	}
}

func TestName_ShortOnesAllocateNothing(t *testing.T) {
	if n := testing.AllocsPerRun(100, func() { _, _ = Name("order"), Text("failed", 16<<10) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
