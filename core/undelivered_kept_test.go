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
	"github.com/reprise-go/reprise/transport/inmemory"
)

// Messages that can be neither moved nor stored are kept by the process, without a slot.

// Neither the error queue nor the endpoint's own takes the message: it is kept without a
// slot, and tried after pauses of 1, 2, 4, 8, 16, 30, 30, ... s.
func TestUndelivered_KeptWhereItCannotBeStored(t *testing.T) {
	inModesOn(t, locking, retrying, func(b *bed) {
		reachable := b.unreachable("error", "orders")
		runs := 0
		var critical record[error]
		ep, _ := b.orders(core.Config{Recoverability: noRetries, OnCriticalError: func(_ context.Context, err error) { critical.add(err) }},
			func(context.Context, *core.Message) error {
				runs++
				return errBoom
			})
		b.put("m1")
		b.pass(time.Hour)
		equal(b, "runs", runs, 1)
		equal(b, "orders", b.depth("orders"), inmemory.Depth{InFlight: 1})
		health := ep.Health()
		equal(b, "undelivered", health.Undelivered, 1)
		equal(b, "unsettled", health.Unsettled, 1)
		equal(b, "in flight", health.InFlight, 0)
		if text := critical.all()[1].Error(); !containsAll(text, "m1", "cannot send to error", "cannot send to orders", "1s") {
			b.Errorf("the second critical error says %q", text)
		}
		reachable()
		b.pass(30 * time.Second)
		b.only("error")
		b.holds("orders", 0)
		equal(b, "runs", runs, 1)
		equal(b, "unsettled", ep.Health().Unsettled, 0)
	})
}

func TestUndelivered_DelayedRetryIsRepeatedUntilItSucceeds(t *testing.T) {
	for name, fail := range map[string]error{"policy": errBoom, "defer": core.Defer(10 * time.Second), "retry after": core.RetryAfter(errBoom, 10*time.Second)} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retrying, func(b *bed) {
				reachable := b.unreachable("orders")
				runs := 0
				b.orders(core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{Off: true}}}, func(context.Context, *core.Message) error {
					if runs++; runs == 1 {
						return fail
					}
					return nil
				})
				b.put("m1")
				b.pass(5*time.Second + time.Millisecond)
				equal(b, "runs while it cannot be sent", runs, 1)
				reachable()
				b.pass(2 * time.Second) // the try after 7 s succeeds
				equal(b, "messages delayed", b.depth("orders").Delayed, 1)
				b.pass(10 * time.Second)
				equal(b, "runs", runs, 2)
				b.holds("orders", 0)
				b.holds("error", 0)
			})
		})
	}
}

func TestUndelivered_PauseDoesNotOutliveShutdown(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		reachable := b.unreachable("error", "orders")
		runs := 0
		ep, run := b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
			runs++
			return errBoom
		})
		b.put("m1")
		b.pass(10 * time.Second) // in the pause of 8 s
		start := time.Now()
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		equal(b, "time to shut down", time.Since(start), 0)
		equal(b, "messages ready", b.depth("orders").Ready, 1)
		equal(b, "delivery count", b.only("orders").DeliveryCount, 1)
		reachable()
		b.run(ep)
		b.holds("orders", 0)
		b.only("error")
		equal(b, "runs", runs, 1)
	})
}

// At a bound nothing more is fetched, and that is said; the kept deliveries stay.
func TestUndelivered_Bound(t *testing.T) {
	inModes(t, retrying[1:], func(b *bed) {
		reachable := b.unreachable("error", "orders")
		var critical record[error]
		ep, _ := b.orders(core.Config{Concurrency: 12, Recoverability: noRetries, OnCriticalError: func(_ context.Context, err error) { critical.add(err) }},
			func(_ context.Context, m *core.Message) error {
				if m.ID == "good" {
					return nil
				}
				return errBoom
			})
		for i := range 11 {
			b.put(fmt.Sprint("m", i))
		}
		equal(b, "stalled by eleven", ep.Health().Stalled, false)
		b.put("m11")
		equal(b, "stalled by twelve", ep.Health().Stalled, true)
		b.put("good")
		equal(b, "orders", b.depth("orders"), inmemory.Depth{Ready: 1, InFlight: 12})
		equal(b, "critical errors about it", strings.Count(fmt.Sprint(critical.all()), "no more messages are fetched"), 1)
		reachable()
		b.pass(time.Minute)
		b.holds("orders", 0)
		b.holds("error", 12)
		equal(b, "stalled", ep.Health().Stalled, false)
	})
}

// A queue that a verdict or a policy named is not the endpoint's own: no note is
// followed there. After a minute the error queue takes its place.
func TestUndelivered_CustomQueueGivesWayToTheErrorQueue(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.unreachable("shipping")
		b.orders(core.Config{}, func(context.Context, *core.Message) error { return core.MoveTo(errBoom, "shipping") })
		b.put("m1")
		b.pass(30 * time.Second)
		b.holds("error", 0)
		b.holds("orders", 1)
		b.pass(2 * time.Minute)
		b.only("error")
		b.holds("orders", 0)
	})
}

