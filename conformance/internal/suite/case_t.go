package suite

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// caseT is one case in one transaction mode, and the toolbox of a case. Harness functions
// receive it as their testing.TB. Its methods that fail or stop the case take a text
// about the expectation and one about the observation; those that stop the case end the
// calling goroutine, so only the case's own goroutine may call them.
type caseT struct {
	testing.TB // for the methods that are not replaced here
	*testCase

	suite  *suite
	caps   core.Capabilities
	mode   core.TransactionMode
	random *rand.Rand // for the case's goroutine only
	ctx    context.Context
	label  string // of the goroutines, for the profiler

	transportLabel atomic.Pointer[string] // an additional label; nil unless a case looks for goroutines started by a transport

	log endpointLog

	mu        sync.Mutex
	result    *Result
	sealed    bool
	cleanups  []func()
	cleanAll  bool // all cleanups have run
	lateError string
	renewing  []core.Delivery // deliveries whose locks are being renewed

	lastActive atomic.Pointer[time.Time]
	lateReads  atomic.Int64 // deliveries that readers of queues completed too late
}

var errCaseEnded = errors.New("conformance: the case has ended")

// seedRandom gives every case its own random numbers, which do not depend on the other
// cases in the run.
func (t *caseT) seedRandom() {
	h := fnv.New64a()
	fmt.Fprint(h, t.name(), t.mode)
	t.random = rand.New(rand.NewPCG(t.suite.h.seed, h.Sum64()))
}

// fail records a violation of the case's rule, and goes on.
func (t *caseT) fail(expected, observed string, args ...any) {
	t.add(Failure{Rule: t.rule, Expected: expected, Observed: shown(observed, args...), At: caller()})
}

// stop records a failure, and ends the case.
func (t *caseT) stop(expected, observed string, args ...any) {
	t.add(Failure{Rule: t.rule, Expected: expected, Observed: shown(observed, args...), At: caller()})
	runtime.Goexit()
}

// shown formats the observation as a Go programmer would.
func shown(observed string, args ...any) string {
	return strings.ReplaceAll(fmt.Sprintf(observed, args...), "<nil>", "nil")
}

// notRun ends a case that turns out not to apply to its mode. Earlier failures stay
// recorded.
func (t *caseT) notRun(reason string) {
	t.mu.Lock()
	if !t.sealed && t.result.Outcome == Passed {
		t.result.Outcome, t.result.Reason = NotRun, reason
	}
	t.mu.Unlock()
	runtime.Goexit()
}

func (t *caseT) add(f Failure) {
	t.recordLateRenewals()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sealed { // a goroutine left over from a case may call this too late
		t.result.fail(f)
	}
}

// note adds an observation to the result.
func (t *caseT) note(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.sealed {
		t.result.Notes = append(t.result.Notes, fmt.Sprintf(format, args...))
	}
}

