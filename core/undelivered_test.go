package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
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

// unreachable makes sends to the queues fail until reachable is called.
func (b *bed) unreachable(queues ...string) (reachable func()) {
	var broken atomic.Bool
	broken.Store(true)
	b.broker.provoke(faults{send: func(out []core.Outgoing) error {
		for _, queue := range queues {
			if goesTo(out, queue) && broken.Load() {
				return errors.New("cannot send to " + queue)
			}
		}
		return nil
	}})
	return func() { broken.Store(false) }
}

// The pauses of a stored message are 1, 2, 4, 8, 16, 30, 30, ... s.
func TestUndelivered_StoredUntilTheErrorQueueIsReached(t *testing.T) {
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
			Observers:       []core.Observer{recovered.observer()},
		}, func(context.Context, *core.Message) error {
			runs++
			return &orderError{"7"}
		})
		failedAt := time.Now()
		b.put("m1")
		b.pass(30 * time.Minute)
		equal(b, "runs", runs, 2)
		b.holds("error", 0)
		equal(b, "stored, locked by nothing", b.depth("orders"), inmemory.Depth{Delayed: 1})
		health := ep.Health()
		equal(b, "undelivered", health.Undelivered, 1)
		equal(b, "unreachable since", health.UnreachableSince, start)
		if got := tries.all(); len(got) < 7 || !slices.Equal(got[:7], []time.Duration{0, 1e9, 3e9, 7e9, 15e9, 31e9, 61e9}) || len(got) > 70 {
			b.Errorf("%d tries, the first after %v", len(got), got[:min(7, len(got))])
		}
		b.pass(time.Hour)
		failed := b.only("error")
		b.holds("orders", 0)
		equal(b, "runs", runs, 2)
		equal(b, "critical errors", critical.len(), tries.len()-1)
		equal(b, "critical errors that are logged", len(b.logs.about("critical error")), tries.len()-1)
		if text := critical.all()[1].Error(); !containsAll(text, `"error"`, "cannot send to error", "2000-01-01T00:00:00Z", "1 so far") {
			b.Errorf("a critical error says %q", text)
		}
		health = ep.Health()
		equal(b, "undelivered", health.Undelivered, 0)
		equal(b, "unreachable since", health.UnreachableSince, time.Time{})
		equal(b, "critical errors in Health", health.CriticalErrors, int64(critical.len()))
		equal(b, "error type", failed.Headers.Get(core.HeaderExceptionType), "*core_test.orderError")
		equal(b, "error text", failed.Headers.Get(core.HeaderExceptionMessage), "order 7 is wrong")
		equal(b, "time of failure", failed.Headers.Get(core.HeaderTimeOfFailure), core.FormatTime(failedAt))
		equal(b, "failed queue", failed.Headers.Get(core.HeaderFailedQ), "orders")
		equal(b, "note", failed.Headers.Get(core.HeaderUndelivered), "")
		equal(b, "body", string(failed.Body), "body of m1")
		equal(b, "header of the sender", failed.Headers.Get("Sender"), "unit é")
		equal(b, "attempts in the trace", strings.Count(failed.Headers.Get(core.HeaderAttempts), `"attempts":2,`), 1)
		equal(b, "lines that it is moved", len(b.logs.about("Moving message")), 1)
		equal(b, "lines that it was delivered in the end", len(b.logs.about("stored message was delivered")), 1)
		equal(b, "kinds of recovery", recovered.kinds(), "ImmediateRetry MoveToError")
	})
}

