package plan

// Next is the answer to the outcome of a step.
type Next uint8

// The answers. Walk.Went returns Go, Wait, Redecide, Done, Gone or LoseIt; the others are
// ways to the next step, which the walk itself goes.
const (
	impossible Next = iota
	Go              // the next step
	Wait            // a later try, planned again
	Redecide        // the transport can never carry this out: another decision is needed
	Done            // the message is where it belongs
	Gone            // the broker delivers it again
	LoseIt          // it ends here, and an operator is told

	smaller         // the next form of the same copy; without one, lastDestination
	fewer           // the next form with fewer headers; without one, lastDestination
	elsewhere       // the next place
	nextDestination // the next destination; without one, elsewhere
	lastDestination // likewise, the last resort among them
	onlyConsume     // the copy is out: only Consume is left
	same            // the step once more, without HandleFailed's messages
	release         // undecided: the message is released
	nexts           // their number
)

type row [Classes]Next

// every returns the row of a verb that treats all refusals alike.
func every(ok, refused, unreachable Next) row {
	return row{OK: ok, TooLarge: refused, BadHeader: refused, NoQueue: refused, Unsupported: refused,
		Companion: refused, Unreachable: unreachable, Blocked: unreachable, Lost: Gone, Settled: Done}
}

// except returns the row with other cells.
func (r row) except(cells row) row {
	for c, n := range cells {
		if n != impossible {
			r[c] = n
		}
	}
	return r
}

// copies is the row of a copy that must arrive somewhere.
var copies = every(onlyConsume, nextDestination, elsewhere).except(row{TooLarge: fewer, BadHeader: smaller, Unsupported: lastDestination, Companion: same})

// following is the table: (verb, class) -> next.
var following = [verbs]row{
	Undo:    every(Go, elsewhere, elsewhere),
	RunHook: {OK: elsewhere, TakenOver: Go, HookFailed: elsewhere, Interrupted: release, Lost: Gone},
	// Committed messages that are refused are sent again when the moved message is returned.
	SendCommitted: every(Go, Redecide, Wait),
	TakeOver:      every(onlyConsume, elsewhere, elsewhere),
	SendAhead:     every(Go, same, Wait),
	EditCopy:      {OK: Go, HookFailed: Go, Interrupted: release, Lost: Gone},
	DeadLetter:    copies,
	Copy:          copies,
	Store:         copies,
	Resend:        every(onlyConsume, Wait, Wait).except(row{TooLarge: fewer, BadHeader: smaller, Unsupported: Redecide}),
	Postpone:      every(Done, Wait, Wait).except(row{Unsupported: Redecide}),
	Pause:         {OK: Wait, Lost: Gone},
	Consume:       every(Done, Wait, Wait),
	Abandon:       every(Done, Wait, Wait),
	Release:       every(Done, Wait, Wait),
	Keep:          {OK: Wait, Unreachable: Wait, Lost: Gone},
	Lose:          {OK: LoseIt, Unreachable: LoseIt},
	SendAll:       every(Done, Go, Go),
	Commit:        every(Done, Go, Go),
}

// After returns the answer to an outcome of a step.
func After(s Step, c Class) Next {
	n := following[s.Verb][c]
	if n == impossible { // an adapter that breaks its contract must not end a message
		if n = following[s.Verb][Unreachable]; n == impossible {
			n = elsewhere
		}
	}
	switch {
	case c == OK && n == onlyConsume && s.Atomic:
		return Done
	case c == OK, c == Lost, c == Settled:
		return n
	case n == elsewhere && s.Patient:
		n = Wait
	}
	switch {
	case (n == Wait || n == Redecide) && (s.Optional || s.Place == HookPlace):
		return elsewhere // the move follows a take-over that fails
	case n == Wait && s.Once:
		return Redecide
	}
	return n
}

// to returns the index of the step that n means, or -1.
func to(steps []Step, at int, n Next) int {
	s := steps[at]
	find := func(is func(Step) bool) int {
		for i := at + 1; i < len(steps); i++ {
			if is(steps[i]) {
				return i
			}
		}
		return -1
	}
	switch n {
	case Go:
		return at + 1
	case same:
		return at
	case smaller, fewer:
		i := find(func(t Step) bool {
			return t.Verb == s.Verb && t.Place == s.Place && t.For == s.For && t.Last == s.Last && (n == smaller || t.Form > Clean)
		})
		if i >= 0 {
			return i
		}
		return to(steps, at, lastDestination)
	case nextDestination, lastDestination:
		if i := find(func(t Step) bool { return t.For != Here && t.For != s.For && (n == lastDestination || !t.Last) }); i >= 0 {
			return i
		}
	}
	return find(func(t Step) bool { return t.Place != s.Place && !t.Last })
}
