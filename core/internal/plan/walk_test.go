package plan

import (
	"fmt"
	"strings"
	"testing"
)

// follow lets the steps of a walk have outcomes, "ok" or another class, and tries it again
// after each wait. After "redelivered" it has another delivery, after "ending" the endpoint
// stops. It returns the steps, and the end, or the next step.
func follow(t *testing.T, w *Walk, outcomes string) string {
	t.Helper()
	var text []string
	w.Plan(false)
	n := Go
	for outcome := range strings.SplitSeq(outcomes, ", ") {
		switch {
		case outcome == "redelivered":
			w.Redelivered()
			w.Plan(false)
			n = Go
			continue
		case outcome == "ending":
			w.Plan(true)
			n = Go
			continue
		case n == Wait:
			w.Plan(w.Ending)
		case n != Go:
			t.Fatalf("%s comes after %v", outcome, n)
		}
		class := Class(0)
		for class.String() != outcome {
			class++ // an unknown one panics
		}
		text = append(text, w.Step().String())
		n = w.Went(class)
	}
	if n == Go {
		return strings.Join(append(text, w.Step().String()), "; ")
	}
	return fmt.Sprintf("%s -> %v", strings.Join(text, "; "), n)
}

func TestWalk(t *testing.T) {
	errorQueue := Decision{Action: MoveToError, Target: ErrorQueue}
	custom := Decision{Action: MoveToError, Target: CustomQueue}
	hook := Facts{Hook: true, Committed: true}
	atomic := Facts{Hook: true, Atomic: true}
	letters := Facts{Delayed: true, DeadLetters: true}
	for name, c := range map[string]struct {
		d              Decision
		f              Facts
		outcomes, want string
	}{
		"moved": {errorQueue, Facts{}, "ok, ok",
			"copy error queue; consume -> done"},
		"moved, atomic": {errorQueue, Facts{Atomic: true}, "ok",
			"copy error queue -> done"},
		"a header that the broker refuses, and a size": {errorQueue, Facts{}, "bad header, too large, ok, ok",
			"copy error queue; copy error queue, clean; copy error queue, small; consume -> done"},
		"a size first": {errorQueue, Facts{}, "too large, too large",
			"copy error queue; copy error queue, small; copy error queue, sender"},
		"no form is accepted": {errorQueue, Facts{Delayed: true}, "unsupported, bad header, bad header, bad header, bad header, ok",
			"copy error queue; store own queue for error queue; store own queue for error queue, clean; store own queue for error queue, small; store own queue for error queue, bare; keep -> wait"},
		"no form is accepted but the body": {errorQueue, Facts{Delayed: true}, "too large, too large, too large, too large, ok, ok",
			"copy error queue; copy error queue, small; copy error queue, sender; copy error queue, bare; copy error queue, body; consume -> done"},
		"no form is accepted, and the broker dead-letters": {errorQueue, letters, "too large, too large, too large, too large, bad header, ok",
			"copy error queue; copy error queue, small; copy error queue, sender; copy error queue, bare; dead-letter broker's queue; dead-letter broker's queue, small -> done"},
		"neither does the broker dead-letter": {errorQueue, letters, "unsupported, unsupported, unsupported, ok, unsupported, ok",
			"copy error queue; dead-letter broker's queue; store own queue for error queue; keep; copy error queue; dead-letter broker's queue -> done"},
		"no dead letter in an outage": {errorQueue, letters, "unreachable, unreachable, ok, no queue, too large",
			"copy error queue; store own queue for error queue; keep; copy error queue; store own queue for error queue; store own queue for error queue, small"},
		"the last resort is without HandleFailed's messages": {errorQueue, Facts{Hook: true, Atomic: true, DeadLetters: true}, "ok, ok, unsupported, unreachable, ok, ok, ok",
			"undo hook; hook hook; copy error queue; dead-letter broker's queue; keep; undo hook; hook hook; copy error queue"},
		"an outage of the error queue": {errorQueue, Facts{Delayed: true}, "unreachable, ok, ok",
			"copy error queue; store own queue for error queue; consume -> done"},
		"a missing custom queue": {custom, Facts{Delayed: true, Configured: true}, "no queue",
			"copy custom queue; copy error queue"},
		"an outage of a custom queue": {custom, Facts{}, "unreachable, unreachable, unreachable, unreachable, unreachable, unreachable, unreachable, unreachable",
			strings.Repeat("copy custom queue; ", Patience) + "copy error queue"},
		"an outage of a configured queue": {custom, Facts{Delayed: true, Configured: true}, "unreachable, ok, ok",
			"copy custom queue; store own queue for custom queue; consume -> done"},
		"none, and no queue can be reached": {errorQueue, Facts{None: true}, "unreachable, ok",
			"copy error queue; lose -> lose"},
		"none has no lock": {errorQueue, Facts{None: true}, "lost, ok",
			"copy error queue; lose -> lose"},
		"none, and HandleFailed is cut off": {errorQueue, Facts{Hook: true, None: true}, "interrupted, ok",
			"hook hook; send ahead ahead; copy error queue"},

		"taken over": {errorQueue, hook, "taken over, ok, ok, ok",
			"hook hook; send committed hook; take over hook; consume -> done"},
		"a take-over that fails": {errorQueue, hook, "taken over, ok, unreachable",
			"hook hook; send committed hook; take over hook; send ahead ahead"},
		"committed messages before a take-over": {errorQueue, hook, "taken over, unreachable",
			"hook hook; send committed hook; send committed committed"},
		"HandleFailed's messages are refused, once": {errorQueue, atomic, "ok, ok, companion, companion",
			"undo hook; hook hook; copy error queue; copy error queue; keep"},
		"HandleFailed is cut off": {errorQueue, hook, "interrupted, ok",
			"hook hook; release -> done"},
		"given back, then redelivered": {errorQueue, hook, "interrupted, unreachable, redelivered, ok",
			"hook hook; release; hook hook; send committed committed"},
		"the lock is lost before HandleFailed": {errorQueue, hook, "lost, redelivered, ok",
			"hook hook; hook hook; send committed committed"},
		"the lock is lost after HandleFailed": {errorQueue, hook, "ok, ok, lost, redelivered, ok",
			"hook hook; send committed committed; send ahead ahead; send ahead ahead; copy error queue"},
		"the lock is lost after HandleFailed, atomic": {errorQueue, atomic, "ok, ok, lost, redelivered, ok, ok",
			"undo hook; hook hook; copy error queue; undo hook; hook hook; copy error queue"},
		"the lock is lost in a take-over, atomic": {errorQueue, atomic, "ok, taken over, lost, redelivered, ok, ok",
			"undo hook; hook hook; take over hook; undo hook; hook hook; copy error queue"},
		"the lock is lost while the message is kept": {errorQueue, Facts{}, "unreachable, lost",
			"copy error queue; keep -> gone"},
		"the lock is lost in a pause": {Decision{Action: ImmediateRetry, Pause: true}, Facts{}, "lost",
			"pause own queue -> gone"},

		"discarded": {Decision{Action: Discard}, hook, "ok, ok",
			"send committed committed; consume -> done"},
		"committed messages are refused": {Decision{Action: Discard}, hook, "no queue",
			"send committed committed -> redecide"},
		"an immediate retry": {Decision{Action: ImmediateRetry, Pause: true}, Facts{Atomic: true}, "ok, ok, ok",
			"undo own queue; pause own queue; abandon -> done"},
		"the work cannot be undone for a pause": {Decision{Action: ImmediateRetry, Pause: true}, Facts{Atomic: true}, "unreachable, ok",
			"undo own queue; abandon -> done"},
		"a delayed retry that the transport can never do": {Decision{Action: DelayedRetry}, Facts{}, "bad header, unsupported",
			"again own queue; again own queue, clean -> redecide"},
		"put back": {Decision{Action: PutBack}, Facts{CountsReleases: true, Delayed: true}, "unreachable, ok",
			"again own queue; release -> done"},
		"put back without delayed delivery": {Decision{Action: PutBack}, Facts{CountsReleases: true}, "ok, ok, ok",
			"pause own queue; again own queue; consume -> done"},
		"the work cannot be undone to wait for the copy": {Decision{Action: PutBack}, Facts{CountsReleases: true, Atomic: true}, "unreachable, ok",
			"undo own queue; release -> done"},
		"the endpoint stops before the copy": {Decision{Action: PutBack}, Facts{CountsReleases: true}, "ok, ending, ok",
			"pause own queue; release -> done"},
		"a release without an answer is not followed by a copy": {Decision{Action: PutBack}, Facts{CountsReleases: true, Delayed: true}, "unreachable, unreachable, settled",
			"again own queue; release; release -> done"},
		"a discarded message is not given back once it may be consumed": {Decision{Action: Discard}, Facts{}, "unreachable, ending, settled",
			"consume; consume -> done"},
		"a discarded message is given back before": {Decision{Action: Discard}, hook, "unreachable, ending, ok",
			"send committed committed; release -> done"},
		"the broker's queue is left for good": {Decision{Action: MoveToError, Target: BrokerQueue}, Facts{}, "unsupported, unreachable, ok, ok",
			"dead-letter broker's queue; copy error queue; keep; copy error queue; consume"},
		"a named queue is left for good": {Decision{Action: MoveToError, Target: NamedQueue}, Facts{}, "unreachable, unreachable, ok, ok",
			"copy named queue; copy error queue; keep; copy error queue; consume"},
		"a custom queue is left for good": {custom, Facts{}, "no queue, unreachable, ok, ok",
			"copy custom queue; copy error queue; keep; copy error queue; consume"},
		"a consumption without an answer": {errorQueue, Facts{}, "ok, unreachable, settled",
			"copy error queue; consume; consume -> done"},
	} {
		w := &Walk{Facts: c.f}
		w.Decided(c.d)
		if got := follow(t, w, c.outcomes); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
	}
}

