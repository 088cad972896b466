package pump

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func (h *harness) countWorkers() int {
	synctest.Wait()
	h.Pump.mu.Lock()
	defer h.Pump.mu.Unlock()
	return len(h.workers)
}

// Where a slot is free while its delivery is being settled, workers are added while all of
// them wait for a settlement, and end when they are not needed any more.
func TestWorkers_GrowWhileSettlementsTakeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{Prefetches: true}, messages(0, 500)...)
		h.handler = func(*Worker[*message, attempt], *message) { time.Sleep(time.Millisecond) }
		h.settlement = func(*Worker[*message, attempt], *message) { time.Sleep(100 * time.Millisecond) }
		h.SetLimit(2)
		if n := h.countWorkers(); n != 4 {
			t.Errorf("it begins with %d workers, want one for each slot and for each settlement", n)
		}
		pass(200 * time.Millisecond)
		if n := h.countWorkers(); n <= 4 {
			t.Errorf("there are %d workers while all wait for settlements", n)
		}
		pass(time.Minute)
		if n := h.countWorkers(); n != 4 {
			t.Errorf("there are %d workers after a minute without work", n)
		}
		h.end()
		if n := h.countWorkers(); n != 0 {
			t.Errorf("there are %d workers after the end", n)
		}
		h.want("handled", &h.handled, numbers(0, 500)...)
		if h.max > 2 {
			t.Errorf("%d handlers ran at a time", h.max)
		}
	})
}

func TestReacquireSlot_TakesTheSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{Prefetches: true}, messages(0, 1)...)
		h.settlement = func(w *Worker[*message, attempt], m *message) {
			if m.number == 0 { // its settlement fails, and something has to be done about it
				w.ReacquireSlot()
			}
			time.Sleep(time.Second)
		}
		h.SetLimit(1)
		pass(time.Millisecond)
		h.source.change(func() { h.source.fetched = messages(1, 2) }) // fetched before, one of them could start before the slot is taken back
		pass(time.Millisecond)
		h.want("started", &h.started, 0)
		if n := h.InFlight(); n != 1 {
			t.Errorf("%d messages are being handled", n)
		}
		pass(time.Second)
		h.want("started when it has ended", &h.started, 0, 1, 2)
		pass(time.Minute)
		h.end()
	})
}

func TestWorker_ThatAHandlerEndedIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{}, messages(0, 4)...)
		h.handler = func(_ *Worker[*message, attempt], m *message) {
			if m.number == 0 {
				h.note(func() { h.running-- })
				h.source.change(func() { h.source.out-- })
				runtime.Goexit()
			}
		}
		h.SetLimit(1)
		h.want("handled", &h.handled, 1, 2, 3)
		h.end()
	})
}

func TestFetchPerWorker_EachFetchesItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{FetchPerWorker: true}, messages(0, 2)...)
		h.handler = func(*Worker[*message, attempt], *message) { time.Sleep(time.Second) }
		h.SetLimit(5)
		synctest.Wait()
		if h.InFlight() != 2 || h.source.waiting != 3 || h.source.maxRequested != 1 {
			t.Errorf("%d are being handled, %d fetches wait, for %d messages each; want 2, 3 and 1", h.InFlight(), h.source.waiting, h.source.maxRequested)
		}
		h.end()
	})
}

// One fetch at a time is enough, unless it brings few messages and could have brought more.
func TestFetch_SideBySideOnlyWhereBatchesAreSmall(t *testing.T) {
	for _, c := range []struct{ max, want int }{{0, 1}, {10, 2}} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, Rules{MaxBatch: c.max}, messages(0, 30)...)
			h.handler = func(*Worker[*message, attempt], *message) { time.Sleep(100 * time.Millisecond) }
			h.SetLimit(50)
			synctest.Wait()
			if h.InFlight() != 30 {
				t.Errorf("%d messages are being handled, want all", h.InFlight())
			}
			if h.source.waiting > c.want {
				t.Errorf("with batches of %d, %d fetches wait, want %d at most", c.max, h.source.waiting, c.want)
			}
			h.end()
		})
	}
}

func TestOnSlow_ReportsAnAttemptOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{SlowAfter: 10 * time.Second}, messages(0, 6)...)
		h.handler = func(_ *Worker[*message, attempt], m *message) { time.Sleep(time.Duration(m.number) * 4 * time.Second) }
		h.SetLimit(6)
		pass(9 * time.Second)
		h.want("slow", &h.slow)
		if age := h.OldestAttempt(); age != 9*time.Second {
			t.Errorf("the oldest attempt runs for %v", age)
		}
		pass(time.Second)
		h.want("slow", &h.slow, 3, 4, 5)
		pass(time.Hour)
		h.want("slow", &h.slow, 3, 4, 5)
		h.end()
	})
}

// Where deliveries are not prefetched, a slot lasts until its delivery is settled.
func TestReleaseSlotEarly_KeepsTheSlotWithoutPrefetch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{}, messages(0, 2)...)
		h.settlement = func(*Worker[*message, attempt], *message) { time.Sleep(time.Second) }
		h.SetLimit(1)
		h.want("started during the first settlement", &h.started, 0)
		pass(time.Second)
		h.want("started after it", &h.started, 0, 1)
		pass(time.Second)
		h.end()
	})
}

func TestAnyAttempt_FindsRunningAttemptsWithoutAllocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{}, messages(0, 3)...)
		h.handler = func(*Worker[*message, attempt], *message) { time.Sleep(time.Minute) }
		h.SetLimit(2)
		synctest.Wait()
		for number, want := range []bool{true, true, false} {
			if got := h.AnyAttempt(func(a *attempt) bool { return a.number == number }); got != want {
				t.Errorf("an attempt at message %d is in progress: %v, want %v", number, got, want)
			}
		}
		none := func(*attempt) bool { return false }
		if n := testing.AllocsPerRun(100, func() { h.AnyAttempt(none) }); n > 0 {
			t.Errorf("%v allocations", n)
		}
		pass(time.Hour)
		if h.AnyAttempt(func(*attempt) bool { return true }) {
			t.Error("an attempt is in progress after the last one has ended")
		}
		h.end()
	})
}

func TestOnSlow_EachAttemptAtItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{SlowAfter: 10 * time.Second}, messages(0, 1)...)
		h.handler = func(*Worker[*message, attempt], *message) { time.Sleep(time.Minute) }
		h.SetLimit(2)
		pass(4 * time.Second)
		h.source.change(func() { h.source.stock = messages(1, 1) })
		pass(7 * time.Second)
		h.want("slow after 11 seconds", &h.slow, 0)
		pass(4 * time.Second)
		h.want("slow after 15 seconds", &h.slow, 0, 1)
		pass(time.Hour)
		h.end()
	})
}
