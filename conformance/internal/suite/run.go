package suite

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
)

// Run is conformance.Run. save is called with the report of a run that left nothing out.
func Run(t *testing.T, h Harness, save func(*Report) error) {
	t.Helper()
	s, err := newSuite(t, h)
	if err != nil {
		t.Fatal(err)
	}
	s.short = testing.Short()
	t.Cleanup(func() { s.conclude(t, save) })
	s.runSubtests(t)
}

func (s *suite) runSubtests(t *testing.T) {
	all := cases()
	slices.SortStableFunc(all, func(a, b testCase) int { return b.startOrder() - a.startOrder() })
	for _, c := range all {
		if s.leavesOut(&c) {
			continue
		}
		t.Run(c.subtestName(), func(t *testing.T) {
			alone := c.exclusive && !s.separates(&c)
			if !alone {
				t.Parallel()
			}
			for _, mode := range s.modesOf(&c) {
				t.Run(mode.String(), func(t *testing.T) {
					if !alone {
						t.Parallel()
					}
					s.runSubtest(t, &c, mode)
				})
			}
		})
	}
}

// startOrder is higher for cases that begin earlier: those that wait for a long time, next to
// which others run. Otherwise a run would end with a few that wait.
func (c *testCase) startOrder() int {
	if c.slow || c.waitsForLocks() {
		return 1
	}
	return 0
}

func (s *suite) runSubtest(t *testing.T, c *testCase, mode core.TransactionMode) {
	t.Helper()
	on := s
	if s.separates(c) {
		var err error
		if on, err = s.separate(t); err != nil {
			t.Fatal(err)
		}
	}
	r := on.runCase(t, c, mode)
	for _, note := range r.Notes {
		t.Log(note)
	}
	reason, deviates := s.h.Deviations[c.name()]
	if deviates && r.Outcome == Failed {
		r.Outcome, r.Reason = Deviates, reason
	}
	s.report.add(r)
	for _, f := range r.Failures {
		if r.Outcome == Deviates {
			t.Logf("declared deviation: %s\n%v", reason, f)
		} else {
			t.Error(f)
		}
	}
}

// leavesOut reports whether a case is not run, and adds a result with the reason, unless
// Harness.Rules makes the report partial.
func (s *suite) leavesOut(c *testCase) bool {
	if len(s.h.Rules) > 0 && s.h.SameAs == "" && !s.chooses(c) {
		return true
	}
	reason := s.reasonAgainst(c)
	if reason == "" {
		return false
	}
	s.report.add(Result{Case: c.name(), Rule: c.rule, Outcome: NotRun, Reason: reason})
	return true
}

// reasonAgainst returns why a case is not run, or "" if it is.
func (s *suite) reasonAgainst(c *testCase) string {
	switch {
	case s.chooses(c):
	case s.h.SameAs != "":
		return "Harness.Rules leaves out the rules in which it is the same as " + s.h.SameAs
	default:
		return engineOnly
	}
	if len(c.modes.choose(s.caps)) == 0 { // first, because no field of the harness would change it
		return c.modes.absentReason()
	}
	if i := slices.IndexFunc(c.needs, func(n need) bool { return !n.met(s) }); i >= 0 {
		return c.needs[i].unmet
	}
	if s.tooLong(c) {
		return shortRun
	}
	return ""
}

// chooses reports whether the harness asks for the case's rule.
func (s *suite) chooses(c *testCase) bool {
	if len(s.h.Rules) > 0 {
		return slices.Contains(s.h.Rules, c.rule)
	}
	return s.h.EngineRules || !slices.Contains(engineRules, c.rule)
}

// Reasons why a case is not run that are neither the transport's nor the harness's.
const (
	engineOnly = "only the engine can break their rules, which are checked in memory (Harness.EngineRules)"
	shortRun   = "they are not for short runs (go test -short)"
)

// tooLong reports whether a case is left out of this short run. In a bubble waiting takes
// no time.
func (s *suite) tooLong(c *testCase) bool {
	return s.short && (c.slow || !s.h.Synctest && c.waitsForLocks())
}

// modesOf returns the modes in which a case runs. In a short run that is one mode, which
// differs from case to case, so that each mode is tried.
func (s *suite) modesOf(c *testCase) []core.TransactionMode {
	modes := c.modes.choose(s.caps)
	if !s.short {
		return modes
	}
	h := fnv.New32a()
	h.Write([]byte(c.name()))
	i := int(h.Sum32() % uint32(len(modes)))
	return modes[i : i+1]
}

// conclude evaluates the whole run.
func (s *suite) conclude(t *testing.T, save func(*Report) error) {
	t.Helper()
	s.report.sort()
	complete := !s.short && !s.report.partial()
	if complete {
		for _, mistake := range s.wrongDeviations() {
			t.Error(mistake)
		}
	}
	if testing.Verbose() || t.Failed() {
		t.Log(s.report.summary() + s.report.details())
	} else {
		fmt.Printf("%s: %s\n", t.Name(), s.report.summary()) // go test would drop a log
	}
	if complete {
		if err := save(s.report); err != nil {
			t.Error(err)
		}
	}
}

// wrongDeviations returns the declared deviations that do not apply (S2).
func (s *suite) wrongDeviations() (mistakes []string) {
	all := cases()
	for name, reason := range s.h.Deviations {
		if !slices.ContainsFunc(all, func(c testCase) bool { return c.name() == name }) {
			mistakes = append(mistakes, fmt.Sprintf("Harness.Deviations names %q, but there is no such case; go test -v lists them", name))
			continue
		}
		if strings.TrimSpace(reason) == "" {
			mistakes = append(mistakes, fmt.Sprintf("Harness.Deviations[%q] is empty; say why the case fails, for the users of the adapter", name))
		}
		held, ran := true, false
		for _, r := range s.report.Results {
			if r.Case == name && r.Outcome != NotRun {
				ran = true
				held = held && r.Outcome == Passed
			}
		}
		switch {
		case !ran:
			mistakes = append(mistakes, fmt.Sprintf("Harness.Deviations names %q, which was not run; remove it, or the setting that keeps the case from running", name))
		case held:
			mistakes = append(mistakes, fmt.Sprintf("Harness.Deviations names %q, but the case holds in every mode; remove the deviation", name))
		}
	}
	slices.Sort(mistakes)
	return mistakes
}
