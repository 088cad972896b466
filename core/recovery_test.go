package core_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

var atomicMode = everyMode[2:]

func TestR51_HandleFailedNeedsReset(t *testing.T) {
	inModes(t, atomicMode, func(b *bed) {
		b.broker.provoke(failing("Reset", 1))
		ep := b.endpoint("orders", core.Config{Recoverability: noRetries})
		b.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		core.HandleFailed(ep, "order", func(ctx context.Context, _ *core.TypedMessage[[]byte], f *core.Failed) error {
			work(ctx, "compensation")
			f.TakeOver()
			return nil
		})
		b.run(ep)
		b.put("m1")
		b.holds("orders", 0)
		b.holds("error", 1) // else the message is gone, its compensation undone
		equal(b, "committed", len(b.broker.committed.all()), 0)
	})
}

func TestR12_WorkOfAPanickingPolicyIsUndone(t *testing.T) {
	inModes(t, atomicMode, func(b *bed) {
		policy := func(ctx context.Context, _ core.RecoverabilityConfig, _ core.ErrorContext) core.Action {
			work(ctx, "half of it")
			panic("policy")
		}
		b.orders(core.Config{Recoverability: core.Recoverability{Policy: policy}}, func(context.Context, *core.Message) error { return errBoom })
		b.put("m1")
		b.holds("error", 1)
		equal(b, "committed", len(b.broker.committed.all()), 0)
	})
}

func TestR27_LockLostDuringTheDecision(t *testing.T) {
	inModesOn(t, locking, retrying, func(b *bed) {
		var runs atomic.Int64
		policy := func(ctx context.Context, _ core.RecoverabilityConfig, _ core.ErrorContext) core.Action {
			if runs.Add(1) == 1 {
				b.broker.provoke(failing("Renew", 1000))
				<-ctx.Done()
				b.broker.provoke(faults{})
			}
			return core.MoveToError("")
		}
		b.orders(core.Config{Recoverability: core.Recoverability{Policy: policy}}, func(context.Context, *core.Message) error { return errBoom })
		b.put("m1")
		time.Sleep(time.Minute)
		equal(b, "decisions", runs.Load(), 2)
		b.holds("error", 1)
		b.holds("orders", 0)
	})
}

func TestR8_RefusedDelayedRetryMovesTheMessage(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.broker.provoke(faults{send: func(out []core.Outgoing) error {
			if out[0].Delay > 0 {
				return fmt.Errorf("delay: %w", errors.ErrUnsupported)
			}
			return nil
		}})
		b.orders(core.Config{}, func(context.Context, *core.Message) error { return core.RetryAfter(errBoom, time.Minute) })
		b.put("m1")
		b.holds("error", 1)
		b.holds("orders", 0)
	})
}

func TestR24_InvalidHeadersDoNotPreventTheMove(t *testing.T) {
	for name, handler := range map[string]error{"move": core.Reject(errBoom), "delayed retry": core.RetryAfter(errBoom, time.Minute)} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retrying, func(b *bed) {
				b.broker.provoke(faults{arrive: func(in *core.Incoming) {
					in.Headers.Set("bad", "\xff")
					in.Headers.Set("", "no key")
				}})
				b.orders(core.Config{Recoverability: core.Recoverability{Delayed: core.Delayed{Retries: 1}}}, func(context.Context, *core.Message) error { return handler })
				b.put("m1")
				time.Sleep(time.Hour)
				equal(b, "mended header", b.only("error").Headers.Get("bad"), "\uFFFD")
				b.holds("orders", 0)
			})
		})
	}
}

func TestAudit_CopyOfALargestMessageFits(t *testing.T) {
	cfg := able(func(c *core.Capabilities) { c.MaxMessageBytes = 20_000 })
	inModesOn(t, cfg, everyMode, func(b *bed) {
		if err := b.broker.Provision(b.Context(), core.Topology{Queues: []string{"audit"}}); err != nil {
			b.Fatal(err)
		}
		b.orders(core.Config{AuditQueue: "audit"}, func(context.Context, *core.Message) error { return nil })
		largest := order("m1")
		largest.Body = make([]byte, 20_000-largest.Headers.Bytes())
		b.send(largest)
		b.holds("orders", 0)
		b.holds("error", 0)
		b.holds("audit", 1)
	})
}

func TestGoexit_OfFilterOrObserver(t *testing.T) {
	goexit := func(error) bool {
		runtime.Goexit()
		return true
	}
	filtered := core.Config{Recoverability: core.Recoverability{RateLimit: core.RateLimit{ConsecutiveFailures: 100, Filter: goexit}}}
	for name, c := range map[string]core.Config{"filter": filtered, "send observer": {Observers: []core.Observer{sendExit{}.observer()}}} {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, locking, retrying, func(b *bed) {
				b.orders(c, func(_ context.Context, m *core.Message) error {
					_ = m.Send("shipping", "ship", "x")
					if name == "filter" {
						return errBoom
					}
					return nil
				})
				b.put("m1")
				failed := b.only("error")
				if !containsAll(failed.Headers.Get(core.HeaderExceptionMessage), core.ErrDeliveryCountExceeded.Error(), "Goexit") {
					b.Errorf("moved because of %q", failed.Headers.Get(core.HeaderExceptionMessage))
				}
				b.holds("orders", 0)
			})
		})
	}
}

// sendExit ends the goroutine of whatever sends, but a move to the error queue.
type sendExit struct{}

func (sendExit) SendStart(_ context.Context, e core.SendStart) context.Context {
	if goesTo(e.Messages, "shipping") {
		runtime.Goexit()
	}
	return nil
}

func (s sendExit) observer() core.Observer { return core.Observer{SendStart: s.SendStart} }

func TestR8_NoMoveToTheOwnQueue(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		runs := 0
		b.orders(core.Config{}, func(context.Context, *core.Message) error {
			if runs++; runs > 10 {
				return nil
			}
			return core.MoveTo(errBoom, "orders")
		})
		b.put("m1")
		equal(b, "runs", runs, 1)
		b.holds("error", 1)
		equal(b, "lines that say so", len(b.logs.about("own queue")), 1)
	})
}

func TestR42_FailureIsCountedBeforeItsRetrySucceeds(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.broker.provoke(faults{after: func(operation string, _ *core.Incoming) error {
			if operation == "Abandon" {
				time.Sleep(time.Second) // the retry is quicker than the worker that gave the message back
			}
			return nil
		}})
		ep, _ := b.orders(core.Config{Recoverability: limited(1)}, func(_ context.Context, m *core.Message) error {
			if m.Attempt == 1 {
				return errBoom
			}
			return nil
		})
		b.put("m1")
		time.Sleep(time.Minute)
		synctest.Wait()
		b.holds("orders", 0)
		equal(b, "rate limited after a success", ep.Health().RateLimited, false)
	})
}

func TestR25_EarlierAttemptKeepsTheDecision(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		faults := refuse("error", since(time.Now()))
		faults.after = func(operation string, _ *core.Incoming) error {
			if operation == "Abandon" {
				time.Sleep(500 * time.Millisecond) // the next attempt fails before this one is done
			}
			return nil
		}
		b.broker.provoke(faults)
		var runs atomic.Int64
		b.orders(core.Config{Recoverability: immediate(1)}, func(context.Context, *core.Message) error {
			runs.Add(1)
			return errBoom
		})
		b.put("m1")
		time.Sleep(2 * time.Hour)
		b.holds("error", 1)
		equal(b, "runs", runs.Load(), 2)
	})
}
