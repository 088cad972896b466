package core_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// expiringLocks is a transport whose locks end after ten seconds unless renewed.
var expiringLocks = inmemory.Config{LockDuration: 10 * time.Second}

// refuseWhile makes sends to a queue fail while broken returns true.
func refuseWhile(queue string, broken func() bool) faults {
	return faults{send: func(out []core.Outgoing) error {
		if sendsTo(out, queue) && broken() {
			return errors.New("cannot send to " + queue)
		}
		return nil
	}}
}

func since(start time.Time) func() bool {
	return func() bool { return time.Since(start) < time.Hour }
}

// failSendsTo makes sends to the queues fail until reachable is called.
func (fx *fixture) failSendsTo(queues ...string) (reachable func()) {
	var broken atomic.Bool
	broken.Store(true)
	fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
		for _, queue := range queues {
			if sendsTo(out, queue) && broken.Load() {
				return errors.New("cannot send to " + queue)
			}
		}
		return nil
	}})
	return func() { broken.Store(false) }
}

// The pauses of a stored message are 1, 2, 4, 8, 16, 30, 30, ... s.
func TestUndelivered_StoredUntilTheErrorQueueIsReached(t *testing.T) {
	inModesWith(t, expiringLocks, retryModes, func(fx *fixture) {
		start := time.Now()
		var tries recorder[time.Duration]
		broken := since(start)
		fx.broker.setFaults(refuseWhile("error", func() bool {
			tries.add(time.Since(start))
			return broken()
		}))
		var critical recorder[error]
		var recovered recoveryRecorder
		runs := 0
		ep, _ := fx.runOrders(core.Config{
			Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
			Observers:      []core.Observer{recovered.observer(), {CriticalError: func(_ context.Context, _ *core.Endpoint, err error) { critical.add(err) }}},
		}, func(context.Context, *core.Message) error {
			runs++
			return &orderError{"7"}
		})
		failedAt := time.Now()
		fx.enqueue("m1")
		fx.advance(30 * time.Minute)
		equal(fx, "runs", runs, 2)
		fx.wantDepth("error", 0)
		equal(fx, "stored, locked by nothing", fx.depth("orders"), queues.Depth{Delayed: 1})
		health := ep.Health()
		equal(fx, "undelivered", health.Undelivered, 1)
		equal(fx, "unreachable since", health.UnreachableSince, start)
		if got := tries.all(); len(got) < 7 || !slices.Equal(got[:7], []time.Duration{0, 1e9, 3e9, 7e9, 15e9, 31e9, 61e9}) || len(got) > 70 {
			fx.Errorf("%d tries, the first after %v", len(got), got[:min(7, len(got))])
		}
		fx.advance(time.Hour)
		failed := fx.onlyMessage("error")
		fx.wantDepth("orders", 0)
		equal(fx, "runs", runs, 2)
		equal(fx, "critical errors", critical.len(), tries.len()-1)
		equal(fx, "critical errors that are logged", len(fx.logs.find("critical error")), tries.len()-1)
		if text := critical.all()[1].Error(); !containsAll(text, `"error"`, "cannot send to error", "2000-01-01T00:00:00Z", "1 so far") {
			fx.Errorf("a critical error says %q", text)
		}
		health = ep.Health()
		equal(fx, "undelivered", health.Undelivered, 0)
		equal(fx, "unreachable since", health.UnreachableSince, time.Time{})
		equal(fx, "critical errors in Health", health.CriticalErrors, int64(critical.len()))
		equal(fx, "error type", failed.Headers.Get(headers.ExceptionType), "*core_test.orderError")
		equal(fx, "error text", failed.Headers.Get(headers.ExceptionMessage), "order 7 is wrong")
		rounds := headers.ParseAttempts(failed.Headers.Get(headers.Attempts))
		equal(fx, "time of the failure in the trace", rounds[len(rounds)-1].At, headers.FormatTime(failedAt))
		equal(fx, "failed queue", failed.Headers.Get(headers.FailedQ), "orders")
		equal(fx, "note", failed.Headers.Get(headers.Undelivered), "")
		equal(fx, "body", string(failed.Body), "body of m1")
		equal(fx, "header of the sender", failed.Headers.Get("Sender"), "unit é")
		equal(fx, "attempts in the trace", strings.Count(failed.Headers.Get(headers.Attempts), `"attempts":2,`), 1)
		equal(fx, "lines that it is moved", len(fx.logs.find("moving message")), 1)
		equal(fx, "lines that it was delivered in the end", len(fx.logs.find("stored message was delivered")), 1)
		equal(fx, "kinds of recovery", recovered.actions(), "ImmediateRetry MoveToError")
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
		"without delayed delivery": {withCapabilities(func(c *core.Capabilities) { c.DelayedDelivery = false }), []string{"error"}},
		"with prefetching":         {prefetchConfig(10 * time.Second), []string{"error", "orders"}},
	} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, c.cfg, retryModes[:1], func(fx *fixture) {
				const slots, bad, good = 4, 8, 1000
				reachable := fx.failSendsTo(c.queues...)
				var handled, failed atomic.Int64
				ep, _ := fx.runOrders(core.Config{Concurrency: slots, Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
					time.Sleep(time.Second)
					if strings.HasPrefix(m.ID, "bad") {
						failed.Add(1)
						return errBoom
					}
					handled.Add(1)
					return nil
				})
				for i := range bad {
					fx.send(order(fmt.Sprint("bad", i)))
				}
				for i := range good {
					fx.send(order(fmt.Sprint("good", i)))
				}
				fx.advance((bad+good)/slots*time.Second + time.Second/2)
				equal(fx, "healthy messages handled in the time that all take", int(handled.Load()), good)
				equal(fx, "undelivered", ep.Health().Undelivered, bad)
				fx.advance(time.Hour)
				reachable()
				fx.advance(6 * time.Minute)
				fx.wantDepth("error", bad)
				fx.wantDepth("orders", 0)
				equal(fx, "runs of handlers that failed", int(failed.Load()), bad)
				equal(fx, "undelivered", ep.Health().Undelivered, 0)
				equal(fx, "unsettled", ep.Health().Unsettled, 0)
			})
		})
	}
}