func TestWalk_Stored(t *testing.T) {
	for name, c := range map[string]struct {
		n              Note
		f              Facts
		outcomes, want string
	}{
		"delivered":    {Note{}, Facts{Delayed: true}, "ok, ok", "copy destination; consume -> done"},
		"stored again": {Note{}, Facts{Delayed: true}, "unreachable, ok, ok", "copy destination; store own queue for destination; consume -> done"},
		"refused":      {Note{}, Facts{Delayed: true}, "no queue, ok, ok", "copy destination; store own queue for destination; consume -> done"},
		"refused in each form": {Note{}, Facts{}, "bad header, bad header, bad header, ok",
			"copy destination; copy destination, clean; copy destination, bare; keep -> wait"},
		"a custom queue refuses it": {Note{Custom: true}, Facts{Delayed: true}, "too large, unsupported, ok, ok",
			"copy destination; copy destination, bare; copy error queue; consume -> done"},
		"a custom queue is away, and the own queue": {Note{Custom: true}, Facts{Delayed: true}, "unreachable, unreachable",
			"copy destination; store own queue for destination -> wait"},
		"kept":                 {Note{}, Facts{}, "blocked, ok", "copy destination; keep -> wait"},
		"an expired audit":     {Note{Expired: true}, Facts{Delayed: true}, "unreachable, ok", "copy destination; consume -> done"},
		"delivered, no answer": {Note{}, Facts{Atomic: true, Delayed: true}, "unreachable, settled", "copy destination; store own queue for destination -> done"},
	} {
		w := &Walk{Facts: c.f}
		w.Arrived(c.n)
		if got := follow(t, w, c.outcomes); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
	}
}

