package queues_test

import (
	"fmt"
	"regexp"
	"testing"

	"github.com/reprise-go/reprise/core/queues"
)

// Tools write states as words, and read them.
func TestStates_AreDistinctWords(t *testing.T) {
	word := regexp.MustCompile("^[a-z]+$")
	for _, states := range [][]fmt.Stringer{
		{queues.Ready, queues.Locked, queues.Delayed, queues.Parked},
		{queues.TakeUnknown, queues.TakeDone, queues.TakeGone, queues.TakeLocked, queues.TakeRefused},
	} {
		names := map[string]fmt.Stringer{}
		for _, state := range states {
			name := state.String()
			if other, has := names[name]; has || !word.MatchString(name) {
				t.Errorf("%#v is %q; another one with this name: %#v", state, name, other)
			}
			names[name] = state
		}
	}
	for state, want := range map[fmt.Stringer]string{
		queues.State(4): "State(4)", queues.State(-1): "State(-1)", queues.TakeState(5): "TakeState(5)", queues.TakeState(-1): "TakeState(-1)",
	} {
		if got := state.String(); got != want {
			t.Errorf("a state without a name is %q, want %q", got, want)
		}
	}
}
