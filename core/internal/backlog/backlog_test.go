package backlog

import (
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core/internal/delays"
)

// everySecond is a constant backoff.
var everySecond = delays.Backoff{First: time.Second, Last: time.Second}

// fixture is a backlog that records its calls.
type fixture struct {
	*Backlog

	mu       sync.Mutex
	retained int
	paused   []int // retained when fetching was paused
	resumed  int
	full     []bool
}

func newFixture(limit int) *fixture {
	f := &fixture{}
	locked := func(change func()) {
		f.mu.Lock()
		defer f.mu.Unlock()
		change()
	}
	f.Backlog = New(limit, Pump{
		Retain:         func(n int) { locked(func() { f.retained += n }) },
		PauseFetching:  func() { locked(func() { f.paused = append(f.paused, f.retained) }) },
		ResumeFetching: func() { locked(func() { f.resumed++ }) },
	}, func(now bool) { locked(func() { f.full = append(f.full, now) }) })
	return f
}

// sleep lets tries begin for d, and waits for those that have.
func sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// reported returns the calls of onFull.
func (f *fixture) reported() []bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.full)
}

// fetching returns at how many deliveries fetching stopped, and how often it began again.
func (f *fixture) fetching() (paused []int, resumed int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.paused), f.resumed
}

// inReceiver returns by how much the receiver's limit has grown.
func (f *fixture) inReceiver() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.retained
}

// calls counts the calls of an entry's functions.
type calls struct{ tries, cancelled int }

// recorder records the calls of entries.
type recorder struct {
	mu    sync.Mutex
	calls calls
}

// entry returns an entry whose last try succeeds; with 0 tries none does.
func (r *recorder) entry(tries int) *Entry {
	return &Entry{
		Backoff: everySecond,
		Try: func() bool {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.calls.tries++
			return r.calls.tries == tries
		},
		Cancel: func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.calls.cancelled++
		},
	}
}

// check compares the calls so far.
func (r *recorder) check(t *testing.T, when string, want calls) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls != want {
		t.Errorf("%s: %+v, want %+v", when, r.calls, want)
	}
}

func TestAdd_TriesWithGrowingPausesUntilDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, began := newFixture(10), time.Now()
		var at []time.Duration
		b.Add(&Entry{
			Backoff: delays.Backoff{First: time.Second, Last: 3 * time.Second},
			Try:     func() bool { at = append(at, time.Since(began)); return len(at) == 4 },
			Cancel:  func() { t.Error("it was cancelled") },
		})
		if b.inReceiver() != 1 || b.Size() != 1 {
			t.Errorf("%d deliveries are retained, size %d, want 1 and 1", b.inReceiver(), b.Size())
		}
		sleep(time.Hour)
		if want := []time.Duration{time.Second, 3 * time.Second, 6 * time.Second, 9 * time.Second}; !slices.Equal(at, want) {
			t.Errorf("tried after %v, want %v", at, want)
		}
		if b.inReceiver() != 0 || b.Size() != 0 {
			t.Errorf("%d deliveries are retained after the end, size %d", b.inReceiver(), b.Size())
		}
	})
}

func TestAdd_ReportsTheLimitOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(2)
		for range 4 {
			b.Add(new(recorder).entry(1))
		}
		if got := b.reported(); !slices.Equal(got, []bool{true}) {
			t.Errorf("with 4 deliveries and a limit of 2, full is reported as %v, want once", got)
		}
		sleep(time.Minute)
		if got := b.reported(); !slices.Equal(got, []bool{true, false}) {
			t.Errorf("after all were done, full is reported as %v, want true, false", got)
		}
	})
}

func TestAdd_EntriesWithoutDeliveryHaveASeparateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(1)
		var all recorder
		for range Max + 2 {
			e := all.entry(0)
			e.WithoutDelivery = true
			b.Add(e)
		}
		all.check(t, "two more than the limit", calls{cancelled: 2})
		if b.inReceiver() != 0 || b.Size() != 0 || b.reported() != nil {
			t.Errorf("they count as %d deliveries, size %d, full %v", b.inReceiver(), b.Size(), b.reported())
		}
		b.Stop(time.Minute)
	})
}

