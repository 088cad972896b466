package suite

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/transport/inmemory"
)

// sharedBroker is one that no case may stop.
type sharedBroker struct{ Broker }

func (sharedBroker) Kill(t testing.TB) { t.Error("the broker of all cases was stopped") }

// countedBroker counts how often it is stopped.
type countedBroker struct {
	Broker
	kills *atomic.Int32
}

func (b countedBroker) Kill(t testing.TB) {
	b.kills.Add(1)
	b.Broker.Kill(t)
}

// Cases that stop the broker have a separate one, and their results are in the same
// report.
func TestSeparate_EachCaseHasABroker(t *testing.T) {
	t.Parallel()
	onServer := func() Harness {
		h := harnessOnServer(inmemory.Config{}, changes{})
		h.Synctest, h.process, h.Timeout = false, nil, 2*time.Minute
		return h
	}
	var kills, brokers atomic.Int32
	h := onServer()
	h.Broker = sharedBroker{h.Broker}
	h.Separate = func(testing.TB) Harness {
		brokers.Add(1)
		separate := onServer()
		separate.Broker = countedBroker{separate.Broker, &kills}
		return separate
	}
	s, err := newSuite(t, h)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(outageCases, func(c testCase) bool {
		return c.title == "OpenReceiver and Check end with their context in an outage"
	})
	c := outageCases[i]
	if !s.separates(&c) || s.separates(&testCase{exclusive: true, needs: []need{secrets}}) {
		t.Error("the cases that stop the broker have a separate one, and no others")
	}
	const runs = 3
	for range runs {
		r := c
		s.runSubtest(t, &r, s.caps.HighestTransaction())
	}
	if kills.Load() < runs || brokers.Load() != runs {
		t.Errorf("%d runs of a case had %d brokers, which were stopped %d times", runs, brokers.Load(), kills.Load())
	}
	if n := len(s.report.Results); n != runs || len(s.report.failures()) > 0 {
		t.Errorf("the report of %d runs has %d results, and these failures: %v", runs, n, s.report.failures())
	}
}
