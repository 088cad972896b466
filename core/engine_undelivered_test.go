package core_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// locking is a transport whose locks end after ten seconds unless renewed.
var locking = inmemory.Config{LockDuration: 10 * time.Second}

// refuse makes sends to a queue fail while broken returns true.
func refuse(queue string, broken func() bool) faults {
	return faults{send: func(out []core.Outgoing) error {
		if goesTo(out, queue) && broken() {
			return errors.New("cannot send to " + queue)
		}
		return nil
	}}
}

func since(start time.Time) func() bool {
	return func() bool { return time.Since(start) < time.Hour }
}

// The decision is tried after pauses of 1, 2, 4, 8, 16, 30, 30, ... s.
func TestR25AMoveThatFailsIsRepeatedUntilItSucceeds(t *testing.T) {
	inModesOn(t, locking, retrying, func(b *bed) {
		start := time.Now()
		var tries record[time.Duration]
		broken := since(start)
		b.broker.provoke(refuse("error", func() bool {
			tries.add(time.Since(start))
			return broken()
		}))
		var critical record[error]
		var recovered recoveries
		runs := 0
		ep, _ := b.orders(core.Config{
			Recoverability:  core.Recoverability{Immediate: core.Immediate{Retries: 1}, Delayed: core.Delayed{Off: true}},
			OnCriticalError: func(_ context.Context, err error) { critical.add(err) },
			Observers:       []any{&recovered},
		}, func(context.Context, *core.Message) error {
			runs++
			return &orderError{"7"}
		})
		failedAt := time.Now()
		b.put("m1")
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		equal(b, "runs", runs, 2)
		b.holds("error", 0)
		b.holds("orders", 1)
		equal(b, "undelivered", ep.Health().Undelivered, 1)
		if got := tries.all(); len(got) < 5 || !slices.Equal(got[:7], []time.Duration{0, 1e9, 3e9, 7e9, 15e9, 31e9, 61e9}) || len(got) > 70 {
			b.Errorf("%d tries, the first after %v", len(got), got[:min(7, len(got))])
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		failed := b.only("error")
		b.holds("orders", 0)
		equal(b, "runs", runs, 2)
		equal(b, "critical errors", critical.len(), tries.len()-1)
		equal(b, "critical errors that are logged", len(b.logs.about("critical error")), tries.len()-1)
		if text := critical.all()[1].Error(); !containsAll(text, "m1", "error", "cannot send to error", "2s") {
			b.Errorf("a critical error says %q", text)
		}
		health := ep.Health()
		equal(b, "undelivered", health.Undelivered, 0)
		equal(b, "critical errors in Health", health.CriticalErrors, int64(critical.len()))
		equal(b, "error type", failed.Headers.Get(core.HeaderExceptionType), "*core_test.orderError")
		equal(b, "error text", failed.Headers.Get(core.HeaderExceptionMessage), "order 7 is wrong")
		equal(b, "time of failure", failed.Headers.Get(core.HeaderTimeOfFailure), core.FormatTime(failedAt))
		equal(b, "body", string(failed.Body), "body of m1")
		equal(b, "attempts in the trace", strings.Count(failed.Headers.Get(core.HeaderAttempts), `"attempts":2,`), 1)
		equal(b, "lines that it is moved", len(b.logs.about("Moving message")), 1)
		equal(b, "kinds of recovery", recovered.kinds(), "ImmediateRetry MoveToError")
	})
}

func TestR25ADelayedRetryThatFailsIsRepeatedUntilItSucceeds(t *testing.T) {
	for name, fail := range map[string]error{"policy": errBoom, "defer": core.Defer(10 * time.Second), "retry after": core.RetryAfter(errBoom, 10*time.Second)} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retrying, func(b *bed) {
				var broken atomic.Bool
				broken.Store(true)
				b.broker.provoke(refuse("orders", broken.Load))
				runs := 0
				b.orders(core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{Off: true}}}, func(context.Context, *core.Message) error {
					if runs++; runs == 1 {
						return fail
					}
					return nil
				})
				b.put("m1")
				time.Sleep(5*time.Second + time.Millisecond)
				synctest.Wait()
				equal(b, "runs while it cannot be sent", runs, 1)
				broken.Store(false)
				time.Sleep(2 * time.Second) // the try after 7 s succeeds
				synctest.Wait()
				equal(b, "messages delayed", b.depth("orders").Delayed, 1)
				time.Sleep(10 * time.Second)
				synctest.Wait()
				equal(b, "runs", runs, 2)
				b.holds("orders", 0)
				b.holds("error", 0)
			})
		})
	}
}

