package core_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// forgedFailure are the headers by which a sender describes a failure that none has had.
var forgedFailure = map[string]string{
	headers.FailedQ:             "payments",
	headers.ProcessingEndpoint:  "payments by evil",
	headers.ProcessingMachine:   "evil machine",
	headers.HostID:              "evil id",
	headers.HostDisplayName:     "evil host",
	headers.TimeOfFailure:       "1999-12-31 00:00:00:000000 Z",
	headers.ExceptionMessage:    "evil text",
	headers.ExceptionType:       "evil type",
	headers.ExceptionStackTrace: "evil stack",
	headers.FailureReason:       "evil reason",
	headers.Cause:               "evil cause",
	headers.HandlerType:         "evil handler",

	"NServiceBus.ExceptionInfo.Data.Evil": "evil data",
}

// forgedOrder is an order with these headers, and others.
func forgedOrder(id string, more map[string]string) core.Outgoing {
	out := order(id)
	for _, forged := range []map[string]string{forgedFailure, more} {
		for key, value := range forged {
			out.Headers.Set(key, value)
		}
	}
	return out
}

// wantOwnIdentity checks the headers of a failed message, each of which may have been left out.
func wantOwnIdentity(fx *fixture, in *core.Incoming) {
	fx.Helper()
	for key, value := range in.Headers.All() {
		switch {
		case strings.Contains(value, "evil"), strings.Contains(value, "1999"), strings.Contains(value, "payments"):
			fx.Errorf("%s has %s: %s", in.ID, key, value)
		case key == headers.Undelivered:
			fx.Errorf("%s has the note %s", in.ID, value)
		}
	}
	if failedQ, ok := in.Headers.Lookup(headers.FailedQ); ok {
		equal(fx, "failed queue of "+in.ID, failedQ, "orders")
	}
}

// A note of a sender skips no handler in the name of another endpoint, neither now nor when an
// operator returns the message.
func TestForgedNote_OfAnotherEndpointIsIgnored(t *testing.T) {
	const failed, audited = `{"queue":"error","tries":1,"since":"x"}`, `{"queue":"audit","audit":true,"tries":1,"since":"x"}`
	for name, more := range map[string]map[string]string{
		"failed":             {headers.Undelivered: failed},
		"failed nowhere":     {headers.Undelivered: failed, headers.FailedQ: "", headers.ProcessingEndpoint: "orders"},
		"audited":            {headers.Undelivered: audited},
		"audited, at orders": {headers.Undelivered: audited, headers.FailedQ: "orders"},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				fx.provision("audit")
				runs := map[string]int{}
				c := auditConfig
				c.Recoverability = noRetries
				c.Concurrency = 1
				fx.runOrders(c, func(_ context.Context, m *core.Message) error {
					runs[m.ID]++
					if m.ID == "bad" {
						return errBoom
					}
					return nil
				})
				fx.send(forgedOrder("good", more), forgedOrder("bad", more))
				in := fx.onlyMessage("error")
				equal(fx, "id", in.ID, "bad")
				wantOwnIdentity(fx, &in)
				equal(fx, "endpoint", in.Headers.Get(headers.ProcessingEndpoint), "orders")
				equal(fx, "error", in.Headers.Get(headers.ExceptionMessage), errBoom.Error())
				equal(fx, "lines", len(fx.logs.find("does not name this endpoint", "message_id", "good")), 1)
				audit := fx.onlyMessage("audit")
				equal(fx, "endpoint of the audit copy", audit.Headers.Get(headers.ProcessingEndpoint), "orders")
				equal(fx, "note of the audit copy", audit.Headers.Get(headers.Undelivered), "")

				fx.send(core.Outgoing{ID: in.ID, Queue: in.Headers.Get(headers.FailedQ), Headers: in.Headers, Body: in.Body})
				fx.wantDepth("orders", 0)
				equal(fx, "runs", fmt.Sprint(runs), "map[bad:2 good:1]")
			})
		})
	}
}

// Nothing in a message proves which endpoint has stored it: it arrives with the identity of
// the endpoint that delivers it.
func TestForgedNote_IdentityIsThatOfThisEndpoint(t *testing.T) {
	for name, more := range map[string]map[string]string{
		"failed":            {headers.Undelivered: `{"queue":"error","tries":1,"since":"x"}`, headers.FailedQ: "orders"},
		"for another queue": {headers.Undelivered: `{"queue":"payments","tries":1,"since":"x"}`, headers.FailedQ: "orders"},
		"an audit copy that goes to the error queue": {headers.Undelivered: `{"queue":"error","audit":true,"tries":1,"since":"x"}`, headers.ProcessingEndpoint: "orders"},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return nil })
				fx.send(forgedOrder("m1", more))
				in := fx.onlyMessage("error")
				for key, want := range map[string]string{headers.FailedQ: "orders", headers.ProcessingEndpoint: "orders"} {
					equal(fx, key, in.Headers.Get(key), want)
				}
				for _, key := range []string{headers.ProcessingMachine, headers.HostID, headers.HostDisplayName, headers.TimeOfFailure} {
					if value := in.Headers.Get(key); value == forgedFailure[key] {
						fx.Errorf("%s is %s", key, value)
					}
				}
			})
		})
	}
}