// The slots' number of messages that cannot be moved stopped an endpoint.
func TestUndelivered_CostsNoSlot(t *testing.T) {
	for name, c := range map[string]struct {
		cfg    inmemory.Config
		queues []string
	}{
		"stored":                   {inmemory.Config{}, []string{"error"}},
		"kept, on any transport":   {inmemory.Config{}, []string{"error", "orders"}},
		"without delayed delivery": {able(func(c *core.Capabilities) { c.DelayedDelivery = false }), []string{"error"}},
		"with prefetching":         {aheadConfig(10 * time.Second), []string{"error", "orders"}},
	} {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, c.cfg, retrying[:1], func(b *bed) {
				const slots, bad, good = 4, 8, 1000
				reachable := b.unreachable(c.queues...)
				var handled, failed atomic.Int64
				ep, _ := b.orders(core.Config{Concurrency: slots, Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
					time.Sleep(time.Second)
					if strings.HasPrefix(m.ID, "bad") {
						failed.Add(1)
						return errBoom
					}
					handled.Add(1)
					return nil
				})
				for i := range bad {
					b.send(order(fmt.Sprint("bad", i)))
				}
				for i := range good {
					b.send(order(fmt.Sprint("good", i)))
				}
				b.pass((bad+good)/slots*time.Second + time.Second/2)
				equal(b, "healthy messages handled in the time that all take", int(handled.Load()), good)
				equal(b, "undelivered", ep.Health().Undelivered, bad)
				b.pass(time.Hour)
				reachable()
				b.pass(6 * time.Minute)
				b.holds("error", bad)
				b.holds("orders", 0)
				equal(b, "runs of handlers that failed", int(failed.Load()), bad)
				equal(b, "undelivered", ep.Health().Undelivered, 0)
				equal(b, "unsettled", ep.Health().Unsettled, 0)
			})
		})
	}
}

// Rate limiting leaves one slot: one undeliverable message was enough to keep it.
func TestUndelivered_RateLimitedEndpointRecovers(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.unreachable("error", "orders")
		recover := noRetries
		recover.RateLimit = core.RateLimit{ConsecutiveFailures: 3}
		var handled atomic.Int64
		ep, _ := b.orders(core.Config{Recoverability: recover}, func(_ context.Context, m *core.Message) error {
			if strings.HasPrefix(m.ID, "bad") {
				return errBoom
			}
			handled.Add(1)
			return nil
		})
		b.put("bad1", "bad2", "bad3", "good1", "good2", "good3")
		b.pass(time.Minute)
		equal(b, "handled", int(handled.Load()), 3)
		equal(b, "rate limited", ep.Health().RateLimited, false)
	})
}

// Messages that wait for a day must not reach the broker's delivery limit.
func TestUndelivered_DeliveryCountDoesNotRise(t *testing.T) {
	inModesOn(t, inmemory.LikeRabbitMQ(), retrying[:1], func(b *bed) {
		b.unreachable("error")
		var highest atomic.Int64
		b.broker.mu.Lock()
		b.broker.faults.arrive = func(in *core.Incoming) { highest.Store(max(highest.Load(), int64(in.DeliveryCount))) }
		b.broker.mu.Unlock()
		b.orders(core.Config{Recoverability: immediate(1)}, func(context.Context, *core.Message) error { return errBoom })
		b.put("m1", "m2")
		b.pass(24 * time.Hour)
		equal(b, "highest delivery count in a day", highest.Load(), 2)
	})
}

func TestUndelivered_AnotherInstanceDeliversWithoutItsHandler(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		reachable := b.unreachable("error")
		one, run := b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		b.put("m1")
		if err := run.stop(); err != nil {
			b.Fatal(err)
		}
		equal(b, "undelivered", one.Health().Undelivered, 1)
		reachable()
		b.orders(core.Config{}, func(_ context.Context, m *core.Message) error {
			b.Errorf("the handler of another instance ran for %s", m.ID)
			return nil
		})
		b.pass(time.Second)
		b.holds("orders", 0)
		b.only("error")
		b.pass(10 * time.Minute)
		equal(b, "undelivered, once another instance must have had it", one.Health().Undelivered, 0)
	})
}

