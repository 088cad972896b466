package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// pausedRetries allows immediate retries after pauses of 1 s, 2 s, 2 s, ..., and no
// others.
func pausedRetries(retries int) core.Recoverability {
	r := immediateRetries(retries)
	r.Immediate.Pause, r.Immediate.MaxPause = time.Second, 2*time.Second
	return r
}

// wantPauses checks times between attempts against the pauses that there should be, which
// are longer by a half at most.
func wantPauses(fx *fixture, at []time.Time, pauses ...time.Duration) {
	fx.Helper()
	if len(at) != len(pauses)+1 {
		fx.Fatalf("%d attempts, want %d", len(at), len(pauses)+1)
	}
	for i, want := range pauses {
		if got := at[i+1].Sub(at[i]); got < want || got > want+want/2 {
			fx.Errorf("pause %d is %v, want %v to %v", i+1, got, want, want+want/2)
		}
	}
}

func TestRetryPause_GrowsAndTakesNoSlot(t *testing.T) {
	for _, group := range []string{"", "g"} {
		t.Run(fmt.Sprintf("group %q", group), func(t *testing.T) {
			inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
				var attempts recorder[time.Time]
				var recovered recoveryRecorder
				handled := map[string]time.Duration{}
				start := time.Now()
				ep, _ := fx.runOrders(core.Config{Concurrency: 1, Recoverability: pausedRetries(4), Observers: []core.Observer{recovered.observer()}}, func(_ context.Context, m *core.Message) error {
					if m.ID != "fails" {
						handled[m.ID] = time.Since(start)
						return nil
					}
					attempts.add(time.Now())
					equal(fx, "attempt", m.Attempt, len(attempts.all()))
					return errBoom
				})
				failing := order("fails")
				failing.GroupKey = group
				fx.send(failing)
				synctest.Wait()
				fx.send(order("other"))
				fx.advance(100 * time.Millisecond)
				if _, ok := handled["other"]; !ok {
					fx.Error("another message waits for the pause of one that failed")
				}
				if group == "" {
					equal(fx, "Health.Retrying", ep.Health().Retrying, 1)
				}
				fx.advance(time.Minute)
				wantPauses(fx, attempts.all(), time.Second, 2*time.Second, 2*time.Second, 2*time.Second)
				equal(fx, "Health.Retrying", ep.Health().Retrying, 0)
				fx.wantDepth("error", 1)
				if first := recovered.all()[0].Action; first.Kind != core.ActionImmediateRetry || first.Delay < time.Second {
					fx.Errorf("observers are told of %v, want the pause", first)
				}
			})
		})
	}
}

// Its group waits for a message that waits for its retry.
func TestRetryPause_KeepsOrderOfGroup(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var handled recorder[string]
		fx.runOrders(core.Config{Recoverability: pausedRetries(2)}, func(_ context.Context, m *core.Message) error {
			handled.add(fmt.Sprint(m.ID, m.Attempt))
			if m.ID == "a" && m.Attempt < 3 {
				return errBoom
			}
			return nil
		})
		for _, id := range []string{"a", "b"} {
			out := order(id)
			out.GroupKey = "g"
			fx.send(out)
		}
		fx.advance(time.Minute)
		if got, want := handled.all(), []string{"a1", "a2", "a3", "b1"}; !slices.Equal(got, want) {
			fx.Errorf("handled %q, want %q", got, want)
		}
	})
}

// A lock is renewed for as long as its message waits, and never longer than the broker allows.
func TestRetryPause_WithinTheLock(t *testing.T) {
	r := immediateRetries(1)
	r.Immediate.Pause = time.Minute
	for name, c := range map[string]struct {
		config   inmemory.Config
		from, to time.Duration
	}{
		"renewed":           {expiringLocks, time.Minute, 90 * time.Second},
		"shorter than that": {inmemory.Config{LockDuration: 10 * time.Second, Capabilities: longestLock(40 * time.Second)}, 20 * time.Second, 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubbleWith(t, c.config, func(fx *fixture) {
				fx.mode = core.TransactionReceiveOnly
				var attempts recorder[time.Time]
				fx.runOrders(core.Config{Recoverability: r}, func(_ context.Context, m *core.Message) error {
					attempts.add(time.Now())
					equal(fx, "attempt", m.Attempt, len(attempts.all()))
					return errBoom
				})
				fx.enqueue("m1")
				fx.advance(time.Hour)
				at := attempts.all()
				if len(at) != 2 {
					fx.Fatalf("%d attempts, want 2", len(at))
				}
				if got := at[1].Sub(at[0]); got < c.from || got > c.to {
					fx.Errorf("the pause is %v, want %v to %v", got, c.from, c.to)
				}
				fx.wantDepth("error", 1)
			})
		})
	}
}