// TestWalk_Ending checks that a plan of the end lasts until the walk is planned again.
func TestWalk_Ending(t *testing.T) {
	w := &Walk{Facts: Facts{Delayed: true}}
	w.Decided(Decision{Action: MoveToError, Target: ErrorQueue})
	w.Plan(true)
	if s := w.Step(); s.Verb != Release {
		t.Errorf("%v at the end, want a release", s)
	}
	if n := w.Went(Lost); n != Gone {
		t.Errorf("%v after a lost lock, want gone", n)
	}
	w.Redelivered()
	w.Plan(false)
	if s := w.Step(); s.Verb != Copy {
		t.Errorf("%v of the next delivery, want a copy", s)
	}
}

// TestWalk_Copy checks that a copy of a walk, once it is planned, shares no steps with it.
func TestWalk_Copy(t *testing.T) {
	older := &Walk{Facts: Facts{Hook: true, Delayed: true}}
	older.Decided(Decision{Action: MoveToError, Target: ErrorQueue})
	older.Plan(false)
	want := ladderOf(older.steps)
	older.Went(OK)
	at := older.Step()
	newer := *older
	newer.Redelivered()
	newer.OnlyConsume = true
	newer.Plan(false)
	if older.Step() != at || ladderOf(older.steps) != want {
		t.Errorf("the older walk has become %s", ladderOf(older.steps))
	}
	if s := newer.Step(); s.Verb != Consume {
		t.Errorf("%v of the copy, want consume", s)
	}
	older.Decided(Decision{Action: Discard})
	older.Plan(true)
	if s := newer.Step(); s.Verb != Consume {
		t.Errorf("%v of the copy after another plan of the older walk, want consume", s)
	}
}

// TestWalk_PlansWithoutAllocation: each failed message needs a plan.
func TestWalk_PlansWithoutAllocation(t *testing.T) {
	w := &Walk{Facts: Facts{Hook: true, Edit: true, Committed: true, Delayed: true, Configured: true}}
	w.Decided(Decision{Action: MoveToError, Target: CustomQueue})
	if n := testing.AllocsPerRun(100, func() { w.Plan(false) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
