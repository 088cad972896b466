package suite

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// lostLocks runs one case in real time, on a transport whose Renew is changed.
func lostLocks(t *testing.T, lock time.Duration, renew func(d *brokenDelivery, next func() error) error, title string) Result {
	t.Helper()
	h := harnessOn(inmemory.Config{LockDuration: lock}, changes{settle: func(d *brokenDelivery, operation string, next func() error) error {
		if operation == "Renew" {
			return renew(d, next)
		}
		return next()
	}})
	h.Synctest = false
	h.Timeout = 10 * time.Second // all that is waited for in vain is waited for a tenth as long afterwards
	s, err := newSuite(t, h)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(cases(), func(c testCase) bool { return c.name() == title })
	if i < 0 {
		t.Fatalf("there is no case %q", title)
	}
	return s.runCase(t, &cases()[i], core.TransactionReceiveOnly)
}

const renewedHolds = "C17 a lock that is renewed does not end"

// notesAbout returns the notes with a text.
func notesAbout(r Result, text string) []string {
	return slices.DeleteFunc(slices.Clone(r.Notes), func(note string) bool { return !strings.Contains(note, text) })
}

func TestSlowMachine_CaseWhoseLockEndedIsRepeated(t *testing.T) {
	t.Parallel()
	const lock = 2 * time.Second
	paused := false
	c := testCase{rule: "C17", title: "pauses once", run: func(t *caseT) {
		transport := t.open()
		queue := t.queue(transport)
		t.sendEach(transport, queue, "held")
		d := t.receiver(transport, queue, 1).next()
		if !paused {
			paused = true
			t.sleep(lock + lock/2) // the machine had something else to do
		}
		t.complete(d)
	}}
	h := harnessOn(inmemory.Config{LockDuration: lock}, changes{})
	h.Synctest = false
	s, err := newSuite(t, h)
	if err != nil {
		t.Fatal(err)
	}
	r := s.runCase(t, &c, core.TransactionReceiveOnly)
	if r.Outcome != Passed {
		t.Errorf("the case is %s, want it to be run again and to pass: %v", r.Outcome, r.Failures)
	}
	if len(notesAbout(r, "run again")) == 0 {
		t.Errorf("no note says that the case was run again: %q", r.Notes)
	}
}

func TestSlowMachine_DefectIsFoundAllTheSame(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lock  time.Duration
		renew func(d *brokenDelivery, next func() error) error
		rerun bool // the case cannot know that the machine was quick enough
	}{
		"Renew that renews nothing": {
			lock:  time.Second,
			renew: func(*brokenDelivery, func() error) error { return nil },
			rerun: true,
		},
		"Renew that waits until the lock has ended": {
			lock: time.Second,
			renew: func(_ *brokenDelivery, next func() error) error {
				time.Sleep(1500 * time.Millisecond)
				return next()
			},
			rerun: true,
		},
		"Renew that reports a lost lock too early": {
			lock:  time.Minute / 2,
			renew: func(*brokenDelivery, func() error) error { return core.ErrLockLost },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			title := renewedHolds
			if !c.rerun {
				title = "C17 a renewal ends with its context"
			}
			r := lostLocks(t, c.lock, c.renew, title)
			if r.Outcome != Failed {
				t.Fatalf("the case is %s, want failed; notes: %q", r.Outcome, r.Notes)
			}
			if reruns := len(notesAbout(r, "run again")); reruns > maxRuns-1 || (reruns > 0) != c.rerun {
				t.Errorf("the case was run again %d times, want that: %t, and at most %d times: %q", reruns, c.rerun, maxRuns-1, r.Notes)
			}
		})
	}
}

// A message that the broker has stored, but not confirmed in time, is moved again.
func TestSlowMachine_UnconfirmedMove(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		unconfirmed int // moves
		want        Outcome
	}{
		"once":   {1, Passed},
		"always": {maxRuns, Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var mu sync.Mutex
			moves, unconfirmed := map[string]int{}, 0 // by error queue, of which each run of the case has one
			h := harnessOn(inmemory.Config{}, changes{send: func(_ *brokenTransport, ctx context.Context, out []core.Outgoing, next func(context.Context, ...core.Outgoing) error) error {
				err := next(ctx, out...)
				mu.Lock()
				defer mu.Unlock()
				m := out[0]
				if moves[m.Queue]++; err == nil && m.Reason == core.ReasonMoveToError && moves[m.Queue] == 1 && unconfirmed < c.unconfirmed {
					unconfirmed++
					return &core.SendError{Results: []core.SendResult{{ID: m.ID, To: m.Queue, State: core.SendUnknown, Err: core.ErrUnavailable}}}
				}
				return err
			}})
			h.Synctest = false
			s, err := newSuite(t, h)
			if err != nil {
				t.Fatal(err)
			}
			r := s.runCase(t, &testCase{rule: "R1", title: "moves a message once", run: func(t *caseT) {
				transport := t.open()
				s := t.service(transport, func(c *core.Config) {
					c.Recoverability.Immediate, c.Recoverability.Delayed = t.immediate(0), t.delayed(0)
				})
				s.handle("job", func(context.Context, *core.Message) error { return errHandler })
				t.send(transport, t.command(s.queue, "job", "bad"))
				want := 1
				if unconfirmed < c.unconfirmed {
					want = 2
				}
				s.run()
				t.awaitCount("moves", want, func() int {
					mu.Lock()
					defer mu.Unlock()
					return moves[s.errorQueue]
				})
				s.end()
				t.wantLeft(s.errorQueue, "after the move", "bad")
			}}, core.TransactionReceiveOnly)
			if r.Outcome != c.want || len(notesAbout(r, "run again")) == 0 {
				t.Errorf("the case is %s, want %s after it was run again: %q", r.Outcome, c.want, r.Notes)
			}
		})
	}
}

func TestFailedCase_EndsWithoutFurtherWaiting(t *testing.T) {
	t.Parallel()
	h := harnessOn(inmemory.Config{}, changes{})
	h.Synctest = false
	h.Timeout = time.Minute
	s, err := newSuite(t, h)
	if err != nil {
		t.Fatal(err)
	}
	var before, after time.Duration
	s.runCase(t, &testCase{rule: "C3", title: "fails", run: func(t *caseT) {
		before = t.timeout()
		t.fail("one", "another")
		after = t.timeout()
	}}, core.TransactionReceiveOnly)
	if before != time.Minute || after > before/10 {
		t.Errorf("the case waits for %v before it has failed and %v afterwards, want %v and a tenth", before, after, time.Minute)
	}
}

// A case that starts many processes may take long on a busy machine.
func TestCase_MayTakeLongWhileItWorks(t *testing.T) {
	t.Parallel()
	h := harnessOn(inmemory.Config{}, changes{})
	h.Timeout = time.Minute // of the bubble
	s, err := newSuite(t, h)
	if err != nil {
		t.Fatal(err)
	}
	took := time.Duration(0)
	r := s.runCase(t, &testCase{rule: "C3", title: "takes long", run: func(t *caseT) {
		began := time.Now()
		for range 10 {
			t.sleep(2 * t.timeout())
		}
		took = time.Since(began)
	}}, core.TransactionReceiveOnly)
	if r.Outcome != Passed || took < 20*time.Minute {
		t.Errorf("the case is %s after %v, want passed after 20m0s: %v", r.Outcome, took, r.Failures)
	}
}