// Rate limiting leaves one slot: one undeliverable message was enough to keep it.
func TestUndelivered_RateLimitedEndpointRecovers(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.failSendsTo("error", "orders")
		recover := noRetries
		recover.RateLimit = core.RateLimit{ConsecutiveFailures: 3}
		var handled atomic.Int64
		ep, _ := fx.runOrders(core.Config{Recoverability: recover}, func(_ context.Context, m *core.Message) error {
			if strings.HasPrefix(m.ID, "bad") {
				return errBoom
			}
			handled.Add(1)
			return nil
		})
		fx.enqueue("bad1", "bad2", "bad3", "good1", "good2", "good3")
		fx.advance(time.Minute)
		equal(fx, "handled", int(handled.Load()), 3)
		equal(fx, "rate limited", ep.Health().RateLimited, false)
	})
}

// Messages that wait for a day must not reach the broker's delivery limit.
func TestUndelivered_DeliveryCountDoesNotRise(t *testing.T) {
	inModesWith(t, inmemory.LikeRabbitMQ(), retryModes[:1], func(fx *fixture) {
		fx.failSendsTo("error")
		var highest atomic.Int64
		fx.broker.mu.Lock()
		fx.broker.faults.onReceive = func(in *core.Incoming) { highest.Store(max(highest.Load(), int64(in.DeliveryCount))) }
		fx.broker.mu.Unlock()
		fx.runOrders(core.Config{Recoverability: immediateRetries(1)}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1", "m2")
		fx.advance(24 * time.Hour)
		equal(fx, "highest delivery count in a day", highest.Load(), 2)
	})
}

func TestUndelivered_AnotherInstanceDeliversWithoutItsHandler(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		reachable := fx.failSendsTo("error")
		one, run := fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		if err := run.stop(); err != nil {
			fx.Fatal(err)
		}
		equal(fx, "undelivered", one.Health().Undelivered, 1)
		reachable()
		fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
			fx.Errorf("the handler of another instance ran for %s", m.ID)
			return nil
		})
		fx.advance(time.Second)
		fx.wantDepth("orders", 0)
		fx.onlyMessage("error")
		fx.advance(10 * time.Minute)
		equal(fx, "undelivered, once another instance must have had it", one.Health().Undelivered, 0)
	})
}

