package suite

import (
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// A process that such a case started was never killed, and the test waited for it for
// ever.
func TestCase_TimeoutLeavesNothing(t *testing.T) {
	t.Parallel()
	h := harnessOn(inmemory.Config{}, changes{})
	h.Synctest, h.Timeout = false, 10*time.Millisecond
	s := &suite{h: h, report: &Report{}, run: t.Name()} // the goroutines of others are labelled otherwise
	ended := make(chan struct{})
	before, after := make(chan struct{}), make(chan struct{})
	r := s.runCase(t, &testCase{rule: "C3", title: "goes on", run: func(t *caseT) {
		t.Cleanup(func() { close(before) })
		<-ended
		t.Cleanup(func() { close(after) })
	}}, core.TransactionReceiveOnly)
	close(ended)
	if r.Outcome != Failed {
		t.Error("it passes")
	}
	for name, cleaned := range map[string]chan struct{}{"before": before, "after": after} {
		select {
		case <-cleaned:
		case <-time.After(time.Minute):
			t.Errorf("a Cleanup function registered %s its end does not run", name)
		}
	}
}

func TestHarness_RulesSelectCases(t *testing.T) {
	t.Parallel()
	h := harnessOn(withLocks, changes{})
	h.Rules = []string{"C17", "C19"}
	for _, asked := range [][]string{nil, {"C19", "R1"}} {
		report, err := check(t, h, asked...)
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
	if _, err := check(t, h); err == nil || !strings.Contains(err.Error(), `"C99"`) {
		t.Errorf("the error %v does not name the rule that is none, C99", err)
	}
}

func TestSameAs_ReportListsTheRulesThatAreLeftOut(t *testing.T) {
	t.Parallel()
	h := harnessOn(withLocks, changes{})
	h.Rules, h.SameAs = []string{"C19"}, "the other one"
	report, err := check(t, h)
	if err != nil {
		t.Fatal(err)
	}
	ran, named := 0, 0
	for _, r := range report.Results {
		switch {
		case r.Rule == "C19" && r.Outcome == Passed:
			ran++
		case r.Rule != "C19" && r.Outcome == NotRun && strings.Contains(r.Reason, h.SameAs):
			named++
		case r.Rule != "C19" || r.Outcome != NotRun:
			t.Errorf("with Harness.Rules %q, %s is %q: %s", h.Rules, r.Case, r.Outcome, r.Reason)
		}
	}
	if ran == 0 || named == 0 || report.partial() {
		t.Errorf("%d cases ran, %d are named, and the report is partial: %v", ran, named, report.partial())
	}
	h.Rules = nil
	if _, err := check(t, h); err == nil || !strings.Contains(err.Error(), "Harness.Rules is empty") {
		t.Errorf("the error %v does not name the missing field, Harness.Rules", err)
	}
}
