package core_test

import (
	"context"
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

// badParts are parts of a message that its broker accepted once, and refuses in each copy.
var badParts = map[string]func(out *core.Outgoing){
	"header":    func(out *core.Outgoing) { out.Headers.Set("Bad", "x") },
	"group key": func(out *core.Outgoing) { out.GroupKey = "bad" },
	"property":  func(out *core.Outgoing) { out.Properties = map[string]string{"bad": "x"} },
}

// refuseBadParts refuses messages with any of these parts.
func refuseBadParts(out []core.Outgoing) error {
	for _, o := range out {
		if o.Headers.Get("Bad") != "" || o.GroupKey == "bad" || o.Properties["bad"] != "" {
			return &core.SendError{Results: []core.SendResult{{ID: o.ID, To: o.Queue, State: core.SendRefused, Err: fmt.Errorf("%w: bad", core.ErrInvalidHeader)}}}
		}
	}
	return nil
}

// manyRefused is more than the messages that an endpoint keeps.
const manyRefused = 1100

// ungrouped is a transport without the order of groups.
var ungrouped = withCapabilities(func(c *core.Capabilities) { c.GroupOrder = false })

// Each message ends in the error queue after a bounded number of tries, and others are
// handled at the same time.
func TestRefusedCopies_EndInTheErrorQueue(t *testing.T) {
	for part, spoil := range badParts {
		for _, recoverability := range []core.Recoverability{noRetries, {}} {
			t.Run(fmt.Sprintf("%s, %v immediate retries", part, recoverability.Immediate.NumberOfRetries), func(t *testing.T) {
				inModesWith(t, ungrouped, retryModes, func(fx *fixture) {
					var tries atomic.Int64
					fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
						tries.Add(1)
						return refuseBadParts(out)
					}})
					var moved recorder[int] // messages in the error queue when a good one is handled
					ep := fx.newEndpoint("orders", core.Config{Recoverability: recoverability})
					fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
						if strings.HasPrefix(m.ID, "bad") {
							return errBoom
						}
						depth, _ := fx.broker.Depth(fx.Context(), "error")
						moved.add(depth.Ready)
						return nil
					})
					for i := range manyRefused {
						out := order(fmt.Sprintf("bad%d", i))
						spoil(&out)
						fx.send(out)
						if i%100 == 99 {
							fx.send(order(fmt.Sprintf("good%d", i)))
						}
					}
					fx.run(ep)
					fx.advance(time.Minute)
					fx.wantDepth("error", manyRefused)
					fx.wantDepth("orders", 0)
					equal(fx, "good messages", moved.len(), manyRefused/100)
					if before := moved.all(); len(before) > 0 && before[0] >= manyRefused {
						fx.Errorf("the first good message was handled after all %d", before[0])
					}
					if n := tries.Load(); n > 10*manyRefused {
						fx.Errorf("%d sends of %d messages", n, manyRefused)
					}
					health := ep.Health()
					equal(fx, "unsettled", health.Unsettled, 0)
					equal(fx, "stalled", health.Stalled, false)
					for _, failed := range fx.messages("error") {
						if failed.Headers.Get(headers.FailedQ) != "orders" || string(failed.Body) != "body of "+failed.ID || failed.Headers.Get(headers.MessageTypes) != "order" {
							fx.Fatalf("moved as %v %q", failed.Headers.Map(), failed.Body)
						}
					}
					want := map[string]string{"header": "[Sender Bad]", "group key": "[Sender the group key]", "property": "[Sender the property bad]"}[part]
					if lines := fx.logs.find("without headers of its sender"); len(lines) != manyRefused || fmt.Sprint(lines[0].attrs["headers_left_out"]) != want {
						fx.Errorf("%d lines, want %d with %s", len(lines), manyRefused, want)
					}
				})
			})
		}
	}
}

