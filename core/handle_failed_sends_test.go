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
	"github.com/reprise-go/reprise/transport/inmemory"
)

const extraDropped = "What HandleFailed sent for message 'm1' could not be delivered; the message is moved."

// refuseOnce makes the first so many sends that include a queue fail as those
// of a broker that is away for a moment.
func refuseOnce(queue string, times int) faults {
	var n atomic.Int64
	return refuse(queue, func() bool { return n.Add(1) <= int64(times) })
}

// refuseForGood refuses every send that includes the queue because of cause,
// message by message.
func refuseForGood(queue string, cause error) faults {
	return faults{send: func(out []core.Outgoing) error {
		if !goesTo(out, queue) {
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

// settledBy checks the settlements, Reset included, that succeeded.
func settledBy(b *bed, want ...string) {
	b.Helper()
	if got := b.broker.settled.all(); !slices.Equal(got, want) {
		b.Errorf("settled by %q, want %q", got, want)
	}
}

func TestR51_TakeOverWhoseSendsFailIsUndone(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		b.broker.provoke(refuse("shipping", func() bool { return true }))
		var recovered recoveries
		runs := 0
		b.lastResort(core.Config{Recoverability: noRetries, Observers: []core.Observer{recovered.observer()}}, func(ctx context.Context, m *core.Message, f *core.Failed) error {
			runs++
			work(ctx, "last resort")
			f.TakeOver()
			equal(b, "taken over", f.TakenOver(), true)
			return m.Send("shipping", "of the last resort", "x")
		})
		b.put("m1")
		time.Sleep(time.Hour)
		equal(b, "moved", b.only("error").ID, "m1")
		b.holds("orders", 0)
		b.holds("shipping", 0)
		equal(b, "runs", runs, 1)
		equal(b, "work committed", b.broker.committed.len(), 0)
		if b.mode == core.TransactionSendsAtomicWithReceive {
			settledBy(b, "Reset m1", "ReplaceWith m1")
		}
		lines := b.logs.about(extraDropped)
		if len(lines) != 1 || lines[0].level != slog.LevelError || lines[0].attrs["logger"] != "reprise.Recoverability" || lines[0].attrs["send_error"] == nil {
			b.Errorf("logged %+v", lines)
		}
		equal(b, "lines that it is moved", len(b.logs.about("Moving message")), 1)
		equal(b, "taken over, to observers", recovered.all()[0].TakenOver, false)
	})
}

func TestR51_FailedMoveRunsHandleFailedAgain(t *testing.T) {
	inModes(t, everyMode[2:], func(b *bed) {
		reachable := b.unreachable("error", "orders")
		var ids, texts record[string]
		handled := 0
		ep := b.endpoint("orders", core.Config{Recoverability: noRetries})
		b.handle(ep, "order", func(ctx context.Context, _ *core.Message) error {
			handled++
			work(ctx, "handler")
			return &orderError{"7"}
		})
		core.HandleFailed(ep, "order", func(ctx context.Context, m *core.TypedMessage[[]byte], f *core.Failed) error {
			work(ctx, "last resort")
			err := m.Send("shipping", "of the last resort", "x")
			ids.add(m.Outgoing()[0].ID)
			texts.add(f.Err.Error() + " " + f.Queue + " " + string(m.Body))
			return err
		})
		b.run(ep)
		b.put("m1")
		b.holds("shipping", 0)
		equal(b, "work committed", b.broker.committed.len(), 0)
		equal(b, "undelivered", ep.Health().Undelivered, 1)
		reachable()
		time.Sleep(time.Second)
		b.only("error")
		sent := b.only("shipping")
		b.holds("orders", 0)
		equal(b, "handled", handled, 1)
		settledBy(b, "Reset m1", "Reset m1", "Reset m1", "CompleteWith m1") // once before the pause
		if got := b.broker.committed.all(); !slices.Equal(got, []string{"last resort"}) {
			b.Errorf("committed %q", got)
		}
		if got := ids.all(); len(got) != 2 || got[0] != got[1] || got[0] != sent.ID {
			b.Errorf("sent %s, composed as %v; want the same id in every transaction", sent.ID, got)
		}
		if got := texts.all(); len(got) != 2 || got[0] != "order 7 is wrong error body of m1" || got[0] != got[1] {
			b.Errorf("HandleFailed was told %q", got)
		}
		equal(b, "lines that it is moved", len(b.logs.about("Moving message")), 1)
		equal(b, "undelivered", ep.Health().Undelivered, 0)
	})
}

func TestR51_TakeOverInTheNextTransaction(t *testing.T) {
	inModes(t, everyMode[2:], func(b *bed) {
		var down atomic.Bool
		down.Store(true)
		b.broker.provoke(faults{send: func([]core.Outgoing) error {
			if down.Load() {
				return errBoom
			}
			return nil
		}})
		b.lastResort(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message, f *core.Failed) error {
			f.TakeOver()
			return m.Send("shipping", "of the last resort", "x")
		})
		b.put("m1")
		down.Store(false)
		time.Sleep(time.Second)
		b.holds("orders", 0)
		b.holds("error", 0)
		b.holds("shipping", 1)
	})
}

func TestR51_InReceiveOnlySendsLeaveOnceBeforeTheMove(t *testing.T) {
	for name, down := range map[string]string{"nothing fails": "", "the move fails": "error", "its sends fail": "shipping"} {
		t.Run(name, func(t *testing.T) {
			inModes(t, everyMode[1:2], func(b *bed) {
				if down != "" {
					reachable := b.unreachable(down, "orders")
					time.AfterFunc(5*time.Second, reachable)
				}
				runs := 0
				b.lastResort(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message, _ *core.Failed) error {
					runs++
					return m.Send("shipping", "of the last resort", "x")
				})
				b.put("m1")
				time.Sleep(time.Minute)
				synctest.Wait()
				var to []string
				for _, queues := range b.broker.sent.all() {
					to = append(to, queues...)
				}
				if !slices.Equal(to, []string{"shipping", "error"}) {
					b.Errorf("sent to %q, want each once, the extra first", to)
				}
				b.holds("orders", 0)
				equal(b, "runs", runs, 1)
				equal(b, "completed", b.broker.settledAs("Complete", "m1"), 1)
			})
		})
	}
}

