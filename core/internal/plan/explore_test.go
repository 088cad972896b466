package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// This file explores every way of one message: a broker gives each step every outcome that
// an adapter can give it, with and without effect before an error, and between tries a work
// falls due, is redelivered, the endpoint stops. A redelivery can also overtake a try. The
// process can be killed at any time: in each state the broker has the message, or a copy of
// it is out.

// scenario is a decision about a message, and the facts.
type scenario struct {
	decision Decision
	redecide Place // where the message goes if the decision can never be carried out
	stored   bool  // it is a stored message instead
	note     Note
	facts    Facts
}

func (sc scenario) String() string {
	text := fmt.Sprintf("%s %v", actionNames[sc.decision.Action], sc.decision.Target)
	if sc.stored {
		text = fmt.Sprintf("stored %+v", sc.note)
	}
	return strings.TrimSpace(text) + factsOf(sc.facts, sc.decision.Pause)
}

var actionNames = [...]string{"immediate retry", "delayed retry", "move to", "discard", "put back"}

// factsOf lists the facts that are true.
func factsOf(f Facts, pause bool) string {
	var text strings.Builder
	for _, fact := range []struct {
		is   bool
		name string
	}{
		{pause, "pause"}, {f.None, "none"}, {f.Atomic, "atomic"}, {f.Delayed, "delayed"}, {f.DeadLetters, "dead-letters"}, {f.CountsReleases, "counts releases"}, {f.Grouped, "grouped"},
		{f.Isolated, "isolated"}, {f.Hook, "hook"}, {f.Edit, "edit"}, {f.Committed, "committed"}, {f.SendsFailed, "sends failed"},
		{f.Configured, "configured"}, {f.Ending, "ending"},
	} {
		if fact.is {
			text.WriteString(", " + fact.name)
		}
	}
	return text.String()
}

// phase is where this process has the message.
type phase uint8

const (
	running    phase = iota // a goroutine is in a step
	kept                    // with its delivery, until a later try
	remembered              // without a delivery: the broker redelivers it
	over
)

// life is a state of the exploration.
type life struct {
	walk  uint32 // the work that has the delivery, or had the last one
	phase phase

	settled bool // the process remembers that only Consume is left

	available bool // the broker redelivers the message
	gone      bool // the broker no longer has it
	answered  bool // the delivery is settled, perhaps without an answer
	discarded bool // no copy is needed
	reported  bool // an operator was told that it is lost
	hookWork  bool // HandleFailed's work is in the delivery's transaction
	tried     bool // the error queue was tried

	copies, hookSends, committed, hookRuns uint8 // 2 stands for more

	// A call took effect without an answer, or a redelivery overtook it: it may be repeated.
	unsureCopy, unsureHookSends, unsureCommitted, unsureHook bool
}

// fate is an outcome of a step.
type fate struct {
	class  Class
	effect bool // of a step that failed
}

// event is a way from one state to the next.
type event struct {
	name  string
	step  Step
	fate  fate
	older bool
}

func (e event) String() string {
	if e.name != "" {
		return e.name
	}
	text := fmt.Sprintf("%v: %v", e.step, e.fate.class)
	if e.fate.effect {
		text += ", with effect"
	}
	if e.older {
		text = "older " + text
	}
	return text
}

// visit is a state and how it was reached.
type visit struct {
	life
	from  int32
	event event
}

// moved is how a walk goes on.
type moved struct {
	known bool
	walk  uint32
	next  Next
}

// walkKey is a walk without its array.
type walkKey struct {
	Facts
	Progress
	decision Decision
	at       int
	steps    [40]Step
}

// explorer explores a scenario. Walks are numbered: the same step with the same outcome
// leads to the same next walk, which is computed once.
type explorer struct {
	scenario
	hostile bool // every class at every step, possible or not
	limit   int  // of states; 0 is none

	walks   []*Walk
	numbers map[walkKey]uint32
	went    [][Classes]moved
	ends    map[endKey][]fate
	planned map[planKey]uint32

	visits []visit
	seen   map[life]int32
	at     int32 // the state that is being left

	// The next state if every step succeeds, and if only the error queue and the own queue
	// can be reached.
	fine, partly []int32

	cells   *cells
	problem string
	ways    int // between states
}

