package conformance

import (
	"slices"
	"testing"

	"github.com/reprise-go/reprise/transport/inmemory"
)

// TestControlOnServer is TestControl for the mutants on a server. There every
// case about processes and outages runs.
func TestControlOnServer(t *testing.T) {
	t.Parallel()
	report, err := Check(t, harnessOnServer(inmemory.Config{}, changes{}))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Failures() {
		t.Error(f)
	}
	for _, c := range slices.Concat(processCases, outageCases, restartCases) {
		for _, r := range report.Results {
			if r.Case == c.name() && r.Outcome == NotRun && r.Reason != notDurable.unmet {
				t.Errorf("%s was not run, because %s", r.Case, r.Reason)
			}
		}
	}
}

// TestForgettingServer is the same for a broker that keeps nothing.
func TestForgettingServer(t *testing.T) {
	t.Parallel()
	h := harnessOnServer(inmemory.Config{}, forgetful())
	atDeath(func(s *server, t *inmemory.Transport) { s.takeAll(t) })(&h)
	report := checkCases(t, h, outageCases...)
	for _, f := range report.Failures() {
		t.Error(f)
	}
	if report.Count(Passed) == 0 {
		t.Error("nothing was tried")
	}
}

// TestControlOnCountingServer is the same for a broker that counts every delivery, in the
// cases about processes.
func TestControlOnCountingServer(t *testing.T) {
	t.Parallel()
	report := checkCases(t, harnessOnServer(countingEvery, changes{}), processCases...)
	for _, f := range report.Failures() {
		t.Error(f)
	}
	if report.Count(Passed) == 0 {
		t.Error("nothing was tried")
	}
}
