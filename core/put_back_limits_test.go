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
			return core.PutBack(errBoom, time.Second)
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

// The messages of a group keep their order.
func TestPutBack_InAGroup(t *testing.T) {
	onCountingTransports(t, func(fx *fixture, group string) {
		if group == "" {
			return
		}
		var deliveries atomic.Int64
		var seen recorder[string]
		fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
			if m.ID == "m1" && deliveries.Add(1) <= 3 {
				return core.PutBack(errBoom, 0)
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

// Without delays the message waits in the process before its copy is sent, so that the
// receiver takes no more messages by then.
func TestPutBack_CopyWaitsWithoutDelays(t *testing.T) {
	counting := func(c *core.Capabilities) {
		c.CountsReleases, c.DelayedDelivery, c.MaxDelay, c.DelayPrecision = true, false, 0, 0
	}
	for _, pause := range []time.Duration{time.Millisecond, time.Hour} {
		t.Run(pause.String(), func(t *testing.T) {
			inModesWith(t, withCapabilities(counting), retryModes, func(fx *fixture) {
				start := time.Now()
				var copied atomic.Int64 // when the last copy was sent
				var seen recorder[string]
				fx.broker.setFaults(faults{send: func([]core.Outgoing) error { copied.Store(int64(time.Since(start))); return nil }})
				fx.runOrders(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
					if m.ID != "m1" {
						return nil
					}
					seen.add(fmt.Sprint(m.Attempt))
					if len(seen.all()) == 2 {
						return nil
					}
					return core.PutBack(errBoom, pause)
				})
				fx.enqueue("m1")
				fx.advance(2 * time.Hour)
				equal(fx, "attempts", strings.Join(seen.all(), ","), "1,1")
				if at := time.Duration(copied.Load()); at < time.Second || at > 2*time.Second {
					fx.Errorf("the copy was sent after %v", at)
				}
				fx.wantDepth("orders", 0)
				fx.wantDepth("error", 0)
			})
		})
	}
}
