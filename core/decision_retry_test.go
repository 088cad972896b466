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
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// Messages that can be neither moved nor stored are kept by the process, without a slot.

// Neither the error queue nor the endpoint's own takes the message: it is kept without a
// slot, and tried after pauses of 1, 2, 4, 8, 16, 30, 30, ... s.
func TestUndelivered_KeptWhereItCannotBeStored(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
		reachable := fx.failSendsTo("error", "orders")
		runs := 0
		var critical recorder[error]
		ep, _ := fx.runOrders(core.Config{Recoverability: noRetries, Observers: []core.Observer{{CriticalError: func(_ context.Context, _ *core.Endpoint, err error) { critical.add(err) }}}},
			func(context.Context, *core.Message) error {
				runs++
				return errBoom
			})
		fx.enqueue("m1")
		fx.advance(time.Hour)
		equal(fx, "runs", runs, 1)
		equal(fx, "orders", fx.depth("orders"), queues.Depth{Locked: 1})
		health := ep.Health()
		equal(fx, "undelivered", health.Undelivered, 1)
		equal(fx, "unsettled", health.Unsettled, 1)
		equal(fx, "in flight", health.InFlight, 0)
		if text := critical.all()[1].Error(); !containsAll(text, "m1", "cannot send to error", "cannot send to orders", "1s") {
			fx.Errorf("the second critical error says %q", text)
		}
		reachable()
		fx.advance(30 * time.Second)
		fx.onlyMessage("error")
		fx.wantDepth("orders", 0)
		equal(fx, "runs", runs, 1)
		equal(fx, "unsettled", ep.Health().Unsettled, 0)
	})
}

func TestDecisionRetry_DelayedRetryIsRepeatedUntilItSucceeds(t *testing.T) {
	for name, fail := range map[string]error{"policy": errBoom, "defer": core.Defer(errors.New("not yet"), 10*time.Second), "retry after": core.RetryAfter(errBoom, 10*time.Second)} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				reachable := fx.failSendsTo("orders")
				runs := 0
				fx.runOrders(core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}}}, func(context.Context, *core.Message) error {
					if runs++; runs == 1 {
						return fail
					}
					return nil
				})
				fx.enqueue("m1")
				fx.advance(5*time.Second + time.Millisecond)
				equal(fx, "runs while it cannot be sent", runs, 1)
				reachable()
				fx.advance(2 * time.Second) // the try after 7 s succeeds
				equal(fx, "messages delayed", fx.depth("orders").Delayed, 1)
				fx.advance(10 * time.Second)
				equal(fx, "runs", runs, 2)
				fx.wantDepth("orders", 0)
				fx.wantDepth("error", 0)
			})
		})
	}
}

func TestDecisionRetry_PauseDoesNotOutliveShutdown(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		reachable := fx.failSendsTo("error", "orders")
		runs := 0
		ep, run := fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
			runs++
			return errBoom
		})
		fx.enqueue("m1")
		fx.advance(10 * time.Second) // in the pause of 8 s
		start := time.Now()
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		equal(fx, "time to shut down", time.Since(start), 0)
		equal(fx, "messages ready", fx.depth("orders").Ready, 1)
		equal(fx, "delivery count", fx.onlyMessage("orders").DeliveryCount, 1)
		reachable()
		fx.run(ep)
		fx.wantDepth("orders", 0)
		fx.onlyMessage("error")
		equal(fx, "runs", runs, 1)
	})
}

