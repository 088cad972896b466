package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// The other side says when to call again, for longer than the configured retries.
func TestRetryAfter_OutlastsAnOutage(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		start, runs := time.Now(), 0
		fx.runOrders(core.Config{}, func(context.Context, *core.Message) error {
			if runs++; time.Since(start) < time.Minute {
				return core.RetryAfter(errBoom, 2*time.Second)
			}
			return nil
		})
		fx.enqueue("m1")
		fx.advance(2 * time.Minute)
		equal(fx, "runs", runs, 31)
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 0)
	})
}

// A failure without a verdict has all delayed retries, regardless of earlier RetryAfter.
func TestRetryAfter_LeavesAllDelayedRetries(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		start := time.Now()
		var seen recorder[string]
		var recovered recoveryRecorder
		config := core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 2}}
		fx.runOrders(core.Config{Recoverability: config, Observers: []core.Observer{recovered.observer()}}, func(_ context.Context, m *core.Message) error {
			stamp := m.Headers.Get(headers.RetriesTimestamp)
			if at, err := headers.ParseTime(stamp); err == nil {
				stamp = fmt.Sprint(at.Sub(start))
			}
			n := seen.add(fmt.Sprintf("%v %d/%d %s %s %t", time.Since(start), m.Attempt, m.DelayedRetries, m.Headers.Get(headers.Retries), stamp, m.IsLastAttempt(errBoom)))
			if n <= 4 || n == 6 {
				return core.RetryAfter(errBoom, time.Second)
			}
			return errBoom
		})
		fx.enqueue("m1")
		fx.advance(time.Hour)
		want := []string{
			"0s 1/0   false", "1s 1/0   false", "2s 1/0   false", "3s 1/0   false", "4s 1/0   false", // fails without a verdict
			"14s 1/1 1 4s false", "15s 1/1 1 4s false", "35s 1/2 2 15s true",
		}
		equal(fx, "attempts", strings.Join(seen.all(), ", "), strings.Join(want, ", "))
		for i, e := range recovered.all() {
			if want := []int{0, 0, 0, 0, 0, 1, 1, 2}[i]; e.Failure.DelayedDeliveriesPerformed != want {
				fx.Errorf("failure %d: DelayedDeliveriesPerformed is %d, want %d", i+1, e.Failure.DelayedDeliveriesPerformed, want)
			}
		}
		failed := fx.onlyMessage("error").Headers
		equal(fx, "rounds in the trace", len(headers.ParseAttempts(failed.Get(headers.Attempts))), 8)
		equal(fx, "reason", failed.Get(headers.FailureReason), string(headers.FailureRetriesExhausted))
		equal(fx, "header of retries in the error queue", failed.Get(headers.Retries)+failed.Get(headers.RetriesTimestamp), "")
	})
}

// A delay of more than 24 h does not use up the delayed retries either (R5).
func TestRetryAfter_LongDelayLeavesDelayedRetries(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		runs := 0
		fx.runOrders(core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}}}, func(context.Context, *core.Message) error {
			if runs++; runs == 1 {
				return core.RetryAfter(errBoom, 25*time.Hour)
			}
			return errBoom
		})
		fx.enqueue("m1")
		fx.advance(30 * time.Hour)
		equal(fx, "runs", runs, 5)
		fx.onlyMessage("error")
	})
}

