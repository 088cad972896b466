package pauses

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// recorded returns the pauses of an endpoint whose waits are written to waits: their
// lengths, and 0 for an early end.
func recorded(waits *[]time.Duration) *Pauses {
	return &Pauses{
		Wait:    func(d time.Duration) { *waits = append(*waits, d) },
		EndWait: func() { *waits = append(*waits, 0) },
	}
}

func TestBeginEndpoint_GrowsUntilReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []time.Duration
		p := recorded(&waits)
		for _, reset := range []bool{false, false, false, false, false, false, true, false} {
			if reset {
				p.Reset("other")
			}
			length, begins := p.BeginEndpoint(0, nil)
			if !begins {
				t.Error("a message after the end of a pause begins none")
			}
			time.Sleep(length)
		}
		const s = time.Second
		if want := []time.Duration{s, 2 * s, 4 * s, 8 * s, 16 * s, 30 * s, s, 2 * s}; !slices.Equal(waits, want) {
			t.Errorf("pauses of %v, want %v", waits, want)
		}
	})
}

func TestBeginEndpoint_DuringAPause(t *testing.T) {
	const s = time.Second
	for name, test := range map[string]struct {
		first, second, after time.Duration
		want                 time.Duration // of the second
	}{
		"one that grows lasts until the end of the first":  {0, 0, s / 4, 3 * s / 4},
		"a shorter length does not shorten it":             {10 * s, s, s, 9 * s},
		"a longer length extends it":                       {s, 10 * s, s / 2, 10 * s},
		"one that grows does not extend one with a length": {10 * s, 0, s, 9 * s},
	} {
		synctest.Test(t, func(t *testing.T) {
			var waits []time.Duration
			p := recorded(&waits)
			p.BeginEndpoint(test.first, nil)
			time.Sleep(test.after)
			length, begins := p.BeginEndpoint(test.second, nil)
			if length != test.want || begins {
				t.Errorf("%s: %v, begins %t, want %v and false", name, length, begins, test.want)
			}
			if last := waits[len(waits)-1]; last != length {
				t.Errorf("%s: the endpoint waits for %v, the message for %v", name, last, length)
			}
		})
	}
}

func TestBeginEndpoint_EndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits []time.Duration
		p := recorded(&waits)
		ctx, cancel := context.WithCancel(t.Context())
		p.BeginEndpoint(time.Hour, ctx)
		p.BeginEndpoint(time.Hour, ctx) // the same context ends it once
		cancel()
		synctest.Wait()
		if want := []time.Duration{time.Hour, time.Hour, 0}; !slices.Equal(waits, want) {
			t.Fatalf("waits are %v, want %v", waits, want)
		}
		if length, begins := p.BeginEndpoint(time.Hour, ctx); length != time.Second || !begins {
			t.Errorf("with a context that has ended the pause is %v, begins %t, want a new one of 1 s", length, begins)
		}
	})
}

func TestBeginEndpoint_ForgetsContextsOfEarlierPauses(t *testing.T) {
	for name, next := range map[string]func(p *Pauses){
		"a pause after it": func(p *Pauses) { p.BeginEndpoint(time.Hour, nil) },
		"Stop":             (*Pauses).Stop,
	} {
		synctest.Test(t, func(t *testing.T) {
			var waits []time.Duration
			p := recorded(&waits)
			ctx, cancel := context.WithCancel(t.Context())
			p.BeginEndpoint(time.Second, ctx)
			time.Sleep(time.Second)
			next(p)
			cancel()
			synctest.Wait()
			if slices.Contains(waits, 0) {
				t.Errorf("after %s the context of the first pause ended a wait", name)
			}
		})
	}
}

func TestBeginMessage_TypesAreIndependent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := recorded(new([]time.Duration))
		check := func(messageType string, requested, want time.Duration, wantBegins bool) {
			t.Helper()
			if length, begins := p.BeginMessage(messageType, requested, nil); length != want || begins != wantBegins {
				t.Errorf("%s: %v, begins %t, want %v and %t", messageType, length, begins, want, wantBegins)
			}
		}
		check("a", 0, time.Second, true)
		check("a", 0, time.Second, false) // each message waits for the whole length
		time.Sleep(time.Second)
		check("a", 0, 2*time.Second, true)
		check("b", 0, time.Second, true)
		check("b", time.Minute, time.Minute, false)
		check("c", time.Minute, time.Minute, true)
		check("c", 0, time.Second, false) // also after one with a length
		time.Sleep(2 * time.Second)
		p.Reset("a")
		check("a", 0, time.Second, true)
	})
}

// Senders name message types: what is remembered of them is bounded.
func TestBeginMessage_RemembersABoundedNumberOfTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Pauses
		for i := range 3 * maxTypes {
			if length, begins := p.BeginMessage(fmt.Sprint("type ", i), 0, nil); length != minPause || !begins {
				t.Fatalf("the first pause of a type is %v, begins: %t", length, begins)
			}
			if _, ok := p.messages[fmt.Sprint("type ", i)]; !ok {
				t.Fatalf("the newest type, number %d, is not remembered", i)
			}
		}
		if n := len(p.messages); n != maxTypes {
			t.Errorf("%d types are remembered, want %d", n, maxTypes)
		}
		newest := fmt.Sprint("type ", 3*maxTypes-1)
		time.Sleep(minPause)
		if length, _ := p.BeginMessage(newest, 0, nil); length != 2*minPause {
			t.Errorf("the second pause of the newest type is %v", length)
		}
		for i := range 3 * maxTypes {
			p.Reset(fmt.Sprint("type ", i))
		}
		if len(p.messages) != 0 || p.active.Load() {
			t.Errorf("%d types are remembered after they ended, active: %t", len(p.messages), p.active.Load())
		}
	})
}