// Users' code in a try may end its goroutine (runtime.Goexit).
func TestAdd_TryThatEndsItsGoroutineIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(10)
		tries := 0
		b.Add(&Entry{Backoff: everySecond, Cancel: func() {}, Try: func() bool {
			if tries++; tries == 1 {
				runtime.Goexit()
			}
			return true
		}})
		sleep(time.Minute)
		if tries != 2 || b.Size() != 0 {
			t.Errorf("%d tries, %d entries left, want 2 and 0", tries, b.Size())
		}
	})
}

func TestSupersede_CancelsTheEntryOfTheCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newFixture(10)
		var one, other recorder
		for key, r := range map[string]*recorder{"one": &one, "other": &other} {
			e := r.entry(3)
			e.CopyKey = key
			b.Add(e)
		}
		b.Supersede("unknown")
		b.Supersede("one")
		synctest.Wait()
		one.check(t, "superseded", calls{cancelled: 1})
		other.check(t, "the other", calls{})
		if !b.HasCopies() || b.Size() != 1 {
			t.Errorf("has copies: %t, size %d; want true and 1", b.HasCopies(), b.Size())
		}
		sleep(time.Minute)
		other.check(t, "the other, later", calls{tries: 3})
		if b.HasCopies() {
			t.Error("it has copies after all are done")
		}
	})
}

// A try in progress is not interrupted: it may succeed, and is cancelled otherwise.
func TestSupersede_DuringATry(t *testing.T) {
	for name, test := range map[string]struct {
		succeeds bool
		want     calls
	}{
		"a try that succeeds": {true, calls{1, 0}},
		"a try that fails":    {false, calls{1, 1}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newFixture(10)
			var r recorder
			e := r.entry(0)
			e.CopyKey, e.Try = "copy", func() bool {
				r.mu.Lock()
				r.calls.tries++
				r.mu.Unlock()
				time.Sleep(time.Second)
				return test.succeeds
			}
			b.Add(e)
			sleep(1500 * time.Millisecond)
			b.Supersede("copy")
			sleep(time.Minute)
			r.check(t, name, test.want)
			if n := b.Size(); n != 0 {
				t.Errorf("%s: %d entries left", name, n)
			}
		})
	}
}

func TestStop(t *testing.T) {
	for name, test := range map[string]struct {
		takes time.Duration // a try in progress
		want  bool
	}{
		"waits for a try in progress": {2 * time.Second, true},
		"does not wait longer":        {time.Minute, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newFixture(10)
			var waiting, late recorder
			b.Add(&Entry{Backoff: everySecond, Cancel: func() {}, Try: func() bool { time.Sleep(test.takes); return true }})
			sleep(1500 * time.Millisecond)
			b.Add(waiting.entry(1))
			if got := b.Stop(10 * time.Second); got != test.want {
				t.Errorf("%s: Stop returned %t", name, got)
			}
			waiting.check(t, name+", a waiting entry", calls{cancelled: 1})
			b.Add(late.entry(1))
			late.check(t, name+", an entry after Stop", calls{cancelled: 1})
			sleep(2 * time.Minute)
		})
	}
}

// A worker that is interrupted when it has reached the limit must not let the others go
// on: Add waits until fetching has stopped.
func TestAdd_StopsFetchingBeforeOthersAdd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(3)
		locked := []bool{}
		pause := f.pump.PauseFetching
		f.pump.PauseFetching = func() {
			free := f.Backlog.mu.TryLock()
			if free {
				f.Backlog.mu.Unlock()
			}
			locked = append(locked, !free)
			pause()
		}
		for range 5 {
			f.Add(&Entry{Try: func() bool { return true }, Backoff: everySecond})
		}
		if paused, resumed := f.fetching(); !slices.Equal(paused, []int{3}) || !slices.Equal(locked, []bool{true}) || resumed != 0 {
			t.Errorf("fetching stopped at %v deliveries, with the backlog locked: %v, and began again %d times; want at 3, locked, and not yet", paused, locked, resumed)
		}
		sleep(2 * time.Second)
		if _, resumed := f.fetching(); f.inReceiver() != 0 || resumed != 1 {
			t.Errorf("when all are done, %d are kept, and fetching has begun again %d times", f.inReceiver(), resumed)
		}
	})
}
