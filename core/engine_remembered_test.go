package core_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

func TestR44_RepeatedDecisionCountsOnce(t *testing.T) {
	errOutage := errors.New("outage")
	for name, test := range map[string]struct {
		err     error
		limited bool
	}{
		"an outage": {fmt.Errorf("wrapped: %w", errOutage), true},
		"a bug":     {errBoom, false},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retrying, func(b *bed) {
				b.broker.provoke(refuseOnce("error", 3))
				var asked record[error]
				recover := noRetries
				recover.RateLimit = core.RateLimit{ConsecutiveFailures: 2, Filter: func(err error) bool {
					asked.add(err)
					return errors.Is(err, errOutage)
				}}
				ep, _ := b.orders(core.Config{Recoverability: recover}, func(context.Context, *core.Message) error { return test.err })
				b.put("m1")
				time.Sleep(time.Minute)
				b.holds("error", 1)
				equal(b, "rate limited after one failure, moved at the fourth try", ep.Health().RateLimited, false)
				equal(b, "questions to the filter", asked.len(), 1)
				b.put("m2")
				equal(b, "rate limited after the second", ep.Health().RateLimited, test.limited)
				for _, err := range asked.all() {
					if !errors.Is(err, test.err) {
						b.Errorf("the filter was asked about %T", err)
					}
				}
			})
		})
	}
}
