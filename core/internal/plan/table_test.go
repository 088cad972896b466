package plan

import (
	"fmt"
	"strings"
	"testing"
	"text/tabwriter"
)

// page is the table as After answers it. A dot is a class that no rule names: it counts as
// unreachable. Each variant of a verb lists the flags of its step.
const page = `
                               | ok        | too large  | bad header | no queue   | unsupported | companion  | unreachable | blocked    | taken over | hook failed | interrupted | lost  | settled
undo                           | go        | elsewhere  | elsewhere  | elsewhere  | elsewhere   | elsewhere  | elsewhere   | elsewhere  | .elsewhere | .elsewhere  | .elsewhere  | gone  | done
undo hook                      | go        | elsewhere  | elsewhere  | elsewhere  | elsewhere   | elsewhere  | elsewhere   | elsewhere  | .elsewhere | .elsewhere  | .elsewhere  | gone  | done
hook hook                      | elsewhere | .elsewhere | .elsewhere | .elsewhere | .elsewhere  | .elsewhere | .elsewhere  | .elsewhere | go         | elsewhere   | give back   | gone  | .elsewhere
take over hook                 | rest      | elsewhere  | elsewhere  | elsewhere  | elsewhere   | elsewhere  | elsewhere   | elsewhere  | .elsewhere | .elsewhere  | .elsewhere  | gone  | done
take over hook (atomic)        | done      | elsewhere  | elsewhere  | elsewhere  | elsewhere   | elsewhere  | elsewhere   | elsewhere  | .elsewhere | .elsewhere  | .elsewhere  | gone  | done
send ahead                     | go        | same       | same       | same       | same        | same       | wait        | wait       | .wait      | .wait       | .wait       | gone  | done
send ahead (optional)          | go        | same       | same       | same       | same        | same       | elsewhere   | elsewhere  | .elsewhere | .elsewhere  | .elsewhere  | gone  | done
send committed                 | go        | redecide   | redecide   | redecide   | redecide    | redecide   | wait        | wait       | .wait      | .wait       | .wait       | gone  | done
send committed hook            | go        | elsewhere  | elsewhere  | elsewhere  | elsewhere   | elsewhere  | elsewhere   | elsewhere  | .elsewhere | .elsewhere  | .elsewhere  | gone  | done
send committed (optional)      | go        | elsewhere  | elsewhere  | elsewhere  | elsewhere   | elsewhere  | elsewhere   | elsewhere  | .elsewhere | .elsewhere  | .elsewhere  | gone  | done
send committed (once)          | go        | redecide   | redecide   | redecide   | redecide    | redecide   | redecide    | redecide   | .redecide  | .redecide   | .redecide   | gone  | done
edit                           | go        | .elsewhere | .elsewhere | .elsewhere | .elsewhere  | .elsewhere | .elsewhere  | .elsewhere | .elsewhere | go          | give back   | gone  | .elsewhere
dead-letter (atomic)           | done      | fewer      | smaller    | instead    | at last     | same       | elsewhere   | elsewhere  | .elsewhere | .elsewhere  | .elsewhere  | gone  | done
dead-letter (atomic) (patient) | done      | fewer      | smaller    | instead    | at last     | same       | wait        | wait       | .wait      | .wait       | .wait       | gone  | done
copy                           | rest      | fewer      | smaller    | instead    | at last     | same       | elsewhere   | elsewhere  | .elsewhere | .elsewhere  | .elsewhere  | gone  | done
copy (atomic)                  | done      | fewer      | smaller    | instead    | at last     | same       | elsewhere   | elsewhere  | .elsewhere | .elsewhere  | .elsewhere  | gone  | done
copy (patient)                 | rest      | fewer      | smaller    | instead    | at last     | same       | wait        | wait       | .wait      | .wait       | .wait       | gone  | done
store                          | rest      | fewer      | smaller    | instead    | at last     | same       | elsewhere   | elsewhere  | .elsewhere | .elsewhere  | .elsewhere  | gone  | done
store (atomic)                 | done      | fewer      | smaller    | instead    | at last     | same       | elsewhere   | elsewhere  | .elsewhere | .elsewhere  | .elsewhere  | gone  | done
store (patient)                | rest      | fewer      | smaller    | instead    | at last     | same       | wait        | wait       | .wait      | .wait       | .wait       | gone  | done
again                          | rest      | fewer      | smaller    | wait       | redecide    | wait       | wait        | wait       | .wait      | .wait       | .wait       | gone  | done
again (atomic)                 | done      | fewer      | smaller    | wait       | redecide    | wait       | wait        | wait       | .wait      | .wait       | .wait       | gone  | done
again (optional)               | rest      | fewer      | smaller    | elsewhere  | elsewhere   | elsewhere  | elsewhere   | elsewhere  | .elsewhere | .elsewhere  | .elsewhere  | gone  | done
postpone                       | done      | wait       | wait       | wait       | redecide    | wait       | wait        | wait       | .wait      | .wait       | .wait       | gone  | done
postpone (optional)            | done      | elsewhere  | elsewhere  | elsewhere  | elsewhere   | elsewhere  | elsewhere   | elsewhere  | .elsewhere | .elsewhere  | .elsewhere  | gone  | done
pause                          | wait      | .elsewhere | .elsewhere | .elsewhere | .elsewhere  | .elsewhere | .elsewhere  | .elsewhere | .elsewhere | .elsewhere  | .elsewhere  | gone  | .elsewhere
consume                        | done      | wait       | wait       | wait       | wait        | wait       | wait        | wait       | .wait      | .wait       | .wait       | gone  | done
abandon                        | done      | wait       | wait       | wait       | wait        | wait       | wait        | wait       | .wait      | .wait       | .wait       | gone  | done
release                        | done      | wait       | wait       | wait       | wait        | wait       | wait        | wait       | .wait      | .wait       | .wait       | gone  | done
keep                           | wait      | .wait      | .wait      | .wait      | .wait       | .wait      | wait        | .wait      | .wait      | .wait       | .wait       | gone  | .wait
lose                           | lose      | .lose      | .lose      | .lose      | .lose       | .lose      | lose        | .lose      | .lose      | .lose       | .lose       | .lose | .lose
send all                       | done      | go         | go         | go         | go          | go         | go          | go         | .go        | .go         | .go         | gone  | done
commit (atomic)                | done      | go         | go         | go         | go          | go         | go          | go         | .go        | .go         | .go         | gone  | done
`

