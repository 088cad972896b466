package pump

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestSetLimit_NoMoreMessagesAreHandledAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{}, messages(0, 30)...)
		h.handler = func(*Worker[*message, attempt], *message) { time.Sleep(time.Second) }
		h.SetLimit(3)
		if synctest.Wait(); h.InFlight() != 3 || len(h.Attempts()) != 3 {
			t.Errorf("%d messages are being handled, %d attempts", h.InFlight(), len(h.Attempts()))
		}
		h.SetLimit(7)
		pass(time.Second)
		if h.SetLimit(2); h.InFlight() != 7 { // running handlers keep their slots
			t.Errorf("%d messages are being handled after more slots were given", h.InFlight())
		}
		pass(2 * time.Second)
		if h.InFlight() != 2 {
			t.Errorf("%d messages are being handled after slots were taken away", h.InFlight())
		}
		pass(time.Minute)
		h.want("handled", &h.handled, numbers(0, 30)...)
		h.end()
		if h.max > 7 {
			t.Errorf("%d messages were handled at a time", h.max)
		}
	})
}

// The receiver is opened for as many messages as the pump then asks it for first.
func TestFirstMaxInFlight_EqualsThatOfTheReceiver(t *testing.T) {
	for _, rules := range []Rules{{}, {Prefetches: true}, {Isolates: true}, {Prefetches: true, Isolates: true}, {FetchPerWorker: true}, {ReceiveAndDelete: true}} {
		t.Run(fmt.Sprintf("%+v", rules), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, rules)
				h.SetLimit(5)
				h.end()
				if first := h.source.limits[0]; first != rules.FirstMaxInFlight(5) {
					t.Errorf("it was opened for %d, and told %d", rules.FirstMaxInFlight(5), first)
				}
			})
		})
	}
}

func TestRetain_DeliveriesWithoutASlotTakeNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{}, messages(0, 10)...)
		h.handler = func(*Worker[*message, attempt], *message) { time.Sleep(time.Hour) }
		h.SetLimit(4)
		h.Retain(3)
		if n := h.source.newest(); n != 7 {
			t.Errorf("the receiver may hold %d, want 4 and the 3 that are kept", n)
		}
		h.Retain(-3)
		if n := h.source.newest(); n != 4 {
			t.Errorf("the receiver may hold %d, want 4", n)
		}
		if synctest.Wait(); h.InFlight() != 4 {
			t.Errorf("%d messages are being handled", h.InFlight())
		}
		pass(3 * time.Hour)
		h.end()
	})
}

func TestSetRateLimited_OneMessageAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{Prefetches: true}, messages(0, 10)...)
		h.handler = func(*Worker[*message, attempt], *message) { time.Sleep(time.Second) }
		h.SetRateLimited(true)
		h.SetLimit(4)
		pass(3500 * time.Millisecond)
		if h.max != 1 || h.source.newest() != 1 {
			t.Errorf("%d messages were handled at a time, and the receiver may hold %d", h.max, h.source.newest())
		}
		h.SetRateLimited(false)
		if synctest.Wait(); h.InFlight() != 4 {
			t.Errorf("%d messages are being handled afterwards", h.InFlight())
		}
		pass(time.Minute)
		h.want("handled", &h.handled, numbers(0, 10)...)
		h.end()
	})
}

// Quick handlers leave their slots before more messages could come: as many are fetched
// ahead as they handle until then. When they become slow, the rest is given back.
func TestPrefetch_IsReleasedWhenAllSlotsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{Prefetches: true}, messages(0, 3000)...)
		hang := make(chan struct{})
		h.handler = func(_ *Worker[*message, attempt], m *message) {
			if m.number >= 1000 {
				<-hang
			}
			time.Sleep(time.Millisecond)
		}
		h.SetLimit(2)
		pass(900 * time.Millisecond / 2)
		if n := h.source.newest(); n <= 4 {
			t.Errorf("the receiver may hold %d, no more than the slots and the deliveries that are being settled", n)
		}
		pass(10 * StallTimeout)
		if n := h.source.newest(); n != 4 {
			t.Errorf("the receiver may hold %d while both slots hang, want 4", n)
		}
		h.want("started", &h.started, numbers(0, 1002)...)
		if h.count(&h.released) == 0 {
			t.Error("nothing was given back")
		}
		close(hang)
		pass(time.Minute)
		h.end()
		handled := map[int]bool{}
		for _, number := range slices.Concat(h.handled, h.released) {
			handled[number] = true
		}
		if len(handled) != 3000 {
			t.Errorf("%d messages were handled or given back, want 3000", len(handled))
		}
	})
}

func TestPrefetch_IsLimitedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, Rules{Prefetches: true, MaxPrefetchBytes: 1000}, messages(0, 2000)...) // 100 each
		h.handler = func(*Worker[*message, attempt], *message) { time.Sleep(time.Millisecond) }
		h.SetLimit(1)
		pass(time.Second)
		h.end()
		if h.source.maxRequested > 12 {
			t.Errorf("%d messages were asked for at a time, and 10 may wait", h.source.maxRequested)
		}
	})
}
