package pump

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// suspects returns messages that were delivered several times.
func suspects(first int, deliveries ...int) (all []*message) {
	for i, n := range deliveries {
		all = append(all, &message{first + i, n})
	}
	return all
}

func TestSuspects_AreAttemptedAloneAndTheRarestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := slices.Concat(messages(0, 1), suspects(10, 5, 3, 4), messages(20, 4))
		h := newHarness(t, Rules{Isolates: true, CountsReleases: true, Prefetches: true}, all...)
		beside := map[int]int{} // running handlers by suspect
		h.handler = func(w *Worker[*message, attempt], m *message) {
			if w.IsIsolated() != (m.deliveries > 1) {
				t.Errorf("message %d is isolated: %v", m.number, w.IsIsolated())
			}
			h.note(func() { beside[m.number] = h.running })
			time.Sleep(time.Second)
			h.note(func() { beside[m.number] = max(beside[m.number], h.running) })
		}
		h.SetLimit(4)
		pass(time.Minute)
		h.end()
		h.want("handled", &h.handled, 0, 10, 11, 12, 20, 21, 22, 23)
		alone := slices.DeleteFunc(h.copy(&h.started), func(number int) bool { return number < 10 || number >= 20 })
		if !slices.Equal(alone, []int{11, 12, 10}) {
			t.Errorf("suspects were attempted in the order %v", alone)
		}
		for _, number := range alone {
			if beside[number] != 1 {
				t.Errorf("%d handlers ran beside suspect %d", beside[number]-1, number)
			}
		}
		if !slices.Equal(h.isolating, []bool{true, false}) {
			t.Errorf("isolation was reported as %v", h.isolating)
		}
		if h.max < 2 {
			t.Error("messages were attempted one at a time to the end")
		}
	})
}

// After a start it is not known which message killed the process before.
func TestSuspects_AStartBeginsWithOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{Isolates: true}, messages(0, 5)...)
		h.handler = func(*Worker[*message, attempt], *message) { time.Sleep(time.Second) }
		h.SetLimit(5)
		if synctest.Wait(); h.source.limits[0] != 1 {
			t.Errorf("the first limit is %d", h.source.limits[0])
		}
		pass(time.Minute)
		h.want("handled", &h.handled, numbers(0, 5)...)
		if h.source.newest() != 5 || len(h.isolating) != 0 || h.IsIsolating() {
			t.Errorf("the receiver may hold %d, isolation was reported as %v", h.source.newest(), h.isolating)
		}
		h.end()
	})
}

// A handler that hangs must not hold up the suspects, nor one of these the other messages.
func TestSuspects_NothingWaitsForALongHandlerForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{Isolates: true}, slices.Concat(messages(0, 2), suspects(10, 3), messages(20, 4))...)
		h.handler = func(_ *Worker[*message, attempt], m *message) {
			if m.number == 1 || m.number == 10 {
				time.Sleep(time.Hour)
			}
		}
		h.SetLimit(4)
		pass(isolationTimeout - time.Second)
		if before := h.copy(&h.started); slices.Contains(before, 10) || len(before) == 7 {
			t.Errorf("%v were started; want neither the suspect nor all of those behind it", before)
		}
		pass(2 * time.Second)
		if then := h.copy(&h.started); then[len(then)-1] != 10 || len(then) == 7 {
			t.Errorf("%v were started; want the suspect after the time for running handlers, and nothing behind it", then)
		}
		pass(isolationTimeout)
		h.want("started after the time for the suspect", &h.started, 0, 1, 10, 20, 21, 22, 23)
		pass(2 * time.Hour)
		h.end()
	})
}

func TestSuspects_WaitingOnesAreReleasedAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{Isolates: true, CountsReleases: true, Prefetches: true}, slices.Concat(messages(0, 1), suspects(10, 3, 3, 3))...)
		h.handler = func(_ *Worker[*message, attempt], m *message) { time.Sleep(time.Minute) }
		h.SetLimit(4)
		pass(90 * time.Second)
		h.Stop()
		h.stop()
		h.Wait()
		synctest.Wait()
		if h.source.out != 0 {
			t.Errorf("%d messages are neither handled nor given back", h.source.out)
		}
		if started, handled := h.count(&h.started), h.count(&h.handled); started != handled {
			t.Errorf("%d messages were started, and %d handled", started, handled)
		}
	})
}

// Other instances may attempt suspects that cannot be attempted here for now.
func TestSuspects_PauseReleasesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{Isolates: true}, slices.Concat(messages(0, 2), suspects(10, 3, 4, 5))...)
		h.handler = func(_ *Worker[*message, attempt], m *message) {
			if m.number == 1 {
				time.Sleep(time.Minute)
			}
		}
		h.SetLimit(5)
		h.want("released while a handler runs", &h.released, 11, 12)
		h.SetPaused(true)
		h.want("released in the pause", &h.released, 10, 11, 12)
		pass(time.Minute)
		h.SetPaused(false)
		pass(time.Minute)
		h.end()
		h.want("handled", &h.handled, 0, 1)
	})
}

// A receiver that cannot release without a count may have more suspects.
func TestSuspects_LaterOnesAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{Isolates: true, CountsReleases: true, Prefetches: true}, slices.Concat(messages(0, 2), suspects(10, 4))...)
		h.handler = func(*Worker[*message, attempt], *message) { time.Sleep(10 * time.Second) }
		h.SetLimit(4)
		pass(5 * time.Second) // the suspect waits for the running handlers
		h.source.change(func() { h.source.fetched = suspects(20, 5, 3) })
		pass(2 * time.Minute)
		h.end()
		got := h.copy(&h.started)
		slices.Sort(got[:min(2, len(got))]) // they start at the same time
		if !slices.Equal(got, []int{0, 1, 21, 10, 20}) {
			t.Errorf("the order was %v, want those with the fewest deliveries first", got)
		}
	})
}
