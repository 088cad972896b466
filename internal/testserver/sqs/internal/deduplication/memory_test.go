package deduplication

import (
	"testing"
	"time"

	"github.com/reprise-go/reprise/internal/testserver/sqs/internal/clock"
)

func TestMemory_ForgetsAfterFiveMinutes(t *testing.T) {
	t.Parallel()
	m, now := New(), clock.Instant(time.Hour)
	m.Add("a", Sent{ID: "1", At: now})
	m.Add("b", Sent{ID: "2", At: now.Add(time.Minute)})
	if s, ok := m.Find("a", now.Add(Interval-1)); !ok || s.ID != "1" {
		t.Errorf("a: %v, %t", s, ok)
	}
	if _, ok := m.Find("a", now.Add(Interval)); ok {
		t.Error("a is remembered for too long")
	}
	m.Add("a", Sent{ID: "3", At: now.Add(Interval)})
	if s, ok := m.Find("a", now.Add(Interval+2*time.Minute)); !ok || s.ID != "3" {
		t.Errorf("a, sent again: %v, %t", s, ok)
	}
	if len(m.sent) != 1 || len(m.order) != 1 {
		t.Errorf("%d and %d are kept, want 1", len(m.sent), len(m.order))
	}
}
