package suite

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

// seedVariable is the environment variable with the seed of an earlier run, which repeats
// its random choices.
const seedVariable = "REPRISE_CONFORMANCE_SEED"

// suite is one run on one adapter.
type suite struct {
	h      Harness
	report *Report

	// Properties of the transport, determined at the start.
	caps                          core.Capabilities
	provisioner, checker, remover bool
	depths, lister                bool

	// The duration of a delivery's lock, in the mode with the shortest one; 0: it does
	// not end. lock is for transports that Open returns, shortLock for those used by
	// cases that wait for locks to end.
	lock, shortLock time.Duration

	short  bool // leave out cases that take long
	probed bool // all properties were determined; errors in the cleanup of probe are found again by cases

	run   string // makes names unique over runs on one broker
	names atomic.Int64

	sharedReader sharedReader

	// For a case that stops the clock of its bubble: the time limit, and the function
	// that aborts. Tests replace them.
	spinLimit time.Duration
	abort     func(text string)
}

func newSuite(t *testing.T, h Harness) (*suite, error) {
	t.Helper()
	h, err := h.complete()
	if err != nil {
		return nil, err
	}
	if h.seed == 0 {
		if h.seed, err = seedFromEnvironment(); err != nil {
			return nil, err
		}
	}
	var id [4]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, err
	}
	if h.process == nil && childOpens != nil && !h.Synctest {
		h.process = func(t *caseT, spec workerSpec) process { return startChildProcess(t, spec) }
	}
	s := &suite{h: h.withoutLabels(), run: hex.EncodeToString(id[:]), spinLimit: spinLimit, abort: func(text string) { panic(text) }}
	s.report = &Report{Adapter: h.Name, Seed: h.seed}
	t.Logf("conformance: seed %d; %s=%d repeats it", h.seed, seedVariable, h.seed)
	probe := s.runCase(t, &testCase{rule: "C1", title: "the transport opens and has Capabilities", run: s.probe}, core.TransactionDefault)
	if !s.probed {
		return nil, fmt.Errorf("conformance: nothing can be tried:\n%v", probe.Failures[0])
	}
	s.report.Capabilities = s.caps
	// A failure here occurs again in a case, and is reported there.
	lasts := testCase{rule: "C17", title: "a lock tells how long it lasts", run: func(t *caseT) { s.probeLocks(t, &s.lock) }}
	s.runCase(t, &lasts, s.caps.HighestTransaction())
	s.shortLock = s.lock
	if h.OpenShortLocks != nil {
		s.shortLock = 0
		lasts.shortLocks, lasts.run = true, func(t *caseT) { s.probeLocks(t, &s.shortLock) }
		s.runCase(t, &lasts, s.caps.HighestTransaction())
		if s.shortLock > s.h.Timeout {
			return nil, fmt.Errorf("conformance: the locks of Harness.OpenShortLocks end after %v; return a transport whose locks end after a few seconds, since cases wait for it", s.shortLock.Round(time.Second))
		}
	}
	if s.shortLock > 0 {
		s.h.quietPeriod = min(s.h.quietPeriod, s.shortLock/5)
	}
	s.shareReader(t)
	return s, nil
}

// separates reports whether a case gets a separate broker.
func (s *suite) separates(c *testCase) bool {
	return s.h.Separate != nil && c.stopsBroker() && !s.h.Synctest
}

// separate returns a suite with a separate broker. Its results are added to the same
// report.
func (s *suite) separate(t *testing.T) (*suite, error) {
	h, err := s.h.Separate(t).complete()
	if err != nil {
		return nil, err
	}
	h.seed, h.quietPeriod, h.process = s.h.seed, s.h.quietPeriod, s.h.process
	return &suite{
		h: h.withoutLabels(), report: s.report, caps: s.caps, provisioner: s.provisioner, checker: s.checker, remover: s.remover, depths: s.depths, lister: s.lister,
		lock: s.lock, shortLock: s.shortLock, short: s.short, probed: true,
		run: fmt.Sprintf("%s-%d", s.run, s.names.Add(1)), spinLimit: s.spinLimit, abort: s.abort,
	}, nil
}

