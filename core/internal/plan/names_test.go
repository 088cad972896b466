package plan

// The names of steps and their parts, for tests.

var verbNames = [verbs]string{"undo", "hook", "take over", "send ahead", "send committed", "edit", "dead-letter", "copy", "store", "again", "postpone", "pause", "consume", "abandon", "release", "keep", "lose", "send all", "commit"}

func (v Verb) String() string { return verbNames[v] }

var placeNames = [places]string{"", "hook", "committed", "ahead", "broker's queue", "named queue", "custom queue", "error queue", "destination", "own queue"}

func (p Place) String() string { return placeNames[p] }

var formNames = [forms]string{"", "clean", "small", "sender", "bare", "body"}

func (f Form) String() string { return formNames[f] }

// String describes the step.
func (s Step) String() string {
	text := s.Verb.String()
	if s.Place != Here {
		text += " " + s.Place.String()
	}
	if s.For != Here && s.For != s.Place {
		text += " for " + s.For.String()
	}
	if s.Form != Full {
		text += ", " + s.Form.String()
	}
	if s.With != AllSends {
		text += ", " + withNames[s.With]
	}
	return text
}

var classNames = [Classes]string{"ok", "too large", "bad header", "no queue", "unsupported", "companion", "unreachable", "blocked", "taken over", "hook failed", "interrupted", "lost", "settled"}

func (c Class) String() string { return classNames[c] }

var nextNames = [nexts]string{"-", "go", "wait", "redecide", "done", "gone", "lose", "smaller", "fewer", "elsewhere", "instead", "at last", "rest", "same", "give back"}

func (n Next) String() string { return nextNames[n] }

var withNames = [...]string{AllSends: "all", AuditCopies: "audit copies", StoredCopies: "stored audit copies", NoSends: "alone"}
