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
	"github.com/reprise-go/reprise/transport/inmemory"
)

// failing lets the first settlements of a kind fail. The message stays held
// until its lock ends.
func failing(operation string, times int64) faults {
	var left atomic.Int64
	left.Store(times)
	return faults{settle: func(asked string, _ *core.Incoming) error {
		if asked == operation && left.Add(-1) >= 0 {
			return errBoom
		}
		return nil
	}}
}

func TestR28_UnsettledMessageIsCompletedWithoutRunning(t *testing.T) {
	for name, c := range map[string]struct {
		fail   error
		config core.Recoverability
		sent   string
	}{
		"success":       {nil, core.Recoverability{}, ""},
		"discard":       {core.Discard("not wanted"), core.Recoverability{}, ""},
		"move":          {errBoom, noRetries, "error"},
		"delayed retry": {core.RetryAfter(errBoom, time.Hour), core.Recoverability{}, "orders"},
		"defer":         {core.Defer(time.Hour), core.Recoverability{}, "orders"},
	} {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, locking, []core.TransactionMode{core.TransactionReceiveOnly}, func(b *bed) {
				b.broker.provoke(failing("Complete", 3))
				runs := 0
				b.orders(core.Config{Recoverability: c.config}, func(context.Context, *core.Message) error {
					runs++
					return c.fail
				})
				b.put("m1")
				held := 1
				if c.sent == "orders" {
					held = 2 // the copy too
				}
				b.holds("orders", held)
				time.Sleep(time.Minute)
				synctest.Wait()
				equal(b, "runs", runs, 1)
				equal(b, "tries to complete", len(b.broker.requested.all()), 4)
				equal(b, "completed", b.broker.settledAs("Complete", "m1"), 1)
				if c.sent != "" {
					b.holds(c.sent, 1)
				}
				if c.sent != "orders" {
					b.holds("orders", 0)
				}
				equal(b, "warnings", len(b.logs.about("could not be settled")), 1)
			})
		})
	}
}

func TestR28_RedeliveryWhileItsSettlementWaits(t *testing.T) {
	for name, c := range map[string]struct {
		handled, result error
		moved           int
	}{
		"success, and the settlement succeeds after all": {},
		"success, and the settlement fails":              {result: errBoom},
		"move to the error queue":                        {handled: errBoom, result: errBoom, moved: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, []core.TransactionMode{core.TransactionReceiveOnly}, func(b *bed) {
				answer := make(chan struct{})
				var completing record[string]
				b.broker.provoke(faults{
					arrive: func(in *core.Incoming) { // two deliveries of one stored copy
						if in.ID == "again" {
							in.NativeID, in.Redelivered = "1", true
						}
					},
					after: func(operation string, in *core.Incoming) error {
						completing.add(operation + " " + in.ID)
						if in.ID == "m1" && completing.len() == 1 {
							<-answer
							return c.result
						}
						return nil
					},
				})
				runs := 0
				b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
					runs++
					return c.handled
				})
				b.put("m1")
				synctest.Wait()
				equal(b, "settlements that wait", completing.len(), 1)
				b.put("again")
				synctest.Wait()
				equal(b, "runs", runs, 1)
				equal(b, "completed without running", b.broker.settledAs("Complete", "again"), 1)
				close(answer)
				time.Sleep(time.Minute)
				equal(b, "runs", runs, 1)
				b.holds("error", c.moved)
				b.holds("orders", 0)
			})
		})
	}
}

func TestR28_MemoryIsForRedeliveries(t *testing.T) {
	inModesOn(t, able(func(c *core.Capabilities) { c.ConfirmsSettlement = false }), []core.TransactionMode{core.TransactionReceiveOnly}, func(b *bed) {
		var count atomic.Int64
		count.Store(1)
		b.broker.provoke(faults{arrive: func(in *core.Incoming) {
			in.NativeID, in.DeliveryCount = "reused", int(count.Load())
		}})
		var handled record[string]
		b.orders(core.Config{}, func(_ context.Context, m *core.Message) error {
			handled.add(m.ID)
			return nil
		})
		b.put("m1")
		b.put("m2")
		count.Store(2)
		b.put("m3")
		if got := handled.all(); !slices.Equal(got, []string{"m1", "m2"}) {
			b.Errorf("handled %v, want those with the delivery count 1", got)
		}
		b.holds("orders", 0)
	})
}

