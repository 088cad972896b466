package core

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// remembered says which of so many messages have a decision that waits.
func remembered(m *memory, messages int) (ids []string) {
	for i := range messages {
		if _, ok := m.pendingDecision(fmt.Sprint("n", i)); ok {
			ids = append(ids, fmt.Sprint("n", i))
		}
	}
	return ids
}

func TestR25DecisionsAboutMessagesThatDoNotComeAgainExpire(t *testing.T) {
	d := decision{action: MoveToError("error")}
	f := failedTimes(1, 0, errFailed)
	t.Run("after long, and no sooner", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			m.rememberPending("n0", &f, &d)
			time.Sleep(5 * time.Minute)
			if n := m.undelivered(); n != 1 {
				t.Errorf("%d after 5 minutes, want 1", n)
			}
			time.Sleep(time.Minute)
			if n := m.undelivered(); n != 0 || m.waiting.Load() != 0 {
				t.Errorf("%d after 6 minutes, %d wait; want none", n, m.waiting.Load())
			}
		})
	})
	t.Run("and count their tries from 1 again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			m.rememberPending("n0", &f, &d)
			m.rememberPending("n1", &f, &d)
			time.Sleep(time.Hour)
			if ids := remembered(m, 2); ids != nil {
				t.Fatalf("remembers %v", ids)
			}
			if tries := m.rememberPending("n0", &f, &d); tries != 1 {
				t.Errorf("try %d", tries)
			}
			if n := m.undelivered(); n != 1 {
				t.Errorf("%d wait, want 1", n)
			}
		})
	})
	t.Run("but not those that are tried meanwhile", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory()
			m.rememberPending("n0", &f, &d)
			m.rememberPending("n1", &f, &d)
			for range 100 {
				time.Sleep(longestUndeliveredHold)
				if _, ok := m.pendingDecision("n0"); !ok {
					t.Fatal("the one that comes again is forgotten")
				}
				m.rememberPending("n0", &f, &d)
			}
			if ids := remembered(m, 2); fmt.Sprint(ids) != "[n0]" {
				t.Errorf("remembers %v", ids)
			}
		})
	})
}

// With one slot and pauses of up to 30 s, a message comes again only when all
// others have been held.
func TestR25ManyUndeliveredMessagesAreNotForgottenForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const messages = 200
		m, d := newMemory(), decision{action: MoveToError("error")}
		f := failedTimes(1, 0, errFailed)
		for range 5 {
			for i := range messages {
				id := fmt.Sprint("n", i)
				m.pendingDecision(id)
				m.rememberPending(id, &f, &d)
				time.Sleep(longestUndeliveredHold)
			}
		}
		if n := len(remembered(m, messages)); n != messages || m.undelivered() != messages {
			t.Errorf("%d of %d are remembered, and %d counted", n, messages, m.undelivered())
		}
		if tries := m.rememberPending("n7", &f, &d); tries != 6 {
			t.Errorf("try %d, want 6", tries)
		}
		time.Sleep(24 * time.Hour)
		if n := m.undelivered(); n != 0 {
			t.Errorf("%d wait after a day in which none came again", n)
		}
	})
}