// cells are those of the table that were reached.
type cells [verbs][Classes]bool

// endKey is a step in a kind of delivery.
type endKey struct {
	walk                uint32
	answered, overtaken bool
}

// planKey is a walk that is planned again.
type planKey struct {
	walk                uint32
	redelivered, ending bool
	settled             bool // only Consume is left
	redecided, refused  bool // the decision, for its committed messages were refused
}

func newExplorer(sc scenario, hostile bool, cells *cells) *explorer {
	return &explorer{scenario: sc, hostile: hostile, cells: cells, numbers: map[walkKey]uint32{}, planned: map[planKey]uint32{}, ends: map[endKey][]fate{}, seen: map[life]int32{}}
}

// clone returns a walk at the same step.
func clone(w *Walk) *Walk {
	c := *w
	c.steps = c.buf[:len(w.steps)]
	return &c
}

// number returns the number of a walk.
func (x *explorer) number(w *Walk) uint32 {
	if len(w.steps) > len(w.buf) {
		x.fail("a ladder has %d steps", len(w.steps))
		return 0
	}
	// More tries change nothing until patience ends, and nothing after that.
	switch {
	case w.Tries > 0 && w.Tries < Patience-2:
		w.Tries = Patience - 2
	case w.Tries > Patience-1:
		w.Tries = Patience - 1
	}
	k := walkKey{Facts: w.Facts, Progress: w.Progress, decision: w.decision, at: w.at}
	copy(k.steps[:], w.steps)
	n, ok := x.numbers[k]
	if !ok {
		n = uint32(len(x.walks))
		x.numbers[k] = n
		x.walks = append(x.walks, clone(w))
		x.went = append(x.went, [Classes]moved{})
	}
	return n
}

// plan plans a walk again.
func (x *explorer) plan(k planKey) uint32 {
	n, ok := x.planned[k]
	if !ok {
		w := *x.walks[k.walk] // as a worker with another delivery copies it
		if k.redelivered {
			w.Redelivered()
		}
		if k.settled {
			w.OnlyConsume = true
		}
		if k.redecided {
			w.Decided(Decision{Action: MoveToError, Target: x.redecide})
			w.SendsFailed = w.SendsFailed || k.refused
		}
		w.Plan(k.ending)
		n = x.number(&w)
		x.planned[k] = n
	}
	return n
}

// goOn lets a walk go on after its step.
func (x *explorer) goOn(n uint32, c Class) moved {
	m := x.went[n][c]
	if m.known {
		return m
	}
	w := clone(x.walks[n])
	before, at, s := w.Progress, w.at, w.Step()
	m.known, m.next = true, w.Went(c)
	m.walk = x.number(w)
	switch {
	case m.next == Go && w.at <= at && before.Dropped == w.Dropped && before.OnlyConsume == w.OnlyConsume && before.GivenBack == w.GivenBack:
		x.fail("%v: %v goes back: the try has no end", s, c)
	case c == Lost && m.next != Gone && !w.None:
		x.fail("%v: lost leads to %v", s, m.next)
	case c == Lost && w.Atomic && w.Dropped != before.Dropped:
		x.fail("%v: HandleFailed does not run again, though its work is undone with the lock", s)
	case s.Verb == Consume && !w.OnlyConsume:
		x.fail("%v: %v, and the message can be given back", s, c)
	case m.next == impossible || m.next > LoseIt:
		x.fail("%v: %v leads to %v", s, c, m.next)
	}
	x.went[n][c] = m
	return m
}

// fail ends the exploration.
func (x *explorer) fail(format string, args ...any) {
	if x.problem != "" {
		return
	}
	var trail []string
	for i := x.at; i > 0 && int(i) < len(x.visits); i = x.visits[i].from {
		trail = append(trail, x.visits[i].event.String())
	}
	slices.Reverse(trail)
	x.problem = fmt.Sprintf("%v: %s\nafter: %s", x.scenario, fmt.Sprintf(format, args...), strings.Join(trail, "; "))
}