func TestAfter_Page(t *testing.T) {
	step := func(v Verb, change func(*Step)) Step {
		s := Step{Verb: v}
		if change != nil {
			change(&s)
		}
		return s
	}
	hook := func(s *Step) { s.Place = HookPlace }
	atomic := func(s *Step) { s.Atomic = true }
	patient := func(s *Step) { s.Patient = true }
	optional := func(s *Step) { s.Optional = true }
	steps := []Step{
		step(Undo, nil), step(Undo, hook), step(RunHook, hook),
		step(TakeOver, hook), step(TakeOver, func(s *Step) { hook(s); atomic(s) }),
		step(SendAhead, nil), step(SendAhead, optional),
		step(SendCommitted, nil), step(SendCommitted, hook), step(SendCommitted, optional), step(SendCommitted, func(s *Step) { s.Once = true }),
		step(EditCopy, nil),
		step(DeadLetter, atomic), step(DeadLetter, func(s *Step) { atomic(s); patient(s) }),
		step(Copy, nil), step(Copy, atomic), step(Copy, patient),
		step(Store, nil), step(Store, atomic), step(Store, patient),
		step(Resend, nil), step(Resend, atomic), step(Resend, optional),
		step(Postpone, nil), step(Postpone, optional),
		step(Pause, nil), step(Consume, nil), step(Abandon, nil), step(Release, nil), step(Keep, nil), step(Lose, nil),
		step(SendAll, nil), step(Commit, atomic),
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 1, ' ', 0)
	for c := range Classes {
		fmt.Fprintf(w, "\t| %v", c)
	}
	fmt.Fprintln(w)
	for _, s := range steps {
		fmt.Fprint(w, flagged(s))
		for c := range Classes {
			dot := ""
			if following[s.Verb][c] == impossible {
				dot = "."
			}
			fmt.Fprintf(w, "\t| %s%v", dot, After(s, c))
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for line := range strings.Lines(text.String()) {
		got.WriteString(strings.TrimRight(line, " \n") + "\n")
	}
	if got.String() != strings.TrimPrefix(page, "\n") {
		t.Errorf("the table has changed:\n%s", got.String())
	}
}

// TestAfter_EachCell checks that no outcome of a step is left without an answer.
func TestAfter_EachCell(t *testing.T) {
	for v := range verbs {
		for c := range Classes {
			for bits := range 1 << 5 {
				on := func(i int) bool { return bits>>i&1 == 1 }
				s := Step{Verb: v, Atomic: on(0), Patient: on(1), Optional: on(2), Once: on(3)}
				if on(4) {
					s.Place = HookPlace
				}
				n := After(s, c)
				switch {
				case n == impossible || n >= nexts:
					t.Errorf("%s, %v: %v", flagged(s), c, n)
				case n == Done && c != OK && c != Settled:
					t.Errorf("%s, %v: done, though it failed", flagged(s), c)
				case c == Lost && v != Lose && n != Gone:
					t.Errorf("%s, lost: %v", flagged(s), n)
				case n == LoseIt && v != Lose:
					t.Errorf("%s, %v: loses the message", flagged(s), c)
				case s.Once && n == Wait && c != OK && v != Keep && v != Pause:
					t.Errorf("%s, %v: waits for a later try", flagged(s), c)
				}
			}
		}
	}
}

// flagged returns a step with its flags.
func flagged(s Step) string {
	text := s.String()
	for _, flag := range []struct {
		is   bool
		name string
	}{{s.Atomic, "atomic"}, {s.Patient, "patient"}, {s.Optional, "optional"}, {s.Once, "once"}, {s.Last, "last"}} {
		if flag.is {
			text += " (" + flag.name + ")"
		}
	}
	return text
}
