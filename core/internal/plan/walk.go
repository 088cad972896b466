package plan

// Walk is the way of one message through its plan. One goroutine at a time uses it.
type Walk struct {
	Facts
	Progress

	decision Decision
	stored   bool
	note     Note

	steps []Step
	at    int
	buf   [40]Step
}

// Decided sets the decision to carry out.
func (w *Walk) Decided(d Decision) { w.decision, w.stored = d, false }

// Arrived sets a stored message to deliver instead.
func (w *Walk) Arrived(n Note) { w.note, w.stored = n, true }

// Plan begins a try. ending: the endpoint stops, or the broker will soon take the message
// back.
func (w *Walk) Plan(ending bool) {
	w.Ending, w.at = ending, 0
	if w.stored {
		w.steps = Stored(w.note, w.Facts, w.Progress, w.buf[:0])
	} else {
		w.steps = Failed(w.decision, w.Facts, w.Progress, w.buf[:0])
	}
}

// Step returns the step to perform.
func (w *Walk) Step() Step { return w.steps[w.at] }

// Went records the outcome of the step, and returns the answer: with Go, Step returns the
// next step. After Redecide the caller sets another decision and plans again. After Wait it
// plans again later.
func (w *Walk) Went(c Class) Next {
	s := w.Step()
	if w.None && s.Verb != Consume { // there is no lock, and the message cannot be given back
		switch c {
		case Lost:
			c = Unreachable
		case Interrupted:
			c = HookFailed
		}
	}
	n := After(s, c)
	if n == same {
		if w.Dropped {
			n = elsewhere
		}
		w.Dropped = true
	}
	w.record(s, c)
	if (n == smaller || n == fewer) && s.Atomic && w.HookRan && !w.Dropped && !w.hasForm(n) {
		w.Dropped = true // HandleFailed's messages, which leave with the copy, may be the cause
		w.Plan(w.Ending)
		return Go
	}
	switch n {
	case Go, same, smaller, fewer, elsewhere, nextDestination, lastDestination:
		next := to(w.steps, w.at, n)
		for w.CommittedSent && next >= 0 && next < len(w.steps) && w.steps[next].Verb == SendCommitted {
			next++ // they left before the take-over that failed
		}
		if next < 0 || next >= len(w.steps) {
			return Redecide
		}
		w.leave(s, w.steps[next])
		if w.steps[next].Last && w.Atomic && w.HookRan && !w.AheadSent {
			w.Dropped = true // HandleFailed's messages cannot leave with it
		}
		w.at = next
		return Go
	case onlyConsume:
		w.OnlyConsume = true
		w.Plan(w.Ending)
		return Go
	case release:
		w.GivenBack = true
		w.Plan(w.Ending)
		return Go
	case Wait:
		w.waits(s)
	}
	return n
}

// hasForm reports whether the copy has another form.
func (w *Walk) hasForm(n Next) bool {
	s, i := w.Step(), to(w.steps, w.at, n)
	return i >= 0 && w.steps[i].Verb == s.Verb && w.steps[i].Place == s.Place && w.steps[i].For == s.For
}

// record records the effect of the step.
func (w *Walk) record(s Step, c Class) {
	switch {
	case s.Verb == Consume: // nothing else may follow, also if it failed
		w.OnlyConsume = true
	case s.Verb == Release: // likewise, for this delivery
		w.GivenBack = true
	case c == Lost, c == Settled: // the delivery has ended
	case s.Verb == RunHook && (c == OK || c == TakenOver):
		w.HookRan = true
	case s.Verb == Undo && s.Place == HookPlace && c != OK, s.Verb == RunHook && c != Interrupted, s.Verb == TakeOver && c != OK, s.Verb == SendAhead && c != OK && s.Optional,
		s.Verb == SendCommitted && s.Place == HookPlace && c != OK:
		w.Dropped = true
	case s.Verb == EditCopy && c != Interrupted:
		w.Edited = true
	case s.Verb == SendAhead && c == OK:
		w.AheadSent = true
	case s.Verb == SendCommitted && c == OK:
		w.CommittedSent = true
	}
}

// leave records a place that is given up for good.
func (w *Walk) leave(from, next Step) {
	if next.For == from.For || next.For == Here {
		return
	}
	switch from.For {
	case BrokerQueue:
		w.LeftBroker = true
	case NamedQueue:
		w.LeftNamed = true
	case CustomQueue:
		w.LeftCustom = true
	}
}

// waits records a try that ended without an end of the message.
func (w *Walk) waits(s Step) {
	if s.Verb == Pause {
		w.Paused = true
		return
	}
	if s.Verb != Consume && s.Verb != Abandon && s.Verb != Release { // settlements have no other place
		w.Tries++
	}
	w.undone()
}

// Redelivered adapts the progress to another delivery of the message.
func (w *Walk) Redelivered() {
	w.Edited, w.Paused, w.GivenBack = false, false, false
	w.undone()
}

// undone records that the transaction is undone, and HandleFailed's work with it. It runs
// again, unless its messages leave before the move.
func (w *Walk) undone() {
	if w.Atomic && !w.AheadSent && w.Target() != BrokerQueue {
		w.HookRan, w.Dropped = false, false
	}
}

// Remembered returns the walk for a later delivery, to be planned anew.
func (w *Walk) Remembered() Walk {
	r := *w
	r.steps = nil // they are a part of w
	return r
}

// Target returns the place that a message of a MoveToError is to be moved to now.
func (w *Walk) Target() Place { return target(w.decision, w.Progress) }