func longestLock(d time.Duration) *core.Capabilities {
	caps := inmemory.Everything()
	caps.MaxLockTime = d
	return &caps
}

// A shutdown ends the pause, and the attempt before it counts.
func TestRetryPause_EndsWithTheEndpoint(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
		var attempts recorder[int]
		ep, run := fx.runOrders(core.Config{Recoverability: pausedRetries(2)}, func(_ context.Context, m *core.Message) error {
			attempts.add(m.Attempt)
			return errBoom
		})
		fx.enqueue("m1")
		synctest.Wait()
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		fx.wantDepth("orders", 1)
		fx.run(ep)
		fx.advance(time.Hour)
		if got, want := attempts.all(), []int{1, 2, 3}; !slices.Equal(got, want) {
			fx.Errorf("attempts %v, want %v", got, want)
		}
		fx.wantDepth("error", 1)
	})
}

// Nothing is fetched while as many messages wait as can, and none is lost.
func TestRetryPause_IsBounded(t *testing.T) {
	const n = 1200
	inModes(t, retryModes, func(fx *fixture) {
		limit := 1000
		if fx.mode == core.TransactionSendsAtomicWithReceive {
			limit = 10
		}
		var attempts atomic.Int64
		ep, _ := fx.runOrders(core.Config{Concurrency: 4, Recoverability: pausedRetries(1)}, func(context.Context, *core.Message) error {
			attempts.Add(1)
			return errBoom
		})
		ids := make([]string, n)
		for i := range ids {
			ids[i] = fmt.Sprint("m", i)
		}
		fx.enqueue(ids...)
		fx.advance(500 * time.Millisecond)
		if waiting := ep.Health().Retrying; waiting < limit || waiting > limit+4 {
			fx.Errorf("%d messages wait for their retry, want %d, and at most one more in each slot", waiting, limit)
		}
		fx.advance(24 * time.Hour)
		equal(fx, "attempts", attempts.Load(), 2*n)
		fx.wantDepth("error", n)
	})
}

// The work of a handler in the transaction is undone before the pause: its locks would last.
func TestRetryPause_UndoesTheHandlersWork(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var undone recorder[string]
		fx.broker.setFaults(faults{settle: func(operation string, _ *core.Incoming) error {
			undone.add(operation)
			return nil
		}})
		fx.runOrders(core.Config{Recoverability: pausedRetries(1)}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		synctest.Wait()
		if got := undone.all(); !slices.Equal(got, []string{"Reset"}) {
			fx.Errorf("during the pause %q were called, want Reset", got)
		}
		fx.advance(time.Hour)
		fx.wantDepth("error", 1)
	})
}

// Where it cannot be undone there is no pause.
func TestRetryPause_NotWithWorkThatIsNotUndone(t *testing.T) {
	bubble(t, func(fx *fixture) {
		fx.broker.setFaults(faults{settle: func(operation string, _ *core.Incoming) error {
			if operation == "Reset" {
				return errors.New("the connection is broken")
			}
			return nil
		}})
		var attempts atomic.Int64
		fx.runOrders(core.Config{Recoverability: pausedRetries(1)}, func(context.Context, *core.Message) error {
			attempts.Add(1)
			return errBoom
		})
		fx.enqueue("m1")
		synctest.Wait()
		equal(fx, "attempts at once", attempts.Load(), 2)
	})
}