// explore visits every state, nearest first, until there is a problem.
func (x *explorer) explore() {
	defer func() {
		if v := recover(); v != nil {
			x.fail("panic: %v", v)
		}
	}()
	w := &Walk{Facts: x.facts}
	if x.stored {
		w.Arrived(x.note)
	} else {
		w.Decided(x.decision)
	}
	w.Plan(false)
	x.visit(life{walk: x.number(w), gone: x.facts.None}, event{name: "failed"})
	for ; int(x.at) < len(x.visits) && x.problem == "" && (x.limit == 0 || len(x.visits) < x.limit); x.at++ {
		x.leave(x.visits[x.at].life)
	}
	if x.problem == "" && int(x.at) == len(x.visits) {
		x.checkEnds("every step succeeds", x.fine)
		x.checkEnds("only the error queue and the own queue can be reached", x.partly)
	}
}

// visit records a state, and returns its index.
func (x *explorer) visit(l life, e event) int32 {
	x.ways++
	wrong := x.wrong(l)
	l.forgetDetails(x.facts)
	i, ok := x.seen[l]
	if !ok {
		i = int32(len(x.visits))
		x.seen[l] = i
		x.visits = append(x.visits, visit{l, x.at, e})
		x.fine, x.partly = append(x.fine, -1), append(x.partly, -1)
	}
	if wrong != "" && x.problem == "" {
		x.visits[i].from, x.visits[i].event, x.at = x.at, e, i
		x.fail("%s", wrong)
	}
	return i
}

// checkEnds checks that a message does not go round for ever.
func (x *explorer) checkEnds(when string, next []int32) {
	checked := make([]int32, len(next)) // by the path that began at an index
	for i := range next {
		for j := int32(i); j >= 0 && x.problem == ""; j = next[j] {
			if checked[j] == int32(i+1) {
				x.at = j
				x.fail("no end, though %s", when)
			}
			if checked[j] != 0 {
				break
			}
			checked[j] = int32(i + 1)
		}
	}
}

// leave visits all states that follow one.
func (x *explorer) leave(l life) {
	none := x.facts.None
	next := int32(-1)
	later := func(name string, k planKey) {
		n := l
		n.phase, n.walk = running, x.plan(k)
		if k.redelivered {
			n.available, n.answered, n.hookWork, n.settled = false, false, false, false
		}
		if i := x.visit(n, event{name: name}); next < 0 {
			next = i
		}
	}
	switch l.phase {
	case running:
		s := x.walks[l.walk].Step()
		for _, f := range x.fates(endKey{walk: l.walk, answered: l.answered}) {
			i := x.visit(x.newerWent(l, f), event{step: s, fate: f})
			if f.class == OK || f.class == Settled {
				x.fine[x.at] = i
			}
			out := s.Place == BrokerQueue || s.Place == NamedQueue || s.Place == CustomQueue
			if f.class == Settled || !out && f.class == OK || out && f == (fate{class: Unreachable}) && x.partly[x.at] < 0 {
				x.partly[x.at] = i
			}
		}
		if !none && !l.gone {
			for _, f := range x.fates(endKey{walk: l.walk, overtaken: true}) {
				x.visit(x.overtaken(l, f), event{step: s, fate: f, older: true})
			}
		}
		return
	case kept:
		ending := x.walks[l.walk].Ending
		later("due", planKey{walk: l.walk, ending: ending})
		if !ending {
			later("ending", planKey{walk: l.walk, ending: true})
		} else if !l.gone { // the receiver's Close gives it back
			n := l
			n.available = true
			x.visit(x.forget(n), event{name: "closed"})
		}
		if !none && !l.gone {
			later("redelivered while kept", planKey{walk: l.walk, redelivered: true, settled: l.settled})
		}
	case remembered:
		later("redelivered", planKey{walk: l.walk, redelivered: true, settled: l.settled})
	}
	x.fine[x.at], x.partly[x.at] = next, next
}

