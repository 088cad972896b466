package core

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// Senders name message types: what is remembered of them is bounded.
func TestPutBack_RemembersABoundedNumberOfTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p putBacks
		for i := range 3 * maxPutBackTypes {
			if length, begins := p.begin(Pause{}, PauseMessage, fmt.Sprint("type ", i)); length != minPutBackPause || !begins {
				t.Fatalf("the first pause of a type is %v, begins: %t", length, begins)
			}
		}
		if n := len(p.messages); n != maxPutBackTypes {
			t.Errorf("%d types are remembered, want %d", n, maxPutBackTypes)
		}
		newest := fmt.Sprint("type ", 3*maxPutBackTypes-1)
		time.Sleep(minPutBackPause)
		if length, _ := p.begin(Pause{}, PauseMessage, newest); length != 2*minPutBackPause {
			t.Errorf("the second pause of the newest type is %v", length)
		}
		for i := range 3 * maxPutBackTypes {
			p.reset(fmt.Sprint("type ", i))
		}
		if len(p.messages) != 0 || p.active.Load() {
			t.Errorf("%d types are remembered after they ended, active: %t", len(p.messages), p.active.Load())
		}
	})
}
