package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// ladderOf returns a ladder as text. The forms of a copy are one entry.
func ladderOf(steps []Step) string {
	var text []string
	for i := 0; i < len(steps); {
		s, n := steps[i], 0
		for same := s; i < len(steps) && steps[i] == same; n++ {
			if i++; i < len(steps) {
				same.Form = steps[i].Form
			}
		}
		line := flagged(s)
		if n > 1 {
			line += fmt.Sprintf(" in %d forms", n)
		}
		text = append(text, line)
	}
	return strings.Join(text, "; ")
}

func TestFailed_Ladders(t *testing.T) {
	move := func(target Place) Decision { return Decision{Action: MoveToError, Target: target} }
	immediate, pause := Decision{Action: ImmediateRetry}, Decision{Action: ImmediateRetry, Pause: true}
	delayed, discard, putBack := Decision{Action: DelayedRetry}, Decision{Action: Discard}, Decision{Action: PutBack}
	hook := Facts{Hook: true, Edit: true, Committed: true}
	atomicHook := hook
	atomicHook.Atomic = true
	for _, c := range []struct {
		name string
		d    Decision
		f    Facts
		p    Progress
		want string
	}{
		{"immediate retry", immediate, Facts{}, Progress{},
			"abandon"},
		{"after a pause", pause, Facts{}, Progress{},
			"pause own queue; abandon"},
		{"after a pause, atomic", pause, Facts{Atomic: true}, Progress{},
			"undo own queue; pause own queue; abandon"},
		{"after a pause, in a group", pause, Facts{Grouped: true}, Progress{},
			"postpone own queue (optional); abandon"},
		{"after a pause, isolated", pause, Facts{Isolated: true}, Progress{},
			"abandon"},
		{"the pause has ended", pause, Facts{}, Progress{Paused: true},
			"abandon"},
		{"immediate retry, ending", pause, Facts{Ending: true}, Progress{},
			"abandon"},

		{"delayed retry", delayed, Facts{}, Progress{},
			"again own queue in 3 forms"},
		{"delayed retry, atomic, committed", delayed, Facts{Atomic: true, Committed: true}, Progress{},
			"send committed committed (optional); again own queue (atomic) in 3 forms"},
		{"delayed retry in a group", delayed, Facts{Grouped: true}, Progress{},
			"postpone own queue"},
		{"delayed retry, ending", delayed, Facts{Ending: true}, Progress{},
			"release"},

		{"discard", discard, Facts{}, Progress{},
			"consume"},
		{"discard, committed", discard, Facts{Committed: true}, Progress{},
			"send committed committed; consume"},
		{"discard, committed, none", discard, Facts{Committed: true, None: true}, Progress{},
			"send committed committed (once); consume"},
		{"discard, their sends failed", discard, Facts{Committed: true, SendsFailed: true}, Progress{},
			"send committed committed; consume"},
		{"discard, committed messages have left", discard, Facts{Committed: true}, Progress{CommittedSent: true},
			"consume"},

		{"put back", putBack, Facts{}, Progress{},
			"release"},
		{"put back, releases count, without delayed delivery", putBack, Facts{CountsReleases: true}, Progress{},
			"pause own queue; again own queue (optional) in 3 forms; release"},
		{"put back, releases count, without delayed delivery, atomic", putBack, Facts{CountsReleases: true, Atomic: true}, Progress{},
			"undo own queue; pause own queue; again own queue (atomic) (optional) in 3 forms; release"},
		{"put back, releases count, the pause has ended", putBack, Facts{CountsReleases: true}, Progress{Paused: true},
			"again own queue (optional) in 3 forms; release"},
		{"put back, releases count", putBack, Facts{CountsReleases: true, Delayed: true}, Progress{},
			"again own queue (optional) in 3 forms; release"},
		{"put back, releases count, in a group", putBack, Facts{CountsReleases: true, Grouped: true}, Progress{},
			"postpone own queue (optional); release"},

		{"error queue", move(ErrorQueue), Facts{Delayed: true}, Progress{},
			"copy error queue in 6 forms; store own queue for error queue in 4 forms; keep"},
		{"the broker dead-letters", move(ErrorQueue), Facts{Delayed: true, DeadLetters: true}, Progress{},
			"copy error queue in 5 forms; dead-letter broker's queue (atomic) (last) in 3 forms; store own queue for error queue in 4 forms; keep"},
		{"the broker dead-letters, none", move(ErrorQueue), Facts{DeadLetters: true, None: true}, Progress{},
			"copy error queue in 6 forms; lose"},
		{"without delayed delivery", move(ErrorQueue), Facts{}, Progress{},
			"copy error queue in 6 forms; keep"},
		{"atomic", move(ErrorQueue), Facts{Delayed: true, Atomic: true}, Progress{},
			"copy error queue (atomic) in 6 forms; store own queue for error queue (atomic) in 4 forms; keep"},
		{"none", move(ErrorQueue), Facts{Delayed: true, None: true}, Progress{},
			"copy error queue in 6 forms; lose"},
		{"named queue", move(NamedQueue), Facts{Delayed: true}, Progress{},
			"copy named queue in 5 forms; copy error queue in 6 forms; store own queue for error queue in 4 forms; keep"},
		{"named queue, left", move(NamedQueue), Facts{Delayed: true}, Progress{LeftNamed: true},
			"copy error queue in 6 forms; store own queue for error queue in 4 forms; keep"},
		{"custom queue", move(CustomQueue), Facts{Delayed: true}, Progress{},
			"copy custom queue (patient) in 5 forms; copy error queue in 6 forms; store own queue for error queue in 4 forms; keep"},
		{"custom queue, without patience", move(CustomQueue), Facts{Delayed: true}, Progress{Tries: Patience - 1},
			"copy custom queue in 5 forms; copy error queue in 6 forms; store own queue for error queue in 4 forms; keep"},
		{"custom queue, left", move(CustomQueue), Facts{Delayed: true}, Progress{LeftCustom: true},
			"copy error queue in 6 forms; store own queue for error queue in 4 forms; keep"},
		{"custom queue, configured", move(CustomQueue), Facts{Delayed: true, Configured: true}, Progress{},
			"copy custom queue in 5 forms; store own queue for custom queue (patient) in 4 forms; copy error queue in 6 forms; store own queue for error queue in 4 forms; keep"},
		{"custom queue, configured, without delayed delivery", move(CustomQueue), Facts{Configured: true}, Progress{},
			"copy custom queue (patient) in 5 forms; copy error queue in 6 forms; keep"},
		{"custom queue, none", move(CustomQueue), Facts{Delayed: true, Configured: true, None: true}, Progress{},
			"copy custom queue in 5 forms; copy error queue in 6 forms; lose"},
		{"broker's queue", move(BrokerQueue), Facts{}, Progress{},
			"dead-letter broker's queue (atomic) (patient) in 3 forms; copy error queue in 6 forms; keep"},
		{"broker's queue, left", move(BrokerQueue), Facts{}, Progress{LeftBroker: true},
			"copy error queue in 6 forms; keep"},

		{"hook", move(ErrorQueue), hook, Progress{},
			"hook hook; send committed hook; take over hook; send committed committed (optional); edit; send ahead ahead; copy error queue in 6 forms; keep"},
		{"hook, atomic", move(ErrorQueue), atomicHook, Progress{},
			"undo hook; hook hook; send committed hook; take over hook (atomic); send committed committed (optional); edit; copy error queue (atomic) in 6 forms; keep"},
		{"hook, atomic, broker's queue", move(BrokerQueue), atomicHook, Progress{},
			"undo hook; hook hook; send committed hook; take over hook (atomic); send committed committed (optional); edit; send ahead ahead; dead-letter broker's queue (atomic) (patient) in 3 forms; copy error queue (atomic) in 6 forms; keep"},
		{"hook, none", move(ErrorQueue), Facts{Hook: true, None: true}, Progress{},
			"hook hook; take over hook; send ahead ahead (optional); copy error queue in 6 forms; lose"},
		{"hook has run", move(ErrorQueue), hook, Progress{HookRan: true, CommittedSent: true},
			"edit; send ahead ahead; copy error queue in 6 forms; keep"},
		{"hook has run, its messages have left", move(ErrorQueue), hook, Progress{HookRan: true, AheadSent: true, CommittedSent: true, Edited: true},
			"copy error queue in 6 forms; keep"},
		{"hook given up", move(ErrorQueue), hook, Progress{HookRan: true, Dropped: true, CommittedSent: true},
			"edit; copy error queue in 6 forms; keep"},
		{"hook, committed messages cannot be sent", move(ErrorQueue), Facts{Hook: true, Committed: true, SendsFailed: true}, Progress{},
			"hook hook; send committed hook; take over hook; send ahead ahead; copy error queue in 6 forms; keep"},
		{"committed messages cannot be sent", move(ErrorQueue), Facts{Committed: true, SendsFailed: true}, Progress{},
			"copy error queue in 6 forms; keep"},

		{"a copy is out", move(ErrorQueue), Facts{Ending: true}, Progress{OnlyConsume: true},
			"consume"},
		{"given back", move(ErrorQueue), hook, Progress{GivenBack: true},
			"release"},
		{"ending", move(ErrorQueue), Facts{Ending: true, Hook: true, Edit: true}, Progress{},
			"release"},
		{"ending, none", move(ErrorQueue), Facts{Ending: true, None: true}, Progress{},
			"lose"},
	} {
		if got := ladderOf(Failed(c.d, c.f, c.p, nil)); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

// TestStored_Ladders is for stored messages.
func TestStored_Ladders(t *testing.T) {
	for _, c := range []struct {
		name string
		n    Note
		f    Facts
		p    Progress
		want string
	}{
		{"stored", Note{}, Facts{Delayed: true}, Progress{}, "copy destination in 3 forms; store own queue for destination in 3 forms; keep"},
		{"atomic", Note{}, Facts{Delayed: true, Atomic: true}, Progress{}, "copy destination (atomic) in 3 forms; store own queue for destination (atomic) in 3 forms; keep"},
		{"without delayed delivery", Note{}, Facts{}, Progress{}, "copy destination in 3 forms; keep"},
		{"none", Note{}, Facts{Delayed: true, None: true}, Progress{}, "copy destination in 3 forms; store own queue for destination in 3 forms; keep"},
		{"expired", Note{Expired: true}, Facts{Delayed: true}, Progress{}, "copy destination in 3 forms; consume"},
		{"custom", Note{Custom: true}, Facts{Delayed: true}, Progress{},
			"copy destination in 3 forms; store own queue for destination (patient) in 3 forms; copy error queue in 3 forms; store own queue for error queue in 3 forms; keep"},
		{"custom, without delayed delivery", Note{Custom: true}, Facts{}, Progress{}, "copy destination in 3 forms; copy error queue in 3 forms; keep"},
		{"a copy is out", Note{}, Facts{Delayed: true}, Progress{OnlyConsume: true}, "consume"},
		{"ending", Note{}, Facts{Delayed: true, Ending: true}, Progress{}, "release"},
		{"ending, none", Note{}, Facts{None: true, Ending: true}, Progress{}, "lose"},
	} {
		if got := ladderOf(Stored(c.n, c.f, c.p, nil)); got != c.want {
			t.Errorf("%s:\n%s, want\n%s", c.name, got, c.want)
		}
	}
}

// eachLadder calls do with every ladder of a failed message.
func eachLadder(do func(d Decision, f Facts, p Progress, steps []Step)) {
	decisions := []Decision{
		{Action: ImmediateRetry}, {Action: ImmediateRetry, Pause: true}, {Action: DelayedRetry}, {Action: Discard}, {Action: PutBack},
		{Action: MoveToError, Target: ErrorQueue}, {Action: MoveToError, Target: NamedQueue}, {Action: MoveToError, Target: CustomQueue}, {Action: MoveToError, Target: BrokerQueue},
	}
	var buf [64]Step
	for _, d := range decisions {
		for mode := range 3 {
			for bits := range 1 << 10 {
				on := func(i int) bool { return bits>>i&1 == 1 }
				f := Facts{
					None: mode == 0, Atomic: mode == 2, Delayed: on(0), DeadLetters: on(3), CountsReleases: on(1), Grouped: on(2), Isolated: on(3),
					Hook: on(4), Edit: on(5), Committed: on(6), SendsFailed: on(7), Configured: on(8), Ending: on(9),
				}
				for bits := range 1 << 9 {
					if (raced || testing.Short()) && bits&(bits-1) != 0 {
						continue // one achievement at a time
					}
					on := func(i int) bool { return bits>>i&1 == 1 }
					if f.Ending && bits >= 4 {
						break // the first two say all
					}
					p := Progress{OnlyConsume: on(0), GivenBack: on(1), Paused: on(2), CommittedSent: on(3), HookRan: on(4), Dropped: on(5), AheadSent: on(6), Edited: on(7)}
					p.LeftBroker, p.LeftNamed, p.LeftCustom = on(8), on(8), on(8)
					if (p.OnlyConsume || p.GivenBack) && bits >= 4 {
						continue
					}
					for _, p.Tries = range []int{0, Patience - 1} {
						do(d, f, p, Failed(d, f, p, buf[:0]))
					}
				}
			}
		}
	}
}

// TestFailed_Invariants checks every ladder of every decision with all facts and progress.
func TestFailed_Invariants(t *testing.T) {
	ends := [verbs]bool{Consume: true, Abandon: true, Release: true, Keep: true, Lose: true}
	inForms := [verbs][]Form{Copy: {Full, Clean, Small, Sender, Bare}, Store: {Full, Clean, Small, Bare}, Resend: {Full, Clean, Bare}, DeadLetter: {Full, Small, Bare}}
	rules := []struct {
		name  string
		holds func(d Decision, f Facts, p Progress, steps []Step) bool
	}{
		{"a walk has room for it", func(_ Decision, _ Facts, _ Progress, steps []Step) bool {
			return len(steps) > 0 && len(steps) <= len(Walk{}.buf)
		}},
		{"only the last step ends the delivery, and it does, or it is tried again or replaced by a second decision", func(d Decision, _ Facts, _ Progress, steps []Step) bool {
			last := steps[len(steps)-1].Verb
			return !slices.ContainsFunc(steps[:len(steps)-1], func(s Step) bool { return ends[s.Verb] }) &&
				(ends[last] || d.Action == DelayedRetry && (last == Resend || last == Postpone))
		}},
		{"a message is not consumed without a copy, unless it is discarded and its committed messages are sent", func(d Decision, f Facts, p Progress, steps []Step) bool {
			switch {
			case !has(steps, Consume), p.OnlyConsume:
				return true
			case !f.Committed || p.CommittedSent:
				return d.Action == Discard && len(steps) == 1
			}
			return d.Action == Discard && steps[0].Verb == SendCommitted && !steps[0].Optional
		}},
		{"a delivery that is to be settled is settled at once", func(d Decision, f Facts, p Progress, steps []Step) bool {
			switch {
			case p.OnlyConsume:
				return len(steps) == 1 && steps[0] == Step{Verb: Consume}
			case p.GivenBack:
				return len(steps) == 1 && steps[0] == Step{Verb: Release}
			}
			return !f.Ending || len(steps) == 1 && ends[steps[0].Verb]
		}},
		{"in TransactionNone nothing is kept, stored or waited for", func(d Decision, f Facts, _ Progress, steps []Step) bool {
			return !f.None || !has(steps, Keep) && !has(steps, Store) && !slices.ContainsFunc(steps, func(s Step) bool { return s.Patient })
		}},
		{"in other modes nothing is lost", func(_ Decision, f Facts, _ Progress, steps []Step) bool {
			return f.None || !has(steps, Lose) && !slices.ContainsFunc(steps, func(s Step) bool { return s.Once })
		}},
		{"in atomic mode each copy consumes the message, in others only dead-lettering does", func(_ Decision, f Facts, _ Progress, steps []Step) bool {
			return !slices.ContainsFunc(steps, func(s Step) bool {
				copies := s.Verb == Copy || s.Verb == Store || s.Verb == Resend || s.Verb == TakeOver
				return s.Atomic != (s.Verb == DeadLetter || copies && f.Atomic)
			})
		}},
		{"a message is stored only with delayed delivery", func(_ Decision, f Facts, _ Progress, steps []Step) bool {
			return f.Delayed || !has(steps, Store)
		}},
		{"a move tries the error queue", func(d Decision, f Facts, p Progress, steps []Step) bool {
			return d.Action != MoveToError || len(steps) == 1 || slices.ContainsFunc(steps, func(s Step) bool { return s.Verb == Copy && s.Place == ErrorQueue })
		}},
		{"a place that was left is not tried again", func(_ Decision, _ Facts, p Progress, steps []Step) bool {
			return !p.LeftBroker || !slices.ContainsFunc(steps, func(s Step) bool {
				return s.For == BrokerQueue && !s.Last || s.For == NamedQueue || s.For == CustomQueue
			})
		}},
		{"HandleFailed runs once, before a move, and after Undo in atomic mode", func(d Decision, f Facts, p Progress, steps []Step) bool {
			runs := f.Hook && !p.HookRan && !p.Dropped && d.Action == MoveToError && !f.Ending && !p.OnlyConsume && !p.GivenBack
			i := slices.IndexFunc(steps, func(s Step) bool { return s.Verb == RunHook })
			return runs == (i >= 0) && (!runs || !f.Atomic || steps[0].Verb == Undo && i == 1)
		}},
		{"HandleFailed's messages are sent once", func(_ Decision, _ Facts, p Progress, steps []Step) bool {
			return !p.Dropped && !p.AheadSent || !has(steps, SendAhead)
		}},
		{"committed messages are sent once", func(_ Decision, f Facts, p Progress, steps []Step) bool {
			return f.Committed && !p.CommittedSent || !has(steps, SendCommitted)
		}},
		{"a place that no configuration names is waited for until patience ends", func(_ Decision, f Facts, p Progress, steps []Step) bool {
			return p.Tries < Patience-1 || !slices.ContainsFunc(steps, func(s Step) bool { return s.Patient && s.Verb != Store })
		}},
		{"the forms of a copy follow each other", func(_ Decision, _ Facts, _ Progress, steps []Step) bool {
			for i, s := range steps {
				want := inForms[s.Verb]
				if s.Form != Full || want == nil {
					continue
				}
				for j, form := range want {
					s.Form = form
					if i+j >= len(steps) || steps[i+j] != s {
						return false
					}
				}
			}
			return true
		}},
	}
	n, broken := 0, map[string]bool{}
	eachLadder(func(d Decision, f Facts, p Progress, steps []Step) {
		n++
		for _, rule := range rules {
			if !rule.holds(d, f, p, steps) && !broken[rule.name] {
				broken[rule.name] = true
				t.Errorf("%s, but %v%s, %+v:\n%s", rule.name, d, factsOf(f, d.Pause), p, ladderOf(steps))
			}
		}
	})
	t.Logf("%d ladders", n)
}

func has(steps []Step, v Verb) bool {
	return slices.ContainsFunc(steps, func(s Step) bool { return s.Verb == v })
}
