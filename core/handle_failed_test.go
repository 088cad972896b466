package core_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
)

// lastResort registers a handler that always fails and what runs then.
func (b *bed) lastResort(c core.Config, last func(ctx context.Context, m *core.Message, f *core.Failed) error) *core.Endpoint {
	b.Helper()
	ep := b.endpoint("orders", c)
	b.handle(ep, "order", func(ctx context.Context, m *core.Message) error {
		work(ctx, "handler")
		return errors.Join(m.Send("shipping", "of the handler", "x"), errBoom)
	})
	core.HandleFailed(ep, "order", func(ctx context.Context, m *core.TypedMessage[[]byte], f *core.Failed) error {
		return last(ctx, m.Message, f)
	})
	b.run(ep)
	return ep
}

func (b *bed) sentTypes(queue string) []string {
	b.Helper()
	var types []string
	for _, m := range b.queue(queue) {
		types = append(types, m.Headers.Get(core.HeaderMessageTypes))
	}
	slices.Sort(types)
	return types
}

func TestR51_HandleFailedRunsBeforeTheMove(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		var recovered recoveries
		config := core.Config{Observers: []core.Observer{recovered.observer()}}
		attempts := 1
		if b.mode != core.TransactionNone {
			config.Recoverability, attempts = immediate(2), 3
		}
		runs := 0
		b.lastResort(config, func(ctx context.Context, m *core.Message, f *core.Failed) error {
			runs++
			equal(b, "attempt", m.Attempt, attempts)
			equal(b, "queue", f.Queue, "error")
			equal(b, "body", string(m.RawBody()), "body of m1")
			if !errors.Is(f.Err, errBoom) {
				b.Errorf("last failure is %v", f.Err)
			}
			if from, ok := core.MessageFromContext(ctx); !ok || from != m {
				b.Error("the context does not know its message")
			}
			work(ctx, "last resort")
			return m.Send("shipping", "of the last resort", "x")
		})
		b.put("m1")
		b.only("error")
		b.holds("orders", 0)
		equal(b, "runs", runs, 1)
		if got := b.sentTypes("shipping"); !slices.Equal(got, []string{"of the last resort"}) {
			b.Errorf("sent %v", got)
		}
		want := []string(nil)
		if b.mode == core.TransactionSendsAtomicWithReceive {
			want = []string{"last resort"}
		}
		if got := b.broker.committed.all(); !slices.Equal(got, want) {
			b.Errorf("committed %v, want %v", got, want)
		}
		all := recovered.all()
		equal(b, "taken over", all[len(all)-1].TakenOver, false)
	})
}

func TestR51_HandleFailedMayTakeOver(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		var recovered recoveries
		recover := core.Recoverability{UnacceptableMessageLimit: 1, Immediate: core.Immediate{Off: true}, Delayed: core.Delayed{Off: true}}
		b.lastResort(core.Config{Recoverability: recover, Observers: []core.Observer{recovered.observer()}, AuditQueue: "audit"},
			func(ctx context.Context, m *core.Message, f *core.Failed) error {
				work(ctx, "last resort")
				f.TakeOver()
				return m.Send("shipping", "of the last resort", "x")
			})
		b.put("m1")
		b.holds("error", 0)
		b.holds("orders", 0)
		if got := b.sentTypes("shipping"); !slices.Equal(got, []string{"of the last resort"}) {
			b.Errorf("sent %v", got)
		}
		if b.mode == core.TransactionSendsAtomicWithReceive {
			if got := b.broker.committed.all(); !slices.Equal(got, []string{"last resort"}) {
				b.Errorf("committed %v", got)
			}
		}
		equal(b, "taken over", recovered.all()[0].TakenOver, true)
		equal(b, "lines", len(b.logs.about("HandleFailed took message 'm1' over")), 1)
	})
}