func TestR28_UnconfirmedSettlementsAreRemembered(t *testing.T) {
	for name, confirms := range map[string]bool{"confirmed": true, "unconfirmed": false} {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, able(func(c *core.Capabilities) { c.ConfirmsSettlement = confirms }), []core.TransactionMode{core.TransactionReceiveOnly}, func(b *bed) {
				b.broker.provoke(faults{arrive: func(in *core.Incoming) {
					if in.ID == "again" {
						in.NativeID, in.DeliveryCount = "1", 2
					}
				}})
				var handled record[string]
				b.orders(core.Config{}, func(_ context.Context, m *core.Message) error {
					handled.add(m.ID)
					return nil
				})
				b.put("m1") // and wait: what is still being handled is remembered by nobody
				b.put("again")
				want := 1
				if confirms {
					want = 2
				}
				equal(b, "handled", handled.len(), want)
				b.holds("orders", 0)
			})
		})
	}
}

func TestR28_MemoryOutlivesRun(t *testing.T) {
	inModesOn(t, locking, []core.TransactionMode{core.TransactionReceiveOnly}, func(b *bed) {
		b.broker.provoke(failing("Complete", 1))
		runs := 0
		ep, run := b.orders(core.Config{}, func(context.Context, *core.Message) error {
			runs++
			return nil
		})
		b.put("m1")
		time.Sleep(9 * time.Second)
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		// As after a lost lock; the in-memory transport does not count what a
		// receiver held when it was closed.
		b.broker.provoke(faults{arrive: func(in *core.Incoming) { in.DeliveryCount = 2 }})
		b.run(ep)
		b.holds("orders", 0)
		equal(b, "runs", runs, 1)
	})
}

func TestCommit_FailureIsAFailedAttempt(t *testing.T) {
	inModes(t, everyMode[2:], func(b *bed) {
		b.broker.provoke(failing("CompleteWith", 2))
		var attempts record[int]
		b.orders(core.Config{}, func(ctx context.Context, m *core.Message) error {
			work(ctx, "insert")
			attempts.add(m.Attempt)
			return m.Send("shipping", "ship", "x")
		})
		b.put("m1")
		if got := attempts.all(); !slices.Equal(got, []int{1, 2, 3}) {
			b.Errorf("attempts %v", got)
		}
		b.holds("shipping", 1)
		equal(b, "work committed", b.broker.committed.len(), 1)
	})
}

func TestR27_LostLockIsNotSettled(t *testing.T) {
	for name, result := range map[string]func(ctx context.Context) error{
		"success": func(context.Context) error { return nil },
		"error":   func(ctx context.Context) error { return ctx.Err() },
		"verdict": func(context.Context) error { return core.Discard("the lock is lost") },
		"panic":   func(context.Context) error { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, locking, retrying, func(b *bed) {
				var broken atomic.Bool
				broken.Store(true)
				b.broker.provoke(faults{settle: func(operation string, _ *core.Incoming) error {
					if operation == "Renew" && broken.Load() {
						return core.ErrLockLost
					}
					return nil
				}})
				var causes record[error]
				var attempts record[int]
				ep, _ := b.orders(core.Config{
					Recoverability: core.Recoverability{RateLimit: core.RateLimit{ConsecutiveFailures: 1}},
				}, func(ctx context.Context, m *core.Message) error {
					if attempts.add(m.Attempt) > 1 {
						return nil
					}
					if err := m.Send("shipping", "ship", "x"); err != nil {
						b.Error(err)
					}
					<-ctx.Done()
					causes.add(context.Cause(ctx))
					return result(ctx)
				})
				b.put("m1")
				time.Sleep(5 * time.Second) // the renewal at half time fails
				synctest.Wait()
				if got := causes.all(); len(got) != 1 || !errors.Is(got[0], core.ErrLockLost) {
					b.Fatalf("cause of the cancelled context: %v", got)
				}
				if got := b.broker.requested.all(); len(got) != 0 {
					b.Errorf("settled by %v", got)
				}
				equal(b, "rate limited", ep.Health().RateLimited, false)
				broken.Store(false)
				time.Sleep(6 * time.Second)
				synctest.Wait()
				if got := attempts.all(); !slices.Equal(got, []int{1, 2}) {
					b.Errorf("attempts %v", got)
				}
				b.holds("orders", 0)
				b.holds("shipping", 0)
				b.holds("error", 0)
			})
		})
	}
}

