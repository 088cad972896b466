package core_test

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// countHeaders are the headers in which the engine counts.
var countHeaders = []string{headers.Retries, headers.Deferrals, headers.Failures, headers.Deliveries, "NServiceBus.FLRetries"}

// A sender can write any number into a header: the message gets no more attempts than
// others, and no number overflows.
func TestForgedCounts_NoMoreAttempts(t *testing.T) {
	for name, recoverability := range map[string]core.Recoverability{
		"defaults": {},
		"without MaxDeliveries": {
			Immediate: core.Immediate{NumberOfRetries: 2}, Delayed: core.Delayed{NumberOfRetries: 2}, MaxDeliveries: core.Off,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				runs := map[string]int{}
				refused := map[string]bool{}
				c := core.Config{Recoverability: recoverability, Middleware: []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
					return func(ctx context.Context, m *core.Message) error {
						if m.Attempt == 2 && !refused[m.ID] { // its copy has Reprise.Failures
							refused[m.ID] = true
							return core.Refuse(errBoom, time.Second)
						}
						return next(ctx, m)
					}
				})}}
				c.Concurrency = 1
				fx.runOrders(c, func(_ context.Context, m *core.Message) error {
					runs[m.ID]++
					for _, n := range []int{m.Attempt - 1, m.DelayedRetries, m.Deferrals} {
						if n < 0 || n > 2_000_000 {
							fx.Errorf("%s: attempt %d, %d delayed retries, %d deferrals", m.ID, m.Attempt, m.DelayedRetries, m.Deferrals)
						}
					}
					return errBoom
				})
				fx.enqueue("honest")
				fx.advance(time.Hour)
				sent := 1
				for _, key := range countHeaders {
					for _, value := range []string{strconv.Itoa(math.MaxInt), strconv.Itoa(math.MaxInt - 1), "99999999999999999999", strconv.Itoa(math.MinInt), "-1", "1e9", "0", "1"} {
						forged := order(key + " " + value)
						forged.Headers.Set(key, value)
						fx.send(forged)
						sent++
					}
				}
				fx.advance(24 * time.Hour)
				fx.wantDepth("error", sent)
				fx.wantDepth("orders", 0)
				for id, n := range runs {
					if n > runs["honest"] {
						fx.Errorf("%s: %d runs of its handler, %d of a message without that header", id, n, runs["honest"])
					}
				}
			})
		})
	}
}

// A message that was redelivered is no new copy of another one because its sender says so:
// it is not attempted in isolation, and has its new copy yet.
func TestForgedCounts_DeliveriesOfNoEarlierCopy(t *testing.T) {
	for _, countsReleases := range []bool{true, false} {
		for _, value := range []string{"1", "20", "44", "x"} { // of 50, the first copy has 44
			t.Run(fmt.Sprint(countsReleases, value), func(t *testing.T) {
				config := withCapabilities(func(c *core.Capabilities) { c.CountsReleases = countsReleases })
				inModesWith(t, config, []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
					forged := order("m1")
					forged.Headers.Set(headers.Deliveries, value)
					fx.send(forged)
					fx.redeliverTimes("orders", 3)
					handled := 0
					_, run := fx.runOrders(core.Config{}, func(context.Context, *core.Message) error {
						handled++
						return nil
					})
					equal(fx, "runs", handled, 1)
					equal(fx, "suspects", len(fx.logs.find("may have killed its process")), 0)
					if err := run.stop(); err != nil {
						fx.Error(err)
					}
					if !countsReleases {
						return
					}
					fx.send(forged)
					fx.redeliverTimes("orders", 60)
					fx.runOrders(core.Config{}, func(context.Context, *core.Message) error {
						handled++
						return nil
					})
					fx.advance(time.Minute)
					equal(fx, "lines about new copies", len(fx.logs.find("whose deliveries are counted from 1")), 1)
					equal(fx, "runs", handled, 2)
					fx.wantDepth("error", 0)
				})
			})
		}
	}
}
