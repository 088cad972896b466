package plan

// Action is the decision about a failed message.
type Action uint8

// The actions.
const (
	ImmediateRetry Action = iota
	DelayedRetry
	MoveToError
	Discard
	PutBack
)

// Decision is the part of a decision that its plan depends on.
type Decision struct {
	Action Action
	Target Place // of a MoveToError: BrokerQueue, NamedQueue, CustomQueue or ErrorQueue
	Pause  bool  // an ImmediateRetry comes after a pause
}

// Facts are the other values that a plan depends on.
type Facts struct {
	None, Atomic   bool // the transaction mode
	Delayed        bool // the transport has delayed delivery
	DeadLetters    bool // and a dead-letter queue of the broker
	CountsReleases bool
	Grouped        bool // the message stays before others of its group
	Isolated       bool // it must not be kept beside other messages
	Hook, Edit     bool // there is a HandleFailed, an EditFailed
	Committed      bool // handlers have committed messages
	SendsFailed    bool // they could not be sent just now
	Configured     bool // CustomQueue is a queue of the configuration, which messages are stored for
	Ending         bool // the endpoint stops, or the broker will soon take the message back
}

// Progress has the effects of earlier steps and tries. It is remembered with the decision.
type Progress struct {
	Tries         int  // failed tries
	OnlyConsume   bool // a copy is out, or none is needed: the delivery has to be consumed
	GivenBack     bool // the message is to be released
	Paused        bool // the pause before an immediate retry or the copy of a PutBack has ended
	CommittedSent bool
	HookRan       bool // HandleFailed, and it need not run again
	Dropped       bool // HandleFailed's messages and work were given up
	AheadSent     bool
	Edited        bool // EditFailed was called for this delivery
	LeftBroker    bool // the place was given up for good
	LeftNamed     bool
	LeftCustom    bool
}

// Patience is the number of tries that a custom queue gets if messages are not stored for
// it, and the broker's own queue: about a minute and a half.
const Patience = 8

// Failed returns the ladder of steps for a decision. Its last step cannot fail, or gives the
// message back. The steps are appended to buf.
func Failed(d Decision, f Facts, p Progress, buf []Step) []Step {
	l := ladder{buf}
	switch {
	case l.endsEarly(d, f, p):
	case d.Action == ImmediateRetry:
		l.immediateRetry(d, f, p)
	case d.Action == DelayedRetry:
		l.committed(f, p, Step{Optional: true})
		if f.Grouped {
			l.add(Step{Verb: Postpone, Place: OwnQueue})
		} else {
			l.copies(Step{Verb: Resend, Place: OwnQueue, Atomic: f.Atomic}, Full, Clean, Bare)
		}
	case d.Action == Discard:
		f.SendsFailed = false // they must leave
		l.committed(f, p, Step{Once: f.None})
		l.add(Step{Verb: Consume})
	case d.Action == PutBack:
		l.putBack(f, p)
	default:
		l.moveToError(d, f, p)
	}
	return l.steps
}

// ladder is a ladder that is being made.
type ladder struct{ steps []Step }

func (l *ladder) add(s Step) { l.steps = append(l.steps, s) }

// copies adds a step in several forms.
func (l *ladder) copies(s Step, forms ...Form) {
	for _, s.Form = range forms {
		l.add(s)
	}
}

// endsEarly plans the rest of a settlement that an earlier step began, and the end of a
// decision that cannot be carried out in time.
func (l *ladder) endsEarly(d Decision, f Facts, p Progress) bool {
	switch {
	case p.OnlyConsume:
		l.add(Step{Verb: Consume})
	case p.GivenBack:
		l.add(Step{Verb: Release})
	case !f.Ending:
		return false
	case f.None:
		l.add(Step{Verb: Lose})
	case d.Action == ImmediateRetry:
		l.add(Step{Verb: Abandon})
	default:
		l.add(Step{Verb: Release})
	}
	return true
}

func (l *ladder) immediateRetry(d Decision, f Facts, p Progress) {
	switch {
	case !d.Pause || f.Isolated || p.Paused:
	case f.Grouped:
		l.add(Step{Verb: Postpone, Place: OwnQueue, Optional: true})
	default:
		l.pause(f)
	}
	l.add(Step{Verb: Abandon})
}

// pause plans a wait in this process.
func (l *ladder) pause(f Facts) {
	if f.Atomic { // locks in a database must not last for the pause
		l.add(Step{Verb: Undo, Place: OwnQueue})
	}
	l.add(Step{Verb: Pause, Place: OwnQueue})
}

// putBack plans a release. If the broker would count it, a copy is better. The copy waits
// for the receiver to take no more messages: on the broker, or in this process.
func (l *ladder) putBack(f Facts, p Progress) {
	switch {
	case !f.CountsReleases:
	case f.Grouped:
		l.add(Step{Verb: Postpone, Place: OwnQueue, Optional: true})
	default:
		if !f.Delayed && !p.Paused {
			l.pause(f)
		}
		l.copies(Step{Verb: Resend, Place: OwnQueue, Atomic: f.Atomic, Optional: true}, Full, Clean, Bare)
	}
	l.add(Step{Verb: Release})
}

