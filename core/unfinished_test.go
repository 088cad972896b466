package core

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/internal/backlog"
	"github.com/reprise-go/reprise/core/internal/unreachable"
	"github.com/reprise-go/reprise/internal/leaks"
)

// Rule R28.
func TestSettlement_SettledMessagesAreRemembered(t *testing.T) {
	s := emptyUnfinished()
	if s.wasSettled("n1") {
		t.Error("remembers a message that was never delivered")
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
		s := emptyUnfinished()
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

// emptyUnfinished is the memory of an endpoint in a Run.
func emptyUnfinished() *unfinished {
	u := newUnfinished()
	u.begin(backlog.Max, backlog.Pump{}, nil)
	return u
}

// workFor is the work for a decision about a delivery.
func workFor(in *Incoming, f failure, d decision) *work {
	return &work{attempt: &attempt{delivery: &adjustedDelivery{in: in}}, failure: &f, decision: d}
}

// storedCopyOf is a stored copy of a message.
func storedCopyOf(nativeID string) *Incoming {
	return &Incoming{ID: "id of " + nativeID, NativeID: nativeID, DeliveryCount: 2}
}

func TestRemembered(t *testing.T) {
	s := emptyUnfinished()
	if s.take(storedCopyOf("n1")) != nil {
		t.Error("remembers a message that was never delivered")
	}
	f := failureAfter(3, 1, errFailed)
	f.body, f.headers = make([]byte, 100), HeadersFromMap(map[string]string{"k": "v"})
	d := decision{action: MoveToError("error")}
	w := workFor(storedCopyOf("n1"), f, d)
	w.walk.Tries = 3
	s.remember(w)
	u := s.take(storedCopyOf("n1"))
	if u == nil || u.walk.Tries != 3 || u.decision.action != d.action || u.failure.ImmediateProcessingFailures != 3 || u.failure.DelayedDeliveriesPerformed != 1 {
		t.Fatalf("%+v", u)
	}
	if u.failure.body != nil || u.failure.headers.Len() != 0 {
		t.Error("keeps the message, which the redelivery brings again")
	}
	t.Run("describe the error as before", func(t *testing.T) {
		f := failureAfter(1, 0, fmt.Errorf("save: %w", codeError{7}))
		s.remember(workFor(storedCopyOf("n2"), f, d))
		u := s.take(storedCopyOf("n2"))
		kept := f
		kept.Err = u.failure.Err
		first, later := copyForError(&f, &d, testHost, Capabilities{}), copyForError(&kept, &d, testHost, Capabilities{})
		if first.Get(headers.ExceptionStackTrace) != later.Get(headers.ExceptionStackTrace) || first.Get(headers.ExceptionType) != later.Get(headers.ExceptionType) {
			t.Errorf("%v\n%v", first.Map(), later.Map())
		}
		if kept.Err.Error() != f.Err.Error() {
			t.Errorf("%q", kept.Err)
		}
	})
	t.Run("are copied", func(t *testing.T) {
		one := s.take(storedCopyOf("n1"))
		one.walk.Tries, one.failure.messageID = 99, "changed"
		if two := s.take(storedCopyOf("n1")); two.walk.Tries != 3 || two.failure.messageID == "changed" {
			t.Errorf("%+v", two)
		}
	})
	t.Run("are forgotten when asked", func(t *testing.T) {
		s.forget(storedCopyOf("n1"))
		s.forget(storedCopyOf("never was"))
		if s.take(storedCopyOf("n1")) != nil || s.take(storedCopyOf("n2")) == nil {
			t.Error("the wrong one is forgotten")
		}
		s.forget(storedCopyOf("n2"))
		if s.count.Load() != 0 {
			t.Errorf("%d wait", s.count.Load())
		}
	})
	t.Run("keep no native message, and get that of the redelivery", func(t *testing.T) {
		first, second := storedCopyOf("n4"), storedCopyOf("n4")
		first.Native, second.Native = new("first"), new("second")
		forwarded := first.forwarded()
		w := workFor(first, f, d)
		w.failure.setMessage(first)
		w.hookSends, w.committed = []Outgoing{forwarded, {ID: "other"}}, &committedSends{messages: []Outgoing{forwarded}}
		s.remember(w)
		kept, _ := s.remembered.Get(nativeKey(first.NativeID))
		if kept.failure.native != nil || kept.hookSends[0].Native != nil || kept.committed.messages[0].Native != nil {
			t.Errorf("%+v", kept)
		}
		if forwarded.Native != first.Native || w.hookSends[0].Native != first.Native {
			t.Error("the work that is carried out has lost it")
		}
		u := s.take(second)
		if u.failure.native != second.Native || u.hookSends[0].Native != second.Native || u.committed.messages[0].Native != second.Native || u.hookSends[1].Native != nil {
			t.Errorf("%+v", u)
		}
		s.forget(second)
	})
	t.Run("with more sends than are worth remembering are not remembered", func(t *testing.T) {
		large := workFor(storedCopyOf("n3"), f, d)
		large.hookSends = []Outgoing{{Body: make([]byte, maxRememberedBytes+1)}}
		s.remember(workFor(storedCopyOf("n3"), f, d))
		s.remember(large)
		if s.take(storedCopyOf("n3")) != nil {
			t.Error("they are")
		}
	})
	t.Run("expire ten minutes after the last try", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := emptyUnfinished()
			s.remember(workFor(storedCopyOf("n0"), f, d))
			s.remember(workFor(storedCopyOf("n1"), f, d))
			for range 30 {
				time.Sleep(unreachable.MaxPause)
				s.remember(workFor(storedCopyOf("n0"), f, d))
			}
			if n := s.undelivered(); n != 1 {
				t.Errorf("%d wait, want the one that was tried", n)
			}
			time.Sleep(pendingExpiry)
			if n := s.undelivered(); n != 0 || s.count.Load() != 0 {
				t.Errorf("%d wait, want none", n)
			}
		})
	})
}

