package conformance

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// trial is one case in one transaction mode: what a case works with. To the
// harness's functions it is a testing.TB. Its methods that fail or stop the case
// say what was expected and what was seen instead; those that stop it end the
// goroutine, and belong to that of the case.
type trial struct {
	testing.TB // lends what is not replaced here
	*testCase

	suite  *suite
	caps   core.Capabilities
	mode   core.TransactionMode
	random *rand.Rand // of the case's goroutine alone
	ctx    context.Context
	label  string // of the goroutines, for the profiler

	transportLabel atomic.Pointer[string] // one more; nil unless a case looks for what a transport starts

	log endpointLog

	mu       sync.Mutex
	result   *Result
	sealed   bool
	cleanups []func()
	cleanAll bool // all have run
	late     string
	kept     []core.Delivery // the locks of which are being renewed

	lastActive atomic.Pointer[time.Time]
}

var errCaseEnded = errors.New("conformance: the case has ended")

// seedRandom gives every case random numbers of its own, which do not depend on
// which other cases run.
func (t *trial) seedRandom() {
	h := fnv.New64a()
	fmt.Fprint(h, t.name(), t.mode)
	t.random = rand.New(rand.NewPCG(t.suite.h.Seed, h.Sum64()))
}

// fail records that something is not as the case's rule wants it, and goes on.
func (t *trial) fail(expected, observed string, args ...any) {
	t.add(Failure{Rule: t.rule, Expected: expected, Observed: shown(observed, args...), At: caller()})
}

// stop is fail, and ends the case.
func (t *trial) stop(expected, observed string, args ...any) {
	t.add(Failure{Rule: t.rule, Expected: expected, Observed: shown(observed, args...), At: caller()})
	runtime.Goexit()
}

// shown writes what was observed as a Go programmer would.
func shown(observed string, args ...any) string {
	return strings.ReplaceAll(fmt.Sprintf(observed, args...), "<nil>", "nil")
}

// notRun ends a case that turns out to have no meaning in its mode. Whatever has
// failed before stays.
func (t *trial) notRun(reason string) {
	t.mu.Lock()
	if !t.sealed && t.result.Outcome == Passed {
		t.result.Outcome, t.result.Reason = NotRun, reason
	}
	t.mu.Unlock()
	runtime.Goexit()
}

func (t *trial) add(f Failure) {
	t.keptLate()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sealed { // a goroutine left over from a case may come too late
		t.result.fail(f)
	}
}

// note adds something worth knowing to the result.
func (t *trial) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sealed {
		t.result.Notes = append(t.result.Notes, fmt.Sprintf(format, args...))
	}
}

// measure adds a number that the reports compare.
func (t *trial) measure(name string, value float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.sealed {
		return
	}
	if t.result.Measures == nil {
		t.result.Measures = map[string]float64{}
	}
	t.result.Measures[name] = value
}

// seal ends the trial, and returns what it was too late for.
func (t *trial) seal() (late string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sealed = true
	return t.late
}

func (t *trial) cleanUp() {
	for {
		t.mu.Lock()
		n := len(t.cleanups)
		if n == 0 {
			t.cleanAll = true
			t.mu.Unlock()
			return
		}
		f := t.cleanups[n-1]
		t.cleanups = t.cleanups[:n-1]
		t.mu.Unlock()
		f()
	}
}

// goroutines returns the stacks of the goroutines that the case and the
// transport have started.
func (t *trial) goroutines() string { return goroutines(t.label) }

// labelTransport adds a label to the goroutine of the case, and so to those that are
// started from now on; "" takes it away.
func (t *trial) labelTransport(label string) {
	t.transportLabel.Store(&label)
	t.setLabels()
}

// setLabels labels the goroutine as the case's.
func (t *trial) setLabels() {
	labels := []string{caseLabel, t.label, "case", t.name()}
	if own := t.transportLabel.Load(); own != nil && *own != "" {
		labels = append(labels, transportLabel, *own)
	}
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(labels...)))
}

// What a testing.TB does, for the harness's functions. Failures become those of
// the case.

// Name returns the name of the case.
func (t *trial) Name() string { return t.name() + "/" + t.mode.String() }

// Helper does nothing.
func (t *trial) Helper() {}

