package core_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// failFirst lets the first settlements of a kind fail. The message stays held
// until its lock ends.
func failFirst(operation string, times int64) faults {
	var left atomic.Int64
	left.Store(times)
	return faults{settle: func(asked string, _ *core.Incoming) error {
		if asked == operation && left.Add(-1) >= 0 {
			return errBoom
		}
		return nil
	}}
}

// Rule R28.
func TestSettlement_UnsettledMessageIsCompletedWithoutRunning(t *testing.T) {
	for name, c := range map[string]struct {
		fail   error
		config core.Recoverability
		sent   string
	}{
		"success":       {nil, core.Recoverability{}, ""},
		"discard":       {core.Discard(errors.New("not wanted")), core.Recoverability{}, ""},
		"move":          {errBoom, noRetries, "error"},
		"delayed retry": {core.RetryAfter(errBoom, time.Hour), core.Recoverability{}, "orders"},
		"defer":         {core.Defer(errors.New("not yet"), time.Hour), core.Recoverability{}, "orders"},
	} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, expiringLocks, []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
				fx.broker.setFaults(failFirst("Complete", 3))
				runs := 0
				fx.runOrders(core.Config{Recoverability: c.config}, func(context.Context, *core.Message) error {
					runs++
					return c.fail
				})
				fx.enqueue("m1")
				held := 1
				if c.sent == "orders" {
					held = 2 // the copy too
				}
				fx.wantDepth("orders", held)
				time.Sleep(time.Minute)
				synctest.Wait()
				equal(fx, "runs", runs, 1)
				equal(fx, "tries to complete", len(fx.broker.attempted.all()), 4)
				equal(fx, "completed", fx.broker.countSettled("Complete", "m1"), 1)
				if c.sent != "" {
					fx.wantDepth(c.sent, 1)
				}
				if c.sent != "orders" {
					fx.wantDepth("orders", 0)
				}
				equal(fx, "warnings", len(fx.logs.find("could not be settled")), 1)
			})
		})
	}
}

// Rule R28.
func TestRedelivery_WhileItsSettlementWaits(t *testing.T) {
	for name, c := range map[string]struct {
		handled, result error
		moved           int
	}{
		"success, and the settlement succeeds after all": {},
		"success, and the settlement fails":              {result: errBoom},
		"move to the error queue":                        {handled: errBoom, result: errBoom, moved: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
				answer := make(chan struct{})
				var completing recorder[string]
				fx.broker.setFaults(faults{
					onReceive: func(in *core.Incoming) { // two deliveries of one stored copy
						if in.ID == "again" {
							in.NativeID, in.Redelivered = "1", true
						}
					},
					afterSettle: func(operation string, in *core.Incoming) error {
						completing.add(operation + " " + in.ID)
						if in.ID == "m1" && completing.len() == 1 {
							<-answer
							return c.result
						}
						return nil
					},
				})
				runs := 0
				fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
					runs++
					return c.handled
				})
				fx.enqueue("m1")
				synctest.Wait()
				equal(fx, "settlements that wait", completing.len(), 1)
				fx.enqueue("again")
				synctest.Wait()
				equal(fx, "runs", runs, 1)
				equal(fx, "completed without running", fx.broker.countSettled("Complete", "again"), 1)
				close(answer)
				time.Sleep(time.Minute)
				equal(fx, "runs", runs, 1)
				fx.wantDepth("error", c.moved)
				fx.wantDepth("orders", 0)
			})
		})
	}
}

// Rule R28.
func TestRedelivery_SettlementsAreRemembered(t *testing.T) {
	inModesWith(t, withCapabilities(func(c *core.Capabilities) { c.ConfirmsSettlement = false }), []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
		var count atomic.Int64
		count.Store(1)
		fx.broker.setFaults(faults{onReceive: func(in *core.Incoming) {
			in.NativeID, in.DeliveryCount = "reused", int(count.Load())
		}})
		var handled recorder[string]
		fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
			handled.add(m.ID)
			return nil
		})
		fx.enqueue("m1")
		fx.enqueue("m2")
		count.Store(2)
		fx.enqueue("m3")
		if got := handled.all(); !slices.Equal(got, []string{"m1", "m2"}) {
			fx.Errorf("handled %v, want those with the delivery count 1", got)
		}
		fx.wantDepth("orders", 0)
	})
}

