package core_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/messagekit"
	"github.com/reprise-go/reprise/transport/inmemory"
)

const handleFailedSendsDropped = "messages of HandleFailed could not be delivered; the message is moved"

// refuseOnce makes the first n sends that include a queue fail as those
// of a broker that is away for a moment.
func refuseOnce(queue string, times int) faults {
	var n atomic.Int64
	return refuseWhile(queue, func() bool { return n.Add(1) <= int64(times) })
}

// refusePermanently refuses every send that includes the queue because of cause,
// message by message.
func refusePermanently(queue string, cause error) faults {
	return faults{send: func(out []core.Outgoing) error {
		if !sendsTo(out, queue) {
			return nil
		}
		var results []core.SendResult
		for _, o := range out {
			r := core.SendResult{ID: o.ID, To: o.Queue, State: core.SendRefused, Err: errors.New("not sent because of another")}
			if o.Queue == queue {
				r.Err = cause
			}
			results = append(results, r)
		}
		return &core.SendError{Results: results}
	}}
}

// wantSettled checks the settlements, Reset included, that succeeded.
func wantSettled(fx *fixture, want ...string) {
	fx.Helper()
	if got := fx.broker.settled.all(); !slices.Equal(got, want) {
		fx.Errorf("settled by %q, want %q", got, want)
	}
}

// Rule R51.
func TestTakeOver_WhoseSendsFailIsUndone(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.broker.setFaults(refuseWhile("shipping", func() bool { return true }))
		var recovered recoveryRecorder
		runs := 0
		fx.runHandleFailed(core.Config{Recoverability: noRetries, Observers: []core.Observer{recovered.observer()}}, func(ctx context.Context, m *core.Message, f *core.Failed) error {
			runs++
			doWork(ctx, "last resort")
			f.TakeOver()
			equal(fx, "taken over", coretest.TakenOver(f), true)
			return m.Send("shipping", resortType.Of("x"))
		})
		fx.enqueue("m1")
		time.Sleep(time.Hour)
		equal(fx, "moved", fx.onlyMessage("error").ID, "m1")
		fx.wantDepth("orders", 0)
		fx.wantDepth("shipping", 0)
		equal(fx, "runs", runs, 1)
		equal(fx, "work committed", fx.broker.committed.len(), 0)
		if fx.mode == core.TransactionSendsAtomicWithReceive {
			wantSettled(fx, "Reset m1", "ReplaceWith m1")
		}
		lines := fx.logs.find(handleFailedSendsDropped)
		if len(lines) != 1 || lines[0].level != slog.LevelError || lines[0].attrs["logger"] != "reprise.Recoverability" || lines[0].attrs["send_error"] == nil {
			fx.Errorf("logged %+v", lines)
		}
		equal(fx, "lines that it is moved", len(fx.logs.find("moving message")), 1)
		equal(fx, "taken over, to observers", recovered.all()[0].TakenOver, false)
	})
}