func TestUndelivered_DeadLetteringIsRepeated(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var broken atomic.Bool
		broken.Store(true)
		b.broker.provoke(faults{settle: func(operation string, _ *core.Incoming) error {
			if operation == "DeadLetter" && broken.Load() {
				return errBoom
			}
			return nil
		}})
		runs := 0
		b.orders(core.Config{Recoverability: core.Recoverability{DeadLetter: core.DeadLettersRejected}}, func(context.Context, *core.Message) error {
			runs++
			return core.Reject(errors.New("rejected"))
		})
		b.put("m1")
		b.holds("orders", 1)
		broken.Store(false)
		b.pass(time.Second)
		letter := b.only(inmemory.DeadLetterQueue("orders"))
		equal(b, "description", letter.Headers.Get(inmemory.HeaderDeadLetterDescription), "rejected")
		equal(b, "runs", runs, 1)
	})
}

func TestUndelivered_InNoneItIsLostAndSaysSo(t *testing.T) {
	inModes(t, everyMode[:1], func(b *bed) {
		b.unreachable("error")
		var critical record[error]
		ep, _ := b.orders(core.Config{OnCriticalError: func(_ context.Context, err error) { critical.add(err) }},
			func(context.Context, *core.Message) error { return errBoom })
		b.put("m1")
		b.pass(time.Minute)
		if critical.len() != 1 {
			b.Fatalf("critical errors %v, want one", critical.all())
		}
		err := critical.all()[0]
		if !containsAll(err.Error(), "m1", "10 bytes", "lost", "boom", "cannot send to error") || !errors.Is(err, errBoom) {
			b.Errorf("the critical error says %q", err)
		}
		last := ep.Health().LastCritical
		if last == nil || last.Err.Error() != err.Error() {
			b.Errorf("Health tells %+v", last)
		}
		equal(b, "undelivered", ep.Health().Undelivered, 0)
	})
}

// The lock of a message that is kept may be lost: it is redelivered, and the decision
// about it is carried out then, without its handler.
func TestUndelivered_LockLostWhileKept(t *testing.T) {
	inModesOn(t, locking, retrying, func(b *bed) {
		reachable := b.unreachable("error", "orders")
		b.broker.mu.Lock()
		b.broker.faults.settle = func(operation string, _ *core.Incoming) error {
			if operation == "Renew" {
				return errBoom
			}
			return nil
		}
		b.broker.mu.Unlock()
		runs := 0
		b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
			runs++
			return errBoom
		})
		b.put("m1")
		b.pass(25 * time.Second)
		reachable()
		b.pass(time.Minute)
		b.only("error")
		b.holds("orders", 0)
		equal(b, "runs", runs, 1)
	})
}

// A broker that takes a delivery away after a while gets it back before.
func TestUndelivered_ReleasedBeforeTheLongestLockTime(t *testing.T) {
	inModesOn(t, able(func(c *core.Capabilities) { c.MaxLockTime = time.Hour }), retrying, func(b *bed) {
		b.unreachable("error", "orders")
		runs := 0
		b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
			runs++
			return errBoom
		})
		b.put("m1")
		b.pass(29 * time.Minute)
		equal(b, "given back after 29 minutes", b.broker.settledAs("Release", "m1"), 0)
		b.pass(5 * time.Hour)
		if n := b.broker.settledAs("Release", "m1"); n < 9 || n > 11 {
			b.Errorf("given back %d times in five and a half hours, want every half hour", n)
		}
		equal(b, "runs", runs, 1)
	})
}

// With one slot, one message that no queue takes stopped an endpoint in
// SendsAtomicWithReceive.
func TestUndelivered_OneMessageDoesNotStall(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.unreachable("error", "orders")
		handled := 0
		b.orders(core.Config{Concurrency: 1, Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			if m.ID == "bad" {
				return errBoom
			}
			handled++
			return nil
		})
		b.put("bad", "good")
		equal(b, "handled", handled, 1)
	})
}