// overtaken lets the broker redeliver the message in the middle of a step. The worker with
// the new delivery gets a copy of the work. The older try ends at its next step, which
// finds the lock lost. The step in progress ends before the new delivery's first step: a
// later end leads to no other states.
func (x *explorer) overtaken(l life, f fate) life {
	n := l
	older := x.walks[l.walk]
	x.effect(&n, older, f)
	n.walk = x.plan(planKey{walk: l.walk, redelivered: true, settled: l.settled})
	n.available, n.answered, n.hookWork, n.settled = false, false, false, false
	if n.gone {
		x.fail("a step on a delivery that has ended took effect")
	}
	switch older.Step().Verb {
	case RunHook:
		n.unsureHook = true
	case TakeOver:
		n.unsureCopy, n.unsureHookSends = true, true
	case SendAhead:
		n.unsureHookSends = true
	case SendCommitted:
		n.unsureCommitted = true
	case Copy, Store, Resend:
		n.unsureCopy = true
	}
	m := x.goOn(l.walk, f.class)
	if x.problem == "" && m.next == Go {
		if m = x.goOn(m.walk, Lost); m.next != Gone {
			x.fail("the older try does not end")
		}
	}
	if x.walks[m.walk].OnlyConsume {
		n.settled, n.discarded = true, n.discarded || needsNoCopy(older)
	}
	return n
}

// newerWent lets the step of the work with the delivery end.
func (x *explorer) newerWent(l life, f fate) life {
	w := x.walks[l.walk]
	s := w.Step()
	if f.class == Lost && !l.gone && !x.facts.None {
		l.available, l.hookWork = true, false
	}
	x.effect(&l, w, f)
	m := x.goOn(l.walk, f.class)
	if x.problem != "" {
		return l
	}
	l.walk = m.walk
	switch m.next {
	case Redecide:
		if w.stored || w.decision.Action != DelayedRetry && w.decision.Action != Discard {
			x.fail("%v: %v: a second decision", s, f.class)
			return l
		}
		l.walk = x.plan(planKey{walk: m.walk, ending: w.Ending, redecided: true, refused: s.Verb == SendCommitted})
	case Wait:
		l.phase, l.hookWork = kept, false
		if l.available && !l.answered {
			x.fail("kept without a delivery")
		}
	case Gone:
		l.discarded = l.discarded || s.Verb == Consume && needsNoCopy(w)
		if !l.available && !l.gone {
			x.fail("given up, and the broker does not redeliver it")
		}
		l = x.forget(l)
	case LoseIt:
		l.phase = over
		switch {
		case !w.None || w.OnlyConsume:
			x.fail("lost in another mode, or after a copy")
		case !l.tried && !w.Ending && !x.stored:
			x.fail("lost before the error queue was tried")
		}
		l.reported = true
	case Done:
		if !l.available && !l.gone {
			x.fail("done, and locked without an owner")
		}
		l.phase = over
		if s.Verb == Release && w.decision.Action != PutBack { // it is not carried out
			l = x.forget(l)
		}
	}
	return l
}

// forget ends the delivery of a work. The process remembers the work if its handler must
// not run again.
func (x *explorer) forget(l life) life {
	w := x.walks[l.walk]
	l.settled = l.settled || w.OnlyConsume
	switch {
	case l.gone:
		l.phase = over
	case l.settled, w.Tries > 0 && (x.stored || w.decision.Action != ImmediateRetry):
		l.phase = remembered
	default:
		l.phase = over // it is handled again
	}
	return l
}

// onDelivery reports whether a step settles the delivery, or undoes its transaction.
func onDelivery(s Step) bool {
	return s.Atomic || s.Verb == DeadLetter || s.Verb == Postpone || s.Verb == Consume || s.Verb == Abandon || s.Verb == Release || s.Verb == Undo
}