// Rule R28.
func TestSettlement_UnconfirmedOnesAreRemembered(t *testing.T) {
	for name, confirms := range map[string]bool{"confirmed": true, "unconfirmed": false} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, withCapabilities(func(c *core.Capabilities) { c.ConfirmsSettlement = confirms }), []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
				fx.broker.setFaults(faults{onReceive: func(in *core.Incoming) {
					if in.ID == "again" {
						in.NativeID, in.DeliveryCount = "1", 2
					}
				}})
				var handled recorder[string]
				fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
					handled.add(m.ID)
					return nil
				})
				fx.enqueue("m1") // and wait: no instance remembers messages that are still being handled
				fx.enqueue("again")
				want := 1
				if confirms {
					want = 2
				}
				equal(fx, "handled", handled.len(), want)
				fx.wantDepth("orders", 0)
			})
		})
	}
}

// Rule R28.
func TestSettlement_RememberedOnesOutliveRun(t *testing.T) {
	inModesWith(t, expiringLocks, []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
		fx.broker.setFaults(failFirst("Complete", 1))
		runs := 0
		ep, run := fx.runOrders(core.Config{}, func(context.Context, *core.Message) error {
			runs++
			return nil
		})
		fx.enqueue("m1")
		time.Sleep(9 * time.Second)
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		// As after a lost lock; the in-memory transport does not count what a
		// receiver held when it was closed.
		fx.broker.setFaults(faults{onReceive: func(in *core.Incoming) { in.DeliveryCount = 2 }})
		fx.run(ep)
		fx.wantDepth("orders", 0)
		equal(fx, "runs", runs, 1)
	})
}

func TestCommit_FailureIsAFailedAttempt(t *testing.T) {
	inModes(t, allModes[2:], func(fx *fixture) {
		fx.broker.setFaults(failFirst("CompleteWith", 2))
		var attempts recorder[int]
		fx.runOrders(core.Config{}, func(ctx context.Context, m *core.Message) error {
			doWork(ctx, "insert")
			attempts.add(m.Attempt)
			return m.Send("shipping", shipType.Of("x"))
		})
		fx.enqueue("m1")
		if got := attempts.all(); !slices.Equal(got, []int{1, 2, 3}) {
			fx.Errorf("attempts %v", got)
		}
		fx.wantDepth("shipping", 1)
		equal(fx, "work committed", fx.broker.committed.len(), 1)
	})
}

// Rule R27.
func TestLostLock_IsNotSettled(t *testing.T) {
	for name, result := range map[string]func(ctx context.Context) error{
		"success": func(context.Context) error { return nil },
		"error":   func(ctx context.Context) error { return ctx.Err() },
		"verdict": func(context.Context) error { return core.Discard(errors.New("the lock is lost")) },
		"panic":   func(context.Context) error { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
				var broken atomic.Bool
				broken.Store(true)
				fx.broker.setFaults(faults{settle: func(operation string, _ *core.Incoming) error {
					if operation == "Renew" && broken.Load() {
						return core.ErrLockLost
					}
					return nil
				}})
				var causes recorder[error]
				var attempts recorder[int]
				ep, _ := fx.runOrders(core.Config{
					Recoverability: core.Recoverability{RateLimit: core.RateLimit{ConsecutiveFailures: 1}},
				}, func(ctx context.Context, m *core.Message) error {
					if attempts.add(m.Attempt) > 1 {
						return nil
					}
					if err := m.Send("shipping", shipType.Of("x")); err != nil {
						fx.Error(err)
					}
					<-ctx.Done()
					causes.add(context.Cause(ctx))
					return result(ctx)
				})
				fx.enqueue("m1")
				time.Sleep(5 * time.Second) // the renewal at half time fails
				synctest.Wait()
				if got := causes.all(); len(got) != 1 || !errors.Is(got[0], core.ErrLockLost) {
					fx.Fatalf("cause of the cancelled context: %v", got)
				}
				if got := fx.broker.attempted.all(); len(got) != 0 {
					fx.Errorf("settled by %v", got)
				}
				equal(fx, "rate limited", ep.Health().RateLimited, false)
				broken.Store(false)
				time.Sleep(6 * time.Second)
				synctest.Wait()
				if got := attempts.all(); !slices.Equal(got, []int{1, 2}) {
					fx.Errorf("attempts %v", got)
				}
				fx.wantDepth("orders", 0)
				fx.wantDepth("shipping", 0)
				fx.wantDepth("error", 0)
			})
		})
	}
}

// Rule R27.
func TestLostLock_AtSettlementIsNoFailure(t *testing.T) {
	for _, operation := range []string{"Complete", "CompleteWith", "ReplaceWith"} {
		t.Run(operation, func(t *testing.T) {
			mode := retryModes[1:]
			if operation == "Complete" {
				mode = retryModes[:1]
			}
			inModes(t, mode, func(fx *fixture) {
				var lost atomic.Bool
				fx.broker.setFaults(faults{settle: func(asked string, _ *core.Incoming) error {
					if asked == operation && lost.CompareAndSwap(false, true) {
						return core.ErrLockLost
					}
					return nil
				}})
				runs := 0
				ep, run := fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
					if runs++; operation == "ReplaceWith" {
						return errBoom
					}
					return nil
				})
				fx.enqueue("m1")
				equal(fx, "runs", runs, 1)
				if got := fx.broker.settled.all(); len(got) != 0 {
					fx.Errorf("settled by %v", got)
				}
				equal(fx, "critical errors", ep.Health().CriticalErrors, int64(0))
				fx.wantDepth("error", 0)
				if err := run.stop(); err != nil {
					fx.Error(err)
				}
				equal(fx, "messages given back by closing the receiver", fx.depth("orders").Ready, 1)
			})
		})
	}
}

