package core_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// A PutBack is no decision to remember: the next delivery is handled.
func TestPutBack_IsHandledAgainAfterAFailedRelease(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.broker.setFaults(failFirst("Release", 1))
		runs := 0
		ep, _ := fx.runOrders(core.Config{}, func(context.Context, *core.Message) error {
			if runs++; runs == 1 {
				return core.PutBack(errBoom, time.Second)
			}
			return nil
		})
		fx.enqueue("m1")
		fx.advance(2 * time.Minute)
		equal(fx, "runs", runs, 2)
		equal(fx, "undelivered", ep.Health().Undelivered, 0)
		fx.wantDepth("orders", 0)
	})
}

// A work has one owner also if middleware ends its goroutine.
func TestGoexit_KeptMessageHasOneOwner(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		reachable := fx.failSendsTo("error", "orders")
		runs := 0
		fx.runOrders(core.Config{Recoverability: noRetries, Middleware: []core.Middleware{core.MiddlewareFunc(func(core.HandlerFunc) core.HandlerFunc {
			return func(context.Context, *core.Message) error {
				runs++
				runtime.Goexit()
				return nil
			}
		})}}, func(context.Context, *core.Message) error { return nil })
		fx.enqueue("m1")
		fx.advance(time.Minute)
		reachable()
		fx.advance(10 * time.Minute)
		equal(fx, "runs", runs, 1)
		fx.onlyMessage("error")
		equal(fx, "lines about an abandoned message", len(fx.logs.find("left in the middle")), 0)
	})
}

// A policy may break the transaction, in which nothing can be committed then.
func TestDiscard_InABrokenTransaction(t *testing.T) {
	inModes(t, allModes[2:], func(fx *fixture) {
		fx.broker.setFaults(faults{settle: func(operation string, _ *core.Incoming) error {
			if operation == "CompleteWith" {
				return errors.New("the transaction is broken")
			}
			return nil
		}})
		discard := func(context.Context, core.RecoverabilityConfig, core.ErrorContext) (core.Action, error) {
			return core.DiscardMessage(), nil
		}
		fx.runOrders(core.Config{Recoverability: core.Recoverability{Policy: discard}}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		fx.advance(time.Minute)
		fx.wantDepth("orders", 0)
	})
}

// Rule R51.
// A copy may be too large only together with the messages of HandleFailed.
func TestHandleFailed_SendsThatMakeTheMoveTooLargeAreDropped(t *testing.T) {
	for name, refusal := range map[string]func(out []core.Outgoing) error{
		"the call": func([]core.Outgoing) error { return fmt.Errorf("together: %w", core.ErrTooLarge) },
		"each message": func(out []core.Outgoing) error {
			failed := &core.SendError{}
			for _, o := range out {
				failed.Results = append(failed.Results, core.SendResult{ID: o.ID, To: o.Queue, State: core.SendRefused, Err: core.ErrTooLarge})
			}
			return failed
		},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes[2:], func(fx *fixture) {
				fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
					if len(out) < 2 {
						return nil
					}
					return refusal(out)
				}})
				runs := 0
				fx.runHandleFailed(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message, _ *core.Failed) error {
					runs++
					return m.Send("shipping", resortType.Of("x"))
				})
				fx.enqueue("m1")
				fx.onlyMessage("error")
				equal(fx, "runs", runs, 1)
				equal(fx, "lines about the sends", len(fx.logs.find(handleFailedSendsDropped)), 1)
			})
		})
	}
}
