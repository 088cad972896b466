package core

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core/internal/unreachable"
)

// Rule R28.
func TestSettlement_SettledMessagesAreRemembered(t *testing.T) {
	s := newRedeliveryState()
	if s.wasSettled("n1") {
		t.Error("remembers what never was")
	}
	s.rememberSettled("n1")
	s.rememberSettled("n1")
	if !s.wasSettled("n1") || s.wasSettled("n2") {
		t.Error("does not remember")
	}
	t.Run("a message without a native id is not remembered", func(t *testing.T) {
		s.rememberSettled("")
		if s.wasSettled("") {
			t.Error("it is, and so are all of them")
		}
	})
	t.Run("holds 1,000, the most recently used", func(t *testing.T) {
		s := newRedeliveryState()
		for i := range 1000 {
			s.rememberSettled(fmt.Sprint(i))
		}
		_ = s.wasSettled("0")
		s.rememberSettled("one more")
		if !s.wasSettled("0") || s.wasSettled("1") || !s.wasSettled("2") || s.settled.Len() != 1000 {
			t.Errorf("%d entries", s.settled.Len())
		}
	})
}

// storedCopyOf is a stored copy of a message.
func storedCopyOf(nativeID string) *Incoming {
	return &Incoming{ID: "id of " + nativeID, NativeID: nativeID, DeliveryCount: 2}
}

func TestPendingDecisions(t *testing.T) {
	s := newRedeliveryState()
	if s.decisionFor(storedCopyOf("n1")) != nil {
		t.Error("remembers what never was")
	}
	f := failureAfter(3, 1, errFailed)
	f.Body, f.Headers = make([]byte, 100), HeadersFromMap(map[string]string{"k": "v"})
	d := decision{action: MoveToError("error")}
	for range 3 {
		s.rememberPending(storedCopyOf("n1"), &f, &d)
	}
	u := s.decisionFor(storedCopyOf("n1"))
	if u == nil || u.tries != 3 || u.decision.action != d.action || u.failure.ImmediateProcessingFailures != 3 || u.failure.DelayedDeliveriesPerformed != 1 {
		t.Fatalf("%+v", u)
	}
	if u.failure.Body != nil || u.failure.Headers.Len() != 0 {
		t.Error("keeps the message, which the redelivery brings again")
	}
	t.Run("describe the error as before", func(t *testing.T) {
		f := failureAfter(1, 0, fmt.Errorf("save: %w", codeError{7}))
		s.rememberPending(storedCopyOf("n2"), &f, &d)
		u := s.decisionFor(storedCopyOf("n2"))
		kept := f
		kept.Err = u.failure.Err
		first, later := copyForError(&f, d.action, testHost, Capabilities{}), copyForError(&kept, d.action, testHost, Capabilities{})
		if first.Get(HeaderExceptionStackTrace) != later.Get(HeaderExceptionStackTrace) || first.Get(HeaderExceptionType) != later.Get(HeaderExceptionType) {
			t.Errorf("%v\n%v", first.Map(), later.Map())
		}
		if kept.Err.Error() != f.Err.Error() {
			t.Errorf("%q", kept.Err)
		}
	})
	t.Run("are copied", func(t *testing.T) {
		one := s.decisionFor(storedCopyOf("n1"))
		one.decision.action, one.tries = ImmediateRetry(), one.tries+99
		if one.tries != 102 {
			t.Errorf("%d tries", one.tries)
		}
		if two := s.decisionFor(storedCopyOf("n1")); two.decision.action != d.action || two.tries != 3 {
			t.Errorf("%+v", two)
		}
	})
	t.Run("are forgotten when asked", func(t *testing.T) {
		s.forgetPending(storedCopyOf("n1"))
		s.forgetPending(storedCopyOf("never was"))
		if s.decisionFor(storedCopyOf("n1")) != nil || s.decisionFor(storedCopyOf("n2")) == nil {
			t.Error("the wrong one is forgotten")
		}
		s.forgetPending(storedCopyOf("n2"))
		if s.pendingCount.Load() != 0 {
			t.Errorf("%d wait", s.pendingCount.Load())
		}
	})
	t.Run("with more sends than are worth remembering are not remembered", func(t *testing.T) {
		large := decision{action: d.action, handleFailedSends: []Outgoing{{Body: make([]byte, maxRememberedBytes+1)}}}
		s.rememberPending(storedCopyOf("n3"), &f, &d)
		s.rememberPending(storedCopyOf("n3"), &f, &large)
		if s.decisionFor(storedCopyOf("n3")) != nil {
			t.Error("they are")
		}
	})
	t.Run("expire ten minutes after the last try", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := newRedeliveryState()
			s.rememberPending(storedCopyOf("n0"), &f, &d)
			s.rememberPending(storedCopyOf("n1"), &f, &d)
			for range 30 {
				time.Sleep(unreachable.MaxPause)
				s.rememberPending(storedCopyOf("n0"), &f, &d)
			}
			if n := s.pendingDecisions(); n != 1 {
				t.Errorf("%d wait, want the one that was tried", n)
			}
			time.Sleep(pendingExpiry)
			if n := s.pendingDecisions(); n != 0 || s.pendingCount.Load() != 0 {
				t.Errorf("%d wait, want none", n)
			}
		})
	})
}

