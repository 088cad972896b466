package pump

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

func (b *bench) countWorkers() int {
	synctest.Wait()
	b.Pump.mu.Lock()
	defer b.Pump.mu.Unlock()
	return len(b.workers)
}

// Where a slot is free while its delivery is being settled, workers are added while all of
// them wait for a settlement, and end when they are not needed any more.
func TestWorkers_GrowWhileSettlementsTakeLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Rules{Prefetches: true}, messages(0, 500)...)
		b.handler = func(*Worker[*message, attempt], *message) { time.Sleep(time.Millisecond) }
		b.settlement = func(*Worker[*message, attempt], *message) { time.Sleep(100 * time.Millisecond) }
		b.SetLimit(2)
		if n := b.countWorkers(); n != 4 {
			t.Errorf("it begins with %d workers, want one for each slot and for each settlement", n)
		}
		pass(200 * time.Millisecond)
		if n := b.countWorkers(); n <= 4 {
			t.Errorf("there are %d workers while all wait for settlements", n)
		}
		pass(time.Minute)
		if n := b.countWorkers(); n != 4 {
			t.Errorf("there are %d workers after a minute without work", n)
		}
		b.end()
		if n := b.countWorkers(); n != 0 {
			t.Errorf("there are %d workers after the end", n)
		}
		b.want("handled", &b.handled, numbers(0, 500)...)
		if b.most > 2 {
			t.Errorf("%d handlers ran at a time", b.most)
		}
	})
}

func TestReacquireSlot_TakesTheSlotBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Rules{Prefetches: true}, messages(0, 3)...)
		b.settlement = func(w *Worker[*message, attempt], m *message) {
			if m.number == 0 { // its settlement fails, and something has to be done about it
				w.ReacquireSlot()
			}
			time.Sleep(time.Second)
		}
		b.SetLimit(1)
		b.want("started", &b.started, 0)
		if n := b.InFlight(); n != 1 {
			t.Errorf("%d messages are being handled", n)
		}
		pass(time.Second)
		b.want("started when it has ended", &b.started, 0, 1, 2)
		pass(time.Minute)
		b.end()
	})
}

func TestWorker_ThatAHandlerEndedIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Rules{}, messages(0, 4)...)
		b.handler = func(_ *Worker[*message, attempt], m *message) {
			if m.number == 0 {
				b.note(func() { b.running-- })
				b.shelf.change(func() { b.shelf.out-- })
				runtime.Goexit()
			}
		}
		b.SetLimit(1)
		b.want("handled", &b.handled, 1, 2, 3)
		b.end()
	})
}

func TestFetchPerWorker_EachFetchesItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Rules{FetchPerWorker: true}, messages(0, 2)...)
		b.handler = func(*Worker[*message, attempt], *message) { time.Sleep(time.Second) }
		b.SetLimit(5)
		synctest.Wait()
		if b.InFlight() != 2 || b.shelf.waiting != 3 || b.shelf.mostAsked != 1 {
			t.Errorf("%d are being handled, %d fetches wait, for %d messages each; want 2, 3 and 1", b.InFlight(), b.shelf.waiting, b.shelf.mostAsked)
		}
		b.end()
	})
}

// One fetch at a time is enough, unless it brings few messages and could have brought more.
func TestFetch_SideBySideOnlyWhereBatchesAreSmall(t *testing.T) {
	for _, c := range []struct{ most, want int }{{0, 1}, {10, 2}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, Rules{MaxBatch: c.most}, messages(0, 30)...)
			b.handler = func(*Worker[*message, attempt], *message) { time.Sleep(100 * time.Millisecond) }
			b.SetLimit(50)
			synctest.Wait()
			if b.InFlight() != 30 {
				t.Errorf("%d messages are being handled, want all", b.InFlight())
			}
			if b.shelf.waiting > c.want {
				t.Errorf("with batches of %d, %d fetches wait, want %d at most", c.most, b.shelf.waiting, c.want)
			}
			b.end()
		})
	}
}

func TestOnSlow_ReportsAnAttemptOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Rules{SlowAfter: 10 * time.Second}, messages(0, 6)...)
		b.handler = func(_ *Worker[*message, attempt], m *message) { time.Sleep(time.Duration(m.number) * 4 * time.Second) }
		b.SetLimit(6)
		pass(9 * time.Second)
		b.want("slow", &b.slow)
		if age := b.OldestAttempt(); age != 9*time.Second {
			t.Errorf("the oldest attempt runs for %v", age)
		}
		pass(time.Second)
		b.want("slow", &b.slow, 3, 4, 5)
		pass(time.Hour)
		b.want("slow", &b.slow, 3, 4, 5)
		b.end()
	})
}