// Without a NativeID nothing tells one message from another: none is taken for another one.
func TestRemembered_WithoutNativeID(t *testing.T) {
	f, d := failureAfter(1, 0, errFailed), decision{action: MoveToError("error")}
	nameless := &Incoming{ID: "7", DeliveryCount: 2, Redelivered: true}
	s := emptyUnfinished()
	s.remember(workFor(nameless, f, d))
	s.rememberSettled("")
	if s.take(nameless) != nil || s.wasSettled("") {
		t.Error("a message without a NativeID is remembered")
	}
}

func TestUnfinished_IsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("2,000 errors of 256 KiB: not in short runs")
	}
	s := emptyUnfinished()
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
		f.body = make([]byte, 1<<10)
		s.remember(workFor(storedCopyOf(fmt.Sprint(i)), f, d))
		s.rememberSettled(fmt.Sprint(i))
	}
	if after := inUse(); after > before+8<<20 {
		t.Errorf("%d MiB more than before", (after-before)>>20)
	}
	if s.remembered.Len() != 1000 || s.settled.Len() != 1000 || s.count.Load() != 1000 {
		t.Errorf("%d pending, %d settled", s.remembered.Len(), s.settled.Len())
	}
	t.Run("with huge texts too", func(t *testing.T) {
		f := failureAfter(1, 0, errors.New(strings.Repeat("x", 1<<20)))
		s.remember(workFor(storedCopyOf("huge"), f, d))
		u := s.take(storedCopyOf("huge"))
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

// Ids have the size that their sender chooses.
func TestUnfinished_LongIDsAreBounded(t *testing.T) {
	long := func(i int) string { return strings.Repeat("x", 128<<10) + fmt.Sprint(i) }
	u := emptyUnfinished()
	survivors := newSuspects(isolationRules{threshold: 1}, 0, u)
	rounds := newGroupRounds(nil, nil)
	const n = 300
	growth := leaks.HeapGrowth(func() {
		for i := range n {
			u.rememberSettled(long(i))
			rounds.remember(long(i), earlierRounds{deliveries: 1})
			survivors.recordSurvived(&Incoming{NativeID: long(i), DeliveryCount: 1})
			d := decision{action: MoveToError("error")}
			u.remember(workFor(storedCopyOf(long(i)), failureAfter(1, 0, errors.New("failed")), d))
			foreign := storedCopyOf("")
			foreign.ID = long(i)
			u.remember(workFor(foreign, failureAfter(1, 0, errors.New("failed")), d))
		}
	})
	if growth > 8<<20 {
		t.Errorf("%d ids keep %d MiB", n, growth>>20)
	}
	for i := range n {
		if !u.wasSettled(long(i)) || rounds.recall(long(i)).deliveries != 1 || !survivors.wasSurvived(&Incoming{NativeID: long(i), DeliveryCount: 2}) {
			t.Fatalf("message %d is forgotten", i)
		}
		if u.take(storedCopyOf(long(i))) == nil {
			t.Fatalf("the decision about message %d is forgotten", i)
		}
	}
	if u.wasSettled(long(n)) {
		t.Error("another message is known")
	}
}

// A decision has the id and the type of its message, which are parts of its headers.
func TestUnfinished_LongHeadersAreNotKept(t *testing.T) {
	u := emptyUnfinished()
	const n = 300
	growth := leaks.HeapGrowth(func() {
		for i := range n {
			header := fmt.Sprint(1000+i, strings.Repeat("x", 128<<10))
			for kind, name := range map[string]string{"long": header, "part": header[:4]} {
				for _, isType := range []bool{true, false} {
					f := failureAfter(1, 0, errFailed)
					f.messageID = "short"
					if isType {
						f.messageType = name
					} else {
						f.messageID = name
					}
					u.remember(workFor(storedCopyOf(fmt.Sprint(kind, isType, i)), f, decision{action: MoveToError("error")}))
				}
			}
		}
	})
	if growth > 8<<20 {
		t.Errorf("%d decisions keep %d MiB", u.remembered.Len(), growth>>20)
	}
	if got := u.take(storedCopyOf(fmt.Sprint("part", true, n-1))); got == nil || got.failure.messageType != "1299" {
		t.Error("a decision about a message with a short type is forgotten")
	}
	runtime.KeepAlive(u)
}
