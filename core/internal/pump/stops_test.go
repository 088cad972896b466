package pump

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestSetPaused_NothingIsFetchedUntilItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{}, messages(0, 5)...)
		h.SetPaused(true)
		h.SetLimit(3)
		h.want("started", &h.started)
		if n := h.source.newest(); n != 0 {
			t.Errorf("the receiver may hold %d while the endpoint is paused", n)
		}
		h.SetPaused(false)
		h.want("handled", &h.handled, numbers(0, 5)...)
		h.end()
	})
}

// Whichever reason is the last one, nothing begins before it has ended.
func TestStops_EveryReasonHasToEnd(t *testing.T) {
	type stop struct {
		name       string
		begin, end func(*harness)
	}
	paused := func(paused bool) func(*harness) { return func(h *harness) { h.SetPaused(paused) } }
	fetching := stop{"fetching", func(h *harness) { h.PauseFetching() }, func(h *harness) { h.ResumeFetching() }}
	wait := stop{"wait", func(h *harness) { h.WaitFor(WaitRateLimited, time.Minute) }, func(h *harness) { h.endWait(WaitRateLimited) }}
	stops := []stop{{"paused", paused(true), paused(false)}, fetching, fetching, wait}
	for last, final := range stops {
		t.Run(final.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, Rules{}, messages(0, 1)...)
				for _, s := range stops {
					s.begin(h)
				}
				h.SetLimit(1)
				for i, s := range stops {
					if i != last {
						s.end(h)
						h.want("started", &h.started)
					}
				}
				final.end(h)
				h.want("started", &h.started, 0)
				h.end()
			})
		})
	}
}

func TestWaitFor_LastsUntilTheLastOfItsReasons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{}, messages(0, 1)...)
		began := time.Now()
		h.WaitFor(WaitPutBack, time.Second)
		h.WaitFor(WaitRateLimited, time.Hour)
		h.WaitFor(WaitPutBack, 3*time.Second) // instead of the first
		h.SetLimit(1)
		if end := h.WaitsUntil(WaitPutBack); !end.Equal(began.Add(3 * time.Second)) {
			t.Errorf("the wait ends after %v", end.Sub(began))
		}
		pass(2 * time.Second)
		h.endWait(WaitRateLimited)
		h.want("started after two seconds", &h.started)
		pass(time.Second)
		h.want("started after three seconds", &h.started, 0)
		if end := h.WaitsUntil(WaitPutBack); !end.IsZero() {
			t.Errorf("a wait that has ended ends at %v", end)
		}
		h.end()
	})
}

func TestStop_HandlersEndAndOtherMessagesAreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{Prefetches: true}, messages(0, 1000)...)
		h.handler = func(*Worker[*message, attempt], *message) { time.Sleep(10 * time.Millisecond) }
		h.SetLimit(2)
		pass(time.Second)
		h.end()
		if started, handled := h.count(&h.started), h.count(&h.handled); started != handled {
			t.Errorf("%d messages were started, and %d handled", started, handled)
		}
		if h.count(&h.released) == 0 {
			t.Error("nothing was given back: there were no messages that waited")
		}
		if h.source.out != 0 {
			t.Errorf("%d messages are neither handled nor given back", h.source.out)
		}
	})
}

// Messages that the broker has forgotten are handled after the end.
func TestStop_ForgottenMessagesAreHandled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{ReceiveAndDelete: true}, messages(0, 4)...)
		h.handler = func(*Worker[*message, attempt], *message) { time.Sleep(time.Second) }
		h.SetLimit(2)
		synctest.Wait()
		h.Stop()
		h.end()
		if h.count(&h.released) > 0 {
			t.Errorf("%v were given back, and are lost", h.released)
		}
		h.want("handled", &h.handled, 0, 1)
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
				h := newHarness(t, Rules{})
				h.source.answer = answer
				h.SetLimit(3)
				time.Sleep(time.Minute)
				h.end()
				if len(h.errs) != 1 || h.source.asked != 1 {
					t.Errorf("the errors are %v after %d calls; want one after one", h.errs, h.source.asked)
				}
			})
		})
	}
}

func TestReceiver_NilDeliveryEndsFetching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var errs []error
		receiver := nilReceiver{}
		p := New(t.Context(), receiver, Rules{}, Calls[any, attempt]{
			Fetched: func(any) Item[any] { t.Error("the nil delivery was used"); return Item[any]{} },
			Bytes:   func(any) int { return 0 },
			OnError: func(err error) { errs = append(errs, err) },
		})
		p.SetLimit(1)
		synctest.Wait()
		p.Stop()
		p.Wait()
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), "number 1 is nil") {
			t.Errorf("the errors are %v, want one about the nil delivery", errs)
		}
	})
}

// nilReceiver returns a nil delivery.
type nilReceiver struct{}

func (nilReceiver) Receive(context.Context, []any) (int, error) { return 1, nil }
func (nilReceiver) SetMaxInFlight(int)                          {}

// A pump whose context has ended must not call Receive in a loop until Stop.
func TestContext_ItsEndStopsThePump(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{}, messages(0, 1)...)
		h.SetLimit(2)
		h.want("handled", &h.handled, 0)
		h.stop()
		h.Wait()
		if len(h.errs) > 0 {
			t.Errorf("the end was reported as %v", h.errs)
		}
	})
}