// committed plans the sending of committed messages, if there are any left.
func (l *ladder) committed(f Facts, p Progress, s Step) {
	if f.Committed && !f.SendsFailed && !p.CommittedSent {
		s.Verb = SendCommitted
		if s.Place == Here {
			s.Place = CommittedPlace
		}
		l.add(s)
	}
}

func (l *ladder) moveToError(d Decision, f Facts, p Progress) {
	l.beforeMove(d, f, p)
	patient := !f.None && p.Tries+1 < Patience
	canStore := f.Delayed && !f.None
	to := func(place Place, patient bool) {
		l.copies(Step{Verb: Copy, Place: place, For: place, Atomic: f.Atomic, Patient: patient}, Full, Clean, Small, Sender, Bare)
	}
	store := func(place Place, patient bool) {
		if canStore {
			l.copies(Step{Verb: Store, Place: OwnQueue, For: place, Atomic: f.Atomic, Patient: patient}, Full, Clean, Small, Bare)
		}
	}
	switch target := target(d, p); target {
	case BrokerQueue:
		l.copies(Step{Verb: DeadLetter, Place: target, For: target, Atomic: true, Patient: patient}, Full, Small, Bare)
	case NamedQueue:
		to(target, false)
	case CustomQueue:
		to(target, patient && !(f.Configured && canStore))
		if f.Configured {
			store(target, true)
		}
	}
	to(ErrorQueue, false)
	l.lastResort(f)
	store(ErrorQueue, false)
	if f.None {
		l.add(Step{Verb: Lose})
	} else {
		l.add(Step{Verb: Keep})
	}
}

// lastResort plans the end of a message that the error queue refuses in every form, so that
// this process does not keep it for ever: such as one of the largest size, which has no room
// for FailedQ.
func (l *ladder) lastResort(f Facts) {
	if f.DeadLetters && !f.None {
		l.copies(Step{Verb: DeadLetter, Place: BrokerQueue, For: BrokerQueue, Atomic: true, Last: true}, Full, Small, Bare)
	} else {
		l.add(Step{Verb: Copy, Place: ErrorQueue, For: ErrorQueue, Atomic: f.Atomic, Form: Body})
	}
}

// target returns the place that a message is to be moved to now.
func target(d Decision, p Progress) Place {
	if d.Target == BrokerQueue && p.LeftBroker || d.Target == NamedQueue && p.LeftNamed || d.Target == CustomQueue && p.LeftCustom {
		return ErrorQueue
	}
	return d.Target
}

// beforeMove plans the steps before the message is moved, or in place of that.
func (l *ladder) beforeMove(d Decision, f Facts, p Progress) {
	if f.Hook && !p.HookRan && !p.Dropped {
		if f.Atomic {
			l.add(Step{Verb: Undo, Place: HookPlace})
		}
		l.add(Step{Verb: RunHook, Place: HookPlace})
		unsent := f
		unsent.SendsFailed = false // the message does not stand for them any more
		l.committed(unsent, p, Step{Place: HookPlace})
		l.add(Step{Verb: TakeOver, Place: HookPlace, Atomic: f.Atomic})
	}
	l.committed(f, p, Step{Optional: true})
	if f.Edit && !p.Edited {
		l.add(Step{Verb: EditCopy})
	}
	// HandleFailed's messages leave with the move, where they can.
	if f.Hook && !p.Dropped && !p.AheadSent && (!f.Atomic || target(d, p) == BrokerQueue) {
		l.add(Step{Verb: SendAhead, Place: AheadPlace, Optional: f.None})
	}
}

// Note describes a stored message.
type Note struct {
	Expired bool // it is an audit copy that was tried for long enough
	Custom  bool // its destination is another queue than the error queue, which replaces it
}

// Stored returns the ladder for a message that was stored in the own queue until its
// destination can be reached.
func Stored(n Note, f Facts, p Progress, buf []Step) []Step {
	l := ladder{buf}
	if l.endsEarly(Decision{Action: MoveToError}, f, p) {
		return l.steps
	}
	l.copies(Step{Verb: Copy, Place: StoredQueue, For: StoredQueue, Atomic: f.Atomic}, Full, Clean, Bare)
	switch {
	case n.Expired:
		l.add(Step{Verb: Consume})
		return l.steps
	case f.Delayed:
		l.copies(Step{Verb: Store, Place: OwnQueue, For: StoredQueue, Atomic: f.Atomic, Patient: n.Custom}, Full, Clean, Bare)
	}
	if n.Custom { // and refuses the message
		l.copies(Step{Verb: Copy, Place: ErrorQueue, For: ErrorQueue, Atomic: f.Atomic}, Full, Clean, Bare)
		if f.Delayed {
			l.copies(Step{Verb: Store, Place: OwnQueue, For: ErrorQueue, Atomic: f.Atomic}, Full, Clean, Bare)
		}
	}
	l.add(Step{Verb: Keep})
	return l.steps
}