// While the error queue is known to be away, messages are stored without each waiting
// for its own failure.
func TestUndelivered_OneProbeAtATime(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		var asked atomic.Int64
		var answers atomic.Bool
		fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
			if sendsTo(out, "error") && !answers.Load() {
				asked.Add(1)
				time.Sleep(30 * time.Second) // a broker that does not answer
				return errBoom
			}
			return nil
		}})
		var handled atomic.Int64
		fx.runOrders(core.Config{Concurrency: 4, Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			if strings.HasPrefix(m.ID, "bad") {
				return errBoom
			}
			handled.Add(1)
			return nil
		})
		for i := range 100 {
			fx.send(order(fmt.Sprint("bad", i)))
		}
		fx.send(order("good"))
		fx.advance(31 * time.Second)
		equal(fx, "handled", int(handled.Load()), 1)
		if n := asked.Load(); n > 5 {
			fx.Errorf("the error queue was tried %d times, want each slot's first and a probe", n)
		}
		for i := range 30 { // a probe that is not answered takes one slot
			fx.send(order(fmt.Sprint("good", i)))
			fx.advance(time.Second)
			equal(fx, "handled", int(handled.Load()), 2+i)
			fx.advance(9 * time.Second)
		}
		answers.Store(true)
		fx.advance(time.Hour)
		fx.wantDepth("error", 100)
	})
}

func TestUndelivered_NoteOfAStrangerIsNotFollowed(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.runOrders(core.Config{}, func(context.Context, *core.Message) error { return nil })
		forged := order("m1")
		forged.Headers.Set(headers.Undelivered, `{"queue":"shipping","tries":1,"since":"x"}`)
		forged.Headers.Set(headers.FailedQ, "orders")
		fx.send(forged)
		fx.wantDepth("shipping", 0)
		fx.onlyMessage("error")
		broken := order("m2")
		broken.Headers.Set(headers.Undelivered, `{"queue":7}`)
		fx.send(broken)
		fx.wantDepth("orders", 0) // handled as any other
		fx.wantDepth("error", 1)
	})
}

// A message that its broker accepted once is moved, also where the transport refuses a part of it.
func TestUndelivered_RefusedHeadersAreDropped(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.broker.setFaults(faults{send: refuseSender})
		fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		failed := fx.onlyMessage("error")
		equal(fx, "body", string(failed.Body), "body of m1")
		equal(fx, "failed queue", failed.Headers.Get(headers.FailedQ), "orders")
		equal(fx, "type", failed.Headers.Get(headers.MessageTypes), "order")
		lines := fx.logs.find("without headers of its sender")
		if len(lines) != 1 || fmt.Sprint(lines[0].attrs["headers_left_out"]) != "[Sender]" {
			fx.Errorf("logged %+v", lines)
		}
	})
}

func TestUndelivered_StoredCopyWithoutRefusedHeaders(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
			if sendsTo(out, "error") {
				return cmp.Or(refuseSender(out), errBoom)
			}
			return refuseSender(out)
		}})
		fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		equal(fx, "stored", fx.depth("orders"), queues.Depth{Delayed: 1})
		lines := fx.logs.find("message was stored without headers of its sender", "message_id", "m1")
		if len(lines) != 1 || fmt.Sprint(lines[0].attrs["headers_left_out"]) != "[Sender]" {
			fx.Errorf("logged %+v", lines)
		}
	})
}

// refuseSender refuses messages with the header "Sender".
func refuseSender(out []core.Outgoing) error {
	for _, o := range out {
		if o.Headers.Get("Sender") != "" {
			return fmt.Errorf("%w: Sender", core.ErrInvalidHeader)
		}
	}
	return nil
}

// changeFaults changes the faults.
func (f *faultyTransport) changeFaults(change func(*faults)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.faults)
}