func TestRenewal_OfSlowHandlers(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
		runs := 0
		fx.runOrders(core.Config{}, func(ctx context.Context, _ *core.Message) error {
			runs++
			select {
			case <-time.After(time.Hour):
			case <-ctx.Done():
				fx.Errorf("context ended: %v", context.Cause(ctx))
			}
			return nil
		})
		fx.enqueue("m1")
		time.Sleep(time.Hour + time.Second)
		fx.wantDepth("orders", 0)
		equal(fx, "runs", runs, 1)
		if n := fx.broker.renewals(); n < 700 || n > 730 {
			fx.Errorf("%d renewals in an hour of locks of 10 s, want one each 5 s", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := fx.broker.renewals(); n > 730 {
			fx.Errorf("%d renewals after the settlement", n)
		}
	})
}

func TestRenewal_OfPrefetchedMessages(t *testing.T) {
	c := expiringLocks
	caps := inmemory.Everything()
	caps.Prefetch = true
	c.Capabilities = &caps
	inModesWith(t, c, []core.TransactionMode{core.TransactionReceiveOnly}, func(fx *fixture) {
		var counts recorder[int]
		fx.runOrders(core.Config{Concurrency: 1}, func(_ context.Context, m *core.Message) error {
			if m.ID == "quick" {
				return nil
			}
			counts.add(m.Attempt)
			time.Sleep(time.Hour)
			return nil
		})
		fx.enqueue("quick") // now handlers are known to be fast
		fx.enqueue("m1", "m2")
		if held := fx.depth("orders").Locked; held != 2 {
			fx.Fatalf("%d messages held, want one ahead", held)
		}
		time.Sleep(2*time.Hour + time.Second)
		fx.wantDepth("orders", 0)
		if got := counts.all(); !slices.Equal(got, []int{1, 1}) {
			fx.Errorf("delivery counts %v, want no lock to have been lost", got)
		}
	})
}

func TestRenewal_FailingForAWhileKeepsTheLock(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
		fx.broker.setFaults(failFirst("Renew", 2))
		runs := 0
		fx.runOrders(core.Config{}, func(ctx context.Context, _ *core.Message) error {
			runs++
			time.Sleep(time.Minute)
			return ctx.Err()
		})
		fx.enqueue("m1")
		time.Sleep(time.Minute + time.Second)
		fx.wantDepth("orders", 0)
		equal(fx, "runs", runs, 1)
	})
}

// An adapter whose Renew succeeds and changes nothing, because the clocks of
// broker and process differ, for example.
func TestRenewal_PausesWhereTheLockDoesNotMove(t *testing.T) {
	inModesWith(t, inmemory.Config{LockDuration: time.Minute}, retryModes, func(fx *fixture) {
		deadline := time.Now().Add(6 * time.Second)
		var renewals atomic.Int64
		fx.broker.setFaults(faults{
			lockedUntil: func(*core.Incoming) time.Time { return deadline },
			settle: func(operation string, _ *core.Incoming) error {
				if operation == "Renew" && renewals.Add(1) > 1000 {
					time.Sleep(time.Second) // so that the test fails, and does not hang
				}
				return nil
			},
		})
		fx.runOrders(core.Config{}, func(context.Context, *core.Message) error {
			time.Sleep(10 * time.Second)
			return nil
		})
		fx.enqueue("m1")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := renewals.Load(); got == 0 || got > 100 {
			fx.Errorf("a lock of 6 s was renewed %d times", got)
		}
	})
}

// A shorter lock that arrives while a longer one is held: as with deliveries
// that waited in a client library's buffer.
func TestRenewal_OfAShorterLock(t *testing.T) {
	inModesWith(t, inmemory.Config{LockDuration: time.Minute}, retryModes, func(fx *fixture) {
		start := time.Now()
		var renewed recorder[time.Duration]
		fx.broker.setFaults(faults{
			lockedUntil: func(in *core.Incoming) (lockedUntil time.Time) {
				if in.ID == "short" && renewed.len() == 0 {
					return start.Add(6 * time.Second)
				}
				return time.Time{}
			},
			settle: func(operation string, in *core.Incoming) error {
				if operation == "Renew" && in.ID == "short" {
					renewed.add(time.Since(start))
				}
				return nil
			},
		})
		fx.runOrders(core.Config{}, func(context.Context, *core.Message) error {
			time.Sleep(10 * time.Second)
			return nil
		})
		fx.enqueue("long")
		time.Sleep(time.Second)
		fx.enqueue("short")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := renewed.all(); len(got) == 0 || got[0] >= 6*time.Second {
			fx.Errorf("a lock of 5 s was renewed after %v, because another of a minute came first", got)
		}
	})
}

