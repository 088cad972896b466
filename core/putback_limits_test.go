package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// A copy that cannot be sent costs a delivery, and not the message.
func TestPutBack_WithoutItsCopy(t *testing.T) {
	inModesOn(t, able(countings["each delivery is counted"]), retrying, func(b *bed) {
		var seen record[string]
		b.orders(core.Config{}, func(_ context.Context, m *core.Message) error {
			seen.add(fmt.Sprint(m.Attempt))
			if len(seen.all()) == 3 {
				return nil
			}
			return core.PutBack(errBoom, core.Pause{Length: time.Second})
		})
		b.broker.provoke(faults{send: func([]core.Outgoing) error { return errors.New("the broker is away") }})
		b.put("m1")
		b.pass(500 * time.Millisecond)
		b.broker.provoke(faults{})
		b.pass(5 * time.Second)
		equal(b, "attempts", strings.Join(seen.all(), ","), "1,2,2")
		b.holds("orders", 0)
	})
}

// Without delayed delivery no copy can wait for the end of a pause, so the endpoint does.
func TestPutBack_WithoutDelayedDelivery(t *testing.T) {
	change := func(c *core.Capabilities) { c.CountsReleases, c.DelayedDelivery = true, false }
	inModesOn(t, able(change), retrying, func(b *bed) {
		start := time.Now()
		var seen record[string]
		b.orders(core.Config{Recoverability: core.Recoverability{Delayed: core.Delayed{Off: true}}}, func(_ context.Context, m *core.Message) error {
			seen.add(fmt.Sprint(m.ID, " at ", time.Since(start), " attempt ", m.Attempt))
			if len(seen.all()) < 3 {
				return core.PutBack(errBoom, core.Pause{Scope: core.PauseMessage})
			}
			return nil
		})
		b.put("m1")
		b.pass(time.Minute)
		equal(b, "attempts", strings.Join(seen.all(), ","), "m1 at 0s attempt 1,m1 at 1s attempt 1,m1 at 3s attempt 1")
	})
}

// The messages of a group keep their order.
func TestPutBack_InAGroup(t *testing.T) {
	inCountings(t, func(b *bed, scope core.PauseScope, group string) {
		if group == "" {
			return
		}
		var deliveries atomic.Int64
		var seen record[string]
		b.orders(core.Config{}, func(_ context.Context, m *core.Message) error {
			if m.ID == "m1" && deliveries.Add(1) <= 3 {
				return core.PutBack(errBoom, core.Pause{Scope: scope})
			}
			seen.add(m.ID)
			return nil
		})
		for _, id := range []string{"m1", "m2", "m3"} {
			out := order(id)
			out.GroupKey = group
			b.send(out)
		}
		b.pass(time.Minute)
		equal(b, "order", strings.Join(seen.all(), ","), "m1,m2,m3")
	})
}

func TestPutBack_TheLockIsLostInThePause(t *testing.T) {
	cfg := inmemory.Config{LockDuration: 10 * time.Second}
	inModesOn(t, cfg, []core.TransactionMode{core.TransactionReceiveOnly}, func(b *bed) {
		var deliveries atomic.Int64
		ep, _ := b.orders(core.Config{}, func(context.Context, *core.Message) error {
			if deliveries.Add(1) == 1 {
				return core.PutBack(errBoom, core.Pause{Length: time.Minute, Scope: core.PauseMessage})
			}
			return nil
		})
		b.broker.provoke(faults{settle: func(operation string, _ *core.Incoming) error {
			if operation == "Renew" {
				return core.ErrLockLost
			}
			return nil
		}})
		b.put("m1")
		b.pass(2 * time.Minute)
		equal(b, "deliveries", deliveries.Load(), 2)
		equal(b, "messages that are kept", ep.Health().PutBack, 0)
		b.holds("orders", 0)
	})
}
