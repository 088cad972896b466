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
	"github.com/reprise-go/reprise/core/headers"
)

var atomicMode = allModes[2:]

// Rule R51.
func TestHandleFailed_HandleFailedNeedsReset(t *testing.T) {
	inModes(t, atomicMode, func(fx *fixture) {
		fx.broker.setFaults(failFirst("Reset", 1))
		ep := fx.newEndpoint("orders", core.Config{Recoverability: noRetries})
		fx.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		core.HandleFailed(ep, orderType, func(ctx context.Context, _ *core.Message, _ []byte, f *core.Failed) error {
			doWork(ctx, "compensation")
			f.TakeOver()
			return nil
		})
		fx.run(ep)
		fx.enqueue("m1")
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 1) // else the message is gone, its compensation undone
		equal(fx, "committed", len(fx.broker.committed.all()), 0)
	})
}

// Rule R12.
func TestPolicy_WorkIsUndoneAfterAPanic(t *testing.T) {
	inModes(t, atomicMode, func(fx *fixture) {
		policy := func(ctx context.Context, _ core.RecoverabilityConfig, _ core.ErrorContext) (core.Action, error) {
			doWork(ctx, "half of it")
			panic("policy")
		}
		fx.runOrders(core.Config{Recoverability: core.Recoverability{Policy: policy}}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		fx.wantDepth("error", 1)
		equal(fx, "committed", len(fx.broker.committed.all()), 0)
	})
}

// Rule R27.
func TestLostLock_DuringTheDecision(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
		var runs atomic.Int64
		policy := func(ctx context.Context, _ core.RecoverabilityConfig, _ core.ErrorContext) (core.Action, error) {
			if runs.Add(1) == 1 {
				fx.broker.setFaults(failFirst("Renew", 1000))
				<-ctx.Done()
				fx.broker.setFaults(faults{})
			}
			return core.MoveToError(""), nil
		}
		fx.runOrders(core.Config{Recoverability: core.Recoverability{Policy: policy}}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		time.Sleep(time.Minute)
		equal(fx, "decisions", runs.Load(), 2)
		fx.wantDepth("error", 1)
		fx.wantDepth("orders", 0)
	})
}

// Rule R8.
func TestUnsupportedAction_RefusedDelayedRetryMovesTheMessage(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
			if out[0].Delay > 0 {
				return fmt.Errorf("delay: %w", errors.ErrUnsupported)
			}
			return nil
		}})
		fx.runOrders(core.Config{}, func(context.Context, *core.Message) error { return core.RetryAfter(errBoom, time.Minute) })
		fx.enqueue("m1")
		fx.wantDepth("error", 1)
		fx.wantDepth("orders", 0)
	})
}

// Rule R24.
func TestFailedCopy_InvalidHeadersDoNotPreventTheMove(t *testing.T) {
	for name, handler := range map[string]error{"move": core.GiveUp(errBoom), "delayed retry": core.RetryAfter(errBoom, time.Minute)} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				fx.broker.setFaults(faults{onReceive: func(in *core.Incoming) {
					in.Headers.Set("bad", "\xff")
					in.Headers.Set("", "no key")
				}})
				fx.runOrders(core.Config{Recoverability: core.Recoverability{RetryAfterLimit: time.Second}}, func(context.Context, *core.Message) error { return handler })
				fx.enqueue("m1")
				time.Sleep(time.Hour)
				equal(fx, "repaired header", fx.onlyMessage("error").Headers.Get("bad"), "\uFFFD")
				fx.wantDepth("orders", 0)
			})
		})
	}
}

func TestAudit_CopyOfALargestMessageFits(t *testing.T) {
	cfg := withCapabilities(func(c *core.Capabilities) { c.MaxMessageBytes = 20_000 })
	inModesWith(t, cfg, allModes, func(fx *fixture) {
		if err := fx.broker.Provision(fx.Context(), core.Topology{Queues: []string{"audit"}}); err != nil {
			fx.Fatal(err)
		}
		fx.runOrders(core.Config{AuditQueue: "audit"}, func(context.Context, *core.Message) error { return nil })
		largest := order("m1")
		largest.Body = make([]byte, 20_000-largest.Headers.Bytes())
		fx.send(largest)
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 0)
		fx.wantDepth("audit", 1)
	})
}

