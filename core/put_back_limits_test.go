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
	inModesWith(t, withCapabilities(countingTransports["each delivery is counted"]), retryModes, func(fx *fixture) {
		var seen recorder[string]
		fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
			seen.add(fmt.Sprint(m.Attempt))
			if len(seen.all()) == 3 {
				return nil
			}
			return core.PutBack(errBoom, core.Pause{Length: time.Second})
		})
		fx.broker.setFaults(faults{send: func([]core.Outgoing) error { return errors.New("the broker is away") }})
		fx.enqueue("m1")
		fx.advance(500 * time.Millisecond)
		fx.broker.setFaults(faults{})
		fx.advance(5 * time.Second)
		equal(fx, "attempts", strings.Join(seen.all(), ","), "1,2,2")
		fx.wantDepth("orders", 0)
	})
}

// Without delayed delivery no copy can wait for the end of a pause, so the endpoint does.
func TestPutBack_WithoutDelayedDelivery(t *testing.T) {
	change := func(c *core.Capabilities) { c.CountsReleases, c.DelayedDelivery = true, false }
	inModesWith(t, withCapabilities(change), retryModes, func(fx *fixture) {
		start := time.Now()
		var seen recorder[string]
		fx.runOrders(core.Config{Recoverability: core.Recoverability{Delayed: core.Delayed{Off: true}}}, func(_ context.Context, m *core.Message) error {
			seen.add(fmt.Sprint(m.ID, " at ", time.Since(start), " attempt ", m.Attempt))
			if len(seen.all()) < 3 {
				return core.PutBack(errBoom, core.Pause{Scope: core.PauseMessage})
			}
			return nil
		})
		fx.enqueue("m1")
		fx.advance(time.Minute)
		equal(fx, "attempts", strings.Join(seen.all(), ","), "m1 at 0s attempt 1,m1 at 1s attempt 1,m1 at 3s attempt 1")
	})
}

// The messages of a group keep their order.
func TestPutBack_InAGroup(t *testing.T) {
	onCountingTransports(t, func(fx *fixture, scope core.PauseScope, group string) {
		if group == "" {
			return
		}
		var deliveries atomic.Int64
		var seen recorder[string]
		fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
			if m.ID == "m1" && deliveries.Add(1) <= 3 {
				return core.PutBack(errBoom, core.Pause{Scope: scope})
			}
			seen.add(m.ID)
			return nil
		})
		for _, id := range []string{"m1", "m2", "m3"} {
			out := order(id)
			out.GroupKey = group
			fx.send(out)
		}
		fx.advance(time.Minute)
		equal(fx, "order", strings.Join(seen.all(), ","), "m1,m2,m3")
	})
}

func TestPutBack_TheLockIsLostInThePause(t *testing.T) {
	cfg := inmemory.Config{LockDuration: 10 * time.Second}
	inModesWith(t, cfg, []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
		var deliveries atomic.Int64
		ep, _ := fx.runOrders(core.Config{}, func(context.Context, *core.Message) error {
			if deliveries.Add(1) == 1 {
				return core.PutBack(errBoom, core.Pause{Length: time.Minute, Scope: core.PauseMessage})
			}
			return nil
		})
		fx.broker.setFaults(faults{settle: func(operation string, _ *core.Incoming) error {
			if operation == "Renew" {
				return core.ErrLockLost
			}
			return nil
		}})
		fx.enqueue("m1")
		fx.advance(2 * time.Minute)
		equal(fx, "deliveries", deliveries.Load(), 2)
		equal(fx, "messages that are kept", ep.Health().PutBack, 0)
		fx.wantDepth("orders", 0)
	})
}
