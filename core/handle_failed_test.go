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
	"github.com/reprise-go/reprise/core/headers"
)

// runHandleFailed registers a handler that always fails, and a HandleFailed.
func (fx *fixture) runHandleFailed(c core.Config, last func(ctx context.Context, m *core.Message, f *core.Failed) error) *core.Endpoint {
	fx.Helper()
	ep := fx.newEndpoint("orders", c)
	fx.handle(ep, "order", func(ctx context.Context, m *core.Message) error {
		doWork(ctx, "handler")
		return errors.Join(m.Send("shipping", handlerType.Of("x")), errBoom)
	})
	core.HandleFailed(ep, orderType, func(ctx context.Context, m *core.Message, _ []byte, f *core.Failed) error {
		return last(ctx, m, f)
	})
	fx.run(ep)
	return ep
}

func (fx *fixture) sentTypes(queue string) []string {
	fx.Helper()
	var types []string
	for _, m := range fx.messages(queue) {
		types = append(types, m.Headers.Get(headers.MessageTypes))
	}
	slices.Sort(types)
	return types
}

// Rule R51.
func TestHandleFailed_HandleFailedRunsBeforeTheMove(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var recovered recoveryRecorder
		config := core.Config{Observers: []core.Observer{recovered.observer()}}
		attempts := 1
		if fx.mode != core.TransactionNone {
			config.Recoverability, attempts = immediateRetries(2), 3
		}
		runs := 0
		fx.runHandleFailed(config, func(ctx context.Context, m *core.Message, f *core.Failed) error {
			runs++
			equal(fx, "attempt", m.Attempt, attempts)
			equal(fx, "queue", f.Queue, "error")
			equal(fx, "body", string(m.RawBody()), "body of m1")
			if !errors.Is(f.Err, errBoom) {
				fx.Errorf("last failure is %v", f.Err)
			}
			if from, ok := core.MessageFromContext(ctx); !ok || from != m {
				fx.Error("the context does not know its message")
			}
			doWork(ctx, "last resort")
			return m.Send("shipping", resortType.Of("x"))
		})
		fx.enqueue("m1")
		fx.onlyMessage("error")
		fx.wantDepth("orders", 0)
		equal(fx, "runs", runs, 1)
		if got := fx.sentTypes("shipping"); !slices.Equal(got, []string{"of the last resort"}) {
			fx.Errorf("sent %v", got)
		}
		want := []string(nil)
		if fx.mode == core.TransactionSendsAtomicWithReceive {
			want = []string{"last resort"}
		}
		if got := fx.broker.committed.all(); !slices.Equal(got, want) {
			fx.Errorf("committed %v, want %v", got, want)
		}
		all := recovered.all()
		equal(fx, "taken over", all[len(all)-1].TakenOver, false)
	})
}

// Rule R51.
func TestHandleFailed_HandleFailedMayTakeOver(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		var recovered recoveryRecorder
		recover := core.Recoverability{UnacceptableMessageLimit: core.UnacceptableMessageLimit{Count: 1}, Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}}
		fx.runHandleFailed(core.Config{Recoverability: recover, Observers: []core.Observer{recovered.observer()}, AuditQueue: "audit"},
			func(ctx context.Context, m *core.Message, f *core.Failed) error {
				doWork(ctx, "last resort")
				f.TakeOver()
				return m.Send("shipping", resortType.Of("x"))
			})
		fx.enqueue("m1")
		fx.wantDepth("error", 0)
		fx.wantDepth("orders", 0)
		if got := fx.sentTypes("shipping"); !slices.Equal(got, []string{"of the last resort"}) {
			fx.Errorf("sent %v", got)
		}
		if fx.mode == core.TransactionSendsAtomicWithReceive {
			if got := fx.broker.committed.all(); !slices.Equal(got, []string{"last resort"}) {
				fx.Errorf("committed %v", got)
			}
		}
		equal(fx, "taken over", recovered.all()[0].TakenOver, true)
		equal(fx, "lines", len(fx.logs.find("HandleFailed took the message over", "message_id", "m1")), 1)
	})
}

