package suite

import (
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
)

// TestHarness_GoroutinesAreNotTheTransports lets a harness start a goroutine
// that outlives the case, as a broker in the test's process does.
func TestHarness_GoroutinesAreNotTheTransports(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	defer close(release)
	h, err := Harness{
		Open:  func(testing.TB) core.Transport { return nil },
		Queue: func(testing.TB) string { go func() { <-release }(); return "orders" },
	}.complete()
	if err != nil {
		t.Fatal(err)
	}
	s := &suite{h: h.withoutLabels(), spinLimit: spinLimit, run: t.Name()}
	var before, harness, transport int
	s.runCase(t, &testCase{rule: "C14", title: "any", run: func(t *caseT) {
		count := func() int { return strings.Count(t.goroutines(), "# labels:") }
		before = count()
		t.suite.h.Queue(t)
		harness = count()
		go func() { <-release }()
		transport = count()
	}}, core.TransactionReceiveOnly)
	if before == 0 || harness != before || transport != before+1 {
		t.Errorf("%d goroutines, %d after the harness started one, %d after the case did; want 1, 1, 2", before, harness, transport)
	}
}
