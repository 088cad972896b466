package conformance

import (
	"testing"
)

// checkCases runs some cases alone, as Check does.
func checkCases(t *testing.T, h Harness, list ...testCase) *Report {
	t.Helper()
	h.Seed = 1
	s, err := newSuite(t, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list {
		if reason := s.excludes(&c); reason != "" {
			s.report.add(Result{Case: c.name(), Rule: c.rule, Outcome: NotRun, Reason: reason})
			continue
		}
		for _, mode := range c.in.of(s.caps) {
			s.report.add(s.attempt(t, &c, mode))
		}
	}
	return s.report
}