func TestR25ThePauseDoesNotOutliveShutdown(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var broken atomic.Bool
		broken.Store(true)
		b.broker.provoke(refuse("error", broken.Load))
		runs := 0
		ep, run := b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
			runs++
			return errBoom
		})
		b.put("m1")
		time.Sleep(10 * time.Second) // in the pause of 8 s
		start := time.Now()
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		equal(b, "time to shut down", time.Since(start), 0)
		equal(b, "messages ready", b.depth("orders").Ready, 1)
		equal(b, "delivery count", b.only("orders").DeliveryCount, 1)
		broken.Store(false)
		b.run(ep)
		b.holds("orders", 0)
		b.only("error")
		equal(b, "runs", runs, 1)
	})
}

func TestR25OtherMessagesAreHandledMeanwhile(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.broker.provoke(refuse("error", func() bool { return true }))
		var good record[string]
		b.orders(core.Config{Concurrency: 2, Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			if m.ID == "bad" {
				return errBoom
			}
			good.add(m.ID)
			return nil
		})
		b.put("bad", "m1", "m2", "m3")
		if got := good.all(); !slices.Equal(got, []string{"m1", "m2", "m3"}) {
			b.Errorf("handled %v", got)
		}
	})
}

func TestR25DeadLetteringThatFailsIsRepeated(t *testing.T) {
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
		b.orders(core.Config{Recoverability: core.Recoverability{DeadLetter: true}}, func(context.Context, *core.Message) error {
			runs++
			return core.Reject(errors.New("rejected"))
		})
		b.put("m1")
		b.holds("orders", 1)
		broken.Store(false)
		time.Sleep(time.Second)
		letter := b.only(inmemory.DeadLetterQueue("orders"))
		equal(b, "description", letter.Headers.Get(inmemory.HeaderDeadLetterDescription), "rejected")
		equal(b, "runs", runs, 1)
	})
}

func TestR25InNoneItIsLostAndSaysSo(t *testing.T) {
	inModes(t, everyMode[:1], func(b *bed) {
		b.broker.provoke(refuse("error", func() bool { return true }))
		var critical record[error]
		ep, _ := b.orders(core.Config{OnCriticalError: func(_ context.Context, err error) { critical.add(err) }},
			func(context.Context, *core.Message) error { return errBoom })
		b.put("m1")
		time.Sleep(time.Minute)
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

func TestR25ALockLostDuringThePauseIsNotSettled(t *testing.T) {
	inModesOn(t, locking, retrying, func(b *bed) {
		var broken atomic.Bool
		broken.Store(true)
		b.broker.provoke(faults{
			send: refuse("error", broken.Load).send,
			settle: func(operation string, _ *core.Incoming) error {
				if operation == "Renew" {
					return errBoom
				}
				return nil
			},
		})
		runs := 0
		b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
			runs++
			return errBoom
		})
		b.put("m1")
		time.Sleep(25 * time.Second) // in the pause from 15 s to 31 s
		synctest.Wait()
		broken.Store(false)
		time.Sleep(time.Minute)
		b.only("error")
		b.holds("orders", 0)
		equal(b, "runs", runs, 1)
	})
}
