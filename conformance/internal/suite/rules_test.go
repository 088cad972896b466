package suite

import (
	"cmp"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestRules_AreDocumented follows the places that failures name.
func TestRules_AreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/adapter-rules.md")
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

func TestEngineRules_AreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/adapter-rules.md")
	if err != nil {
		t.Fatal(err)
	}
	if want := "The others are the engine's alone: " + strings.Join(engineRules, ", ") + "."; !strings.Contains(string(text), want) {
		t.Errorf("docs/adapter-rules.md lacks %q", want)
	}
	for _, rule := range engineRules {
		if rules[rule] == "" {
			t.Errorf("engineRules names %s, which is no rule", rule)
		}
	}
}

// TestRules_NameTheirFiles lets a reader find the cases and the mutants of a rule: those
// of C7 are in c07_*.go, those of R2 to R4 in r02_r04_*.go.
func TestRules_NameTheirFiles(t *testing.T) {
	element := regexp.MustCompile(`(?m)^\t+\{rule: "([CR]\d+)"`)
	name := regexp.MustCompile(`^([cr]\d\d)(?:_([cr]\d\d))?_`)
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		var first, last string // the rules of the file
		if m := name.FindStringSubmatch(e.Name()); m != nil {
			first, last = m[1], cmp.Or(m[2], m[1])
		}
		for _, m := range element.FindAllStringSubmatch(string(text), -1) {
			found++
			rule := strings.ToLower(m[1])
			if len(rule) == 2 {
				rule = rule[:1] + "0" + rule[1:]
			}
			if rule < first || rule > last {
				t.Errorf("%s has a case or a mutant of %s, which belongs into the file of that rule", e.Name(), m[1])
			}
		}
	}
	if found < len(cases()) {
		t.Errorf("%d cases and mutants were found, but there are %d cases alone", found, len(cases()))
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