// A foreign message has an id of its sender's, or none, and perhaps no NativeID.
func TestPendingDecisions_ForeignMessages(t *testing.T) {
	f, d := failureAfter(1, 0, errFailed), decision{action: MoveToError("error")}
	foreign := func(id, body string, redelivered bool) *Incoming {
		return &Incoming{ID: id, Body: []byte(body), DeliveryCount: 1, Redelivered: redelivered}
	}
	s := newRedeliveryState()
	s.rememberPending(foreign("7", "a", false), &f, &d)
	for name, c := range map[string]struct {
		in   *Incoming
		want bool
	}{
		"delivered again":                {foreign("7", "a", true), true},
		"the first delivery of its twin": {foreign("7", "a", false), false},
		"another id":                     {foreign("8", "a", true), false},
		"another body":                   {foreign("7", "b", true), false},
	} {
		if found := s.decisionFor(c.in) != nil; found != c.want {
			t.Errorf("%s: %t", name, found)
		}
	}
	s.forgetPending(foreign("7", "a", true))
	if s.pendingDecisions() != 0 {
		t.Error("is not forgotten")
	}
}

func TestRedeliveryState_IsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("2,000 errors of 256 KiB: not in short runs")
	}
	s := newRedeliveryState()
	inUse := func() uint64 {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	before := inUse()
	d := decision{action: MoveToError("error")}
	for i := range 2_000 {
		// An error that pins much, though its text is short.
		f := failureAfter(1, 0, largeError{text: errors.New("short"), ballast: make([]byte, 256<<10)})
		f.Body = make([]byte, 1<<10)
		s.rememberPending(storedCopyOf(fmt.Sprint(i)), &f, &d)
		s.rememberSettled(fmt.Sprint(i))
	}
	if after := inUse(); after > before+8<<20 {
		t.Errorf("%d MiB more than before", (after-before)>>20)
	}
	if s.pending.Len() != 1000 || s.settled.Len() != 1000 || s.pendingCount.Load() != 1000 {
		t.Errorf("%d pending, %d settled", s.pending.Len(), s.settled.Len())
	}
	t.Run("with huge texts too", func(t *testing.T) {
		f := failureAfter(1, 0, errors.New(strings.Repeat("x", 1<<20)))
		s.rememberPending(storedCopyOf("huge"), &f, &d)
		u := s.decisionFor(storedCopyOf("huge"))
		if n := len(u.failure.Err.Error()); n == 0 || n > maxErrorText {
			t.Errorf("keeps %d bytes", n)
		}
	})
}

type largeError struct {
	text    error
	ballast []byte
}

func (p largeError) Error() string { return p.text.Error() }