// effect lets a step take effect, if it does.
func (x *explorer) effect(l *life, w *Walk, f fate) {
	s := w.Step()
	unsure := f.class != OK
	if s.Verb == RunHook && (f.class == OK || f.class == TakenOver || f.class == HookFailed) {
		count(&l.hookRuns)
		l.hookWork = f.class != HookFailed && w.Atomic
	}
	if s.Place == ErrorQueue {
		l.tried = true
	}
	moves := s.Verb == Copy || s.Verb == Store || s.Verb == DeadLetter
	if moves && !w.stored && w.Hook && !w.Atomic && !w.Dropped && l.hookRuns == 0 && !l.unsureHook {
		x.fail("moved before HandleFailed")
	}
	if f.class != OK && !f.effect {
		return
	}
	switch s.Verb {
	case Undo:
		l.hookWork = false
	case Copy, Store, Resend, DeadLetter:
		count(&l.copies)
		l.unsureCopy = l.unsureCopy || unsure
		if s.Atomic && w.Atomic && w.HookRan && !w.Dropped && !w.AheadSent {
			x.hookSendsLeave(l, unsure)
		}
	case TakeOver:
		if w.Committed && l.committed == 0 {
			x.fail("taken over, and committed messages are lost")
		}
		count(&l.copies)
		l.unsureCopy = l.unsureCopy || unsure
		x.hookSendsLeave(l, unsure)
	case SendAhead:
		if w.HookRan && !w.Dropped {
			count(&l.hookSends)
			l.unsureHookSends = l.unsureHookSends || unsure
		}
	case SendCommitted:
		count(&l.committed)
		l.unsureCommitted = l.unsureCommitted || unsure
	case Consume:
		l.discarded = l.discarded || needsNoCopy(w)
		l.gone, l.answered = true, true
	case Abandon, Release, Postpone:
		l.available, l.answered = true, true
	}
	if s.Atomic {
		l.gone, l.answered = true, true
	}
}

// needsNoCopy reports whether the message is to be consumed without a copy.
func needsNoCopy(w *Walk) bool {
	return w.stored && w.note.Expired || !w.stored && w.decision.Action == Discard
}

// hookSendsLeave lets HandleFailed's messages leave together with a copy or instead of it.
func (x *explorer) hookSendsLeave(l *life, unsure bool) {
	count(&l.hookSends)
	l.unsureHookSends = l.unsureHookSends || unsure
	if x.facts.Atomic && !l.hookWork {
		x.fail("HandleFailed's messages leave, and its work is undone")
	}
}

func count(n *uint8) { *n = min(*n+1, 2) }

// wrong returns the promise that a state breaks, or "".
func (x *explorer) wrong(l life) string {
	committed := !x.facts.Committed || l.committed > 0
	safe := l.copies > 0 || l.discarded && committed || l.reported
	switch {
	case l.gone && !safe && (!x.facts.None || l.phase == over): // in TransactionNone this process has it until then
		return "the message is in no queue"
	case l.copies > 1 && !l.unsureCopy:
		return "two copies"
	case l.copies > 0 && !l.unsureCopy && l.phase == over && l.available && !l.gone:
		return "given back with a copy outside"
	case l.hookSends > 1 && !l.unsureHookSends:
		return "HandleFailed's messages left twice"
	case l.committed > 1 && !l.unsureCommitted:
		return "committed messages left twice"
	case l.hookRuns > 1 && !x.facts.Atomic && !l.unsureHook:
		return "HandleFailed ran twice"
	}
	return ""
}

// forgetDetails makes states equal that differ in nothing that matters.
func (l *life) forgetDetails(f Facts) {
	if l.phase == over {
		*l = life{phase: over}
		return
	}
	if l.unsureCopy {
		l.copies = min(l.copies, 1)
	}
	if l.unsureCommitted {
		l.committed = min(l.committed, 1)
	}
	if l.unsureHookSends {
		l.hookSends = 0
	}
	if l.unsureHook || f.Atomic {
		l.hookRuns, l.unsureHook = 0, true
	}
	l.tried = l.tried && f.None
}

// The outcomes that steps can have.
var (
	succeeds = []fate{{class: OK}}
	refusal  = []fate{{class: NoQueue}}
	refusals = []fate{{class: TooLarge}, {class: BadHeader}, {class: NoQueue}, {class: Unsupported}}
	unclear  = []fate{{class: Unreachable}, {class: Unreachable, effect: true}}
	isLost   = []fate{{class: Lost}}
	isOver   = []fate{{class: Settled}, {class: Lost}, {class: Unreachable}} // of a delivery that was settled before
)