// Rule R51.
func TestHandleFailed_RunsAgainAfterAFailedMove(t *testing.T) {
	inModes(t, allModes[2:], func(fx *fixture) {
		reachable := fx.failSendsTo("error", "orders")
		var ids, texts recorder[string]
		handled := 0
		ep := fx.newEndpoint("orders", core.Config{Recoverability: noRetries})
		fx.handle(ep, "order", func(ctx context.Context, _ *core.Message) error {
			handled++
			doWork(ctx, "handler")
			return &orderError{"7"}
		})
		core.HandleFailed(ep, orderType, func(ctx context.Context, m *core.Message, body []byte, f *core.Failed) error {
			doWork(ctx, "last resort")
			err := m.Send("shipping", resortType.Of("x"))
			ids.add(messagekit.Collected(m)[0].ID)
			texts.add(f.Err.Error() + " " + f.Queue + " " + string(body))
			return err
		})
		fx.run(ep)
		fx.enqueue("m1")
		fx.wantDepth("shipping", 0)
		equal(fx, "work committed", fx.broker.committed.len(), 0)
		equal(fx, "undelivered", ep.Health().Undelivered, 1)
		reachable()
		time.Sleep(time.Second)
		fx.onlyMessage("error")
		sent := fx.onlyMessage("shipping")
		fx.wantDepth("orders", 0)
		equal(fx, "handled", handled, 1)
		wantSettled(fx, "Reset m1", "Reset m1", "Reset m1", "CompleteWith m1") // once before the pause
		if got := fx.broker.committed.all(); !slices.Equal(got, []string{"last resort"}) {
			fx.Errorf("committed %q", got)
		}
		if got := ids.all(); len(got) != 2 || got[0] != got[1] || got[0] != sent.ID {
			fx.Errorf("sent %s, composed as %v; want the same id in every transaction", sent.ID, got)
		}
		if got := texts.all(); len(got) != 2 || got[0] != "order 7 is wrong error body of m1" || got[0] != got[1] {
			fx.Errorf("HandleFailed was told %q", got)
		}
		equal(fx, "lines that it is moved", len(fx.logs.find("moving message")), 1)
		equal(fx, "undelivered", ep.Health().Undelivered, 0)
	})
}

// Rule R51.
func TestTakeOver_InTheNextTransaction(t *testing.T) {
	inModes(t, allModes[2:], func(fx *fixture) {
		var down atomic.Bool
		down.Store(true)
		fx.broker.setFaults(faults{send: func([]core.Outgoing) error {
			if down.Load() {
				return errBoom
			}
			return nil
		}})
		fx.runHandleFailed(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message, f *core.Failed) error {
			f.TakeOver()
			return m.Send("shipping", resortType.Of("x"))
		})
		fx.enqueue("m1")
		down.Store(false)
		time.Sleep(time.Second)
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 0)
		fx.wantDepth("shipping", 1)
	})
}

// Rule R51.
func TestHandleFailed_InReceiveOnlySendsLeaveOnceBeforeTheMove(t *testing.T) {
	for name, down := range map[string]string{"nothing fails": "", "the move fails": "error", "its sends fail": "shipping"} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes[1:2], func(fx *fixture) {
				if down != "" {
					reachable := fx.failSendsTo(down, "orders")
					time.AfterFunc(5*time.Second, reachable)
				}
				runs := 0
				fx.runHandleFailed(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message, _ *core.Failed) error {
					runs++
					return m.Send("shipping", resortType.Of("x"))
				})
				fx.enqueue("m1")
				time.Sleep(time.Minute)
				synctest.Wait()
				var to []string
				for _, queues := range fx.broker.sent.all() {
					to = append(to, queues...)
				}
				if !slices.Equal(to, []string{"shipping", "error"}) {
					fx.Errorf("sent to %q, want each once, the extra first", to)
				}
				fx.wantDepth("orders", 0)
				equal(fx, "runs", runs, 1)
				equal(fx, "completed", fx.broker.countSettled("Complete", "m1"), 1)
			})
		})
	}
}

// Rule R51.
func TestHandleFailed_RefusedSendsAreDropped(t *testing.T) {
	for _, cause := range []error{core.ErrQueueNotFound, &core.TooLargeError{Size: 2, Max: 1, Limit: "MaxMessageBytes"}, core.ErrInvalidHeader, errors.ErrUnsupported} {
		t.Run(cause.Error(), func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				fx.broker.setFaults(refusePermanently("shipping", cause))
				runs := 0
				ep := fx.runHandleFailed(core.Config{Recoverability: noRetries}, func(ctx context.Context, m *core.Message, _ *core.Failed) error {
					runs++
					doWork(ctx, "last resort")
					return m.Send("shipping", resortType.Of("x"))
				})
				fx.enqueue("m1")
				failed := fx.onlyMessage("error")
				time.Sleep(time.Hour)
				fx.wantDepth("error", 1)
				fx.wantDepth("shipping", 0)
				fx.wantDepth("orders", 0)
				// The message itself was not refused: it has all of its headers.
				equal(fx, "error text", failed.Headers.Get(headers.ExceptionMessage), "boom")
				equal(fx, "runs", runs, 1)
				equal(fx, "work committed", fx.broker.committed.len(), 0)
				equal(fx, "critical errors", ep.Health().CriticalErrors, 0)
				if fx.mode == core.TransactionSendsAtomicWithReceive {
					want := []string{"Reset m1", "CompleteWith m1", "ReplaceWith m1"} // the message itself need not be smaller
					if got := fx.broker.attempted.all(); !slices.Equal(got, want) {
						fx.Errorf("asked for %q, want %q", got, want)
					}
				}
				lines := fx.logs.find(handleFailedSendsDropped)
				if len(lines) != 1 || lines[0].level != slog.LevelError {
					fx.Errorf("logged %+v", lines)
				}
				if reason, ok := lines[0].attrs["send_error"].(error); !ok || !errors.Is(reason, cause) {
					fx.Errorf("the line gives the reason %v", lines[0].attrs["send_error"])
				}
			})
		})
	}
}

