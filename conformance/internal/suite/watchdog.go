package suite

import (
	"bytes"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/reprise-go/reprise/core"
)

// spinLimit is the longest time that a case may spend in a bubble, by the machine's
// clock. No case needs more than seconds.
const spinLimit = 5 * time.Minute

// watch aborts a case that does not end in its bubble. The clock of a bubble stands still
// while one of its goroutines runs, so no time limit within the bubble ends a busy loop.
// watch is called outside the bubble.
func (s *suite) watch(c *testCase, mode core.TransactionMode, label string) (stop func() bool) {
	began := time.Now()
	return time.AfterFunc(s.spinLimit, func() {
		s.abort(fmt.Sprintf("conformance: the case %q in mode %v has not ended after %v.\n"+
			"Usually a goroutine of the transport, or of the case, works without ever waiting: it asks again and again, or fails and tries again at once, "+
			"and so the clock of the bubble (Harness.Synctest) stands still, and no time limit ends it. Look for a loop without a pause among these goroutines:\n%s",
			c.name(), mode, time.Since(began).Round(time.Millisecond), goroutines(label)))
	}).Stop
}

// goroutines returns the stacks of the goroutines with a label: those started by a case
// and its transports.
func goroutines(label string) string { return labelledGoroutines(caseLabel, label) }

func labelledGoroutines(key, value string) string {
	var all bytes.Buffer
	if err := pprof.Lookup("goroutine").WriteTo(&all, 1); err != nil {
		return err.Error()
	}
	marked := fmt.Sprintf("%q:%q", key, value)
	stacks := strings.Split(all.String(), "\n\n")
	return strings.Join(slices.DeleteFunc(stacks, func(stack string) bool { return !strings.Contains(stack, marked) }), "\n\n")
}
