package core_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

func TestR44AFailureWhoseDecisionIsRepeatedCountsOnceAndByItsOwnError(t *testing.T) {
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

func TestR25ADecisionIsForgottenWhenAnotherInstanceDealtWithTheMessage(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var broken atomic.Bool
		broken.Store(true)
		b.broker.provoke(refuse("error", broken.Load))
		one, run := b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		b.put("m1")
		if err := run.stop(); err != nil {
			b.Fatal(err)
		}
		equal(b, "undelivered", one.Health().Undelivered, 1)
		_, other := b.orders(core.Config{}, func(context.Context, *core.Message) error { return nil })
		b.holds("orders", 0)
		if err := other.stop(); err != nil {
			b.Fatal(err)
		}
		time.Sleep(time.Minute)
		equal(b, "undelivered, while it may come again", one.Health().Undelivered, 1)
		time.Sleep(10 * time.Minute)
		equal(b, "undelivered, after it cannot have", one.Health().Undelivered, 0)
	})
}