func TestR51_RefusedSendsAreDropped(t *testing.T) {
	for _, cause := range []error{core.ErrQueueNotFound, &core.TooLargeError{Size: 2, Max: 1, Limit: "MaxMessageBytes"}, core.ErrInvalidHeader, errors.ErrUnsupported} {
		t.Run(cause.Error(), func(t *testing.T) {
			inModes(t, everyMode, func(b *bed) {
				b.broker.provoke(refuseForGood("shipping", cause))
				runs := 0
				ep := b.lastResort(core.Config{Recoverability: noRetries}, func(ctx context.Context, m *core.Message, _ *core.Failed) error {
					runs++
					work(ctx, "last resort")
					return m.Send("shipping", "of the last resort", "x")
				})
				b.put("m1")
				failed := b.only("error")
				time.Sleep(time.Hour)
				b.holds("error", 1)
				b.holds("shipping", 0)
				b.holds("orders", 0)
				// The message itself was not refused: it has all of its headers.
				equal(b, "error text", failed.Headers.Get(core.HeaderExceptionMessage), "boom")
				equal(b, "runs", runs, 1)
				equal(b, "work committed", b.broker.committed.len(), 0)
				equal(b, "critical errors", ep.Health().CriticalErrors, 0)
				if b.mode == core.TransactionSendsAtomicWithReceive {
					want := []string{"Reset m1", "CompleteWith m1", "ReplaceWith m1"} // the message itself need not be smaller
					if got := b.broker.requested.all(); !slices.Equal(got, want) {
						b.Errorf("asked for %q, want %q", got, want)
					}
				}
				lines := b.logs.about(extraDropped)
				if len(lines) != 1 || lines[0].level != slog.LevelError {
					b.Errorf("logged %+v", lines)
				}
				if reason, ok := lines[0].attrs["send_error"].(error); !ok || !errors.Is(reason, cause) {
					b.Errorf("the line gives the reason %v", lines[0].attrs["send_error"])
				}
			})
		})
	}
}

