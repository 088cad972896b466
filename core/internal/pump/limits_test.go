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
		b := newBench(t, Rules{ExactLimit: true}, messages(0, 30)...)
		b.handler = func(*Worker[*message, attempt], *message) { time.Sleep(time.Second) }
		b.SetLimit(3)
		if synctest.Wait(); b.InFlight() != 3 || len(b.Attempts()) != 3 {
			t.Errorf("%d messages are being handled, %d attempts", b.InFlight(), len(b.Attempts()))
		}
		b.SetLimit(7)
		pass(time.Second)
		if b.SetLimit(2); b.InFlight() != 7 { // running handlers keep their slots
			t.Errorf("%d messages are being handled after more slots were given", b.InFlight())
		}
		pass(2 * time.Second)
		if b.InFlight() != 2 {
			t.Errorf("%d messages are being handled after slots were taken away", b.InFlight())
		}
		pass(time.Minute)
		b.want("handled", &b.handled, numbers(0, 30)...)
		b.end()
		if b.most > 7 {
			t.Errorf("%d messages were handled at a time", b.most)
		}
	})
}

// The receiver is opened for as many messages as the pump then asks it for first.
func TestFirstMaxInFlight_IsWhatTheReceiverIsTold(t *testing.T) {
	for _, rules := range []Rules{{}, {Prefetches: true}, {Isolates: true}, {Prefetches: true, Isolates: true}, {FetchPerWorker: true}, {ReceiveAndDelete: true}} {
		t.Run(fmt.Sprintf("%+v", rules), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t, rules)
				b.SetLimit(5)
				b.end()
				if first := b.shelf.limits[0]; first != rules.FirstMaxInFlight(5) {
					t.Errorf("it was opened for %d, and told %d", rules.FirstMaxInFlight(5), first)
				}
			})
		})
	}
}

func TestRetain_DeliveriesWithoutASlotTakeNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Rules{}, messages(0, 10)...)
		b.handler = func(*Worker[*message, attempt], *message) { time.Sleep(time.Hour) }
		b.SetLimit(4)
		b.Retain(3)
		if n := b.shelf.newest(); n != 7 {
			t.Errorf("the receiver may hold %d, want 4 and the 3 that are kept", n)
		}
		b.Retain(-3)
		if n := b.shelf.newest(); n != 4 {
			t.Errorf("the receiver may hold %d, want 4", n)
		}
		if synctest.Wait(); b.InFlight() != 4 {
			t.Errorf("%d messages are being handled", b.InFlight())
		}
		pass(3 * time.Hour)
		b.end()
	})
}

func TestSetRateLimited_OneMessageAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Rules{Prefetches: true}, messages(0, 10)...)
		b.handler = func(*Worker[*message, attempt], *message) { time.Sleep(time.Second) }
		b.SetRateLimited(true)
		b.SetLimit(4)
		pass(3500 * time.Millisecond)
		if b.most != 1 || b.shelf.newest() != 1 {
			t.Errorf("%d messages were handled at a time, and the receiver may hold %d", b.most, b.shelf.newest())
		}
		b.SetRateLimited(false)
		if synctest.Wait(); b.InFlight() != 4 {
			t.Errorf("%d messages are being handled afterwards", b.InFlight())
		}
		pass(time.Minute)
		b.want("handled", &b.handled, numbers(0, 10)...)
		b.end()
	})
}

// Quick handlers leave their slots before more messages could come: as many are fetched
// ahead as they handle until then. When they become slow, the rest is given back.
func TestPrefetch_IsGivenBackWhenAllSlotsHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Rules{Prefetches: true}, messages(0, 3000)...)
		hang := make(chan struct{})
		b.handler = func(_ *Worker[*message, attempt], m *message) {
			if m.number >= 1000 {
				<-hang
			}
			time.Sleep(time.Millisecond)
		}
		b.SetLimit(2)
		pass(900 * time.Millisecond / 2)
		if n := b.shelf.newest(); n <= 4 {
			t.Errorf("the receiver may hold %d, no more than the slots and what is being settled", n)
		}
		pass(10 * StallTimeout)
		if n := b.shelf.newest(); n != 4 {
			t.Errorf("the receiver may hold %d while both slots hang, want 4", n)
		}
		b.want("started", &b.started, numbers(0, 1002)...)
		if b.count(&b.released) == 0 {
			t.Error("nothing was given back")
		}
		close(hang)
		pass(time.Minute)
		b.end()
		handled := map[int]bool{}
		for _, number := range slices.Concat(b.handled, b.released) {
			handled[number] = true
		}
		if len(handled) != 3000 {
			t.Errorf("%d messages were handled or given back, want 3000", len(handled))
		}
	})
}

func TestPrefetch_IsLimitedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, Rules{Prefetches: true, MaxPrefetchBytes: 1000}, messages(0, 2000)...) // 100 each
		b.handler = func(*Worker[*message, attempt], *message) { time.Sleep(time.Millisecond) }
		b.SetLimit(1)
		pass(time.Second)
		b.end()
		if b.shelf.mostAsked > 12 {
			t.Errorf("%d messages were asked for at a time, and 10 may wait", b.shelf.mostAsked)
		}
	})
}