// A policy chooses the pause, and none of more than a minute. Observers are told of the pause
// that is made.
func TestRetryPause_OfAPolicy(t *testing.T) {
	for asked, want := range map[time.Duration]time.Duration{0: 0, 3 * time.Second: 3 * time.Second, time.Hour: time.Minute} {
		inModes(t, retryModes, func(fx *fixture) {
			var attempts recorder[time.Time]
			var recovered recoveryRecorder
			policy := func(_ context.Context, c core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
				equal(fx, "Pause in the policy's configuration", c.Immediate.Pause, time.Second)
				if f.ImmediateProcessingFailures > 1 {
					return core.MoveToError(""), nil
				}
				retry := core.ImmediateRetry()
				retry.Delay = asked
				return retry, nil
			}
			r := pausedRetries(1)
			r.Policy = policy
			fx.runOrders(core.Config{Recoverability: r, Observers: []core.Observer{recovered.observer()}}, func(context.Context, *core.Message) error {
				attempts.add(time.Now())
				return errBoom
			})
			fx.enqueue("m1")
			fx.advance(time.Hour)
			at := attempts.all()
			if len(at) != 2 || at[1].Sub(at[0]) != want {
				fx.Errorf("attempts at %v, want two with a pause of %v", at, want)
			}
			equal(fx, "pause that observers are told", recovered.all()[0].Action.Delay, want)
		})
	}
}

func TestRetryPause_Config(t *testing.T) {
	caps := inmemory.Everything()
	transport, err := inmemory.New(inmemory.Config{Capabilities: &caps})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		immediate core.Immediate
		mode      core.TransactionMode
		says      string
	}{
		"negative":          {core.Immediate{Pause: -2}, 0, "Immediate.Pause is -2ns"},
		"negative MaxPause": {core.Immediate{Pause: 1, MaxPause: -1}, 0, "Immediate.MaxPause is -1ns"},
		"with Off":          {core.Immediate{Pause: 1, NumberOfRetries: core.Off}, 0, "remove one of the two"},
		"too long":          {core.Immediate{Pause: time.Hour}, 0, "use at most 1m0s, and Delayed for longer ones"},
		"MaxPause too long": {core.Immediate{Pause: 1, MaxPause: time.Hour}, 0, "use at most 1m0s"},
		"MaxPause alone":    {core.Immediate{MaxPause: time.Second}, 0, "there is no pause to limit"},
		"MaxPause below it": {core.Immediate{Pause: 2, MaxPause: 1}, 0, "below its Pause of 2ns"},
		"without retries":   {core.Immediate{Pause: 1}, core.TransactionNone, "in which there are no immediate retries"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := core.New("orders", transport, core.Config{Transactions: c.mode, Recoverability: core.Recoverability{Immediate: c.immediate}})
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("New returned %v, want an error with %q", err, c.says)
			}
		})
	}

	config := core.Config{Recoverability: core.Recoverability{
		Immediate: core.Immediate{NumberOfRetries: 2, Pause: 3 * time.Second},
		MessageTypes: map[string]core.TypeRecoverability{
			"quick":   {Immediate: core.Immediate{Pause: core.Off}},
			"patient": {Immediate: core.Immediate{Pause: 20 * time.Second}},
		},
	}}
	ep, err := core.New("orders", transport, config)
	if err != nil {
		t.Fatal(err)
	}
	for messageType, want := range map[string][2]time.Duration{"": {3 * time.Second, 10 * time.Second}, "quick": {}, "patient": {20 * time.Second, 20 * time.Second}} {
		got := ep.RecoverabilityConfig(messageType).Immediate
		if got.MaxNumberOfRetries != 2 || got.Pause != want[0] || got.MaxPause != want[1] {
			t.Errorf("in force for %q is %+v, want 2 retries, %v", messageType, got, want)
		}
	}
	second, err := core.New("orders", transport, ep.Config())
	if err != nil {
		t.Fatal(err)
	}
	for _, messageType := range []string{"", "quick", "patient"} {
		if got, want := second.RecoverabilityConfig(messageType).Immediate, ep.RecoverabilityConfig(messageType).Immediate; got != want {
			t.Errorf("from the configuration in force comes %+v for %q, want %+v", got, messageType, want)
		}
	}
}