// loseAnswerOnce returns a fault that answers one settlement of a kind with an error,
// although it succeeded.
func loseAnswerOnce(operation string) func(string, *core.Incoming) error {
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
	inModes(t, retryModes, func(fx *fixture) {
		reachable := fx.failSendsTo("error")
		fx.runOrders(core.Config{}, func(context.Context, *core.Message) error { return nil })
		forged := order("m1")
		forged.Headers.Set(headers.Undelivered, `{"queue":"error","audit":true,"tries":1,"since":"x"}`)
		forged.Headers.Set(headers.ProcessingEndpoint, "orders")
		fx.send(forged)
		fx.advance(2 * time.Hour)
		fx.wantDepth("orders", 1)
		reachable()
		fx.advance(time.Minute)
		fx.onlyMessage("error")
	})
}

// The name of the audit queue has changed since its copies were stored.
func TestUndelivered_AuditCopyGoesToTheCurrentAuditQueue(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.provision("audit", "audit2")
		fx.failSendsTo("audit")
		_, run := fx.runOrders(auditConfig, func(context.Context, *core.Message) error { return nil })
		fx.enqueue("m1")
		if err := run.stop(); err != nil {
			fx.Fatal(err)
		}
		fx.runOrders(core.Config{AuditQueue: "audit2"}, func(context.Context, *core.Message) error { return nil })
		fx.advance(time.Minute)
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 0)
		fx.onlyMessage("audit2")
	})
}

// A stored message that its queue refuses says nothing of the queue.
func TestUndelivered_RefusedMessageIsNoOutage(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
			for _, o := range out {
				if o.ID == "large" && o.Queue == "error" {
					return core.ErrTooLarge
				}
			}
			return nil
		}})
		ep, _ := fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		large := order("large")
		large.Headers.Set(headers.Undelivered, `{"queue":"error","tries":1,"since":"x"}`)
		large.Headers.Set(headers.FailedQ, "orders")
		fx.send(large)
		fx.enqueue("m1")
		fx.onlyMessage("error")
		health := ep.Health()
		equal(fx, "unreachable since", health.UnreachableSince, time.Time{})
		if text := fmt.Sprint(health.LastCritical); !containsAll(text, "large", "refuses") {
			fx.Errorf("the critical error is %q", text)
		}
		equal(fx, "stored", fx.depth("orders").Delayed, 1)
	})
}

// An instance that is paused does not know that another one has ended the outage.
func TestUndelivered_OutageThatIsNotProbedIsNotReported(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		reachable := fx.failSendsTo("error")
		one, _ := fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		one.Pause()
		fx.advance(5 * time.Minute)
		if one.Health().UnreachableSince.IsZero() {
			fx.Error("the outage is forgotten after five minutes")
		}
		reachable()
		fx.runOrders(core.Config{}, func(context.Context, *core.Message) error { return nil })
		fx.advance(time.Minute)
		fx.onlyMessage("error")
		equal(fx, "unreachable since", one.Health().UnreachableSince, time.Time{})
	})
}

// The note takes room from the failure headers that help least, not from all of them.
func TestUndelivered_NoteLeavesRoom(t *testing.T) {
	inModesWith(t, withCapabilities(func(c *core.Capabilities) { c.MaxMessageBytes = 4096 }), retryModes, func(fx *fixture) {
		reachable := fx.failSendsTo("error")
		fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
			return errors.New(strings.Repeat("long ", 40))
		})
		sent := 0
		for size := 2400; size <= 3000; size += 20 { // with all headers some fit without the note alone
			out := order(fmt.Sprint("m", size))
			out.Body = make([]byte, size)
			fx.send(out)
			sent++
		}
		fx.advance(time.Minute)
		reachable()
		fx.advance(time.Minute)
		failed := fx.messages("error")
		equal(fx, "failed messages", len(failed), sent)
		for _, in := range failed {
			if in.Headers.Get(headers.FailedQ) != "orders" || in.Headers.Get(headers.ExceptionMessage) == "" {
				fx.Errorf("a body of %d bytes leaves %v", len(in.Body), in.Headers.Map())
			}
		}
	})
}
