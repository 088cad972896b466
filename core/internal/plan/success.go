package plan

// With says which of the engine's sends leave with those of the handlers: audit copies, and
// acknowledgements, whose queue any sender can name.
type With uint8

// The choices.
const (
	AllSends     With = iota
	AuditCopies       // and no acknowledgements
	StoredCopies      // audit copies, in the own queue
	NoSends
)

// Sends are the facts about the engine's sends for a message that was handled.
type Sends struct {
	Acks, Audits bool // there are some
	Storable     bool // audit copies can be stored in the own queue
}

// Succeeded returns the ladder for a message that was handled, appended to buf: each step
// sends the messages of the handlers, and the last ones without those that may have failed the
// others. They consume the message too (Commit), or leave that to the caller (SendAll). After
// Go the next step is tried; without one the attempt has failed.
func Succeeded(atomic bool, s Sends, buf []Step) []Step {
	if !atomic { // accepted messages are not sent again, so that two tries are enough
		buf = append(buf, Step{Verb: SendAll})
		if s.Acks || s.Audits {
			buf = append(buf, Step{Verb: SendAll, With: NoSends})
		}
		return buf
	}
	add := func(w With) { buf = append(buf, Step{Verb: Commit, With: w, Atomic: true}) }
	add(AllSends)
	if s.Acks && s.Audits {
		add(AuditCopies)
	}
	if s.Audits && s.Storable {
		add(StoredCopies)
	}
	if s.Acks || s.Audits {
		add(NoSends)
	}
	return buf
}