// A foreign message has no NativeID: its handler ran once a second.
func TestUndelivered_ForeignMessageIsHandledOnce(t *testing.T) {
	for name, queues := range map[string][]string{"stored": {"error"}, "kept": {"error", "orders"}} {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, locking, retrying, func(b *bed) {
				reachable := b.unreachable(queues...)
				b.broker.mu.Lock()
				b.broker.faults.arrive = func(in *core.Incoming) { in.NativeID = "" }
				b.broker.mu.Unlock()
				runs := 0
				b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
					runs++
					return errBoom
				})
				b.put("m1")
				b.pass(time.Hour)
				reachable()
				b.pass(10 * time.Minute)
				b.only("error")
				b.holds("orders", 0)
				equal(b, "runs", runs, 1)
			})
		})
	}
}

// While the error queue is known to be away, messages are stored without each waiting
// for its own failure.
func TestUndelivered_OneProbeAtATime(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		var asked atomic.Int64
		var answers atomic.Bool
		b.broker.provoke(faults{send: func(out []core.Outgoing) error {
			if goesTo(out, "error") && !answers.Load() {
				asked.Add(1)
				time.Sleep(30 * time.Second) // a broker that does not answer
				return errBoom
			}
			return nil
		}})
		var handled atomic.Int64
		b.orders(core.Config{Concurrency: 4, Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			if strings.HasPrefix(m.ID, "bad") {
				return errBoom
			}
			handled.Add(1)
			return nil
		})
		for i := range 100 {
			b.send(order(fmt.Sprint("bad", i)))
		}
		b.send(order("good"))
		b.pass(31 * time.Second)
		equal(b, "handled", int(handled.Load()), 1)
		if n := asked.Load(); n > 5 {
			b.Errorf("the error queue was tried %d times, want each slot's first and a probe", n)
		}
		for i := range 30 { // a probe that is not answered takes one slot
			b.send(order(fmt.Sprint("good", i)))
			b.pass(time.Second)
			equal(b, "handled", int(handled.Load()), 2+i)
			b.pass(9 * time.Second)
		}
		answers.Store(true)
		b.pass(time.Hour)
		b.holds("error", 100)
	})
}

func TestUndelivered_NoteOfAStrangerIsNotFollowed(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.orders(core.Config{}, func(context.Context, *core.Message) error { return nil })
		forged := order("m1")
		forged.Headers.Set(core.HeaderUndelivered, `{"queue":"shipping","tries":1,"since":"x"}`)
		b.send(forged)
		b.holds("shipping", 0)
		b.only("error")
		broken := order("m2")
		broken.Headers.Set(core.HeaderUndelivered, `{"queue":7}`)
		b.send(broken)
		b.holds("orders", 0) // handled as any other
		b.holds("error", 1)
	})
}

// A message that its broker accepted once is moved, whatever the transport refuses of it.
func TestUndelivered_RefusedHeadersAreDropped(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.broker.provoke(faults{send: func(out []core.Outgoing) error {
			for _, o := range out {
				if o.Headers.Get("Sender") != "" {
					return fmt.Errorf("%w: Sender", core.ErrInvalidHeader)
				}
			}
			return nil
		}})
		b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		b.put("m1")
		failed := b.only("error")
		equal(b, "body", string(failed.Body), "body of m1")
		equal(b, "failed queue", failed.Headers.Get(core.HeaderFailedQ), "orders")
		equal(b, "type", failed.Headers.Get(core.HeaderMessageTypes), "order")
		lines := b.logs.about("without headers of its sender")
		if len(lines) != 1 || fmt.Sprint(lines[0].attrs["headers_left_out"]) != "[Sender]" {
			b.Errorf("logged %+v", lines)
		}
	})
}

// change changes the faults.
func (f *faulty) change(change func(*faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.faults)
}

// once returns a fault that answers one settlement of a kind with an error, although it
// succeeded.
func once(operation string) func(string, *core.Incoming) error {
	var lost atomic.Bool
	return func(asked string, _ *core.Incoming) error {
		if asked == operation && lost.CompareAndSwap(false, true) {
			return errBoom
		}
		return nil
	}
}

