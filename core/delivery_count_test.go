package core_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// TestDeliveryCount_MoreFailuresThanTheTransportRemembers lets twice as many
// messages fail as the memory of a transport without a delivery count holds (1,000),
// on a queue that takes every failed message back at its tail: each of them must reach
// its delayed retry and then the error queue.
func TestDeliveryCount_MoreFailuresThanTheTransportRemembers(t *testing.T) {
	if testing.Short() {
		t.Skip("8,000 attempts: not in short runs")
	}
	t.Parallel()
	const messages, attemptsOfOne = 2000, 100
	bubbleWith(t, withCapabilities(func(c *core.Capabilities) { c.NativeDeliveryCount = false }), func(fx *fixture) {
		fx.mode = core.TransactionReceiveOnly
		for i := range messages {
			fx.send(order(strconv.Itoa(i)))
		}
		var attempts, delayed atomic.Int64
		fx.runOrders(core.Config{Recoverability: core.Recoverability{
			Immediate: core.Immediate{NumberOfRetries: 1},
			Delayed:   core.Delayed{NumberOfRetries: 1},
		}}, func(_ context.Context, m *core.Message) error {
			if attempts.Add(1) > messages*attemptsOfOne {
				return nil // it would go on for ever
			}
			if m.Attempt == 1 && m.DelayedRetries == 1 && m.LastError == "" {
				delayed.Add(1)
			}
			return errBoom
		})
		time.Sleep(time.Minute)
		fx.wantDepth("error", messages)
		fx.wantDepth("orders", 0)
		equal(fx, "delayed retries of all messages, at least", delayed.Load() >= messages, true)
		if n := attempts.Load(); n < 4*messages {
			fx.Errorf("%d attempts of %d messages, want 4 of each at least", n, messages)
		} else {
			fx.Logf("%.1f attempts of each message", float64(n)/messages)
		}
	})
}
