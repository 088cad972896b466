package conformance

import (
	"strings"
	"testing"
)

func TestRulesOfTheHarnessAreAllThatIsChecked(t *testing.T) {
	t.Parallel()
	h := harnessOn(withLocks, changes{})
	h.Rules = []string{"C17", "C19"}
	for _, asked := range [][]string{nil, {"C19", "R1"}} {
		report, err := Check(t, h, asked...)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]int{}
		for _, r := range report.Results {
			seen[r.Rule]++
		}
		if seen["C19"] == 0 || (seen["C17"] > 0) != (asked == nil) || len(seen) > 2 {
			t.Errorf("asked for %q with Harness.Rules %q, cases of these rules ran: %v", asked, h.Rules, seen)
		}
		if !report.partial() {
			t.Error("the report of some rules is taken for that of all")
		}
	}
	h.Rules = []string{"C19", "C99"}
	if _, err := Check(t, h); err == nil || !strings.Contains(err.Error(), `"C99"`) {
		t.Errorf("the error %v does not name the rule that is none, C99", err)
	}
}