// refuseHeaders refuses copies with any header for their size, as a broker does with copies of a
// message of exactly the largest size.
func refuseHeaders(out []core.Outgoing) error {
	for _, o := range out {
		if o.Headers.Len() > 0 && strings.HasPrefix(o.ID, "bad") && o.Reason.IsCopy() {
			return &core.SendError{Results: []core.SendResult{{ID: o.ID, To: o.Queue, State: core.SendRefused, Err: core.ErrTooLarge}}}
		}
	}
	return nil
}

// A message that has no room for any header of ours leaves the queue too: to the broker's own
// dead-letter queue, or as its body alone.
func TestRefusedCopies_NoRoomForAHeader(t *testing.T) {
	for _, deadLetters := range []bool{true, false} {
		t.Run(fmt.Sprintf("dead letters %v", deadLetters), func(t *testing.T) {
			able := withCapabilities(func(c *core.Capabilities) { c.GroupOrder, c.DeadLetter = false, deadLetters })
			inModesWith(t, able, retryModes, func(fx *fixture) {
				fx.broker.setFaults(faults{send: refuseHeaders})
				var good recorder[string]
				var moved recorder[core.Recovery]
				ep := fx.newEndpoint("orders", core.Config{Recoverability: noRetries, Observers: []core.Observer{{Recovered: func(_ context.Context, r core.Recovery) { moved.add(r) }}}})
				fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
					if strings.HasPrefix(m.ID, "bad") {
						return errBoom
					}
					good.add(m.ID)
					return nil
				})
				for i := range manyRefused {
					out := order(fmt.Sprintf("bad%d", i))
					out.Headers.Set(headers.FailedQ, "elsewhere") // by its sender
					fx.send(out)
				}
				fx.send(order("good"))
				fx.run(ep)
				fx.advance(time.Minute)
				fx.wantDepth("orders", 0)
				equal(fx, "good messages", good.len(), 1)
				equal(fx, "stalled", ep.Health().Stalled, false)
				equal(fx, "critical errors", ep.Health().CriticalErrors, 0)
				equal(fx, "reports", moved.len()+int(ep.Health().NotificationsDropped), manyRefused)
				for _, r := range moved.all() {
					if r.DeadLettered != deadLetters {
						fx.Fatalf("reported as %+v", r)
					}
				}
				queue := "error"
				if deadLetters {
					queue = inmemory.DeadLetterQueue("orders")
				}
				messages := fx.messages(queue)
				equal(fx, "messages in "+queue, len(messages), manyRefused)
				for _, m := range messages {
					if want := "body of " + m.ID; string(m.Body) != want {
						fx.Fatalf("body %q, want %q", m.Body, want)
					}
					if deadLetters && m.Headers.Get(headers.FailedQ) != "orders" {
						fx.Fatalf("dead-lettered as %v", m.Headers.Map())
					}
				}
				text := map[bool]string{true: "moving message to the broker's dead-letter queue", false: "without headers of its sender"}[deadLetters]
				equal(fx, "lines", len(fx.logs.find(text)), manyRefused)
			})
		})
	}
}

// A refused copy for a delayed retry is no reason to try for ever.
func TestRefusedCopies_DelayedRetryGoesToTheErrorQueue(t *testing.T) {
	for part, spoil := range badParts {
		t.Run(part, func(t *testing.T) {
			inModesWith(t, ungrouped, retryModes, func(fx *fixture) {
				fx.broker.setFaults(faults{send: refuseBadParts})
				var runs recorder[string]
				fx.runOrders(core.Config{Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 2}, Delayed: core.Delayed{NumberOfRetries: 3}}}, func(_ context.Context, m *core.Message) error {
					runs.add(m.ID)
					if m.ID == "deferred" {
						return core.Defer(errBoom, time.Second)
					}
					return errBoom
				})
				for _, id := range []string{"m1", "deferred"} {
					out := order(id)
					spoil(&out)
					fx.send(out)
				}
				fx.advance(time.Hour)
				fx.wantDepth("error", 2)
				fx.wantDepth("orders", 0)
				equal(fx, "runs", runs.len(), 3+1)
				equal(fx, "warnings", len(fx.logs.findReason("the transport refused it")), 2)
			})
		})
	}
}