// fates lists the outcomes of a step, one of those that lead to the same states.
func (x *explorer) fates(k endKey) []fate {
	all, ok := x.ends[k]
	if ok {
		return all
	}
	w := x.walks[k.walk]
	type result struct {
		moved
		ok, lost, effect, hookRan bool
	}
	seen := map[result]bool{}
	for _, f := range x.allFates(w, k) {
		s := w.Step()
		x.cells[s.Verb][f.class] = true
		m := x.goOn(k.walk, f.class)
		r := result{m, f.class == OK || f.class == Settled, f.class == Lost, f.effect, s.Verb == RunHook && f.class == HookFailed}
		if !seen[r] {
			seen[r] = true
			all = append(all, f)
		}
	}
	x.ends[k] = all
	return all
}

// allFates lists the outcomes that a step can have.
func (x *explorer) allFates(w *Walk, k endKey) []fate {
	s := w.Step()
	switch {
	case (k.answered || k.overtaken) && onDelivery(s):
		return isOver
	case x.hostile:
		return hostileFates
	case w.None:
		return possibleFates(w, s)
	}
	return append(slices.Clip(possibleFates(w, s)), isLost...) // each step can find the lock lost
}

// hostileFates has every class. Settled is never wrong: a message can be settled by the
// endpoint alone.
var hostileFates = func() []fate {
	all := slices.Concat(succeeds, unclear)
	for c := TooLarge; c < Classes; c++ {
		if c != Unreachable && c != Settled {
			all = append(all, fate{class: c})
		}
	}
	return all
}()

func possibleFates(w *Walk, s Step) []fate {
	switch s.Verb {
	case Undo:
		return slices.Concat(succeeds, unclear[:1])
	case RunHook, EditCopy:
		all := []fate{{class: OK}, {class: HookFailed}}
		if s.Verb == RunHook {
			all = append(all, fate{class: TakenOver})
		}
		if !w.None { // only a message that can be released is cut off
			all = append(all, fate{class: Interrupted})
		}
		return all
	case SendAhead, SendCommitted: // all refusals are the same to them
		return slices.Concat(succeeds, refusal, unclear)
	case DeadLetter:
		return slices.Concat(succeeds, refusals, unclear)
	case TakeOver, Copy, Store, Resend:
		all := slices.Concat(succeeds, refusals, unclear)
		if w.Hook && w.Atomic && !w.Dropped {
			all = append(all, fate{class: Companion})
		}
		if s.Verb == Copy {
			all = append(all, fate{class: Blocked})
		}
		return all
	case Postpone:
		return slices.Concat(succeeds, refusals[3:], unclear)
	case Consume, Abandon, Release:
		return slices.Concat(succeeds, unclear)
	}
	return succeeds // Pause, Keep and Lose do nothing
}

// scenarios returns every decision with all facts that it depends on.
func scenarios() []scenario {
	var all []scenario
	add := func(sc scenario) { all = append(all, sc) }
	flags := func(n int, do func(on func(i int) bool)) {
		for bits := range 1 << n {
			do(func(i int) bool { return bits>>i&1 == 1 })
		}
	}
	for mode := range 3 {
		mode := Facts{None: mode == 0, Atomic: mode == 2}
		flags(4, func(on func(int) bool) {
			f := mode
			f.Delayed, f.Hook, f.Committed = on(0), on(1), on(2)
			f.Edit = f.Hook != f.Committed // it depends on neither
			for _, target := range []Place{ErrorQueue, NamedQueue, CustomQueue, BrokerQueue} {
				f.DeadLetters = target == BrokerQueue || target == ErrorQueue && on(3)
				if f.Configured = on(3) && target == CustomQueue; !on(3) || f.Configured || f.DeadLetters {
					add(scenario{decision: Decision{Action: MoveToError, Target: target}, facts: f})
				}
			}
			f.Configured, f.DeadLetters = false, false
			if f.SendsFailed = on(3); f.SendsFailed {
				if f.Committed {
					add(scenario{decision: Decision{Action: MoveToError, Target: ErrorQueue}, facts: f})
				}
				return
			}
			for _, target := range []Place{ErrorQueue, NamedQueue, BrokerQueue} {
				if f.Hook && target != ErrorQueue { // as a move
					continue
				}
				if f.Committed || target == ErrorQueue && !f.Hook { // without them there is no second decision
					add(scenario{decision: Decision{Action: Discard}, redecide: target, facts: f})
				}
				if !f.None {
					f.Grouped = !f.Delayed // then it does not need delayed delivery
					add(scenario{decision: Decision{Action: DelayedRetry}, redecide: target, facts: f})
					f.Grouped = false
				}
			}
		})
		flags(3, func(on func(int) bool) {
			if mode.None {
				return
			}
			f := mode
			f.Isolated, f.Grouped = on(0), on(1)
			add(scenario{decision: Decision{Action: ImmediateRetry, Pause: on(2)}, facts: f})
			if !on(0) {
				f.CountsReleases = on(2)
				for _, f.Delayed = range []bool{false, true} {
					add(scenario{decision: Decision{Action: PutBack}, facts: f})
				}
			}
		})
		flags(2, func(on func(int) bool) {
			f := mode
			f.Delayed = on(0)
			add(scenario{stored: true, note: Note{Expired: on(1)}, facts: f})
			if !on(1) {
				add(scenario{stored: true, note: Note{Custom: true}, facts: f})
			}
		})
	}
	return all
}

