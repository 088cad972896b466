package conformance

import (
	"os"
	"strings"
	"testing"
)

// TestRules_AreDocumented follows the places that failures name.
func TestRules_AreDocumented(t *testing.T) {
	text, err := os.ReadFile("../docs/adapter-rules.md")
	if err != nil {
		t.Fatal(err)
	}
	explained := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if heading, ok := strings.CutPrefix(line, "### "); ok {
			explained[strings.TrimSpace(heading)] = true
		}
	}
	for _, c := range cases() {
		if rules[c.rule] == "" {
			t.Errorf("rules has nothing on %s, of the case %q", c.rule, c.name())
		}
	}
	for rule := range rules {
		if !explained[rule] {
			t.Errorf("docs/adapter-rules.md has no heading %q", "### "+rule)
		}
	}
	for rule := range explained {
		if rules[rule] == "" {
			t.Errorf("docs/adapter-rules.md explains %s, which no case is about", rule)
		}
	}
}

// TestCases_NamesAreUnique keeps deviations unambiguous.
func TestCases_NamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cases() {
		if seen[c.name()] {
			t.Errorf("two cases are called %q", c.name())
		}
		seen[c.name()] = true
	}
}