// An audit copy that is refused leaves without the refused part, or is given up: it is not
// tried for an hour.
func TestRefusedCopies_AuditCopies(t *testing.T) {
	for part, spoil := range badParts {
		t.Run(part, func(t *testing.T) {
			inModesWith(t, ungrouped, allModes, func(fx *fixture) {
				fx.provision("audit")
				fx.broker.setFaults(faults{send: refuseBadParts})
				ep, _ := fx.runOrders(auditConfig, func(context.Context, *core.Message) error { return nil })
				for i := range manyRefused {
					out := order(fmt.Sprintf("m%d", i))
					spoil(&out)
					fx.send(out)
				}
				audited := fx.messages("audit")
				if len(audited) != manyRefused {
					fx.Fatalf("%d audited, want %d", len(audited), manyRefused)
				}
				equal(fx, "endpoint", audited[0].Headers.Get(headers.ProcessingEndpoint), "orders")
				equal(fx, "type", audited[0].Headers.Get(headers.MessageTypes), "order")
				fx.wantDepth("orders", 0)
				equal(fx, "critical errors", ep.Health().CriticalErrors, 0)
				equal(fx, "lines", len(fx.logs.find("audit copy was sent without headers of its sender")), manyRefused)
			})
		})
	}
	t.Run("in every form", func(t *testing.T) {
		inModes(t, allModes, func(fx *fixture) {
			fx.provision("audit")
			var tries atomic.Int64
			fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
				if slices.ContainsFunc(out, func(o core.Outgoing) bool { return o.Reason == core.ReasonAudit || o.Reason == core.ReasonUndelivered }) {
					tries.Add(1)
					return core.ErrInvalidHeader
				}
				return nil
			}})
			ep, _ := fx.runOrders(auditConfig, func(context.Context, *core.Message) error { return nil })
			fx.enqueue("m1")
			fx.advance(2 * time.Hour)
			fx.wantDepth("audit", 0)
			fx.wantDepth("orders", 0)
			if text := fmt.Sprint(ep.Health().LastCritical); !containsAll(text, "m1", "given up") {
				fx.Errorf("the critical error is %q", text)
			}
			if n := tries.Load(); n > 4 {
				fx.Errorf("%d tries", n)
			}
		})
	})
}

// A message that waited for its queue has to arrive there too.
func TestRefusedCopies_StoredMessages(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.provision("special")
		fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
			if sendsTo(out, "special") || sendsTo(out, "error") {
				return errBoom // an outage
			}
			return nil
		}})
		ep, _ := fx.runOrders(core.Config{Recoverability: core.Recoverability{Immediate: noRetries.Immediate, Delayed: noRetries.Delayed, CustomErrorQueues: []string{"special"}}}, func(_ context.Context, m *core.Message) error {
			if m.ID == "m1" {
				return errBoom
			}
			return core.GiveUpTo(errBoom, "special")
		})
		fx.enqueue("m1", "m2")
		equal(fx, "stored", fx.depth("orders"), queues.Depth{Delayed: 2})
		fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
			if sendsTo(out, "special") {
				return core.ErrInvalidHeader
			}
			return refuseSender(out)
		}})
		fx.advance(time.Hour)
		fx.wantDepth("orders", 0)
		moved := fx.messages("error")
		equal(fx, "moved", len(moved), 2)
		for _, m := range moved {
			equal(fx, "failed queue", m.Headers.Get(headers.FailedQ), "orders")
			equal(fx, "endpoint", m.Headers.Get(headers.ProcessingEndpoint), "orders")
			equal(fx, "note", m.Headers.Get(headers.Undelivered), "")
			equal(fx, "body", string(m.Body), "body of "+m.ID)
		}
		if text := fmt.Sprint(ep.Health().LastCritical); !containsAll(text, "m2", "special", "goes to the error queue") {
			fx.Errorf("the critical error is %q", text)
		}
	})
}