// smallScenarios returns the scenarios, without the largest ones if time is short.
func smallScenarios() []scenario {
	all := scenarios()
	if testing.Short() || raced {
		all = slices.DeleteFunc(all, func(sc scenario) bool { return sc.facts.Hook && sc.facts.Committed })
	}
	return all
}

func testAll(t *testing.T, hostile bool) {
	var reached cells
	all := smallScenarios()
	explored, states, ways, problems := 0, 0, 0, 0
	for i, sc := range all {
		if raced && i%4 != 0 || testing.Short() && hostile && i%2 != 0 {
			continue
		}
		explored++
		x := newExplorer(sc, hostile, &reached)
		x.explore()
		states, ways = states+len(x.visits), ways+x.ways
		if x.problem != "" {
			t.Error(x.problem)
			if problems++; problems > 5 {
				t.FailNow()
			}
		}
	}
	t.Logf("%d scenarios, %d states, %d ways between them", explored, states, ways)
}

// TestExplore_NoMessageIsLost lets each step have every outcome that it can have.
func TestExplore_NoMessageIsLost(t *testing.T) { testAll(t, false) }

// TestExplore_ImpossibleClasses lets each step have every class: an adapter that breaks its
// contract must not end a message either.
func TestExplore_ImpossibleClasses(t *testing.T) { testAll(t, true) }

// TestExplore_NoticesMutants replaces single cells of the table by an end of the message:
// the exploration has to notice each.
func TestExplore_NoticesMutants(t *testing.T) {
	type mutant struct {
		verb  Verb
		class Class
	}
	where := map[mutant][]scenario{} // the scenarios that reach the cell, the smallest first
	sizes := map[scenario]int{}
	for _, sc := range smallScenarios() {
		var reached cells
		x := newExplorer(sc, false, &reached)
		x.limit = 3000
		x.explore()
		if x.problem != "" {
			t.Fatal("the table itself fails: ", x.problem)
		}
		sizes[sc] = len(x.visits)
		for v := range reached {
			for c, is := range reached[v] {
				if is {
					m := mutant{Verb(v), Class(c)}
					where[m] = append(where[m], sc)
				}
			}
		}
	}
	mutants := 0
	for m, in := range where {
		cell := &following[m.verb][m.class]
		right := *cell
		if right == Done || m == (mutant{DeadLetter, OK}) { // which consumes the message as one
			continue
		}
		slices.SortStableFunc(in, func(a, b scenario) int { return sizes[a] - sizes[b] })
		*cell = Done
		found := slices.ContainsFunc(in, func(sc scenario) bool {
			x := newExplorer(sc, false, &cells{})
			x.limit = 3000
			x.explore()
			return x.problem != ""
		})
		*cell = right
		if !found {
			t.Errorf("%v, %v: done instead of %v is not noticed", m.verb, m.class, right)
		}
		mutants++
	}
	if t.Logf("%d mutants", mutants); mutants < 70 {
		t.Error("too few cells are reached")
	}
}