// Rule R51.
func TestHandleFailed_FailureLetsTheMoveHappen(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error":   func() error { return errors.New("last resort failed") },
		"panic":   func() error { panic("last resort panicked") },
		"verdict": func() error { return core.Discard(errors.New("not now")) },
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				runs := 0
				fx.runHandleFailed(core.Config{Recoverability: noRetries}, func(ctx context.Context, m *core.Message, f *core.Failed) error {
					if runs++; runs > 1 {
						return nil
					}
					doWork(ctx, "last resort")
					f.TakeOver()
					if err := m.Send("shipping", resortType.Of("x")); err != nil {
						fx.Error(err)
					}
					return fail()
				})
				fx.enqueue("m1")
				failed := fx.onlyMessage("error")
				equal(fx, "error text", failed.Headers.Get(headers.ExceptionMessage), "boom")
				fx.wantDepth("orders", 0)
				fx.wantDepth("shipping", 0)
				equal(fx, "committed", fx.broker.committed.len(), 0)
				equal(fx, "runs", runs, 1)
				equal(fx, "lines", len(fx.logs.find("HandleFailed failed", "message_id", "m1")), 1)
			})
		})
	}
}

// Rule R51.
func TestHandleFailed_HandleFailedSkipsUnhandledMessages(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{})
		core.Handle(ep, orderIntType, func(context.Context, *core.Message, int) error { return nil })
		core.HandleFailed(ep, orderIntType, func(_ context.Context, m *core.Message, _ int, _ *core.Failed) error {
			fx.Errorf("HandleFailed ran for %s", m.ID)
			return nil
		})
		fx.broker.setFaults(faults{onReceive: func(in *core.Incoming) {
			switch in.ID {
			case "malformed":
				in.Malformed = errBoom
			case "too often":
				in.DeliveryCount = 1000
			}
		}})
		fx.run(ep)
		fx.enqueue("malformed", "too often", "undecodable")
		fx.wantDepth("error", 3)
	})
}

// Rule R51.
func TestHandleFailed_SendsLeaveOnceWithTheMove(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var broken atomic.Bool
		broken.Store(true)
		fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
			if broken.Load() && (sendsTo(out, "error") || sendsTo(out, "orders")) { // it cannot be stored either
				return errBoom
			}
			return nil
		}})
		var runs atomic.Int64
		fx.runHandleFailed(core.Config{Recoverability: noRetries}, func(ctx context.Context, m *core.Message, _ *core.Failed) error {
			runs.Add(1)
			doWork(ctx, "last resort")
			return m.Send("shipping", resortType.Of("x"))
		})
		fx.enqueue("m1")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if fx.mode == core.TransactionSendsAtomicWithReceive {
			fx.wantDepth("shipping", 0)
			// Its work in the transaction was undone with it, so it runs again.
			equal(fx, "runs", runs.Load(), 3)
		} else {
			equal(fx, "runs", runs.Load(), 1)
		}
		broken.Store(false)
		time.Sleep(5 * time.Second)
		fx.onlyMessage("error")
		fx.wantDepth("shipping", 1)
		fx.wantDepth("orders", 0)
		if fx.mode == core.TransactionSendsAtomicWithReceive {
			equal(fx, "work committed", fx.broker.committed.len(), 1)
		}
	})
}

// Rule R51.
func TestHandleFailed_SendsToAMissingQueueDoNotPreventTheMove(t *testing.T) {
	for name, takeOver := range map[string]bool{"move": false, "take over": true} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				runs := 0
				fx.runHandleFailed(core.Config{Recoverability: noRetries}, func(ctx context.Context, m *core.Message, f *core.Failed) error {
					runs++
					doWork(ctx, "last resort")
					if takeOver {
						f.TakeOver()
					}
					return m.Send("nowhere", resortType.Of("x"))
				})
				fx.enqueue("m1")
				time.Sleep(time.Hour)
				fx.wantDepth("orders", 0)
				fx.wantDepth("error", 1)
				equal(fx, "runs", runs, 1)
				equal(fx, "work committed", fx.broker.committed.len(), 0)
				equal(fx, "lines", len(fx.logs.find("messages of HandleFailed could not be delivered", "message_id", "m1")), 1)
			})
		})
	}
}

// Rule R51.
func TestHandleFailed_DeadLetterQueue(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{Recoverability: core.Recoverability{}})
		fx.handle(ep, "order", func(context.Context, *core.Message) error { return core.GiveUpTo(errBoom, core.DeadLetterQueue) })
		core.HandleFailed(ep, orderType, func(_ context.Context, m *core.Message, _ []byte, _ *core.Failed) error {
			return m.Send("shipping", resortType.Of("x"))
		})
		fx.run(ep)
		fx.enqueue("m1")
		fx.wantDepth("shipping", 1)
		fx.onlyMessage("orders/$deadletter")
		fx.wantDepth("error", 0)
	})
}
