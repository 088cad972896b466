package core_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// auditConfig is an endpoint's configuration with an audit queue, and queues for
// acknowledgements.
var auditConfig = core.Config{AuditQueue: "audit", RetryAckQueues: ackQueues}

var ackQueues = []string{"acks", "nowhere"}

// returnedByAnOperator is an order that an operator's tool sent back from an error queue,
// and wants to hear of.
func returnedByAnOperator(id, ackQueue string) core.Outgoing {
	out := order(id)
	out.Headers.Set(headers.RetryUniqueMessageID, "unique "+id)
	out.Headers.Set(headers.RetryAckQueue, ackQueue)
	return out
}

// A handler ran 24 times because the queue for acknowledgements did not exist.
func TestEngineSends_AcknowledgementQueueThatDoesNotExist(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		runs := 0
		fx.runOrders(core.Config{RetryAckQueues: ackQueues}, func(_ context.Context, m *core.Message) error {
			runs++
			return m.Send("shipping", shipType.Of("x"))
		})
		fx.send(returnedByAnOperator("m1", "nowhere"))
		fx.advance(time.Hour)
		equal(fx, "runs", runs, 1)
		fx.wantDepth("shipping", 1)
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 0)
		if lines := fx.logs.find("acknowledgement"); len(lines) != 1 || lines[0].attrs["queue"] != "nowhere" {
			fx.Errorf("logged %+v", lines)
		}
	})
}

func TestEngineSends_AcknowledgementIsSentLater(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.provision("acks")
		reachable := fx.failSendsTo("acks")
		runs := 0
		fx.runOrders(core.Config{RetryAckQueues: ackQueues}, func(context.Context, *core.Message) error {
			runs++
			return nil
		})
		fx.send(returnedByAnOperator("m1", "acks"))
		fx.advance(time.Minute)
		fx.wantDepth("orders", 0)
		reachable()
		fx.advance(time.Minute)
		ack := fx.onlyMessage("acks")
		equal(fx, "acknowledged", ack.Headers.Get(headers.RetryUniqueMessageID), "unique m1")
		equal(fx, "runs", runs, 1)
	})
}

// Every handler of an endpoint ran 24 times while its audit queue was away.
func TestEngineSends_AuditQueueThatCannotBeReached(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.provision("audit")
		reachable := fx.failSendsTo("audit")
		var critical atomic.Int64
		runs := 0
		config := auditConfig
		config.Observers = append(config.Observers, core.Observer{CriticalError: func(context.Context, *core.Endpoint, error) { critical.Add(1) }})
		ep, _ := fx.runOrders(config, func(_ context.Context, m *core.Message) error {
			runs++
			return m.Send("shipping", shipType.Of("x"))
		})
		for i := range 10 {
			fx.enqueue(fmt.Sprint("m", i))
		}
		equal(fx, "runs", runs, 10)
		fx.wantDepth("shipping", 10)
		fx.wantDepth("error", 0)
		equal(fx, "orders in flight", fx.depth("orders").Locked, 0)
		if critical.Load() == 0 || ep.Health().UnreachableSince.IsZero() {
			fx.Errorf("%d critical errors, unreachable since %v", critical.Load(), ep.Health().UnreachableSince)
		}
		fx.advance(30 * time.Minute)
		reachable()
		fx.advance(6 * time.Minute)
		fx.wantDepth("orders", 0)
		copies := fx.messages("audit")
		equal(fx, "audit copies", len(copies), 10)
		for _, c := range copies {
			equal(fx, "note", c.Headers.Get(headers.Undelivered), "")
			equal(fx, "processing endpoint", c.Headers.Get(headers.ProcessingEndpoint), "orders")
		}
		equal(fx, "runs", runs, 10)
		equal(fx, "undelivered", ep.Health().Undelivered, 0)
		equal(fx, "unreachable since", ep.Health().UnreachableSince, time.Time{})
	})
}

// A copy for a queue that is gone for good must not be stored without end.
func TestEngineSends_AuditCopyIsGivenUpAfterAnHour(t *testing.T) {
	tests := map[string]struct {
		config inmemory.Config
		later  []string // the queues out of reach after a minute
	}{
		"stored":    {inmemory.Config{}, []string{"audit"}},
		"kept":      {inmemory.Config{}, []string{"audit", "orders"}},
		"in memory": {withCapabilities(func(c *core.Capabilities) { c.DelayedDelivery = false }), []string{"audit"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, test.config, retryModes, func(fx *fixture) {
				fx.provision("audit")
				fx.failSendsTo("audit")
				var given recorder[string]
				config := auditConfig
				config.Observers = append(config.Observers, core.Observer{CriticalError: func(_ context.Context, _ *core.Endpoint, err error) {
					if strings.Contains(err.Error(), "given up") {
						given.add(err.Error())
					}
				}})
				ep, _ := fx.runOrders(config, func(context.Context, *core.Message) error { return nil })
				fx.enqueue("m1")
				fx.advance(time.Minute)
				fx.failSendsTo(test.later...)
				fx.advance(49 * time.Minute)
				equal(fx, "given up after 50 minutes", given.len(), 0)
				fx.advance(20 * time.Minute)
				fx.wantDepth("orders", 0)
				if got := given.all(); len(got) != 1 || !containsAll(got[0], "audit", "m1", "cannot send to audit") {
					fx.Errorf("critical errors %q", got)
				}
				equal(fx, "undelivered", ep.Health().Undelivered, 0)
			})
		})
	}
}