// Context ends when the case does, before its cleanups.
func (t *trial) Context() context.Context { return t.ctx }

// Cleanup lets f run at the case's end, the last one first. A case that did not end in
// time goes on beside the test: what it begins after its end is cleaned up at once.
func (t *trial) Cleanup(f func()) {
	t.mu.Lock()
	late := t.cleanAll
	if !late {
		t.cleanups = append(t.cleanups, f)
	}
	t.mu.Unlock()
	if late {
		f()
	}
}

// Log, Logf, Error, Errorf, Fatal, Fatalf, Fail, FailNow and Failed are those of
// testing.TB.

func (t *trial) Log(args ...any)                 { t.note("%s", strings.TrimSuffix(fmt.Sprintln(args...), "\n")) }
func (t *trial) Logf(format string, args ...any) { t.note(format, args...) }

const harnessWorks = "the functions of the Harness do their work"

func (t *trial) Error(args ...any) {
	t.fail(harnessWorks, "%s", strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}
func (t *trial) Errorf(format string, args ...any) { t.fail(harnessWorks, format, args...) }
func (t *trial) Fatal(args ...any) {
	t.stop(harnessWorks, "%s", strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}
func (t *trial) Fatalf(format string, args ...any) { t.stop(harnessWorks, format, args...) }
func (t *trial) Fail()                             { t.fail(harnessWorks, "it called Fail") }
func (t *trial) FailNow()                          { t.stop(harnessWorks, "it called FailNow") }

func (t *trial) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.result.Outcome == Failed
}

// Skip, Skipf and SkipNow fail: what cannot be tried is left out of the Harness.

func (t *trial) Skip(args ...any) {
	t.stop("the Harness skips nothing: what it cannot do is nil in it", "%s", strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}
func (t *trial) Skipf(format string, args ...any) {
	t.stop("the Harness skips nothing: what it cannot do is nil in it", format, args...)
}
func (t *trial) SkipNow() {
	t.stop("the Harness skips nothing: what it cannot do is nil in it", "the harness called SkipNow")
}
func (t *trial) Skipped() bool { return false }

// isPlumbing reports whether a function is not the place where something was
// expected, but one that it called.
func isPlumbing(function string) bool {
	_, method, found := strings.Cut(function, "/conformance.(*")
	return found && (strings.HasPrefix(method, "trial).") || strings.HasPrefix(method, "receiver).") || strings.HasPrefix(method, "service)."))
}

func shortPosition(f runtime.Frame) string {
	return fmt.Sprintf("%s/%s:%d", filepath.Base(filepath.Dir(f.File)), filepath.Base(f.File), f.Line)
}

// Time.

// patience is how long the case waits for what must happen. What has failed already is
// not waited for again as long.
func (t *trial) patience() time.Duration {
	if t.Failed() && !t.suite.h.Synctest {
		return t.suite.h.Timeout / 10
	}
	return t.suite.h.Timeout
}

func (t *trial) quiet() time.Duration { return t.suite.h.QuietPeriod }

// lock is how long a delivery of the case's transports stays locked, in the mode where
// it is shortest; 0: for ever.
func (t *trial) lock() time.Duration {
	if t.waitsForLocks() {
		return t.suite.shortLock
	}
	return t.suite.lock
}

// patient returns a context for one call.
func (t *trial) patient() (context.Context, context.CancelFunc) {
	t.active()
	return context.WithTimeout(t.ctx, t.patience())
}

// await waits until something is so, and stops the case if it never is.
func (t *trial) await(what string, is func() bool) {
	if !t.comesTrue(is) {
		t.stop(what, "it is not so after %v%s", t.patience(), t.log.told())
	}
}

// comesTrue waits until something is so, and reports whether it was in time.
func (t *trial) comesTrue(is func() bool) bool {
	deadline := time.Now().Add(t.patience())
	for pause := time.Millisecond; !is(); pause = min(2*pause, max(t.quiet()/6, time.Millisecond)) {
		if time.Now().After(deadline) || t.ctx.Err() != nil {
			return false
		}
		t.rest(pause)
	}
	return true
}

// rest lets time pass, because that is what the case is about.
func (t *trial) rest(d time.Duration) {
	t.active()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.ctx.Done():
	}
}
