package core_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

func TestR41NothingIsHeldAheadWhileRateLimited(t *testing.T) {
	inModesOn(t, aheadConfig(0), []core.TransactionMode{core.TransactionReceiveOnly}, func(b *bed) {
		ep, _ := b.orders(core.Config{Concurrency: 4, Recoverability: limited(2)}, func(_ context.Context, m *core.Message) error {
			if m.ID == "quick" {
				return nil
			}
			time.Sleep(time.Second)
			return errBoom
		})
		b.put("quick")
		for i := range 20 {
			b.send(order(fmt.Sprint("m", i)))
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		equal(b, "rate limited", ep.Health().RateLimited, true)
		for range 100 {
			time.Sleep(300 * time.Millisecond)
			if held := b.depth("orders").InFlight; held > 1 {
				b.Fatalf("%d messages are held, want the probe alone", held)
			}
		}
	})
}

// Messages held ahead of slow handlers are kept from other instances that have
// nothing to do.
func TestNothingIsHeldAheadUntilHandlersAreKnownToBeFast(t *testing.T) {
	for _, takes := range []time.Duration{4 * time.Second, 20 * time.Second} {
		t.Run(takes.String(), func(t *testing.T) {
			inModesOn(t, aheadConfig(0), []core.TransactionMode{core.TransactionReceiveOnly}, func(b *bed) {
				handler := func(context.Context, *core.Message) error {
					time.Sleep(takes)
					return nil
				}
				for i := range 40 {
					b.send(order(fmt.Sprint("m", i)))
				}
				b.orders(core.Config{Concurrency: 8}, handler)
				time.Sleep(takes / 2)
				equal(b, "held with the first eight begun", b.depth("orders").InFlight, 8)
				time.Sleep(takes)
				if held := b.depth("orders").InFlight; held > 9 {
					b.Errorf("%d messages are held with the next eight begun, want at most one ahead", held)
				}
			})
		})
	}
}