// A decision that is carried out later, by another delivery, is not counted either.
func TestRetryAfter_CarriedOutLaterIsNotCounted(t *testing.T) {
	for name, group := range map[string]string{"copy": "", "in place": "customer 7"} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				fx.broker.setFaults(faults{send: failSendsToQueue("orders"), settle: func(operation string, _ *core.Incoming) error {
					if operation == "Postpone" {
						return errors.New("cannot postpone")
					}
					return nil
				}})
				var seen recorder[string]
				ep := fx.newEndpoint("orders", core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 1}}})
				fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
					if seen.add(fmt.Sprintf("%d/%d", m.Attempt, m.DelayedRetries)) == 1 {
						return core.RetryAfter(errBoom, time.Second)
					}
					return errBoom
				})
				run := fx.run(ep)
				m := order("m1")
				m.GroupKey = group
				fx.send(m)
				fx.advance(5 * time.Second)
				fx.noError(run.stop())
				equal(fx, "attempts before it can be carried out", seen.len(), 1)
				fx.broker.setFaults(faults{})
				fx.run(ep)
				fx.advance(time.Minute)
				equal(fx, "attempts", strings.Join(seen.all(), " "), "1/0 1/0 1/1")
				fx.onlyMessage("error")
			})
		})
	}
}

// Of a message of a group a new process knows no first failure, and the sender's header stays.
func TestRetryAfter_InPlaceEndsWithoutMemory(t *testing.T) {
	for name, trace := range map[string]string{"no trace": "", "a forged one": `[{"at":"2999-01-01 00:00:00:000000 Z","action":"DelayedRetry"}]`} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				runs := 0
				process := func() *runningEndpoint {
					ep := fx.newEndpoint("orders", core.Config{Recoverability: core.Recoverability{
						Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 2}, MaxDeliveries: core.Off,
					}})
					fx.handle(ep, "order", func(context.Context, *core.Message) error { runs++; return core.RetryAfter(errBoom, time.Second) })
					return fx.run(ep)
				}
				m := order("m1")
				m.GroupKey = "customer 7"
				if trace != "" {
					m.Headers.Set(headers.Attempts, trace)
				}
				fx.send(m)
				for range 20 {
					run := process()
					fx.advance(500 * time.Millisecond)
					fx.noError(run.stop())
					fx.advance(500 * time.Millisecond)
				}
				fx.onlyMessage("error")
				equal(fx, "runs", runs, 5) // four deliveries count as two rounds
			})
		})
	}
}

// Where the trace does not fit into the message, the time of the first failure does; where
// that does not fit, the message goes to the error queue (R24).
func TestRetryAfter_WithoutRoomForTheTrace(t *testing.T) {
	const limit = 10 * time.Second
	handled := map[string]func(n int) error{
		"outage":      func(int) error { return core.RetryAfter(errBoom, time.Second) },
		"alternating": func(n int) error { return []error{core.RetryAfter(errBoom, time.Second), errBoom}[n%2] },
		"with deferrals": func(n int) error {
			return []error{core.RetryAfter(errBoom, time.Second), core.Defer(errBoom, time.Second), core.Refuse(errBoom, time.Second)}[n%3]
		},
	}
	for name, answer := range handled {
		t.Run(name, func(t *testing.T) {
			byTime := 0
			for room := 0; room < 400; room += 8 {
				inModes(t, retryModes[:1], func(fx *fixture) {
					m := order("m1")
					m.Body = make([]byte, 1000)
					fx.broker.setFaults(faults{send: refuseAbove(m.Headers.Bytes() + len(m.Body) + room)})
					runs := 0
					fx.runOrders(core.Config{Recoverability: core.Recoverability{
						Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{TimeIncrease: time.Second}, RetryAfterLimit: limit,
					}}, func(context.Context, *core.Message) error { runs++; return answer(runs - 1) })
					fx.send(m)
					fx.advance(time.Hour)
					fx.onlyMessage("error")
					fx.wantDepth("orders", 0)
					if name == "outage" && runs != 1 && runs != 12 {
						fx.Errorf("room for %d bytes: %d runs, want 1 or those of %v", room, runs, limit)
					}
					if runs == 12 {
						byTime++
					}
					if runs > 60 {
						fx.Errorf("room for %d bytes: %d runs", room, runs)
					}
				})
			}
			if name == "outage" && byTime < 30 {
				t.Errorf("bounded by time with %d budgets alone", byTime)
			}
		})
	}
}