// The broker settled a message, and its answer was lost. Each further settlement was
// ErrSettled, and the message was kept without end.
func TestUndelivered_LostAnswerOfASettlement(t *testing.T) {
	for name, c := range map[string]struct {
		operation string
		modes     []core.TransactionMode
		result    error
		config    core.Config
		moved     string
	}{
		"move":          {"ReplaceWith", everyMode[2:], errBoom, core.Config{Recoverability: noRetries}, "error"},
		"discard":       {"ReplaceWith", everyMode[2:], core.Discard("old"), core.Config{}, ""},
		"success":       {"CompleteWith", everyMode[2:], nil, core.Config{Recoverability: noRetries}, ""},
		"with an audit": {"CompleteWith", everyMode[2:], nil, core.Config{AuditQueue: "audit", Recoverability: noRetries}, "audit"},
		"dead-lettered": {"DeadLetter", retrying, core.Reject(errBoom), core.Config{Recoverability: core.Recoverability{DeadLetter: core.DeadLettersRejected}}, inmemory.DeadLetterQueue("orders")},
	} {
		t.Run(name, func(t *testing.T) {
			for lock, cfg := range map[string]inmemory.Config{"no lock that ends": {}, "a lock": locking} {
				t.Run(lock, func(t *testing.T) {
					inModesOn(t, cfg, c.modes, func(b *bed) {
						b.provision("audit")
						b.broker.change(func(f *faults) { f.after = once(c.operation) })
						runs := 0
						ep, _ := b.orders(c.config, func(context.Context, *core.Message) error {
							runs++
							return c.result
						})
						b.put("m1")
						b.pass(11 * time.Minute)
						equal(b, "runs", runs, 1)
						equal(b, "unsettled", ep.Health().Unsettled, 0)
						equal(b, "undelivered", ep.Health().Undelivered, 0)
						equal(b, "unreachable since", ep.Health().UnreachableSince, time.Time{})
						b.holds("orders", 0)
						for _, queue := range []string{"error", "audit", inmemory.DeadLetterQueue("orders")} {
							want := 0
							if queue == c.moved {
								want = 1
							}
							b.holds(queue, want)
						}
						renewals := b.broker.renewals()
						b.pass(time.Minute)
						equal(b, "renewals after the end", b.broker.renewals()-renewals, 0)
					})
				})
			}
		})
	}
}

// A stored message whose settlement has happened is not kept without end either.
func TestUndelivered_LostAnswerForAStoredMessage(t *testing.T) {
	inModes(t, everyMode[2:], func(b *bed) {
		reachable := b.unreachable("error")
		ep, _ := b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		b.put("m1")
		reachable()
		b.broker.change(func(f *faults) { f.after = once("ReplaceWith") })
		b.pass(time.Minute)
		b.only("error")
		b.holds("orders", 0)
		equal(b, "unsettled", ep.Health().Unsettled, 0)
	})
}

// Not every transport tells that it has lost a delivery: RabbitMQ's locks end with the
// connection. Each delivery of a message was kept, and moved in the end.
func TestUndelivered_RedeliveredWhileKept(t *testing.T) {
	for name, c := range map[string]struct {
		config core.Recoverability
		stored bool
		runs   int
		failed int
	}{
		"failed message": {noRetries, false, 1, 1},
		"stored message": {noRetries, true, 1, 1},
		"delayed retry":  {core.Recoverability{Immediate: core.Immediate{Off: true}}, false, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, locking, retrying, func(b *bed) {
				unaware := func(f *faults) {
					f.locked = func(*core.Incoming) time.Time { return time.Now().Add(24 * time.Hour) }
				}
				runs := 0
				ep, _ := b.orders(core.Config{Recoverability: c.config}, func(context.Context, *core.Message) error {
					if runs++; runs > 1 {
						return nil
					}
					return errBoom
				})
				if c.stored {
					b.unreachable("error")
					b.put("m1")
				}
				reachable := b.unreachable("error", "orders")
				b.broker.change(unaware)
				if !c.stored {
					b.put("m1")
				}
				b.pass(45 * time.Second)
				equal(b, "unsettled", ep.Health().Unsettled, 1)
				b.broker.change(func(f *faults) { f.locked = nil })
				reachable()
				b.pass(5 * time.Minute)
				equal(b, "runs", runs, c.runs)
				b.holds("error", c.failed)
				b.holds("orders", 0)
				equal(b, "unsettled", ep.Health().Unsettled, 0)
			})
		})
	}
}

// The time of the handler counts too.
func TestUndelivered_ReleasedInTimeAfterASlowHandler(t *testing.T) {
	inModesOn(t, able(func(c *core.Capabilities) { c.MaxLockTime = time.Hour }), retrying, func(b *bed) {
		b.unreachable("error", "orders")
		b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
			time.Sleep(25 * time.Minute)
			return errBoom
		})
		b.put("m1")
		b.pass(32 * time.Minute)
		equal(b, "given back after 32 minutes", b.broker.settledAs("Release", "m1"), 1)
	})
}

// An endpoint in None may find messages that one in another mode stored.
func TestUndelivered_StoredMessageInNone(t *testing.T) {
	inModes(t, everyMode[:1], func(b *bed) {
		reachable := b.unreachable("error", "orders")
		ep, run := b.orders(core.Config{}, func(context.Context, *core.Message) error { return nil })
		stored := func(id string) core.Outgoing {
			m := order(id)
			m.Headers.Set(core.HeaderUndelivered, `{"queue":"error","tries":1,"since":"x"}`)
			return m
		}
		b.send(stored("m1"))
		b.pass(time.Minute)
		equal(b, "unsettled", ep.Health().Unsettled, 1)
		reachable()
		b.pass(time.Minute)
		b.only("error")
		b.unreachable("error", "orders")
		b.send(stored("m2"))
		b.pass(time.Minute)
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		if text := fmt.Sprint(ep.Health().LastCritical); !containsAll(text, "m2", "lost") {
			b.Errorf("the last critical error is %q", text)
		}
	})
}
