package core_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// audited is an endpoint's configuration with an audit queue.
var audited = core.Config{AuditQueue: "audit"}

// returnedByAnOperator is an order that an operator's tool sent back from an error queue,
// and wants to hear of.
func returnedByAnOperator(id, ackQueue string) core.Outgoing {
	out := order(id)
	out.Headers.Set(core.HeaderRetryUniqueMessageID, "unique "+id)
	out.Headers.Set(core.HeaderRetryAckQueue, ackQueue)
	return out
}

// Any sender can name a queue for acknowledgements. A handler ran 24 times because it
// did not exist.
func TestOwnSends_AcknowledgementQueueThatDoesNotExist(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		runs := 0
		b.orders(core.Config{}, func(_ context.Context, m *core.Message) error {
			runs++
			return m.Send("shipping", "ship", "x")
		})
		b.send(returnedByAnOperator("m1", "nowhere"))
		b.pass(time.Hour)
		equal(b, "runs", runs, 1)
		b.holds("shipping", 1)
		b.holds("orders", 0)
		b.holds("error", 0)
		if lines := b.logs.about("acknowledgement"); len(lines) != 1 || lines[0].attrs["queue"] != "nowhere" {
			b.Errorf("logged %+v", lines)
		}
	})
}

func TestOwnSends_AcknowledgementIsSentLater(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		b.provision("acks")
		reachable := b.unreachable("acks")
		runs := 0
		b.orders(core.Config{}, func(context.Context, *core.Message) error {
			runs++
			return nil
		})
		b.send(returnedByAnOperator("m1", "acks"))
		b.pass(time.Minute)
		b.holds("orders", 0)
		reachable()
		b.pass(time.Minute)
		ack := b.only("acks")
		equal(b, "acknowledged", ack.Headers.Get(core.HeaderRetryUniqueMessageID), "unique m1")
		equal(b, "runs", runs, 1)
	})
}

// Every handler of an endpoint ran 24 times while its audit queue was away.
func TestOwnSends_AuditQueueThatCannotBeReached(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		b.provision("audit")
		reachable := b.unreachable("audit")
		var critical atomic.Int64
		runs := 0
		config := audited
		config.OnCriticalError = func(context.Context, error) { critical.Add(1) }
		ep, _ := b.orders(config, func(_ context.Context, m *core.Message) error {
			runs++
			return m.Send("shipping", "ship", "x")
		})
		for i := range 10 {
			b.put(fmt.Sprint("m", i))
		}
		equal(b, "runs", runs, 10)
		b.holds("shipping", 10)
		b.holds("error", 0)
		equal(b, "orders in flight", b.depth("orders").InFlight, 0)
		if critical.Load() == 0 || ep.Health().UnreachableSince.IsZero() {
			b.Errorf("%d critical errors, unreachable since %v", critical.Load(), ep.Health().UnreachableSince)
		}
		b.pass(30 * time.Minute)
		reachable()
		b.pass(6 * time.Minute)
		b.holds("orders", 0)
		copies := b.queue("audit")
		equal(b, "audit copies", len(copies), 10)
		for _, c := range copies {
			equal(b, "note", c.Headers.Get(core.HeaderUndelivered), "")
			equal(b, "processing endpoint", c.Headers.Get(core.HeaderProcessingEndpoint), "orders")
		}
		equal(b, "runs", runs, 10)
		equal(b, "undelivered", ep.Health().Undelivered, 0)
		equal(b, "unreachable since", ep.Health().UnreachableSince, time.Time{})
	})
}

// A copy for a queue that is gone for good must not be stored without end.
func TestOwnSends_AuditCopyIsGivenUpAfterAnHour(t *testing.T) {
	for name, cfg := range map[string]inmemory.Config{"stored": {}, "in memory": able(func(c *core.Capabilities) { c.DelayedDelivery = false })} {
		t.Run(name, func(t *testing.T) {
			inModesOn(t, cfg, retrying, func(b *bed) {
				b.provision("audit")
				b.unreachable("audit")
				var given record[string]
				config := audited
				config.OnCriticalError = func(_ context.Context, err error) {
					if strings.Contains(err.Error(), "given up") {
						given.add(err.Error())
					}
				}
				ep, _ := b.orders(config, func(context.Context, *core.Message) error { return nil })
				b.put("m1")
				b.pass(50 * time.Minute)
				equal(b, "given up after 50 minutes", given.len(), 0)
				b.pass(20 * time.Minute)
				b.holds("orders", 0)
				if got := given.all(); len(got) != 1 || !containsAll(got[0], "audit", "m1", "cannot send to audit") {
					b.Errorf("critical errors %q", got)
				}
				equal(b, "undelivered", ep.Health().Undelivered, 0)
			})
		})
	}
}

// The handler's own send fails for itself, whatever becomes of the audit copy beside it.
func TestOwnSends_HandlersSendFailsBesideThem(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.provision("audit")
		b.unreachable("shipping")
		runs := 0
		config := audited
		config.Recoverability = immediate(2)
		b.orders(config, func(_ context.Context, m *core.Message) error {
			runs++
			return m.Send("shipping", "ship", "x")
		})
		b.put("m1")
		equal(b, "runs", runs, 3)
		b.only("error")
		b.holds("audit", 0)
	})
}

// One of the two queues of a transaction does not exist: that of the audit copy does not
// undo the handler's work.
func TestOwnSends_WorkInTheTransactionStays(t *testing.T) {
	inModes(t, everyMode[2:], func(b *bed) {
		b.provision("audit")
		b.broker.provoke(refuseForGood("audit", core.ErrQueueNotFound))
		b.orders(audited, func(ctx context.Context, m *core.Message) error {
			work(ctx, "handler")
			return m.Send("shipping", "ship", "x")
		})
		b.put("m1")
		if got := b.broker.committed.all(); len(got) != 1 {
			b.Errorf("committed %q", got)
		}
		b.holds("shipping", 1)
		equal(b, "stored", b.depth("orders"), inmemory.Depth{Delayed: 1})
	})
}

// Any sender can name a queue for acknowledgements: that it does not exist must not
// count as an outage of the audit queue.
func TestOwnSends_MissingAcknowledgementQueueBesideAudit(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		b.provision("audit")
		runs := 0
		ep, _ := b.orders(audited, func(ctx context.Context, m *core.Message) error {
			runs++
			work(ctx, "handler")
			return m.Send("shipping", "ship", "x")
		})
		b.send(returnedByAnOperator("m1", "nowhere"))
		b.holds("audit", 1)
		b.holds("shipping", 1)
		b.holds("orders", 0)
		equal(b, "runs", runs, 1)
		equal(b, "critical errors", ep.Health().CriticalErrors, int64(0))
		equal(b, "unreachable since", ep.Health().UnreachableSince, time.Time{})
	})
}

func TestOwnSends_AcknowledgementBesideAnAuditQueueThatIsAway(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		b.provision("audit", "acks")
		reachable := b.unreachable("audit")
		b.orders(audited, func(context.Context, *core.Message) error { return nil })
		b.send(returnedByAnOperator("m1", "acks"))
		b.pass(time.Second)
		b.only("acks")
		b.pass(time.Minute)
		b.holds("audit", 0)
		reachable()
		b.pass(time.Minute)
		b.only("audit")
		b.only("acks")
		b.holds("orders", 0)
	})
}
