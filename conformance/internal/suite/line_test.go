package suite

import (
	"testing"
	"time"

	"github.com/reprise-go/reprise/transport/inmemory"
)

// TestLine_FetchInProgressMayKeepItsLocks: a transport is not to blame for the locks of a
// fetch that was in progress when its connections fell silent.
func TestLine_FetchInProgressMayKeepItsLocks(t *testing.T) {
	t.Parallel()
	h := harnessOnServer(inmemory.Config{}, changes{})
	h.Broker.(*server).faults.keepsLocks = time.Hour
	s, err := newSuite(t, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range casesNeeding(ownLine) {
		if c.rule != "C15" {
			continue
		}
		for _, mode := range c.modes.choose(s.caps) {
			for _, f := range s.runCase(t, &c, mode).Failures {
				t.Errorf("%s in %v: %v", c.name(), mode, f)
			}
		}
	}
}