// A forged note must not let a message be given up as an audit copy is.
func TestUndelivered_NoteOfAnAuditCopyForTheErrorQueue(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		reachable := b.unreachable("error")
		b.orders(core.Config{}, func(context.Context, *core.Message) error { return nil })
		forged := order("m1")
		forged.Headers.Set(core.HeaderUndelivered, `{"queue":"error","audit":true,"tries":1,"since":"x"}`)
		b.send(forged)
		b.pass(2 * time.Hour)
		b.holds("orders", 1)
		reachable()
		b.pass(time.Minute)
		b.only("error")
	})
}

// The name of the audit queue has changed since its copies were stored.
func TestUndelivered_AuditCopyGoesToTheAuditQueueOfToday(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.provision("audit", "audit2")
		b.unreachable("audit")
		_, run := b.orders(audited, func(context.Context, *core.Message) error { return nil })
		b.put("m1")
		if err := run.stop(); err != nil {
			b.Fatal(err)
		}
		b.orders(core.Config{AuditQueue: "audit2"}, func(context.Context, *core.Message) error { return nil })
		b.pass(time.Minute)
		b.holds("orders", 0)
		b.holds("error", 0)
		b.only("audit2")
	})
}

// A stored message that its queue refuses says nothing of the queue.
func TestUndelivered_RefusedMessageIsNoOutage(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.broker.provoke(faults{send: func(out []core.Outgoing) error {
			for _, o := range out {
				if o.ID == "large" && o.Queue == "error" {
					return core.ErrTooLarge
				}
			}
			return nil
		}})
		ep, _ := b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		large := order("large")
		large.Headers.Set(core.HeaderUndelivered, `{"queue":"error","tries":1,"since":"x"}`)
		b.send(large)
		b.put("m1")
		b.only("error")
		health := ep.Health()
		equal(b, "unreachable since", health.UnreachableSince, time.Time{})
		if text := fmt.Sprint(health.LastCritical); !containsAll(text, "large", "refuses") {
			b.Errorf("the critical error is %q", text)
		}
		equal(b, "stored", b.depth("orders").Delayed, 1)
	})
}

// An instance that is paused does not know that another one has ended the outage.
func TestUndelivered_OutageThatIsNotProbedIsNotReported(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		reachable := b.unreachable("error")
		one, _ := b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		b.put("m1")
		one.Pause()
		b.pass(5 * time.Minute)
		if one.Health().UnreachableSince.IsZero() {
			b.Error("the outage is forgotten after five minutes")
		}
		reachable()
		b.orders(core.Config{}, func(context.Context, *core.Message) error { return nil })
		b.pass(time.Minute)
		b.only("error")
		equal(b, "unreachable since", one.Health().UnreachableSince, time.Time{})
	})
}

// The note takes room from the failure headers that help least, not from all of them.
func TestUndelivered_NoteLeavesRoom(t *testing.T) {
	inModesOn(t, able(func(c *core.Capabilities) { c.MaxMessageBytes = 4096 }), retrying, func(b *bed) {
		reachable := b.unreachable("error")
		b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
			return errors.New(strings.Repeat("long ", 40))
		})
		sent := 0
		for size := 2400; size <= 3000; size += 20 { // with all headers some fit without the note alone
			out := order(fmt.Sprint("m", size))
			out.Body = make([]byte, size)
			b.send(out)
			sent++
		}
		b.pass(time.Minute)
		reachable()
		b.pass(time.Minute)
		failed := b.queue("error")
		equal(b, "failed messages", len(failed), sent)
		for _, in := range failed {
			if in.Headers.Get(core.HeaderFailedQ) != "orders" || in.Headers.Get(core.HeaderExceptionMessage) == "" {
				b.Errorf("a body of %d bytes leaves %v", len(in.Body), in.Headers.Map())
			}
		}
	})
}
