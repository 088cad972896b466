package plan

import (
	"slices"
	"testing"
)

// allSends returns every combination of facts about the engine's sends.
func allSends() (all []Sends) {
	for i := range 8 {
		all = append(all, Sends{Acks: i&1 != 0, Audits: i&2 != 0, Storable: i&4 != 0})
	}
	return all
}

func TestSucceeded_Ladders(t *testing.T) {
	for _, test := range []struct {
		atomic bool
		sends  Sends
		want   []string
	}{
		{false, Sends{}, []string{"send all"}},
		{false, Sends{Acks: true}, []string{"send all", "send all, alone"}},
		{false, Sends{Acks: true, Audits: true, Storable: true}, []string{"send all", "send all, alone"}},
		{true, Sends{}, []string{"commit"}},
		{true, Sends{Acks: true}, []string{"commit", "commit, alone"}},
		{true, Sends{Audits: true}, []string{"commit", "commit, alone"}},
		{true, Sends{Audits: true, Storable: true}, []string{"commit", "commit, stored audit copies", "commit, alone"}},
		{true, Sends{Acks: true, Audits: true, Storable: true}, []string{"commit", "commit, audit copies", "commit, stored audit copies", "commit, alone"}},
	} {
		var got []string
		for _, s := range Succeeded(test.atomic, test.sends, nil) {
			got = append(got, s.String())
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("atomic %t, %+v: %q, want %q", test.atomic, test.sends, got, test.want)
		}
	}
}

// handled is a message that was handled, while its ladder is gone along.
type handled struct {
	sent   bool // the handlers' messages have left
	unsure bool // a step had its effect without an answer
}

// goAlong goes along the rest of a ladder with every outcome of each step.
func goAlong(t *testing.T, steps []Step, h handled) {
	if len(steps) == 0 {
		if h.sent && !h.unsure {
			t.Errorf("%+v: the attempt fails, though its messages have left", h)
		}
		return
	}
	s := steps[0]
	if h.sent && !h.unsure {
		t.Errorf("%v: the handlers' messages leave twice", s)
	}
	for c := range Classes {
		for _, effect := range []bool{false, true} {
			if effect != (c == OK) && c != Unreachable {
				continue // a refusal has no effect
			}
			after := h
			if effect {
				after.sent, after.unsure = true, c != OK
			}
			switch next := After(s, c); next {
			case Done:
				if c != OK && c != Settled {
					t.Errorf("%v, %v: done", s, c)
				}
			case Gone:
				if c != Lost {
					t.Errorf("%v, %v: gone", s, c)
				}
			case Go, elsewhere:
				goAlong(t, steps[1:], after)
			default:
				t.Errorf("%v, %v: %v, which the caller does not know", s, c, next)
			}
		}
	}
}

// The handlers' messages leave with the message, or the attempt fails. The
// engine gives its own sends up before that.
func TestSucceeded_EveryOutcome(t *testing.T) {
	for _, atomic := range []bool{false, true} {
		for _, sends := range allSends() {
			steps := Succeeded(atomic, sends, nil)
			goAlong(t, steps, handled{})
			if last := steps[len(steps)-1]; (last.With == NoSends) != (sends.Acks || sends.Audits) {
				t.Errorf("atomic %t, %+v: the last step is %v", atomic, sends, last)
			}
		}
	}
}