// Rule R51.
func TestHandleFailed_CustomQueueAndSendsAreRefusedSeparately(t *testing.T) {
	for _, test := range []struct {
		name, errorQueue, extraQueue string
		in                           string // the queue in which the message is found
		extra                        int
	}{
		{"both are there", "shipping", "orders.answers", "shipping", 1},
		{"the error queue is missing", "missing", "orders.answers", "error", 1},
		{"the queue of the send is missing", "shipping", "missing", "shipping", 0},
		{"both are missing", "missing", "missing too", "error", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				if err := fx.broker.Provision(fx.Context(), core.Topology{Queues: []string{"orders.answers"}}); err != nil {
					fx.Fatal(err)
				}
				ep := fx.newEndpoint("orders", core.Config{})
				fx.handle(ep, "order", func(context.Context, *core.Message) error { return core.GiveUpTo(errBoom, test.errorQueue) })
				core.HandleFailed(ep, orderType, func(_ context.Context, m *core.Message, _ []byte, f *core.Failed) error {
					equal(fx, "queue", f.Queue, test.errorQueue)
					return m.Send(test.extraQueue, answerStringType.Of("x"))
				})
				fx.run(ep)
				fx.enqueue("m1")
				equal(fx, "message", fx.onlyMessage(test.in).ID, "m1")
				fx.wantDepth("error", map[bool]int{true: 1}[test.in == "error"])
				fx.wantDepth("orders.answers", test.extra)
				fx.wantDepth("orders", 0)
				equal(fx, "lines about the error queue", len(fx.logs.find("queue does not exist", "instead_of", "missing")), map[bool]int{true: 1}[test.in == "error"])
				equal(fx, "lines about the send", len(fx.logs.find(handleFailedSendsDropped)), 1-test.extra)
				equal(fx, "critical errors", ep.Health().CriticalErrors, 0)
			})
		})
	}
}

// Rule R51.
// In TransactionNone, which has no later try, the move does not wait for them.
func TestHandleFailed_UnreachableSendsLoseNoMessage(t *testing.T) {
	inModes(t, allModes[:1], func(fx *fixture) {
		fx.failSendsTo("shipping")
		ep := fx.runHandleFailed(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message, _ *core.Failed) error {
			return m.Send("shipping", resortType.Of("x"))
		})
		fx.enqueue("m1")
		fx.onlyMessage("error")
		equal(fx, "critical errors", ep.Health().CriticalErrors, 0)
	})
}

// Rule R51.
func TestTakeOver_IsNoCriticalError(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.runHandleFailed(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message, f *core.Failed) error {
			equal(fx, "lines before it ran", len(fx.logs.find("moving message")), 0)
			if m.ID == "m1" {
				f.TakeOver()
			}
			return nil
		})
		fx.enqueue("m1")
		for _, line := range fx.logs.all() {
			if line.level >= slog.LevelError || line.attrs["logger"] == "reprise.MoveToError" {
				fx.Errorf("logged %+v", line)
			}
		}
		fx.enqueue("m2")
		equal(fx, "lines of one that was moved", len(fx.logs.find("moving message", "message_id", "m2")), 1)
	})
}

