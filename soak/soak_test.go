//go:build darwin || linux

package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func TestMain(m *testing.M) {
	if status, isChild := childMain(); isChild {
		os.Exit(status)
	}
	os.Exit(m.Run())
}

// shortRun is a run of a few seconds, with some of the faults.
func shortRun(t *testing.T, s subject, pace time.Duration, faults ...string) (*run, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	return &run{
		subject: s, load: time.Millisecond, fault: 300 * time.Millisecond, window: 200, pace: pace,
		kills: [2]time.Duration{300 * time.Millisecond, 600 * time.Millisecond}, patience: 5 * time.Minute, lastPatience: 5 * time.Minute, logs: t.TempDir(), out: &out,
		chosen: func(f fault) bool { return slices.Contains(faults, f.name) },
	}, &out
}

func subjectNamed(t *testing.T, name string) subject {
	t.Helper()
	found, err := choose(name)
	if err != nil || len(found) != 1 {
		t.Fatalf("choose(%q) = %v, %v", name, found, err)
	}
	return found[0]
}

// In a bubble handlers that take no longer would handle tens of thousands of messages.
const (
	paceInBubble   = 20 * time.Millisecond
	paceInRealTime = 2 * time.Millisecond
)

// inBubble runs body in a bubble, where no lock ends because the machine is busy, and
// waiting takes no time. It is for workers in this process.
func inBubble(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, body)
}

// inRealTime runs body as it is, for workers that are processes.
func inRealTime(t *testing.T, body func(t *testing.T)) {
	t.Helper()
	if testing.Short() {
		t.Skip("a server and processes: not in short runs")
	}
	body(t)
}

// The whole soak works, in miniature: with workers in this process, and with processes.
func TestSoak_ShortRunsKeepEveryPromise(t *testing.T) {
	for name, c := range map[string]struct {
		in     func(*testing.T, func(*testing.T))
		pace   time.Duration
		faults []string
	}{
		"inmemory-atomic":       {inBubble, paceInBubble, []string{"sends wait", "every settlement fails"}},
		"inmemory-receive-only": {inBubble, paceInBubble, []string{"every second settlement fails after it has happened", "one of 100 calls fails"}},
		"postgres-atomic":       {inRealTime, paceInRealTime, []string{"kill -9 of the server, restart", "all TCP connections cut"}},
		"sqs":                   {inRealTime, paceInRealTime, []string{"kill -9 of the server, restart", "messages are delivered twice"}},
		"asb":                   {inRealTime, paceInRealTime, []string{"kill -9 of the server, restart", "every request is refused: the server is busy"}},
		"asb-sessions":          {inRealTime, paceInRealTime, []string{"all TCP connections cut", "all links are detached"}},
		"sqs-fifo":              {inRealTime, paceInRealTime, []string{"kill -9 of the server, restart", "an entry of each batch of settlements fails"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.in(t, func(t *testing.T) { keepsEveryPromise(t, name, c.pace, c.faults) })
		})
	}
}

func keepsEveryPromise(t *testing.T, name string, pace time.Duration, faults []string) {
	t.Helper()
	r, out := shortRun(t, subjectNamed(t, name), pace, faults...)
	done, err := r.do(t.Context())
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if done.isBroken() {
		t.Errorf("a promise was broken:\n%s", out)
	}
	if len(done.outcomes) != len(faults) {
		t.Errorf("%d faults were struck, want %d:\n%s", len(done.outcomes), len(faults), out)
	}
	for _, o := range done.outcomes {
		if o.recovery < 0 || o.took <= 0 {
			t.Errorf("no time was measured: %v", o)
		}
	}
	if c := done.counts; c.orders < flow/2 || c.handled < flow || c.failures == 0 {
		t.Errorf("there was no load: %+v", c)
	}
	if text := report("2000-01-01", []*result{done}); strings.Count(text, faults[0]) != 1 {
		t.Errorf("the report has no line for %q:\n%s", faults[0], text)
	}
}