// A failure of the handler's own send is independent of the audit copy beside it.
func TestEngineSends_HandlersSendFailsBesideThem(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.provision("audit")
		fx.failSendsTo("shipping")
		runs := 0
		config := auditConfig
		config.Recoverability = immediateRetries(2)
		fx.runOrders(config, func(_ context.Context, m *core.Message) error {
			runs++
			return m.Send("shipping", shipType.Of("x"))
		})
		fx.enqueue("m1")
		equal(fx, "runs", runs, 3)
		fx.onlyMessage("error")
		fx.wantDepth("audit", 0)
	})
}

// One of the two queues of a transaction does not exist: that of the audit copy does not
// undo the handler's work.
func TestEngineSends_WorkInTheTransactionStays(t *testing.T) {
	inModes(t, allModes[2:], func(fx *fixture) {
		fx.provision("audit")
		fx.broker.setFaults(refusePermanently("audit", core.ErrQueueNotFound))
		fx.runOrders(auditConfig, func(ctx context.Context, m *core.Message) error {
			doWork(ctx, "handler")
			return m.Send("shipping", shipType.Of("x"))
		})
		fx.enqueue("m1")
		if got := fx.broker.committed.all(); len(got) != 1 {
			fx.Errorf("committed %q", got)
		}
		fx.wantDepth("shipping", 1)
		equal(fx, "stored", fx.depth("orders"), queues.Depth{Delayed: 1})
	})
}

// Neither queue takes the engine's sends, for any reason that a transport may give.
func TestEngineSends_BothRefused(t *testing.T) {
	for name, cause := range map[string]error{
		"missing": core.ErrQueueNotFound, "forbidden": errors.New("permission denied"), "too large": core.ErrTooLarge, "unavailable": core.ErrUnavailable,
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				fx.provision("audit")
				fx.broker.setFaults(refusePermanently("audit", cause))
				runs := 0
				fx.runOrders(auditConfig, func(ctx context.Context, m *core.Message) error {
					runs++
					doWork(ctx, "handler")
					return m.Send("shipping", shipType.Of("x"))
				})
				fx.send(returnedByAnOperator("m1", "nowhere"))
				fx.advance(time.Minute)
				equal(fx, "runs", runs, 1)
				if got := fx.broker.committed.all(); fx.mode == core.TransactionSendsAtomicWithReceive && len(got) != 1 {
					fx.Errorf("committed %q", got)
				}
				fx.wantDepth("shipping", 1)
				fx.wantDepth("error", 0)
			})
		})
	}
}

// That the queue for acknowledgements does not exist must not count as an outage of the
// audit queue.
func TestEngineSends_MissingAcknowledgementQueueBesideAudit(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.provision("audit")
		runs := 0
		ep, _ := fx.runOrders(auditConfig, func(ctx context.Context, m *core.Message) error {
			runs++
			doWork(ctx, "handler")
			return m.Send("shipping", shipType.Of("x"))
		})
		fx.send(returnedByAnOperator("m1", "nowhere"))
		fx.wantDepth("audit", 1)
		fx.wantDepth("shipping", 1)
		fx.wantDepth("orders", 0)
		equal(fx, "runs", runs, 1)
		equal(fx, "critical errors", ep.Health().CriticalErrors, int64(0))
		equal(fx, "unreachable since", ep.Health().UnreachableSince, time.Time{})
	})
}

func TestEngineSends_AcknowledgementBesideAnUnreachableAuditQueue(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.provision("audit", "acks")
		reachable := fx.failSendsTo("audit")
		fx.runOrders(auditConfig, func(context.Context, *core.Message) error { return nil })
		fx.send(returnedByAnOperator("m1", "acks"))
		fx.advance(time.Second)
		fx.onlyMessage("acks")
		fx.advance(time.Minute)
		fx.wantDepth("audit", 0)
		reachable()
		fx.advance(time.Minute)
		fx.onlyMessage("audit")
		fx.onlyMessage("acks")
		fx.wantDepth("orders", 0)
	})
}