func TestR51_CustomQueueAndSendsAreRefusedSeparately(t *testing.T) {
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
			inModes(t, everyMode, func(b *bed) {
				if err := b.broker.Provision(b.Context(), core.Topology{Queues: []string{"orders.answers"}}); err != nil {
					b.Fatal(err)
				}
				ep := b.endpoint("orders", core.Config{})
				b.handle(ep, "order", func(context.Context, *core.Message) error { return core.MoveTo(errBoom, test.errorQueue) })
				core.HandleFailed(ep, "order", func(_ context.Context, m *core.TypedMessage[[]byte], f *core.Failed) error {
					equal(b, "queue", f.Queue, test.errorQueue)
					return m.Send(test.extraQueue, "answer", "x")
				})
				b.run(ep)
				b.put("m1")
				equal(b, "message", b.only(test.in).ID, "m1")
				b.holds("error", map[bool]int{true: 1}[test.in == "error"])
				b.holds("orders.answers", test.extra)
				b.holds("orders", 0)
				equal(b, "lines about the error queue", len(b.logs.about("Error queue 'missing' does not exist")), map[bool]int{true: 1}[test.in == "error"])
				equal(b, "lines about the send", len(b.logs.about(extraDropped)), 1-test.extra)
				equal(b, "critical errors", ep.Health().CriticalErrors, 0)
			})
		})
	}
}

func TestR51_TakeOverIsNoCriticalError(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		b.lastResort(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message, f *core.Failed) error {
			equal(b, "lines before it ran", len(b.logs.about("Moving message")), 0)
			if m.ID == "m1" {
				f.TakeOver()
			}
			return nil
		})
		b.put("m1")
		for _, line := range b.logs.all() {
			if line.level >= slog.LevelError || line.attrs["logger"] == "reprise.MoveToError" {
				b.Errorf("logged %+v", line)
			}
		}
		b.put("m2")
		equal(b, "lines of one that was moved", len(b.logs.about("Moving message 'm2'")), 1)
	})
}

func TestR51_HandleFailedSkipsUnhandledMessagesAfterFailedMoves(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		ep := b.endpoint("orders", core.Config{Recoverability: noRetries})
		core.Handle(ep, "order", func(context.Context, *core.TypedMessage[int]) error { return nil })
		core.HandleFailed(ep, "order", func(_ context.Context, m *core.TypedMessage[int], _ *core.Failed) error {
			b.Errorf("HandleFailed ran for %s", m.ID)
			return nil
		})
		var broken atomic.Bool
		broken.Store(true)
		f := refuse("error", broken.Load)
		f.arrive = func(in *core.Incoming) {
			switch in.ID {
			case "malformed":
				in.Malformed = errBoom
			case "too often":
				in.DeliveryCount = 1000
			}
		}
		b.broker.provoke(f)
		b.run(ep)
		b.put("malformed", "too often", "undecodable")
		time.Sleep(10 * time.Second)
		broken.Store(false)
		time.Sleep(time.Minute)
		b.holds("error", 3)
		equal(b, "lines of HandleFailed", len(b.logs.about("HandleFailed")), 0)
	})
}

// No broker takes the sends and a dead letter as one, so the sends go first.
func TestR51_SendsLeaveOnceBeforeADeadLetter(t *testing.T) {
	for name, deadLetterFails := range map[string]bool{"the dead letter": true, "its sends": false} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retrying, func(b *bed) {
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
				b.broker.provoke(fails)
				runs := 0
				ep := b.endpoint("orders", core.Config{Recoverability: core.Recoverability{DeadLetter: core.DeadLettersRejected}})
				b.handle(ep, "order", func(context.Context, *core.Message) error { return core.Reject(errBoom) })
				core.HandleFailed(ep, "order", func(_ context.Context, m *core.TypedMessage[[]byte], _ *core.Failed) error {
					runs++
					return m.Send("shipping", "of the last resort", "x")
				})
				b.run(ep)
				b.put("m1")
				time.Sleep(time.Minute)
				equal(b, "dead letter", b.only(inmemory.DeadLetterQueue("orders")).ID, "m1")
				b.holds("shipping", 1)
				b.holds("orders", 0)
				equal(b, "runs", runs, 1)
			})
		})
	}
}