// At a bound nothing more is fetched, and that is said; the kept deliveries stay.
func TestDecisionRetry_Bound(t *testing.T) {
	inModes(t, retryModes[1:], func(fx *fixture) {
		reachable := fx.failSendsTo("error", "orders")
		var critical recorder[error]
		ep, _ := fx.runOrders(core.Config{Concurrency: 12, Recoverability: noRetries, Observers: []core.Observer{{CriticalError: func(_ context.Context, _ *core.Endpoint, err error) { critical.add(err) }}}},
			func(_ context.Context, m *core.Message) error {
				if m.ID == "good" {
					return nil
				}
				return errBoom
			})
		for i := range 11 {
			fx.enqueue(fmt.Sprint("m", i))
		}
		equal(fx, "stalled by eleven", ep.Health().Stalled, false)
		fx.enqueue("m11")
		equal(fx, "stalled by twelve", ep.Health().Stalled, true)
		fx.enqueue("good")
		equal(fx, "orders", fx.depth("orders"), queues.Depth{Ready: 1, Locked: 12})
		equal(fx, "critical errors about it", strings.Count(fmt.Sprint(critical.all()), "no more messages are fetched"), 1)
		reachable()
		fx.advance(time.Minute)
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 12)
		equal(fx, "stalled", ep.Health().Stalled, false)
	})
}

// A queue that a verdict or a policy named is not the endpoint's own: no note is
// followed there. After a minute the error queue takes its place.
func TestDecisionRetry_CustomQueueGivesWayToTheErrorQueue(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.failSendsTo("shipping")
		fx.runOrders(core.Config{}, func(context.Context, *core.Message) error { return core.GiveUpTo(errBoom, "shipping") })
		fx.enqueue("m1")
		fx.advance(30 * time.Second)
		fx.wantDepth("error", 0)
		fx.wantDepth("orders", 1)
		fx.advance(2 * time.Minute)
		fx.onlyMessage("error")
		fx.wantDepth("orders", 0)
	})
}

func TestDecisionRetry_DeadLetteringIsRepeated(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var broken atomic.Bool
		broken.Store(true)
		fx.broker.setFaults(faults{settle: func(operation string, _ *core.Incoming) error {
			if operation == "DeadLetter" && broken.Load() {
				return errBoom
			}
			return nil
		}})
		runs := 0
		fx.runOrders(core.Config{Recoverability: core.Recoverability{}}, func(context.Context, *core.Message) error {
			runs++
			return core.GiveUpTo(errors.New("rejected"), core.DeadLetterQueue)
		})
		fx.enqueue("m1")
		fx.wantDepth("orders", 1)
		broken.Store(false)
		fx.advance(time.Second)
		letter := fx.onlyMessage(inmemory.DeadLetterQueue("orders"))
		equal(fx, "description", letter.Headers.Get(inmemory.HeaderDeadLetterDescription), "rejected")
		equal(fx, "runs", runs, 1)
	})
}

func TestDecisionRetry_InNoneItIsLostAndSaysSo(t *testing.T) {
	inModes(t, allModes[:1], func(fx *fixture) {
		fx.failSendsTo("error")
		var critical recorder[error]
		ep, _ := fx.runOrders(core.Config{Observers: []core.Observer{{CriticalError: func(_ context.Context, _ *core.Endpoint, err error) { critical.add(err) }}}},
			func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		fx.advance(time.Minute)
		if critical.len() != 1 {
			fx.Fatalf("critical errors %v, want one", critical.all())
		}
		err := critical.all()[0]
		if !containsAll(err.Error(), "m1", "10 bytes", "lost", "boom", "cannot send to error") || !errors.Is(err, errBoom) {
			fx.Errorf("the critical error says %q", err)
		}
		last := ep.Health().LastCritical
		if last == nil || last.Err.Error() != err.Error() {
			fx.Errorf("Health tells %+v", last)
		}
		equal(fx, "undelivered", ep.Health().Undelivered, 0)
	})
}

// The lock of a message that is kept may be lost: it is redelivered, and the decision
// about it is carried out then, without its handler.
func TestDecisionRetry_LockLostWhileKept(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
		reachable := fx.failSendsTo("error", "orders")
		fx.broker.mu.Lock()
		fx.broker.faults.settle = func(operation string, _ *core.Incoming) error {
			if operation == "Renew" {
				return errBoom
			}
			return nil
		}
		fx.broker.mu.Unlock()
		runs := 0
		fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
			runs++
			return errBoom
		})
		fx.enqueue("m1")
		fx.advance(25 * time.Second)
		reachable()
		fx.advance(time.Minute)
		fx.onlyMessage("error")
		fx.wantDepth("orders", 0)
		equal(fx, "runs", runs, 1)
	})
}

