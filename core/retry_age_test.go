package core_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// Rule R5.
// Forty delayed retries of 10, 20, 30, ... minutes take more than five days. With OneDay the last one
// is scheduled within 24 hours of the first failure.
func TestRetryAge_OneDayForAllDelayedRetries(t *testing.T) {
	const retries = `{"recoverability": {"immediate": {"off": true}, "delayed": {"retries": 40, "increase": "10m"}`
	for name, test := range map[string]struct {
		config string
		last   time.Duration
	}{
		"without a limit": {retries + `}}`, 40 * 41 / 2 * 10 * time.Minute},
		"24 hours":        {retries + `, "maxRetryAge": "24h"}}`, 17 * 18 / 2 * 10 * time.Minute}, // scheduled after 22 h 40 min
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				var c core.Config
				fx.noError(json.Unmarshal([]byte(test.config), &c))
				if age := c.Recoverability.MaxRetryAge; age != 0 && age != core.OneDay {
					fx.Errorf("MaxRetryAge is %v", age)
				}
				start := time.Now()
				var last time.Duration
				fx.runOrders(c, func(context.Context, *core.Message) error { last = time.Since(start); return errBoom })
				fx.enqueue("m1")
				fx.advance(10 * core.OneDay)
				equal(fx, "the last attempt", last, test.last)
				fx.onlyMessage("error")
			})
		})
	}
}
