package suite

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// TestControl_Server is TestControl for the mutants on a server. There every
// case about processes and outages runs.
func TestControl_Server(t *testing.T) {
	t.Parallel()
	h := harnessOnServer(inmemory.Config{}, changes{})
	h.EngineRules = true
	s, err := newSuite(t, h)
	if err != nil {
		t.Fatal(err)
	}
	s.short = testing.Short()
	t.Cleanup(func() { // when the parallel subtests have ended
		for _, c := range slices.Concat(casesNeeding(processes), casesNeeding(outages), casesNeeding(brokerControl)) {
			for _, r := range s.report.Results {
				if r.Case == c.name() && r.Outcome == NotRun && r.Reason != notDurable.unmet {
					t.Errorf("%s was not run, because %s", r.Case, r.Reason)
				}
			}
		}
	})
	s.runSubtests(t)
}

// serverNetwork is the network of a server that is never stopped.
type serverNetwork struct{ *server }

// Cut implements Network. To clients it looks like a server that was killed.
func (n serverNetwork) Cut(t testing.TB) (restore func()) {
	n.Kill(t)
	return func() { n.Start(t) }
}

// networkAlone takes the Broker from a harness of harnessOnServer.
func networkAlone(h *Harness) {
	h.Network, h.Broker = serverNetwork{h.Broker.(*server)}, nil
}

func TestNetwork_RunsOutageCasesWithoutABroker(t *testing.T) {
	t.Parallel()
	h := harnessOnServer(inmemory.Config{}, changes{})
	networkAlone(&h)
	report := checkCases(t, h, slices.Concat(casesNeeding(outages), casesNeeding(brokerControl))...)
	for _, f := range report.failures() {
		t.Error(f)
	}
	for _, c := range casesNeeding(outages) {
		if slices.ContainsFunc(c.needs, func(n need) bool {
			return n.unmet == notDurable.unmet || // a broker that forgets must be restarted to do so
				n.unmet == misconfiguration.unmet
		}) {
			continue
		}
		for _, r := range report.Results {
			if r.Case == c.name() && r.Outcome == NotRun {
				t.Errorf("%s was not run, because %s", r.Case, r.Reason)
			}
		}
	}
	for _, c := range casesNeeding(brokerControl) {
		for _, r := range report.Results {
			if r.Case == c.name() && r.Outcome != NotRun {
				t.Errorf("%s %s, although the Harness cannot restart the broker", r.Case, r.Outcome)
			}
		}
	}
}

// countedKills counts the kills of a broker.
type countedKills struct {
	Broker
	kills *atomic.Int64
}

func (c countedKills) Kill(t testing.TB) {
	c.kills.Add(1)
	c.Broker.Kill(t)
}

func TestNetwork_IsCutBesideABroker(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cases []testCase
		kills bool
	}{
		"outages":  {casesNeeding(outages), false},
		"restarts": {casesNeeding(brokerControl), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := harnessOnServer(inmemory.Config{}, changes{})
			h.Network = serverNetwork{h.Broker.(*server)}
			var kills atomic.Int64
			h.Broker = countedKills{h.Broker, &kills}
			report := checkCases(t, h, c.cases...)
			for _, f := range report.failures() {
				t.Error(f)
			}
			if report.Count(Passed) == 0 {
				t.Error("nothing was tried")
			}
			if n := kills.Load(); n > 0 != c.kills {
				t.Errorf("the broker was killed %d times", n)
			}
		})
	}
}

func TestNetwork_CatchesATransportThatGivesUp(t *testing.T) {
	t.Parallel()
	h := harnessOnServer(inmemory.Config{}, changes{})
	givesUp(&h)
	networkAlone(&h)
	if report := checkCases(t, h, casesNeeding(outages)...); report.Count(Failed) == 0 {
		t.Error("a transport that gives up after three attempts to connect fails no case")
	}
}

// casesTitled returns the cases whose titles begin with a text.
func casesTitled(prefix string) []testCase {
	return slices.DeleteFunc(cases(), func(c testCase) bool { return !strings.HasPrefix(c.title, prefix) })
}

// TestControl_ServerVariants is the same for servers that differ in one point, which they
// declare, and for a client that differs in one that C3 allows.
func TestControl_ServerVariants(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		cfg     inmemory.Config
		breaks  changes
		harness func(*Harness)
		cases   []testCase
	}{
		{"writes delivery counts later", inmemory.Config{}, changes{}, writesCountsLater(100*time.Millisecond, 100*time.Millisecond), casesNeeding(brokerControl)},
		{"keeps nothing", inmemory.Config{}, forgetful(), atDeath(func(s *server, t *inmemory.Transport) { s.takeAll(t) }), slices.Concat(casesNeeding(outages), casesNeeding(brokerControl))},
		{"completes fetches on a new connection", inmemory.Config{}, completesFetches(), func(*Harness) {}, casesTitled("an Abandon or Release whose answer was lost")},
		{"counts every delivery", countingEvery, changes{}, func(*Harness) {}, casesNeeding(processes)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h := harnessOnServer(c.cfg, c.breaks)
			c.harness(&h)
			report := checkCases(t, h, c.cases...)
			for _, f := range report.failures() {
				t.Error(f)
			}
			if report.Count(Passed) == 0 {
				t.Error("nothing was tried")
			}
		})
	}
}

// TestControl_ReversedSends shows that cases assume no order of the messages of a Send:
// no capability but GroupOrder promises one.
func TestControl_ReversedSends(t *testing.T) {
	t.Parallel()
	reversed := func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
		out = slices.Clone(out)
		slices.Reverse(out)
		err := next(ctx, out...)
		if failed, ok := errors.AsType[*core.SendError](err); ok {
			slices.Reverse(failed.Results)
		}
		return err
	}
	h := harnessOn(able(func(c *core.Capabilities) { c.GroupOrder = false }), changes{send: reversed})
	report, err := check(t, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.failures() {
		t.Error(f)
	}
}