func TestR51_FailureOfHandleFailedLetsTheMoveHappen(t *testing.T) {
	for name, fail := range map[string]func() error{
		"error":   func() error { return errors.New("last resort failed") },
		"panic":   func() error { panic("last resort panicked") },
		"Goexit":  func() error { runtime.Goexit(); return nil },
		"verdict": func() error { return core.Discard("not now") },
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, everyMode, func(b *bed) {
				runs := 0
				b.lastResort(core.Config{Recoverability: noRetries}, func(ctx context.Context, m *core.Message, f *core.Failed) error {
					if runs++; runs > 1 {
						return nil
					}
					work(ctx, "last resort")
					f.TakeOver()
					if err := m.Send("shipping", "of the last resort", "x"); err != nil {
						b.Error(err)
					}
					return fail()
				})
				b.put("m1")
				failed := b.only("error")
				equal(b, "error text", failed.Headers.Get(core.HeaderExceptionMessage), "boom")
				b.holds("orders", 0)
				b.holds("shipping", 0)
				equal(b, "committed", b.broker.committed.len(), 0)
				equal(b, "runs", runs, 1)
				equal(b, "lines", len(b.logs.about("HandleFailed failed for message 'm1'")), 1)
			})
		})
	}
}

func TestR51_HandleFailedSkipsUnhandledMessages(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		ep := b.endpoint("orders", core.Config{})
		core.Handle(ep, "order", func(context.Context, *core.TypedMessage[int]) error { return nil })
		core.HandleFailed(ep, "order", func(_ context.Context, m *core.TypedMessage[int], _ *core.Failed) error {
			b.Errorf("HandleFailed ran for %s", m.ID)
			return nil
		})
		b.broker.provoke(faults{arrive: func(in *core.Incoming) {
			switch in.ID {
			case "malformed":
				in.Malformed = errBoom
			case "too often":
				in.DeliveryCount = 1000
			}
		}})
		b.run(ep)
		b.put("malformed", "too often", "undecodable")
		b.holds("error", 3)
	})
}

func TestR51_SendsLeaveOnceWithTheMove(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var broken atomic.Bool
		broken.Store(true)
		b.broker.provoke(faults{send: func(out []core.Outgoing) error {
			if broken.Load() && (goesTo(out, "error") || goesTo(out, "orders")) { // it cannot be stored either
				return errBoom
			}
			return nil
		}})
		var runs atomic.Int64
		b.lastResort(core.Config{Recoverability: noRetries}, func(ctx context.Context, m *core.Message, _ *core.Failed) error {
			runs.Add(1)
			work(ctx, "last resort")
			return m.Send("shipping", "of the last resort", "x")
		})
		b.put("m1")
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if b.mode == core.TransactionSendsAtomicWithReceive {
			b.holds("shipping", 0)
			// What it did in the transaction went with it, so it runs again.
			equal(b, "runs", runs.Load(), 3)
		} else {
			equal(b, "runs", runs.Load(), 1)
		}
		broken.Store(false)
		time.Sleep(5 * time.Second)
		b.only("error")
		b.holds("shipping", 1)
		b.holds("orders", 0)
		if b.mode == core.TransactionSendsAtomicWithReceive {
			equal(b, "work committed", b.broker.committed.len(), 1)
		}
	})
}

func TestR51_SendsToAMissingQueueDoNotPreventTheMove(t *testing.T) {
	for name, takeOver := range map[string]bool{"move": false, "take over": true} {
		t.Run(name, func(t *testing.T) {
			inModes(t, everyMode, func(b *bed) {
				runs := 0
				b.lastResort(core.Config{Recoverability: noRetries}, func(ctx context.Context, m *core.Message, f *core.Failed) error {
					runs++
					work(ctx, "last resort")
					if takeOver {
						f.TakeOver()
					}
					return m.Send("nowhere", "of the last resort", "x")
				})
				b.put("m1")
				time.Sleep(time.Hour)
				b.holds("orders", 0)
				b.holds("error", 1)
				equal(b, "runs", runs, 1)
				equal(b, "work committed", b.broker.committed.len(), 0)
				equal(b, "lines", len(b.logs.about("What HandleFailed sent for message 'm1' could not be delivered; the message is moved.")), 1)
			})
		})
	}
}

func TestR51_DeadLetterQueue(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		ep := b.endpoint("orders", core.Config{Recoverability: core.Recoverability{DeadLetter: core.DeadLettersRejected}})
		b.handle(ep, "order", func(context.Context, *core.Message) error { return core.Reject(errBoom) })
		core.HandleFailed(ep, "order", func(_ context.Context, m *core.TypedMessage[[]byte], _ *core.Failed) error {
			return m.Send("shipping", "of the last resort", "x")
		})
		b.run(ep)
		b.put("m1")
		b.holds("shipping", 1)
		b.only("orders/$deadletter")
		b.holds("error", 0)
	})
}