func seedFromEnvironment() (uint64, error) {
	text := os.Getenv(seedVariable)
	if text == "" {
		var seed [8]byte
		_, err := rand.Read(seed[:])
		return binary.LittleEndian.Uint64(seed[:])>>1 | 1, err // never 0, and fits an int64
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil || seed == 0 {
		return 0, fmt.Errorf("conformance: %s is %q; it is a number above 0, as an earlier run printed it", seedVariable, text)
	}
	return seed, nil
}

// probe determines the properties that decide which cases run.
func (s *suite) probe(t *caseT) {
	transport := t.open()
	s.caps = transport.Capabilities()
	s.caps.Transactions = slices.Clone(s.caps.Transactions)
	t.caps = s.caps
	_, s.provisioner = transport.(core.Provisioner)
	_, s.checker = transport.(core.Checker)
	_, s.remover = transport.(core.Remover)
	t.mode = s.caps.HighestTransaction()
	switch {
	case len(s.caps.Transactions) == 0:
		t.stop("Capabilities.Transactions names at least one mode", "it is empty")
	case !s.provisioner && s.h.Queue == nil:
		t.stop("the transport is a core.Provisioner, or Harness.Queue makes queues", "%T has no method Provision, and Harness.Queue is nil", transport)
	}
	s.probed = true
	s.probeQueues(t, transport)
}

// probeLocks determines the duration of a delivery's lock.
func (s *suite) probeLocks(t *caseT, shortest *time.Duration) {
	transport := t.open()
	for _, mode := range withRedelivery.choose(s.caps) {
		if lock := t.lockIn(mode, transport); lock > 0 && (*shortest == 0 || lock < *shortest) {
			*shortest = lock
		}
	}
}

// lockIn returns the duration of a delivery's lock in a mode, or 0.
func (t *caseT) lockIn(mode core.TransactionMode, transport core.Transport) (lock time.Duration) {
	queue := t.queue(transport)
	t.send(transport, t.message(queue, "probe"))
	r := t.receiverIn(mode, transport, queue, 1)
	d := r.next()
	if lockedUntil := d.LockedUntil(); !lockedUntil.IsZero() {
		lock = max(time.Until(lockedUntil), 1)
	}
	t.complete(d)
	r.close()
	return lock
}

// maxRuns is how often a case is tried that is late because the machine is slow.
const maxRuns = 3

// runCase runs a case in one mode. It runs the case again if it failed after it had
// been late, such as for a lock that it would have renewed in time on a faster machine. A faulty
// transport fails each time.
func (s *suite) runCase(t *testing.T, c *testCase, mode core.TransactionMode) Result {
	t.Helper()
	var notes []string
	for n := 1; ; n++ {
		r, lateError := s.runCaseOnce(t, c, mode)
		if r.Outcome == Failed && lateError != "" {
			if n < maxRuns {
				f := r.Failures[0]
				notes = append(notes, fmt.Sprintf("run again, because it failed and %s; it had expected: %s; observed: %s", lateError, f.Expected, f.Observed))
				continue
			}
			notes = append(notes, fmt.Sprintf("it failed %d times, although each time %s", n, lateError))
		}
		r.Notes = append(notes, r.Notes...)
		return r
	}
}

// runCaseOnce runs a case in one mode. lateError describes the operation that the case was too
// late for because the machine is slow, or is empty.
func (s *suite) runCaseOnce(t *testing.T, c *testCase, mode core.TransactionMode) (r Result, lateError string) {
	t.Helper()
	r = Result{Case: c.name(), Rule: c.rule, Outcome: Passed, Mode: mode}
	if c.modes == inHighest {
		r.Mode = core.TransactionDefault
	}
	label := fmt.Sprintf("%s/%d", s.run, s.names.Add(1))
	if !s.h.Synctest {
		lateError = s.superviseCase(t, c, mode, label, &r)
		return r, lateError
	}
	defer s.watch(c, mode, label)()
	defer func() {
		// synctest panics when all goroutines wait for ever, and when goroutines are left
		// at the end.
		if problem := recover(); problem != nil {
			r.fail(Failure{Rule: c.rule, Expected: "the transport's calls return, and its goroutines end when it is closed", Observed: fmt.Sprint(problem)})
		}
	}()
	synctest.Test(t, func(t *testing.T) { s.superviseCase(t, c, mode, label, &r) })
	return r, "" // a bubble's time waits for the machine
}

// superviseCase runs a case in a separate goroutine, which a fatal failure ends. It
// returns a description of the operation that the case was too late for.
func (s *suite) superviseCase(t *testing.T, c *testCase, mode core.TransactionMode, label string, r *Result) (lateError string) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(t.Context()))
	ct := &caseT{
		TB: t, suite: s, testCase: c, caps: s.caps, mode: mode, result: r,
		ctx: ctx, label: label,
	}
	ct.seedRandom()
	stopWatch := ct.watchPauses()
	// Longer than all waits of a case together: some wait for the end of a lock more than
	// once.
	silence := 6*s.h.Timeout + 6*ct.lock()
	inTime := ct.runWatched(silence, func() { c.run(ct) })
	if !inTime {
		ct.fail("every call of the transport returns when its context ends", "the case has done nothing for %v: some call has not returned\n%s", silence, ct.goroutines())
	}
	stopWatch()
	cancel(errCaseEnded)
	if !ct.runWatched(silence, ct.cleanUp) && inTime {
		ct.fail("the transport can be closed", "Close did not return within %v\n%s", silence, ct.goroutines())
	}
	return ct.seal()
}
