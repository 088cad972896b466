package core

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

func TestR28SettledMemory(t *testing.T) {
	m := newMemory()
	if m.wasSettled("n1") {
		t.Error("remembers what never was")
	}
	m.rememberSettled("n1")
	m.rememberSettled("n1")
	if !m.wasSettled("n1") || m.wasSettled("n2") {
		t.Error("does not remember")
	}
	t.Run("a message without a native id is not remembered", func(t *testing.T) {
		m.rememberSettled("")
		if m.wasSettled("") {
			t.Error("it is, and so are all of them")
		}
	})
	t.Run("holds 1,000, the most recently used", func(t *testing.T) {
		m := newMemory()
		for i := range 1000 {
			m.rememberSettled(fmt.Sprint(i))
		}
		_ = m.wasSettled("0")
		m.rememberSettled("one more")
		if !m.wasSettled("0") || m.wasSettled("1") || !m.wasSettled("2") || m.settled.Len() != 1000 {
			t.Errorf("%d entries", m.settled.Len())
		}
	})
}

func TestR25PendingDecisions(t *testing.T) {
	m := newMemory()
	if _, ok := m.pendingDecision("n1"); ok {
		t.Error("remembers what never was")
	}
	f := failedTimes(3, 1, errFailed)
	f.Body, f.Headers = make([]byte, 100), HeadersFromMap(map[string]string{"k": "v"})
	d := decision{action: MoveToError("error")}
	for want := 1; want <= 3; want++ {
		if tries := m.rememberPending("n1", &f, &d); tries != want {
			t.Errorf("try %d, want %d", tries, want)
		}
	}
	u, ok := m.pendingDecision("n1")
	if !ok || u.decision.action != d.action || u.failure.ImmediateProcessingFailures != 3 || u.failure.DelayedDeliveriesPerformed != 1 {
		t.Fatalf("%+v", u)
	}
	if u.failure.Body != nil || u.failure.Headers.Len() != 0 {
		t.Error("keeps the message, which the redelivery brings again")
	}
	t.Run("describes the error as before", func(t *testing.T) {
		f := failedTimes(1, 0, fmt.Errorf("save: %w", codeError{7}))
		m.rememberPending("n2", &f, &d)
		u, _ := m.pendingDecision("n2")
		kept := f
		kept.Err = u.failure.Err
		first, later := copyForError(&f, d.action, signature, Capabilities{}), copyForError(&kept, d.action, signature, Capabilities{})
		if first.Get(HeaderExceptionStackTrace) != later.Get(HeaderExceptionStackTrace) || first.Get(HeaderExceptionType) != later.Get(HeaderExceptionType) {
			t.Errorf("%v\n%v", first.Map(), later.Map())
		}
		if kept.Err.Error() != f.Err.Error() {
			t.Errorf("%q", kept.Err)
		}
	})
	t.Run("is copied", func(t *testing.T) {
		one, _ := m.pendingDecision("n1")
		one.decision.action, one.tries = ImmediateRetry(), 99
		if two, _ := m.pendingDecision("n1"); two.decision.action != d.action || two.tries != 3 {
			t.Errorf("%+v", two)
		}
	})
	t.Run("is forgotten when asked", func(t *testing.T) {
		m.forgetPending("n1")
		m.forgetPending("never was")
		_, first := m.pendingDecision("n1")
		if _, second := m.pendingDecision("n2"); first || !second {
			t.Error("the wrong one is forgotten")
		}
		m.forgetPending("n2")
		if m.waiting.Load() != 0 {
			t.Errorf("%d wait", m.waiting.Load())
		}
	})
	t.Run("without a native id every try is the first", func(t *testing.T) {
		for range 2 {
			if tries := m.rememberPending("", &f, &d); tries != 1 {
				t.Errorf("try %d", tries)
			}
		}
		if _, ok := m.pendingDecision(""); ok {
			t.Error("is remembered")
		}
	})
}

func TestMemoryIsFlat(t *testing.T) {
	m := newMemory()
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
		f := failedTimes(1, 0, pinning{text: errors.New("short"), ballast: make([]byte, 256<<10)})
		f.Body = make([]byte, 1<<10)
		m.rememberPending(fmt.Sprint(i), &f, &d)
		m.rememberSettled(fmt.Sprint(i))
	}
	if after := inUse(); after > before+8<<20 {
		t.Errorf("%d MiB more than before", (after-before)>>20)
	}
	if m.pending.Len() != 1000 || m.settled.Len() != 1000 || m.waiting.Load() != 1000 {
		t.Errorf("%d pending, %d settled", m.pending.Len(), m.settled.Len())
	}
	t.Run("with huge texts too", func(t *testing.T) {
		f := failedTimes(1, 0, errors.New(strings.Repeat("x", 1<<20)))
		m.rememberPending("huge", &f, &d)
		u, _ := m.pendingDecision("huge")
		if n := len(u.failure.Err.Error()); n == 0 || n > maxErrorText {
			t.Errorf("keeps %d bytes", n)
		}
	})
}

type pinning struct {
	text    error
	ballast []byte
}

func (p pinning) Error() string { return p.text.Error() }