// measure adds a number that the reports compare.
func (t *caseT) measure(name string, value float64) {
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

// seal ends the case, and returns a description of the operation that it was too late
// for.
func (t *caseT) seal() (lateError string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sealed = true
	return t.lateError
}

func (t *caseT) cleanUp() {
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

// goroutines returns the stacks of the goroutines started by the case and the transport.
func (t *caseT) goroutines() string { return goroutines(t.label) }

// labelTransport adds a label to the goroutine of the case, and thereby to the goroutines
// started from now on; "" removes it.
func (t *caseT) labelTransport(label string) {
	t.transportLabel.Store(&label)
	t.setLabels()
}

// setLabels labels the goroutine as the case's.
func (t *caseT) setLabels() {
	labels := []string{caseLabel, t.label, "case", t.name()}
	if own := t.transportLabel.Load(); own != nil && *own != "" {
		labels = append(labels, transportLabel, *own)
	}
	pprof.SetGoroutineLabels(pprof.WithLabels(context.Background(), pprof.Labels(labels...)))
}

// Methods of testing.TB, for the harness's functions. Failures become failures of the
// case.

// Name returns the name of the case.
func (t *caseT) Name() string { return t.name() + "/" + t.mode.String() }

// Helper does nothing.
func (t *caseT) Helper() {}

// Context ends when the case does, before its cleanups.
func (t *caseT) Context() context.Context { return t.ctx }

// Cleanup runs f at the end of the case, the last one first. A case that did not end in
// time goes on beside the test: resources that it opens after that are cleaned up at
// once.
func (t *caseT) Cleanup(f func()) {
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

// Log, Logf, Error, Errorf, Fatal, Fatalf, Fail, FailNow and Failed implement testing.TB.

func (t *caseT) Log(args ...any)                 { t.note("%s", strings.TrimSuffix(fmt.Sprintln(args...), "\n")) }
func (t *caseT) Logf(format string, args ...any) { t.note(format, args...) }

const harnessWorks = "the functions of the Harness do their work"

func (t *caseT) Error(args ...any) {
	t.fail(harnessWorks, "%s", strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}
func (t *caseT) Errorf(format string, args ...any) { t.fail(harnessWorks, format, args...) }
func (t *caseT) Fatal(args ...any) {
	t.stop(harnessWorks, "%s", strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}
func (t *caseT) Fatalf(format string, args ...any) { t.stop(harnessWorks, format, args...) }
func (t *caseT) Fail()                             { t.fail(harnessWorks, "it called Fail") }
func (t *caseT) FailNow()                          { t.stop(harnessWorks, "it called FailNow") }

func (t *caseT) Failed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.result.Outcome == Failed
}

// Skip, Skipf and SkipNow fail: leave fields of the Harness empty for cases that are not
// possible.

func (t *caseT) Skip(args ...any) {
	t.stop("the Harness skips no tests: fields for which it has no implementation are nil", "%s", strings.TrimSuffix(fmt.Sprintln(args...), "\n"))
}
func (t *caseT) Skipf(format string, args ...any) {
	t.stop("the Harness skips no tests: fields for which it has no implementation are nil", format, args...)
}
func (t *caseT) SkipNow() {
	t.stop("the Harness skips no tests: fields for which it has no implementation are nil", "the harness called SkipNow")
}
func (t *caseT) Skipped() bool { return false }

// isPlumbing reports whether a function is a helper, rather than the place that has the
// expectation.
func isPlumbing(function string) bool {
	_, method, found := strings.Cut(function, "/conformance/internal/suite.(*")
	return found && (strings.HasPrefix(method, "caseT).") || strings.HasPrefix(method, "receiver).") || strings.HasPrefix(method, "service)."))
}

func shortPosition(f runtime.Frame) string {
	return fmt.Sprintf("%s/%s:%d", filepath.Base(filepath.Dir(f.File)), filepath.Base(f.File), f.Line)
}

// Time.

// timeout is how long the case waits for an event that must happen. After a failure,
// later waits are shorter.
func (t *caseT) timeout() time.Duration {
	if t.Failed() && !t.suite.h.Synctest {
		return t.suite.h.Timeout / 10
	}
	return t.suite.h.Timeout
}

func (t *caseT) quietPeriod() time.Duration { return t.suite.h.quietPeriod }

// lock returns the duration of a lock of the case's transports, in the mode with the
// shortest one; 0: it does not end.
func (t *caseT) lock() time.Duration {
	if t.waitsForLocks() {
		return t.suite.shortLock
	}
	return t.suite.lock
}

// withTimeout returns a context for one call.
func (t *caseT) withTimeout() (context.Context, context.CancelFunc) {
	t.recordProgress()
	return context.WithTimeout(t.ctx, t.timeout())
}

// await waits until is returns true, and stops the case if that takes too long.
func (t *caseT) await(subject string, is func() bool) {
	if !t.awaitTrue(is) {
		t.stop(subject, "it is not so after %v%s", t.timeout(), t.log.told())
	}
}

// awaitTrue waits until is returns true, and reports whether it did so in time.
func (t *caseT) awaitTrue(is func() bool) bool {
	deadline := time.Now().Add(t.timeout())
	for pause := time.Millisecond; !is(); pause = min(2*pause, max(t.quietPeriod()/6, time.Millisecond)) {
		if time.Now().After(deadline) || t.ctx.Err() != nil {
			return false
		}
		t.sleep(pause)
	}
	return true
}

// sleep lets time pass that the case itself requires.
func (t *caseT) sleep(d time.Duration) {
	t.recordProgress()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.ctx.Done():
	}
}

// shortTimeout is the time limit for something that is expected at once.
func (t *caseT) shortTimeout() time.Duration { return t.timeout() / 3 }

// endless is more attempts than any case allows a message. If a transport redelivered a
// message for ever to a handler that always fails, the clock of a bubble would stand
// still.
const endless = 60

// caseLabel marks a case's goroutine for the profiler, and thereby all goroutines that
// the transport starts on its behalf. A second label has the case's name: go tool pprof
// -tags shows the processor time of each case.
const caseLabel = "conformance"

// transportLabel marks the goroutines that are started while a case uses one of its
// transports.
const transportLabel = "conformance.transport"

// runWatched runs f, which may end its goroutine, and reports whether it ended in time.
// There is no limit for f as a whole, as long as the case is active.
func (t *caseT) runWatched(silence time.Duration, f func()) bool {
	t.recordProgress()
	done := make(chan struct{})
	go pprof.Do(context.Background(), pprof.Labels(caseLabel, t.label, "case", t.name()), func(context.Context) {
		defer close(done)
		defer func() {
			if problem := recover(); problem != nil {
				t.fail("neither the transport nor the harness panics", "panic: %v\n%s", problem, debug.Stack())
			}
		}()
		f()
	})
	timer := time.NewTimer(silence)
	defer timer.Stop()
	for {
		select {
		case <-done:
			return true
		case <-timer.C:
			left := silence - time.Since(*t.lastActive.Load())
			if left <= 0 {
				return false
			}
			timer.Reset(left)
		}
	}
}

// recordProgress records that the case makes progress.
func (t *caseT) recordProgress() {
	now := time.Now()
	t.lastActive.Store(&now)
}

// caller returns the place in the suite, or in the harness, that called a method of
// caseT.
func caller() string {
	var pcs [16]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		frame, more := frames.Next()
		if !isPlumbing(frame.Function) || !more {
			return shortPosition(frame)
		}
	}
}
