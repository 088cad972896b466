package conformance

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// mutant is a transport that breaks one rule.
type mutant struct {
	rule string
	name string // what it does, completing "a transport that ..."
	// on is the transport that it breaks. The default can do everything.
	on inmemory.Config
	// onServer: the harness has a Broker and processes too.
	onServer bool
	// breaks returns what it does differently, anew for each harness.
	breaks func() changes
	// harness, where the changes are not enough, changes the harness.
	harness func(h *Harness)
}

// mutants is one list for each file of cases.
func mutants() []mutant {
	return slices.Concat(
		capabilityMutants,
		sendMutants,
		receiveMutants,
		inFlightMutants,
		malformedMutants,
		settlementMutants,
		countMutants,
		contentMutants,
		limitMutants,
		redeliveryMutants,
		atomicMutants,
		workMutants,
		delayMutants,
		closeMutants,
		lockMutants,
		topologyMutants,
		publishMutants,
		expiryMutants,
		secretMutants,
		deadLetterMutants,
		outageMutants,
		restartMutants,
		processMutants,
		retryMutants,
		policyMutants,
		failureMutants,
		oversizeMutants,
		outboxMutants,
		interruptionMutants,
		verdictMutants,
		rateLimitMutants,
		pumpMutants,
		scaleOutMutants,
	)
}

// able is a transport's configuration with everything, changed.
func able(change func(*core.Capabilities)) inmemory.Config {
	caps := inmemory.Everything()
	change(&caps)
	return inmemory.Config{Capabilities: &caps}
}

// TestMutants shows that the suite can fail (S4): each mutant fails cases of the
// rule that it breaks, every rule has a mutant, and every case fails for one at
// least.
func TestMutants(t *testing.T) {
	caught := map[string][]string{} // mutants by case
	byRule := map[string]int{}
	var table strings.Builder
	for _, m := range mutants() {
		byRule[m.rule]++
		t.Run(m.rule+" "+m.name, func(t *testing.T) {
			var c changes
			if m.breaks != nil {
				c = m.breaks()
			}
			h := harnessOn(m.on, c)
			if m.onServer {
				h = harnessOnServer(m.on, c)
			}
			h.Seed = 1
			if m.harness != nil {
				m.harness(&h)
			}
			report, err := Check(t, h, m.rule)
			if err != nil {
				t.Fatal(err)
			}
			by := map[string]bool{}
			for _, r := range report.Results {
				if r.Outcome == Failed {
					by[r.Case] = true
					caught[r.Case] = append(caught[r.Case], m.name)
					t.Log(r.Case, "in", r.Mode, r.Failures[0])
				}
			}
			if len(by) == 0 {
				t.Errorf("no case of %s notices a transport that %s", m.rule, m.name)
			}
			fmt.Fprintf(&table, "%-4s %-80s %s\n", m.rule, m.name, strings.Join(slices.Sorted(maps.Keys(by)), "; "))
		})
	}
	t.Logf("rule, mutant, caught by:\n%s%d mutants of %d rules", table.String(), len(mutants()), len(byRule))
	if t.Failed() || !whole(t) {
		return
	}
	for _, c := range cases() {
		if byRule[c.rule] == 0 {
			t.Errorf("rule %s has no mutant", c.rule)
		}
		if len(caught[c.name()]) == 0 {
			t.Errorf("the case %q fails for no mutant: it may be unable to fail", c.name())
		}
	}
}

// whole reports whether all subtests of TestMutants run.
func whole(t *testing.T) bool {
	t.Helper()
	ran := false
	t.Run("none is left out", func(*testing.T) { ran = true })
	return ran
}

// TestControl shows that it is what a mutant breaks, and not what it is made of,
// that is found: without changes nothing fails.
func TestControl(t *testing.T) {
	for name, cfg := range map[string]inmemory.Config{
		"which can do everything":           {},
		"whose locks end":                   withLocks,
		"which counts in its memory":        countingAlone(),
		"which counts every delivery":       able(func(c *core.Capabilities) { c.CountsEveryDelivery = true }),
		"which may deliver a message twice": able(func(c *core.Capabilities) { c.Duplicates = true }),
	} {
		t.Run(name, func(t *testing.T) {
			report, err := Check(t, harnessOn(cfg, changes{}))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range report.Failures() {
				t.Error(f)
			}
		})
	}
}
