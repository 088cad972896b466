package suite

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func TestWatchdog_EndsASpinningCase(t *testing.T) {
	s, err := newSuite(t, harnessOn(inmemory.Config{}, changes{}))
	if err != nil {
		t.Fatal(err)
	}
	var told atomic.Pointer[string]
	s.spinLimit, s.abort = 50*time.Millisecond, func(text string) { told.Store(&text) }
	r := s.runCase(t, &testCase{rule: "C3", title: "spins", run: func(*caseT) {
		for told.Load() == nil {
		}
	}}, core.TransactionReceiveOnly)
	if r.Outcome != Passed {
		t.Error(r.Failures)
	}
	for _, want := range []string{`"C3 spins"`, "ReceiveOnly", "Harness.Synctest", "TestWatchdog_EndsASpinningCase"} {
		if !strings.Contains(*told.Load(), want) {
			t.Errorf("%s is missing in:\n%s", want, *told.Load())
		}
	}
}

func TestWatchdog_SparesACaseThatEnds(t *testing.T) {
	s, err := newSuite(t, harnessOn(inmemory.Config{}, changes{}))
	if err != nil {
		t.Fatal(err)
	}
	const limit = 200 * time.Millisecond
	var ended atomic.Bool // before, a slow machine may well be over the limit
	s.spinLimit, s.abort = limit, func(text string) {
		if ended.Load() {
			t.Error(text)
		}
	}
	s.runCase(t, &testCase{rule: "C3", title: "waits", run: func(t *caseT) { t.sleep(time.Hour) }}, core.TransactionReceiveOnly)
	ended.Store(true)
	time.Sleep(2 * limit)
}