// Headers of a failed message describe this failure, in every form of its copy.
func TestForgedIdentity_NoFormKeepsIt(t *testing.T) {
	for forms := range 5 { // that are refused
		for _, refusal := range []error{core.ErrInvalidHeader, core.ErrTooLarge} {
			t.Run(fmt.Sprint(forms, refusal), func(t *testing.T) {
				inModes(t, retryModes, func(fx *fixture) {
					refused := map[string]int{}
					fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
						if id := out[0].ID; refused[id] < forms {
							refused[id]++
							return refusal
						}
						return nil
					}})
					fx.runOrders(core.Config{Recoverability: noRetries, Concurrency: 1}, func(context.Context, *core.Message) error { return errBoom })
					fx.send(forgedOrder("m1", nil), forgedOrder("returned", map[string]string{headers.FailedQ: "orders"}))
					fx.advance(time.Minute) // if no form was accepted, they were stored
					moved := append(fx.messages("error"), fx.messages(inmemory.DeadLetterQueue("orders"))...)
					for i := range moved {
						wantOwnIdentity(fx, &moved[i])
						if moved[i].ID == "returned" {
							equal(fx, "failed queue", moved[i].Headers.Get(headers.FailedQ), "orders")
						}
					}
					equal(fx, "messages", len(moved), 2)
				})
			})
		}
	}
}

// A dead letter without headers of its failure would keep those of its sender.
func TestForgedIdentity_DeadLetter(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		tries := map[string]int{}
		fx.broker.setFaults(faults{settle: func(operation string, in *core.Incoming) error {
			if operation != "DeadLetter" {
				return nil
			}
			if tries[in.ID]++; tries[in.ID] < 3 { // the form without headers succeeds
				return core.ErrInvalidHeader
			}
			return nil
		}})
		recoverability := noRetries
		recoverability.DeadLetter = true
		fx.runOrders(core.Config{Recoverability: recoverability, Concurrency: 1}, func(context.Context, *core.Message) error { return errBoom })
		fx.send(forgedOrder("forged", nil))
		fx.enqueue("honest")
		in := fx.onlyMessage("error")
		equal(fx, "moved", in.ID, "forged")
		wantOwnIdentity(fx, &in)
		dead := fx.onlyMessage(inmemory.DeadLetterQueue("orders"))
		equal(fx, "dead", dead.ID, "honest")
	})
}

// An audit copy without room for the headers of its endpoint has none of another one.
func TestForgedIdentity_AuditCopy(t *testing.T) {
	small := withCapabilities(func(c *core.Capabilities) { c.MaxHeaderBytes = 1000 })
	inModesWith(t, small, allModes, func(fx *fixture) {
		fx.provision("audit")
		fx.runOrders(auditConfig, func(context.Context, *core.Message) error { return nil })
		out := forgedOrder("m1", nil)
		out.Headers.Set("Room", strings.Repeat("x", 990-out.Headers.Bytes()))
		fx.send(out)
		fx.advance(time.Minute)
		in := fx.onlyMessage("audit")
		for _, key := range []string{headers.ProcessingEndpoint, headers.ProcessingMachine, headers.HostID, headers.HostDisplayName} {
			if value := in.Headers.Get(key); value == forgedFailure[key] {
				fx.Errorf("%s is %s", key, value)
			}
		}
	})
}

// An application may edit what describes a failure, also of a message that had to be stored.
func TestForgedIdentity_EditFailedKeepsItsEdits(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		reachable := fx.failSendsTo("error")
		c := core.Config{Recoverability: noRetries}
		c.Recoverability.EditFailed = func(_ context.Context, _ core.ErrorContext, h *core.Headers) {
			h.Set(headers.ProcessingMachine, "[redacted]")
			h.Set(headers.TimeOfFailure, "today")
			h.Del(headers.HostID)
		}
		fx.runOrders(c, func(context.Context, *core.Message) error { return errBoom })
		fx.send(forgedOrder("m1", nil))
		equal(fx, "stored", fx.depth("orders").Delayed, 1)
		reachable()
		fx.advance(time.Minute)
		in := fx.onlyMessage("error")
		wantOwnIdentity(fx, &in)
		equal(fx, "machine", in.Headers.Get(headers.ProcessingMachine), "[redacted]")
		equal(fx, "time", in.Headers.Get(headers.TimeOfFailure), "today")
		equal(fx, "host", in.Headers.Get(headers.HostID), "")
	})
}