// A delivery without a lock that ends was stuck until the process ended.
func TestSettlement_IsRepeatedWhileTheLockHolds(t *testing.T) {
	for _, operation := range []string{"Complete", "Abandon", "Release"} {
		t.Run(operation, func(t *testing.T) {
			for name, cfg := range map[string]inmemory.Config{"no lock that ends": {}, "a lock": expiringLocks} {
				t.Run(name, func(t *testing.T) {
					inModesWith(t, cfg, retryModes[:1], func(fx *fixture) {
						left := 5
						fx.broker.setFaults(faults{settle: func(asked string, in *core.Incoming) error {
							if asked != operation || in.ID != "m1" {
								return nil
							}
							if left--; left >= 0 {
								return errBoom
							}
							return nil
						}})
						var others atomic.Int64
						runs := 0
						ep, run := fx.runOrders(core.Config{Concurrency: 1, Recoverability: immediateRetries(1)}, func(ctx context.Context, m *core.Message) error {
							if m.ID != "m1" {
								others.Add(1)
								return nil
							}
							if runs++; operation == "Abandon" && runs == 1 {
								return errBoom
							}
							if operation == "Release" && runs == 1 {
								<-ctx.Done()
								return ctx.Err()
							}
							return nil
						})
						if operation == "Release" {
							fx.enqueue("m1")
							if err := run.stop(); err != nil {
								fx.Fatal(err)
							}
							run = fx.run(ep)
						} else {
							fx.enqueue("m1", "m2", "m3")
							equal(fx, "others handled at once", others.Load(), 2)
							equal(fx, "unsettled", ep.Health().Unsettled, 1)
						}
						fx.advance(time.Minute)
						fx.wantDepth("orders", 0)
						equal(fx, "unsettled", ep.Health().Unsettled, 0)
						if operation == "Complete" {
							equal(fx, "runs", runs, 1)
						} else {
							equal(fx, "runs", runs, 2)
						}
						_ = run
					})
				})
			}
		})
	}
}

// Nothing is lost, and nothing hangs, if it fails until the end.
func TestSettlement_FailsUntilShutdown(t *testing.T) {
	inModes(t, retryModes[:1], func(fx *fixture) {
		fx.broker.setFaults(failFirst("Complete", 1_000_000))
		var critical recorder[string]
		runs := 0
		ep, run := fx.runOrders(core.Config{Observers: []core.Observer{{CriticalError: func(_ context.Context, _ *core.Endpoint, err error) { critical.add(err.Error()) }}}}, func(context.Context, *core.Message) error {
			runs++
			return nil
		})
		fx.enqueue("m1")
		fx.advance(time.Hour)
		if got := critical.all(); len(got) != 1 || !containsAll(got[0], "m1", "completed", "boom") {
			fx.Errorf("critical errors %q", got)
		}
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		equal(fx, "orders", fx.depth("orders"), queues.Depth{Ready: 1})
		fx.broker.setFaults(faults{})
		fx.run(ep)
		fx.wantDepth("orders", 0)
		equal(fx, "runs", runs, 1)
	})
}

// A settlement that fails without saying that the lock is lost ends with the lock all
// the same: one more entry was kept for each redelivery.
func TestSettlement_IsNotRepeatedAfterTheLock(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes[:1], func(fx *fixture) {
		var broken atomic.Bool
		broken.Store(true)
		fx.broker.setFaults(faults{settle: func(operation string, _ *core.Incoming) error {
			if broken.Load() && (operation == "Complete" || operation == "Renew") {
				return errBoom
			}
			return nil
		}})
		runs := 0
		ep, _ := fx.runOrders(core.Config{}, func(context.Context, *core.Message) error {
			runs++
			return nil
		})
		fx.enqueue("m1")
		fx.advance(10 * time.Minute)
		if n := ep.Health().Unsettled; n > 2 {
			fx.Errorf("%d deliveries of one message are kept", n)
		}
		broken.Store(false)
		fx.advance(time.Minute)
		fx.wantDepth("orders", 0)
		equal(fx, "unsettled", ep.Health().Unsettled, 0)
		equal(fx, "runs", runs, 1)
	})
}