func TestR27_LockLostAtSettlementIsNoFailure(t *testing.T) {
	for _, operation := range []string{"Complete", "CompleteWith", "ReplaceWith"} {
		t.Run(operation, func(t *testing.T) {
			mode := retrying[1:]
			if operation == "Complete" {
				mode = retrying[:1]
			}
			inModes(t, mode, func(b *bed) {
				var lost atomic.Bool
				b.broker.provoke(faults{settle: func(asked string, _ *core.Incoming) error {
					if asked == operation && lost.CompareAndSwap(false, true) {
						return core.ErrLockLost
					}
					return nil
				}})
				runs := 0
				ep, run := b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
					if runs++; operation == "ReplaceWith" {
						return errBoom
					}
					return nil
				})
				b.put("m1")
				equal(b, "runs", runs, 1)
				if got := b.broker.settled.all(); len(got) != 0 {
					b.Errorf("settled by %v", got)
				}
				equal(b, "critical errors", ep.Health().CriticalErrors, int64(0))
				b.holds("error", 0)
				if err := run.stop(); err != nil {
					b.Error(err)
				}
				equal(b, "messages given back by closing the receiver", b.depth("orders").Ready, 1)
			})
		})
	}
}

func TestRenewal_OfSlowHandlers(t *testing.T) {
	inModesOn(t, locking, retrying, func(b *bed) {
		runs := 0
		b.orders(core.Config{}, func(ctx context.Context, _ *core.Message) error {
			runs++
			select {
			case <-time.After(time.Hour):
			case <-ctx.Done():
				b.Errorf("context ended: %v", context.Cause(ctx))
			}
			return nil
		})
		b.put("m1")
		time.Sleep(time.Hour + time.Second)
		b.holds("orders", 0)
		equal(b, "runs", runs, 1)
		if n := b.broker.renewals(); n < 700 || n > 730 {
			b.Errorf("%d renewals in an hour of locks of 10 s, want one each 5 s", n)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := b.broker.renewals(); n > 730 {
			b.Errorf("%d renewals after the settlement", n)
		}
	})
}

func TestRenewal_OfPrefetchedMessages(t *testing.T) {
	c := locking
	caps := inmemory.Everything()
	caps.Prefetch = true
	c.Capabilities = &caps
	inModesOn(t, c, []core.TransactionMode{core.TransactionReceiveOnly}, func(b *bed) {
		var counts record[int]
		b.orders(core.Config{Concurrency: 1}, func(_ context.Context, m *core.Message) error {
			if m.ID == "quick" {
				return nil
			}
			counts.add(m.Attempt)
			time.Sleep(time.Hour)
			return nil
		})
		b.put("quick") // now handlers are known to be fast
		b.put("m1", "m2")
		if held := b.depth("orders").InFlight; held != 2 {
			b.Fatalf("%d messages held, want one ahead", held)
		}
		time.Sleep(2*time.Hour + time.Second)
		b.holds("orders", 0)
		if got := counts.all(); !slices.Equal(got, []int{1, 1}) {
			b.Errorf("delivery counts %v, want no lock to have been lost", got)
		}
	})
}

func TestRenewal_FailingForAWhileKeepsTheLock(t *testing.T) {
	inModesOn(t, locking, retrying, func(b *bed) {
		b.broker.provoke(failing("Renew", 2))
		runs := 0
		b.orders(core.Config{}, func(ctx context.Context, _ *core.Message) error {
			runs++
			time.Sleep(time.Minute)
			return ctx.Err()
		})
		b.put("m1")
		time.Sleep(time.Minute + time.Second)
		b.holds("orders", 0)
		equal(b, "runs", runs, 1)
	})
}

// An adapter whose Renew succeeds and changes nothing, because the clocks of
// broker and process differ, for example.
func TestRenewal_PausesWhereTheLockDoesNotMove(t *testing.T) {
	inModesOn(t, inmemory.Config{LockDuration: time.Minute}, retrying, func(b *bed) {
		until := time.Now().Add(6 * time.Second)
		var renewals atomic.Int64
		b.broker.provoke(faults{
			locked: func(*core.Incoming) time.Time { return until },
			settle: func(operation string, _ *core.Incoming) error {
				if operation == "Renew" && renewals.Add(1) > 1000 {
					time.Sleep(time.Second) // so that the test fails, and does not hang
				}
				return nil
			},
		})
		b.orders(core.Config{}, func(context.Context, *core.Message) error {
			time.Sleep(10 * time.Second)
			return nil
		})
		b.put("m1")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := renewals.Load(); got == 0 || got > 100 {
			b.Errorf("a lock of 6 s was renewed %d times", got)
		}
	})
}

// A shorter lock that arrives while a longer one is held: as with deliveries
// that waited in a client library's buffer.
func TestRenewal_OfAShorterLock(t *testing.T) {
	inModesOn(t, inmemory.Config{LockDuration: time.Minute}, retrying, func(b *bed) {
		start := time.Now()
		var renewed record[time.Duration]
		b.broker.provoke(faults{
			locked: func(in *core.Incoming) (until time.Time) {
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
		b.orders(core.Config{}, func(context.Context, *core.Message) error {
			time.Sleep(10 * time.Second)
			return nil
		})
		b.put("long")
		time.Sleep(time.Second)
		b.put("short")
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if got := renewed.all(); len(got) == 0 || got[0] >= 6*time.Second {
			b.Errorf("a lock of 5 s was renewed after %v, because another of a minute came first", got)
		}
	})
}

// A delivery without a lock that ends was stuck until the process ended.
func TestSettlement_IsRepeatedWhileTheLockHolds(t *testing.T) {
	for _, operation := range []string{"Complete", "Abandon", "Release"} {
		t.Run(operation, func(t *testing.T) {
			for name, cfg := range map[string]inmemory.Config{"no lock that ends": {}, "a lock": locking} {
				t.Run(name, func(t *testing.T) {
					inModesOn(t, cfg, retrying[:1], func(b *bed) {
						left := 5
						b.broker.provoke(faults{settle: func(asked string, in *core.Incoming) error {
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
						ep, run := b.orders(core.Config{Concurrency: 1, Recoverability: immediate(1)}, func(ctx context.Context, m *core.Message) error {
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
							b.put("m1")
							if err := run.stop(); err != nil {
								b.Fatal(err)
							}
							run = b.run(ep)
						} else {
							b.put("m1", "m2", "m3")
							equal(b, "others handled at once", others.Load(), 2)
							equal(b, "unsettled", ep.Health().Unsettled, 1)
						}
						b.pass(time.Minute)
						b.holds("orders", 0)
						equal(b, "unsettled", ep.Health().Unsettled, 0)
						if operation == "Complete" {
							equal(b, "runs", runs, 1)
						} else {
							equal(b, "runs", runs, 2)
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
	inModes(t, retrying[:1], func(b *bed) {
		b.broker.provoke(failing("Complete", 1_000_000))
		var critical record[string]
		runs := 0
		ep, run := b.orders(core.Config{OnCriticalError: func(_ context.Context, err error) { critical.add(err.Error()) }}, func(context.Context, *core.Message) error {
			runs++
			return nil
		})
		b.put("m1")
		b.pass(time.Hour)
		if got := critical.all(); len(got) != 1 || !containsAll(got[0], "m1", "completed", "boom") {
			b.Errorf("critical errors %q", got)
		}
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		equal(b, "orders", b.depth("orders"), inmemory.Depth{Ready: 1})
		b.broker.provoke(faults{})
		b.run(ep)
		b.holds("orders", 0)
		equal(b, "runs", runs, 1)
	})
}

// A settlement that fails without saying that the lock is lost ends with the lock all
// the same: one more entry was kept for each redelivery.
func TestSettlement_IsNotRepeatedAfterTheLock(t *testing.T) {
	inModesOn(t, locking, retrying[:1], func(b *bed) {
		var broken atomic.Bool
		broken.Store(true)
		b.broker.provoke(faults{settle: func(operation string, _ *core.Incoming) error {
			if broken.Load() && (operation == "Complete" || operation == "Renew") {
				return errBoom
			}
			return nil
		}})
		runs := 0
		ep, _ := b.orders(core.Config{}, func(context.Context, *core.Message) error {
			runs++
			return nil
		})
		b.put("m1")
		b.pass(10 * time.Minute)
		if n := ep.Health().Unsettled; n > 2 {
			b.Errorf("%d deliveries of one message are kept", n)
		}
		broken.Store(false)
		b.pass(time.Minute)
		b.holds("orders", 0)
		equal(b, "unsettled", ep.Health().Unsettled, 0)
		equal(b, "runs", runs, 1)
	})
}