// Rule R51.
func TestHandleFailed_HandleFailedSkipsUnhandledMessagesAfterFailedMoves(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{Recoverability: noRetries})
		core.Handle(ep, orderIntType, func(context.Context, *core.Message, int) error { return nil })
		core.HandleFailed(ep, orderIntType, func(_ context.Context, m *core.Message, _ int, _ *core.Failed) error {
			fx.Errorf("HandleFailed ran for %s", m.ID)
			return nil
		})
		var broken atomic.Bool
		broken.Store(true)
		f := refuseWhile("error", broken.Load)
		f.onReceive = func(in *core.Incoming) {
			switch in.ID {
			case "malformed":
				in.Malformed = errBoom
			case "too often":
				in.DeliveryCount = 1000
			}
		}
		fx.broker.setFaults(f)
		fx.run(ep)
		fx.enqueue("malformed", "too often", "undecodable")
		time.Sleep(10 * time.Second)
		broken.Store(false)
		time.Sleep(time.Minute)
		fx.wantDepth("error", 3)
		equal(fx, "lines of HandleFailed", len(fx.logs.find("HandleFailed")), 0)
	})
}

// Rule R51.
// No broker takes the sends and a dead letter as one, so the sends go first.
func TestHandleFailed_SendsLeaveOnceBeforeADeadLetter(t *testing.T) {
	for name, deadLetterFails := range map[string]bool{"the dead letter": true, "its sends": false} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				fails := refuseOnce("shipping", 3)
				if deadLetterFails {
					var n atomic.Int64
					fails = faults{settle: func(operation string, _ *core.Incoming) error {
						if operation == "DeadLetter" && n.Add(1) <= 3 {
							return errBoom
						}
						return nil
					}}
				}
				fx.broker.setFaults(fails)
				runs := 0
				ep := fx.newEndpoint("orders", core.Config{Recoverability: core.Recoverability{}})
				fx.handle(ep, "order", func(context.Context, *core.Message) error { return core.GiveUpTo(errBoom, core.DeadLetterQueue) })
				core.HandleFailed(ep, orderType, func(_ context.Context, m *core.Message, _ []byte, _ *core.Failed) error {
					runs++
					return m.Send("shipping", resortType.Of("x"))
				})
				fx.run(ep)
				fx.enqueue("m1")
				time.Sleep(time.Minute)
				equal(fx, "dead letter", fx.onlyMessage(inmemory.DeadLetterQueue("orders")).ID, "m1")
				fx.wantDepth("shipping", 1)
				fx.wantDepth("orders", 0)
				equal(fx, "runs", runs, 1)
			})
		})
	}
}

// Rule R51.
// A lock may be lost in a later try, after the messages have left.
func TestHandleFailed_SendsLeaveOnceThoughALaterTryLosesItsLock(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
		fails := refuseOnce("shipping", 1)
		var deadLetters atomic.Int64
		fails.settle = func(operation string, _ *core.Incoming) error {
			if operation == "DeadLetter" && deadLetters.Add(1) == 1 {
				return core.ErrLockLost
			}
			return nil
		}
		fx.broker.setFaults(fails)
		runs := 0
		ep := fx.newEndpoint("orders", core.Config{Recoverability: core.Recoverability{}})
		fx.handle(ep, "order", func(context.Context, *core.Message) error { return core.GiveUpTo(errBoom, core.DeadLetterQueue) })
		core.HandleFailed(ep, orderType, func(_ context.Context, m *core.Message, _ []byte, _ *core.Failed) error {
			runs++
			return m.Send("shipping", resortType.Of("x"))
		})
		fx.run(ep)
		fx.enqueue("m1")
		fx.advance(10 * time.Minute)
		equal(fx, "dead letter", fx.onlyMessage(inmemory.DeadLetterQueue("orders")).ID, "m1")
		fx.wantDepth("shipping", 1)
		equal(fx, "runs", runs, 1)
	})
}