// A function that ends its goroutine, as testing's FailNow does, costs a delivery each time.
func TestGoexit_OfPolicyFilterOrObserver(t *testing.T) {
	for name, c := range map[string]core.Config{
		"policy": {Recoverability: core.Recoverability{Policy: func(context.Context, core.RecoverabilityConfig, core.ErrorContext) (core.Action, error) {
			runtime.Goexit()
			return core.Action{}, nil
		}}},
		"filter": {Recoverability: core.Recoverability{RateLimit: core.RateLimit{ConsecutiveFailures: 100, Filter: func(error) bool {
			runtime.Goexit()
			return true
		}}}},
		"send observer": {Observers: []core.Observer{sendExit{}.observer()}},
	} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
				fx.runOrders(c, func(_ context.Context, m *core.Message) error {
					_ = m.Send("shipping", shipType.Of("x"))
					if name != "send observer" {
						return errBoom
					}
					return nil
				})
				fx.enqueue("m1")
				failed := fx.onlyMessage("error")
				if !containsAll(failed.Headers.Get(headers.ExceptionMessage), core.ErrDeliveryCountExceeded.Error(), "Goexit") {
					fx.Errorf("moved because of %q", failed.Headers.Get(headers.ExceptionMessage))
				}
				fx.wantDepth("orders", 0)
			})
		})
	}
}

// sendExit ends the goroutine of every send but a move to the error queue.
type sendExit struct{}

func (sendExit) SendStart(_ context.Context, e core.Sending) context.Context {
	if sendsTo(e.Messages, "shipping") {
		runtime.Goexit()
	}
	return nil
}

func (s sendExit) observer() core.Observer { return core.Observer{SendStart: s.SendStart} }

// Rule R8.
func TestMoveToError_NeverToTheOwnQueue(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		runs := 0
		fx.runOrders(core.Config{}, func(context.Context, *core.Message) error {
			if runs++; runs > 10 {
				return nil
			}
			return core.GiveUpTo(errBoom, "orders")
		})
		fx.enqueue("m1")
		equal(fx, "runs", runs, 1)
		fx.wantDepth("error", 1)
		equal(fx, "lines that say so", len(fx.logs.findReason("own queue")), 1)
	})
}

// Rule R42.
func TestRateLimit_FailureIsCountedBeforeItsRetrySucceeds(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.broker.setFaults(faults{afterSettle: func(operation string, _ *core.Incoming) error {
			if operation == "Abandon" {
				time.Sleep(time.Second) // the retry is quicker than the worker that gave the message back
			}
			return nil
		}})
		ep, _ := fx.runOrders(core.Config{Recoverability: rateLimitedConfig(1)}, func(_ context.Context, m *core.Message) error {
			if m.Attempt == 1 {
				return errBoom
			}
			return nil
		})
		fx.enqueue("m1")
		time.Sleep(time.Minute)
		synctest.Wait()
		fx.wantDepth("orders", 0)
		equal(fx, "rate limited after a success", ep.Health().RateLimited, false)
	})
}

// Rule R25.
func TestFailedMove_EarlierAttemptKeepsTheDecision(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		faults := refuseWhile("error", since(time.Now()))
		faults.afterSettle = func(operation string, _ *core.Incoming) error {
			if operation == "Abandon" {
				time.Sleep(500 * time.Millisecond) // the next attempt fails before this one is done
			}
			return nil
		}
		fx.broker.setFaults(faults)
		var runs atomic.Int64
		fx.runOrders(core.Config{Recoverability: immediateRetries(1)}, func(context.Context, *core.Message) error {
			runs.Add(1)
			return errBoom
		})
		fx.enqueue("m1")
		time.Sleep(2 * time.Hour)
		fx.wantDepth("error", 1)
		equal(fx, "runs", runs.Load(), 2)
	})
}