// faulty is a broker with one fault, which the soak must notice.
type faulty struct {
	*inMemory
	strike func(ctx context.Context, t *inmemory.Transport) error
}

const faultOfBroker = "a fault of the broker"

func (f *faulty) faults() []fault {
	return []fault{{faultOfBroker, func(ctx context.Context, _ time.Duration) error {
		t, err := f.open()
		if err != nil {
			return err
		}
		return errors.Join(f.strike(ctx, t.(*inmemory.Transport)), t.Close(ctx))
	}}}
}

// soakFaulty runs the soak on such a broker. Only the named promise may be broken.
func soakFaulty(t *testing.T, broken promise, strike func(ctx context.Context, t *inmemory.Transport) error) (*result, *bytes.Buffer) {
	t.Helper()
	s := subjectNamed(t, "inmemory-receive-only")
	s.start = func(ctx context.Context) (system, error) {
		started, err := startInMemory(ctx)
		return &faulty{inMemory: started.(*inMemory), strike: strike}, err
	}
	r, out := shortRun(t, s, paceInBubble, faultOfBroker)
	done, err := r.do(t.Context())
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, f := range done.findings {
		if f.promise != broken && f.isBroken() {
			t.Errorf("%v", &f)
		}
	}
	return done, out
}

func TestSoak_LostMessagesAreNoticed(t *testing.T) {
	t.Parallel()
	inBubble(t, lostMessagesAreNoticed)
}

func lostMessagesAreNoticed(t *testing.T) {
	lost := 0
	done, out := soakFaulty(t, promiseSends, func(ctx context.Context, t *inmemory.Transport) (err error) {
		for lost == 0 && err == nil {
			pause(ctx, time.Millisecond)
			lost, err = t.Purge(ctx, shipping.String())
		}
		return err
	})
	// Some of the lost commands may have been there twice.
	if n := done.brokenBy(promiseSends); n == 0 || n > lost {
		t.Errorf("%d orders break the promise, after %d commands were lost:\n%s", n, lost, out)
	}
}

func TestSoak_MessagesThatAreLeftAreNoticed(t *testing.T) {
	t.Parallel()
	inBubble(t, messagesThatAreLeftAreNoticed)
}

func messagesThatAreLeftAreNoticed(t *testing.T) {
	done, out := soakFaulty(t, promiseNothing, func(ctx context.Context, t *inmemory.Transport) error {
		return t.Send(ctx, core.Outgoing{Queue: unreadQueue, ID: "left"})
	})
	if !done.isBroken() {
		t.Errorf("no promise is broken although a message is left:\n%s", out)
	}
}

func TestSoak_ArgumentsAreChecked(t *testing.T) {
	for name, args := range map[string][]string{
		"no -transport \"kafka\"": {"-transport", "kafka"},
		"bad pattern":             {"-transport", "["},
		"an argument":             {"postgres"},
		"a flag":                  {"-nonsense"},
		"a fault":                 {"-fault", "[a"},
		"no time":                 {"-for", "0s"},
		"no window":               {"-window", "0"},
		"no calm":                 {"-calm", "-1s"},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if status := soakMain(t.Context(), args, &stdout, &stderr); status != statusFailed || stderr.Len() == 0 || stdout.Len() > 0 {
				t.Errorf("status %d, stderr %q, stdout %q", status, &stderr, &stdout)
			}
		})
	}
	var stdout, stderr bytes.Buffer
	if status := soakMain(t.Context(), []string{"-list"}, &stdout, &stderr); status != statusKept || strings.Count(stdout.String(), "\n") != len(subjects) {
		t.Errorf("-list: status %d, %s%s", status, &stdout, &stderr)
	}
	found, err := choose("postgres-*,inmemory-atomic,*-atomic")
	var names []string
	for _, s := range found {
		names = append(names, s.name)
	}
	if want := []string{"inmemory-atomic", "postgres-atomic", "postgres-receive-only"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("chosen are %q, %v, want %q", names, err, want)
	}
}