// A broker that takes a delivery away after a while gets it back before.
func TestDecisionRetry_ReleasedBeforeTheLongestLockTime(t *testing.T) {
	inModesWith(t, withCapabilities(func(c *core.Capabilities) { c.MaxLockTime = time.Hour }), retryModes, func(fx *fixture) {
		fx.failSendsTo("error", "orders")
		runs := 0
		fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
			runs++
			return errBoom
		})
		fx.enqueue("m1")
		fx.advance(29 * time.Minute)
		equal(fx, "given back after 29 minutes", fx.broker.countSettled("Release", "m1"), 0)
		fx.advance(5 * time.Hour)
		if n := fx.broker.countSettled("Release", "m1"); n < 9 || n > 11 {
			fx.Errorf("given back %d times in five and a half hours, want every half hour", n)
		}
		equal(fx, "runs", runs, 1)
	})
}

// With one slot, one message that no queue takes stopped an endpoint in
// SendsAtomicWithReceive.
func TestDecisionRetry_OneMessageDoesNotStall(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.failSendsTo("error", "orders")
		handled := 0
		fx.runOrders(core.Config{Concurrency: 1, Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			if m.ID == "bad" {
				return errBoom
			}
			handled++
			return nil
		})
		fx.enqueue("bad", "good")
		equal(fx, "handled", handled, 1)
	})
}

// The broker settled a message, and its answer was lost. Each further settlement was
// ErrSettled, and the message was kept without end.
func TestDecisionRetry_LostAnswerOfASettlement(t *testing.T) {
	for name, c := range map[string]struct {
		operation string
		modes     []core.TransactionMode
		result    error
		config    core.Config
		moved     string
	}{
		"move":          {"ReplaceWith", allModes[2:], errBoom, core.Config{Recoverability: noRetries}, "error"},
		"discard":       {"ReplaceWith", allModes[2:], core.Discard(errors.New("old")), core.Config{}, ""},
		"success":       {"CompleteWith", allModes[2:], nil, core.Config{Recoverability: noRetries}, ""},
		"with an audit": {"CompleteWith", allModes[2:], nil, core.Config{AuditQueue: "audit", Recoverability: noRetries}, "audit"},
		"dead-lettered": {"DeadLetter", retryModes, core.GiveUpTo(errBoom, core.DeadLetterQueue), core.Config{Recoverability: core.Recoverability{}}, inmemory.DeadLetterQueue("orders")},
	} {
		t.Run(name, func(t *testing.T) {
			for lock, cfg := range map[string]inmemory.Config{"no lock that ends": {}, "a lock": expiringLocks} {
				t.Run(lock, func(t *testing.T) {
					inModesWith(t, cfg, c.modes, func(fx *fixture) {
						fx.provision("audit")
						fx.broker.changeFaults(func(f *faults) { f.afterSettle = loseAnswerOnce(c.operation) })
						runs := 0
						ep, _ := fx.runOrders(c.config, func(context.Context, *core.Message) error {
							runs++
							return c.result
						})
						fx.enqueue("m1")
						fx.advance(11 * time.Minute)
						equal(fx, "runs", runs, 1)
						equal(fx, "unsettled", ep.Health().Unsettled, 0)
						equal(fx, "undelivered", ep.Health().Undelivered, 0)
						equal(fx, "unreachable since", ep.Health().UnreachableSince, time.Time{})
						fx.wantDepth("orders", 0)
						for _, queue := range []string{"error", "audit", inmemory.DeadLetterQueue("orders")} {
							want := 0
							if queue == c.moved {
								want = 1
							}
							fx.wantDepth(queue, want)
						}
						renewals := fx.broker.renewals()
						fx.advance(time.Minute)
						equal(fx, "renewals after the end", fx.broker.renewals()-renewals, 0)
					})
				})
			}
		})
	}
}

