package suite

import (
	"slices"
	"testing"
)

// check runs the cases of the named rules, such as "C13", or those that Run would, one
// after the other, and returns the report. It does not fail t for a fault of the adapter; t only
// provides its context and temporary directories.
func check(t *testing.T, h Harness, rules ...string) (*Report, error) {
	t.Helper()
	h.EngineRules = h.EngineRules || len(rules) > 0
	s, err := newSuite(t, h)
	if err != nil {
		return nil, err
	}
	for _, c := range cases() {
		if len(rules) > 0 && !slices.Contains(rules, c.rule) || s.leavesOut(&c) {
			continue
		}
		for _, mode := range c.modes.choose(s.caps) {
			s.report.add(s.runCase(t, &c, mode))
		}
	}
	s.report.sort()
	return s.report, nil
}

// failures returns every failure that is not a declared deviation.
func (r *Report) failures() (failures []Failure) {
	for _, result := range r.Results {
		if result.Outcome == Failed {
			failures = append(failures, result.Failures...)
		}
	}
	return failures
}
