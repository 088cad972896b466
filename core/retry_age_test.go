package core_test

import (
	"context"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Rule R5.
// Forty delayed retries of 10, 20, 30, ... minutes take more than five days. With MaxRetryAge the last one
// is scheduled within 24 hours of the first failure.
func TestRetryAge_LimitsAllDelayedRetriesTogether(t *testing.T) {
	for name, test := range map[string]struct {
		age  time.Duration
		last time.Duration
	}{
		"without a limit": {0, 40 * 41 / 2 * 10 * time.Minute},
		"24 hours":        {24 * time.Hour, 17 * 18 / 2 * 10 * time.Minute}, // scheduled after 22 h 40 min
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				c := core.Config{Recoverability: core.Recoverability{
					Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 40, TimeIncrease: 10 * time.Minute}, MaxRetryAge: test.age,
				}}
				start := time.Now()
				var last time.Duration
				fx.runOrders(c, func(context.Context, *core.Message) error { last = time.Since(start); return errBoom })
				fx.enqueue("m1")
				fx.advance(10 * 24 * time.Hour)
				equal(fx, "the last attempt", last, test.last)
				fx.onlyMessage("error")
			})
		})
	}
}
