package pump

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestSetPaused_NothingIsFetchedUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Rules{}, messages(0, 5)...)
		b.SetPaused(true)
		b.SetLimit(3)
		b.want("started", &b.started)
		if n := b.shelf.newest(); n != 0 {
			t.Errorf("the receiver may hold %d while the endpoint is paused", n)
		}
		b.SetPaused(false)
		b.want("handled", &b.handled, numbers(0, 5)...)
		b.end()
	})
}

// Whichever reason is the last one, nothing begins before it has ended.
func TestStops_EveryReasonHasToEnd(t *testing.T) {
	type stop struct {
		name       string
		begin, end func(*bench)
	}
	paused := func(paused bool) func(*bench) { return func(b *bench) { b.SetPaused(paused) } }
	parked := func(parked bool) func(*bench) { return func(b *bench) { b.SetParked(parked) } }
	fetching := stop{"fetching", func(b *bench) { b.PauseFetching() }, func(b *bench) { b.ResumeFetching() }}
	wait := stop{"wait", func(b *bench) { b.WaitFor(WaitRateLimited, time.Minute) }, func(b *bench) { b.EndWait(WaitRateLimited) }}
	stops := []stop{{"paused", paused(true), paused(false)}, {"parked", parked(true), parked(false)}, fetching, fetching, wait}
	for last, final := range stops {
		t.Run(final.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, Rules{}, messages(0, 1)...)
				for _, s := range stops {
					s.begin(b)
				}
				b.SetLimit(1)
				for i, s := range stops {
					if i != last {
						s.end(b)
						b.want("started", &b.started)
					}
				}
				final.end(b)
				b.want("started", &b.started, 0)
				b.end()
			})
		})
	}
}

func TestWaitFor_LastsUntilTheLastOfItsReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Rules{}, messages(0, 1)...)
		began := time.Now()
		b.WaitFor(WaitPutBack, time.Second)
		b.WaitFor(WaitRateLimited, time.Hour)
		b.WaitFor(WaitPutBack, 3*time.Second) // instead of the first
		b.SetLimit(1)
		if until := b.WaitsUntil(WaitPutBack); !until.Equal(began.Add(3 * time.Second)) {
			t.Errorf("the wait ends after %v", until.Sub(began))
		}
		pass(2 * time.Second)
		b.EndWait(WaitRateLimited)
		b.want("started after two seconds", &b.started)
		pass(time.Second)
		b.want("started after three seconds", &b.started, 0)
		if until := b.WaitsUntil(WaitPutBack); !until.IsZero() {
			t.Errorf("a wait that is over ends at %v", until)
		}
		b.end()
	})
}

func TestStop_HandlersEndAndTheRestIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Rules{Prefetches: true}, messages(0, 1000)...)
		b.handler = func(*Worker[*message, attempt], *message) { time.Sleep(10 * time.Millisecond) }
		b.SetLimit(2)
		pass(time.Second)
		b.end()
		if started, handled := b.count(&b.started), b.count(&b.handled); started != handled {
			t.Errorf("%d messages were started, and %d handled", started, handled)
		}
		if b.count(&b.released) == 0 {
			t.Error("nothing was given back: there were no messages that waited")
		}
		if b.shelf.out != 0 {
			t.Errorf("%d messages are neither handled nor given back", b.shelf.out)
		}
	})
}

// Messages that the broker has forgotten are handled after the end, and so are those that its
// receiver still had.
func TestStop_ForgottenMessagesAreHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Rules{ReceiveAndDelete: true}, messages(0, 4)...)
		b.handler = func(*Worker[*message, attempt], *message) { time.Sleep(time.Second) }
		b.SetLimit(2)
		synctest.Wait()
		b.Stop()
		b.Finish(messages(10, 3)...)
		b.end()
		if b.count(&b.released) > 0 {
			t.Errorf("%v were given back, and are lost", b.released)
		}
		b.want("handled", &b.handled, 0, 1, 10, 11, 12)
	})
}

func TestFinish_AfterTheWorkersHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Rules{ReceiveAndDelete: true})
		b.SetLimit(2)
		b.Stop()
		synctest.Wait()
		b.Finish(messages(0, 3)...)
		b.end()
		b.want("handled", &b.handled, 0, 1, 2)
	})
}

func TestReceiver_ThatBreaksItsContractEndsFetching(t *testing.T) {
	for name, answer := range map[string]func(dst []*message) (int, error){
		"too many":                  func(dst []*message) (int, error) { return len(dst) + 1, nil },
		"fewer than none":           func([]*message) (int, error) { return -1, nil },
		"neither message nor error": func([]*message) (int, error) { return 0, nil },
		"an error":                  func([]*message) (int, error) { return 0, errors.New("the queue is gone") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, Rules{})
				b.shelf.answer = answer
				b.SetLimit(3)
				time.Sleep(time.Minute)
				b.end()
				if len(b.errs) != 1 || b.shelf.asked != 1 {
					t.Errorf("the errors are %v after %d calls; want one after one", b.errs, b.shelf.asked)
				}
			})
		})
	}
}
