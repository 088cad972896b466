package presence

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPause_IsShorterWhileSomethingIsExpected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		for name, test := range map[string]struct {
			p    *Presence
			want time.Duration
		}{
			"nothing":                         {&Presence{}, lookEvery},
			"all processes connected":         {&Presence{disappeared: map[int64]time.Time{1: {}}}, lookEvery},
			"a process disappeared":           {&Presence{disappeared: map[int64]time.Time{1: {}, 2: now}}, lookGap},
			"leases to release now":           {&Presence{release: true, notBefore: now.Add(-time.Second)}, lookGap},
			"leases to release soon":          {&Presence{release: true, notBefore: now.Add(700 * time.Millisecond)}, 700 * time.Millisecond},
			"leases to release later":         {&Presence{release: true, notBefore: now.Add(time.Minute)}, lookEvery},
			"an earlier session has a number": {&Presence{left: []int32{7}}, lookGap / 2},
		} {
			if got := test.p.pause(); got != test.want {
				t.Errorf("%s: %v, want %v", name, got, test.want)
			}
		}
	})
}

func TestAwait(t *testing.T) {
	for name, test := range map[string]struct {
		after func(p *Presence, endLife context.CancelFunc) // called after a second
		want  time.Duration
	}{
		"an attempt that failed": {func(p *Presence, _ context.CancelFunc) { p.Detach() }, time.Second},
		"the end of the life":    {func(_ *Presence, endLife context.CancelFunc) { endLife() }, time.Second},
		"no attempt":             {func(*Presence, context.CancelFunc) {}, timeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := New(nil, nil)
			life, endLife := context.WithCancel(t.Context())
			defer endLife()
			time.AfterFunc(time.Second, func() { test.after(p, endLife) })
			began := time.Now()
			p.Await(t.Context(), life)
			if got := time.Since(began); got != test.want {
				t.Errorf("%s: waited for %v, want %v", name, got, test.want)
			}
		})
	}
}

func TestAwait_DoesNotWaitWithoutNeed(t *testing.T) {
	has, unable := New(nil, nil), New(nil, nil)
	has.number.Store(7)
	unable.unable.Store(true)
	for name, p := range map[string]*Presence{"no presence": nil, "a number": has, "no number is possible": unable} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			p.Await(t.Context(), t.Context())
			if got := time.Since(began); got != 0 {
				t.Errorf("%s: waited for %v", name, got)
			}
		})
	}
	if (*Presence)(nil).Own() != 0 || has.Own() != 7 {
		t.Errorf("numbers are %d and %d, want 0 and 7", (*Presence)(nil).Own(), has.Own())
	}
}

func TestAttach_OnlyIfANumberIsWanted(t *testing.T) {
	p := New(nil, nil)
	if err := p.Attach(t.Context(), nil); err != nil || p.Own() != 0 {
		t.Errorf("nothing is wanted: number %d, %v", p.Own(), err)
	}
	if !p.Want() || p.Want() {
		t.Error("Want does not report that none was wanted before, once")
	}
}