// A stored message whose settlement has happened is not kept without end either.
func TestUndelivered_LostAnswerForAStoredMessage(t *testing.T) {
	inModes(t, allModes[2:], func(fx *fixture) {
		reachable := fx.failSendsTo("error")
		ep, _ := fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		reachable()
		fx.broker.changeFaults(func(f *faults) { f.afterSettle = loseAnswerOnce("ReplaceWith") })
		fx.advance(time.Minute)
		fx.onlyMessage("error")
		fx.wantDepth("orders", 0)
		equal(fx, "unsettled", ep.Health().Unsettled, 0)
	})
}

// Not every transport tells that it has lost a delivery: RabbitMQ's locks end with the
// connection. Each delivery of a message was kept, and moved in the end.
func TestDecisionRetry_RedeliveredWhileKept(t *testing.T) {
	for name, c := range map[string]struct {
		config core.Recoverability
		stored bool
		runs   int
		failed int
	}{
		"failed message": {noRetries, false, 1, 1},
		"stored message": {noRetries, true, 1, 1},
		"delayed retry":  {core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}}, false, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
				unaware := func(f *faults) {
					f.lockedUntil = func(*core.Incoming) time.Time { return time.Now().Add(24 * time.Hour) }
				}
				runs := 0
				ep, _ := fx.runOrders(core.Config{Recoverability: c.config}, func(context.Context, *core.Message) error {
					if runs++; runs > 1 {
						return nil
					}
					return errBoom
				})
				if c.stored {
					fx.failSendsTo("error")
					fx.enqueue("m1")
				}
				reachable := fx.failSendsTo("error", "orders")
				fx.broker.changeFaults(unaware)
				if !c.stored {
					fx.enqueue("m1")
				}
				fx.advance(45 * time.Second)
				equal(fx, "unsettled", ep.Health().Unsettled, 1)
				fx.broker.changeFaults(func(f *faults) { f.lockedUntil = nil })
				reachable()
				fx.advance(5 * time.Minute)
				equal(fx, "runs", runs, c.runs)
				fx.wantDepth("error", c.failed)
				fx.wantDepth("orders", 0)
				equal(fx, "unsettled", ep.Health().Unsettled, 0)
			})
		})
	}
}

// The time of the handler counts too.
func TestDecisionRetry_ReleasedInTimeAfterASlowHandler(t *testing.T) {
	inModesWith(t, withCapabilities(func(c *core.Capabilities) { c.MaxLockTime = time.Hour }), retryModes, func(fx *fixture) {
		fx.failSendsTo("error", "orders")
		fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
			time.Sleep(25 * time.Minute)
			return errBoom
		})
		fx.enqueue("m1")
		fx.advance(32 * time.Minute)
		equal(fx, "given back after 32 minutes", fx.broker.countSettled("Release", "m1"), 1)
	})
}

// An endpoint in None may find messages that one in another mode stored.
func TestUndelivered_StoredMessageInNone(t *testing.T) {
	inModes(t, allModes[:1], func(fx *fixture) {
		reachable := fx.failSendsTo("error", "orders")
		ep, run := fx.runOrders(core.Config{}, func(context.Context, *core.Message) error { return nil })
		stored := func(id string) core.Outgoing {
			m := order(id)
			m.Headers.Set(headers.Undelivered, `{"queue":"error","tries":1,"since":"x"}`)
			m.Headers.Set(headers.FailedQ, "orders")
			return m
		}
		fx.send(stored("m1"))
		fx.advance(time.Minute)
		equal(fx, "unsettled", ep.Health().Unsettled, 1)
		reachable()
		fx.advance(time.Minute)
		fx.onlyMessage("error")
		fx.failSendsTo("error", "orders")
		fx.send(stored("m2"))
		fx.advance(time.Minute)
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		if text := fmt.Sprint(ep.Health().LastCritical); !containsAll(text, "m2", "lost") {
			fx.Errorf("the last critical error is %q", text)
		}
	})
}
