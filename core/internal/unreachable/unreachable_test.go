package unreachable

import (
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/internal/leaks"
)

var errDown = errors.New("down")

// isBlocked makes a try, which ends at once, if the queue is not blocked.
func isBlocked(q *Queues, queue string) bool {
	ended, err := q.Blocked(queue)
	if err == nil {
		ended()
	}
	return err != nil
}

// fail records a try that begins now and fails at once.
func fail(q *Queues, queue string) (isNew bool, since time.Time) {
	return q.RecordFailure(queue, errDown, time.Now())
}

func TestBlocked_OneProbeAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New()
		if isBlocked(q, "error") {
			t.Fatal("a queue without an outage is blocked")
		}
		fail(q, "error")
		if _, err := q.Blocked("error"); !errors.Is(err, errDown) || err.Error() != errDown.Error() {
			t.Errorf("right after the failure: %v, want its error", err)
		} else if _, ok := errors.AsType[*BlockedError](err); !ok {
			t.Errorf("the error is a %T", err)
		}
		if isBlocked(q, "audit") {
			t.Error("another queue is blocked")
		}
		time.Sleep(time.Second)
		ended, err := q.Blocked("error")
		if err != nil {
			t.Fatalf("no probe is allowed after a second: %v", err)
		}
		time.Sleep(time.Hour)
		if !isBlocked(q, "error") {
			t.Error("a second message is tried while the probe has not ended")
		}
		ended()
		if isBlocked(q, "error") {
			t.Error("no probe is allowed long after the one before")
		}
	})
}

func TestRecordFailure_PausesGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New()
		for _, seconds := range []int{1, 2, 4, 8, 16, 30, 30} {
			fail(q, "error")
			began := time.Now()
			for isBlocked(q, "error") {
				time.Sleep(time.Second)
			}
			if got := time.Since(began); got != time.Duration(seconds)*time.Second {
				t.Fatalf("the next probe is allowed after %v, want %d s", got, seconds)
			}
		}
	})
}

func TestRecordFailure_ReportsAnOutageOnceForEachProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New()
		before := time.Now()
		time.Sleep(time.Second)
		first := time.Now()
		if isNew, since := fail(q, "error"); !isNew || !since.Equal(first) {
			t.Errorf("the first failure: new %t, since %v", isNew, since)
		}
		if isNew, since := q.RecordFailure("error", errDown, before); isNew || !since.Equal(first) {
			t.Errorf("a failure of a send that began before the outage: new %t, since %v", isNew, since)
		}
		time.Sleep(time.Second)
		if isNew, since := fail(q, "error"); !isNew || !since.Equal(first) {
			t.Errorf("a failed probe: new %t, since %v, want the beginning of the outage", isNew, since)
		}
	})
}

func TestRecordReached_EndsTheOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New()
		if _, was := q.RecordReached("error"); was {
			t.Error("a queue was unreachable without a failure")
		}
		began := time.Now()
		fail(q, "error")
		if _, was := q.RecordReached("audit"); was {
			t.Error("another queue was unreachable")
		}
		time.Sleep(time.Minute)
		if since, was := q.RecordReached("error"); !was || !since.Equal(began) {
			t.Errorf("unreachable %t since %v, want since %v", was, since, began)
		}
		if isBlocked(q, "error") || !q.OldestOutage().IsZero() {
			t.Error("the outage has not ended")
		}
	})
}

func TestAllowProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New()
		fail(q, "error")
		q.AllowProbes()
		if isBlocked(q, "error") {
			t.Error("the next message is no probe")
		}
		if !isBlocked(q, "error") {
			t.Error("the message after the probe is not blocked")
		}
	})
}

func TestOldestOutage_IgnoresOutagesWithoutARecentProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New()
		fail(q, "first")
		first := time.Now()
		time.Sleep(time.Minute)
		fail(q, "second")
		second := time.Now()
		if got := q.OldestOutage(); !got.Equal(first) {
			t.Errorf("oldest is of %v, want of %v", got, first)
		}
		time.Sleep(MaxStoredDelay - 30*time.Second)
		if got := q.OldestOutage(); !got.Equal(second) {
			t.Errorf("oldest is of %v, want of %v: the first may have ended", got, second)
		}
		if _, err := q.Blocked("first"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := q.OldestOutage(); !got.Equal(first) {
			t.Errorf("oldest is of %v, want of %v, whose probe has not ended", got, first)
		}
	})
}

func TestStoredDelay_GrowsWithTriesAndStoredMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New()
		for tries, want := range map[int]time.Duration{1: time.Second, 2: 2 * time.Second, 5: 16 * time.Second, 6: 30 * time.Second, 1000: 30 * time.Second} {
			if got := q.StoredDelay(tries); got != want {
				t.Errorf("%v after %d tries, want %v", got, tries, want)
			}
		}
		stored := 0
		for _, test := range []struct {
			stored int
			want   time.Duration
		}{
			{3000, 30 * time.Second}, // 100 a second
			{6000, time.Minute},
			{maxStoredMessages, MaxStoredDelay},
		} {
			for ; stored < test.stored; stored++ {
				q.AddStored(fmt.Sprint(stored), time.Now().Add(time.Hour))
			}
			if got := q.StoredDelay(1000); got != test.want {
				t.Errorf("%v with %d stored messages, want %v", got, test.stored, test.want)
			}
		}
	})
}

func TestStoredMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New()
		count := func(want int, when string) {
			t.Helper()
			if got := q.StoredMessages(); got != want {
				t.Errorf("%d stored messages %s, want %d", got, when, want)
			}
		}
		q.AddStored("a", time.Now())
		q.AddStored("b", time.Now())
		q.AddStored("b", time.Now().Add(time.Hour))
		q.AddStored("c", time.Now())
		q.RemoveStored("c")
		q.RemoveStored("unknown")
		count(2, "after one was delivered")
		time.Sleep(MaxStoredDelay)
		count(2, "when another instance may not have received one yet")
		time.Sleep(time.Second)
		count(1, "when another instance has received one")
	})
}

func TestAddStored_IsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := New()
		for i := range maxStoredMessages + 10 {
			q.AddStored(fmt.Sprint(i), time.Now())
		}
		if got := len(q.stored); got != maxStoredMessages {
			t.Fatalf("%d messages are remembered, want %d", got, maxStoredMessages)
		}
		q.AddStored("0", time.Now().Add(time.Hour))
		time.Sleep(MaxStoredDelay + time.Second)
		q.AddStored("new", time.Now())
		if _, ok := q.stored[maphash.String(q.seed, "new")]; !ok || len(q.stored) != 2 {
			t.Errorf("%d messages are remembered, the new one %t; want that one and the one that was stored again", len(q.stored), ok)
		}
	})
}

// Ids have the size that their sender chooses.
func TestAddStored_KeepsNoIDs(t *testing.T) {
	q := New()
	long := func(i int) string { return strings.Repeat("x", 128<<10) + fmt.Sprint(i) }
	const n = 300
	growth := leaks.HeapGrowth(func() {
		for i := range n {
			q.AddStored(long(i), time.Now())
		}
	})
	if growth > 8<<20 || q.StoredMessages() != n {
		t.Errorf("%d stored messages keep %d MiB", q.StoredMessages(), growth>>20)
	}
	q.RemoveStored(long(1))
	if q.StoredMessages() != n-1 {
		t.Errorf("%d stored messages after one was removed", q.StoredMessages())
	}
}
