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
		b := newBench(t, Rules{Isolates: true, ExactLimit: true, CountsReleases: true, Prefetches: true}, all...)
		beside := map[int]int{} // running handlers by suspect
		b.handler = func(w *Worker[*message, attempt], m *message) {
			if w.IsIsolated() != (m.deliveries > 1) {
				t.Errorf("message %d is isolated: %v", m.number, w.IsIsolated())
			}
			b.note(func() { beside[m.number] = b.running })
			time.Sleep(time.Second)
			b.note(func() { beside[m.number] = max(beside[m.number], b.running) })
		}
		b.SetLimit(4)
		pass(time.Minute)
		b.end()
		b.want("handled", &b.handled, 0, 10, 11, 12, 20, 21, 22, 23)
		alone := slices.DeleteFunc(b.copy(&b.started), func(number int) bool { return number < 10 || number >= 20 })
		if !slices.Equal(alone, []int{11, 12, 10}) {
			t.Errorf("suspects were attempted in the order %v", alone)
		}
		for _, number := range alone {
			if beside[number] != 1 {
				t.Errorf("%d handlers ran beside suspect %d", beside[number]-1, number)
			}
		}
		if !slices.Equal(b.isolating, []bool{true, false}) {
			t.Errorf("isolation was reported as %v", b.isolating)
		}
		if b.most < 2 {
			t.Error("messages were attempted one at a time to the end")
		}
	})
}

// After a start it is not known which message killed the process before.
func TestSuspects_AStartBeginsWithOneMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Rules{Isolates: true, ExactLimit: true}, messages(0, 5)...)
		b.handler = func(*Worker[*message, attempt], *message) { time.Sleep(time.Second) }
		b.SetLimit(5)
		if synctest.Wait(); b.shelf.limits[0] != 1 {
			t.Errorf("the first limit is %d", b.shelf.limits[0])
		}
		pass(time.Minute)
		b.want("handled", &b.handled, numbers(0, 5)...)
		if b.shelf.newest() != 5 || len(b.isolating) != 0 || b.IsIsolating() {
			t.Errorf("the receiver may hold %d, isolation was reported as %v", b.shelf.newest(), b.isolating)
		}
		b.end()
	})
}

// A handler that hangs must not hold up the suspects, nor one of these the other messages.
func TestSuspects_NothingWaitsForALongHandlerForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Rules{Isolates: true, ExactLimit: true}, slices.Concat(messages(0, 2), suspects(10, 3), messages(20, 4))...)
		b.handler = func(_ *Worker[*message, attempt], m *message) {
			if m.number == 1 || m.number == 10 {
				time.Sleep(time.Hour)
			}
		}
		b.SetLimit(4)
		pass(isolationTimeout - time.Second)
		if before := b.copy(&b.started); slices.Contains(before, 10) || len(before) == 7 {
			t.Errorf("%v were started; want neither the suspect nor all of those behind it", before)
		}
		pass(2 * time.Second)
		if then := b.copy(&b.started); then[len(then)-1] != 10 || len(then) == 7 {
			t.Errorf("%v were started; want the suspect after the time for running handlers, and nothing behind it", then)
		}
		pass(isolationTimeout)
		b.want("started after the time for the suspect", &b.started, 0, 1, 10, 20, 21, 22, 23)
		pass(2 * time.Hour)
		b.end()
	})
}

func TestSuspects_WaitingOnesAreGivenBackAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Rules{Isolates: true, CountsReleases: true, Prefetches: true}, slices.Concat(messages(0, 1), suspects(10, 3, 3, 3))...)
		b.handler = func(_ *Worker[*message, attempt], m *message) { time.Sleep(time.Minute) }
		b.SetLimit(4)
		pass(90 * time.Second)
		b.Stop()
		b.stop()
		b.Wait()
		synctest.Wait()
		if b.shelf.out != 0 {
			t.Errorf("%d messages are neither handled nor given back", b.shelf.out)
		}
		if started, handled := b.count(&b.started), b.count(&b.handled); started != handled {
			t.Errorf("%d messages were started, and %d handled", started, handled)
		}
	})
}
