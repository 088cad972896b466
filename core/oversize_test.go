package core_test

import (
	"bytes"
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
)

// refuseAbove is a broker that takes no message of more bytes.
func refuseAbove(limit int) func(out []core.Outgoing) error {
	return func(out []core.Outgoing) error {
		for _, o := range out {
			if size := len(o.Body) + o.Headers.Bytes(); size > limit {
				return &core.SendError{Results: []core.SendResult{{ID: o.ID, To: o.Queue + o.Topic, State: core.SendRefused, Err: &core.TooLargeError{Limit: "max_message_size", Max: limit, Size: size}}}}
			}
		}
		return nil
	}
}

// oversizedOrder is an order from a sender with other limits than the endpoint's
// transport has.
func oversizedOrder(id string, headers, body int) core.Outgoing {
	m := order(id)
	m.Headers.Set("Large", strings.Repeat("h", headers))
	m.Body = bytes.Repeat([]byte("b"), body)
	m.Reason = core.ReasonNewCopy // so that the transport of the test takes it too
	return m
}

// A message beyond the limits of the endpoint's transport goes every way that others go,
// whole, and with all that the engine adds.
func TestOversize_MessageBeyondLimitsIsMovedWhole(t *testing.T) {
	small := withCapabilities(func(c *core.Capabilities) {
		c.MaxMessageBytes, c.MaxHeaderBytes, c.MaxHeaderKeyBytes = 4000, 2000, len(headers.MessageTypes)
	})
	for name, size := range map[string][2]int{"body": {10, 8000}, "headers": {3000, 10}, "both": {3000, 8000}} {
		t.Run(name, func(t *testing.T) {
			inModesWith(t, small, retryModes, func(fx *fixture) {
				fx.noError(fx.broker.Provision(fx.Context(), core.Topology{Queues: []string{"audit"}}))
				var attempts recorder[string]
				fx.runOrders(core.Config{
					AuditQueue:     "audit",
					Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1}, RequeueDelay: time.Second},
				}, func(_ context.Context, m *core.Message) error {
					attempts.add(m.ID)
					switch {
					case m.ID == "good" && m.Deferrals == 0:
						return core.Defer(errors.New("not yet"), time.Second)
					case m.ID == "good":
						return nil
					}
					return errBoom
				})
				bad, good := oversizedOrder("bad", size[0], size[1]), oversizedOrder("good", size[0], size[1])
				fx.send(bad, good)
				fx.advance(time.Hour)
				for queue, sent := range map[string]core.Outgoing{"error": bad, "audit": good} {
					got := fx.onlyMessage(queue)
					equal(fx, "id in "+queue, got.ID, sent.ID)
					equal(fx, "bytes in "+queue, len(got.Body), size[1])
					for key, value := range sent.Headers.All() {
						equal(fx, key+" in "+queue, got.Headers.Get(key), value)
					}
				}
				failed := fx.onlyMessage("error").Headers
				for _, key := range []string{headers.FailedQ, headers.ExceptionMessage, headers.ExceptionStackTrace, headers.Attempts} {
					if failed.Get(key) == "" {
						fx.Errorf("header %s is missing in the error queue", key)
					}
				}
				if fx.onlyMessage("audit").Headers.Get(headers.ProcessingEndpoint) == "" {
					fx.Error("the headers of the audit copy are missing")
				}
				all := attempts.all()
				slices.Sort(all)
				equal(fx, "attempts", fmt.Sprint(all), "[bad bad bad bad good good]")
				equal(fx, "critical errors", len(fx.logs.find("critical")), 0)
			})
		})
	}
}

// While the error queue is away, such a message is stored in the endpoint's own queue.
func TestOversize_MessageBeyondLimitsIsStored(t *testing.T) {
	inModesWith(t, withCapabilities(func(c *core.Capabilities) { c.MaxMessageBytes, c.MaxHeaderBytes = 4000, 2000 }), retryModes, func(fx *fixture) {
		fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
			for _, o := range out {
				if o.Queue == "error" {
					return errors.New("the error queue is away")
				}
			}
			return nil
		}})
		var runs atomic.Int64
		fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
			runs.Add(1)
			return errBoom
		})
		fx.send(oversizedOrder("m1", 3000, 8000))
		time.Sleep(time.Minute)
		equal(fx, "stored", fx.depth("orders").Delayed, 1)
		fx.broker.setFaults(faults{})
		fx.advance(time.Hour)
		got := fx.onlyMessage("error")
		equal(fx, "body and header", fmt.Sprint(len(got.Body), len(got.Headers.Get("Large"))), "8000 3000")
		equal(fx, "runs", runs.Load(), 1)
	})
}

// Applications are held against the limits, Forward included.
func TestOversize_LimitsAreForApplications(t *testing.T) {
	inModesWith(t, withCapabilities(func(c *core.Capabilities) { c.MaxMessageBytes, c.MaxHeaderBytes = 4000, 2000 }), retryModes, func(fx *fixture) {
		var refused recorder[error]
		fx.runOrders(core.Config{Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			refused.add(m.Forward("shipping"))
			refused.add(m.Send("shipping", shipByteType.Of(make([]byte, 8000))))
			return nil
		})
		fx.send(oversizedOrder("m1", 10, 8000))
		fx.advance(time.Minute)
		for i, err := range refused.all() {
			if !errors.Is(err, core.ErrTooLarge) {
				fx.Errorf("send %d: %v, want ErrTooLarge", i, err)
			}
		}
		equal(fx, "sends", len(refused.all()), 2)
		fx.wantDepth("shipping", 0)
	})
}

// Where the broker itself refuses the copy for the error queue, the engine leaves out the
// failure headers, then those of the sender that are not needed to send the message back.
func TestOversize_BrokerRefusesLargeCopies(t *testing.T) {
	m := order("m1")
	m.Headers.Set("Large", strings.Repeat("l", 2000))
	m.Headers.Set("Small", "kept")
	failedQ := len(headers.FailedQ) + len("orders")
	needed := failedQ + len(headers.MessageID) + len("m1") + len(headers.MessageTypes) + len("order")
	whole := len(m.Body) + m.Headers.Bytes()
	for name, test := range map[string]struct {
		max     int
		missing bool
	}{
		"room for FailedQ":                  {whole + failedQ, false},
		"no room for FailedQ":               {whole + failedQ - 1, false},
		"one byte short":                    {whole - 1, true},
		"only the needed headers find room": {len(m.Body) + needed, true},
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				fx.broker.setFaults(faults{send: refuseAbove(test.max)})
				fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
				m.Reason = core.ReasonNewCopy
				fx.noError(fx.broker.Transport.Send(fx.Context(), m))
				fx.advance(time.Minute)
				got := fx.onlyMessage("error")
				equal(fx, "body", string(got.Body), string(m.Body))
				for _, key := range []string{"Large", "Small", "Sender"} {
					_, there := got.Headers.Lookup(key)
					equal(fx, key+" is missing", !there, test.missing)
				}
				equal(fx, "says so", len(fx.logs.find("without headers of its sender")) == 1, test.missing)
				equal(fx, "critical errors", len(fx.logs.find("critical")), 0)
			})
		})
	}
}

// A message that the broker refuses in every form, its body alone too, is kept, unsettled and without a slot:
// its handler does not run again, it is not given back, the tries become rarer, and
// each critical error names the limit. It is moved when the limit has been raised.
func TestOversize_MessageThatTheBrokerRefusesIsKept(t *testing.T) {
	noDeadLetters := withCapabilities(func(c *core.Capabilities) { c.DeadLetter = false })
	inModesWith(t, noDeadLetters, retryModes, func(fx *fixture) {
		fx.broker.setFaults(faults{send: refuseAbove(500)})
		var runs recorder[string]
		ep, running := fx.runOrders(core.Config{Concurrency: 1, Recoverability: noRetries}, func(_ context.Context, m *core.Message) error {
			if runs.add(m.ID); m.ID == "large" {
				return errBoom
			}
			return nil
		})
		fx.noError(fx.broker.Transport.Send(fx.Context(), oversizedOrder("large", 10, 8000)))
		fx.advance(2 * time.Hour)
		fx.enqueue("small")
		equal(fx, "runs", fmt.Sprint(runs.all()), "[large small]")
		equal(fx, "given back", fx.broker.countSettled("Release", "large")+fx.broker.countSettled("Abandon", "large"), 0)
		fx.wantDepth("error", 0)
		health := ep.Health()
		equal(fx, "undelivered", health.Undelivered, 1)
		if text := fmt.Sprint(health.LastCritical); !containsAll(text, "large", "max_message_size is 500") {
			fx.Errorf("the critical error is %q", text)
		}
		if n := len(fx.logs.find("critical")); n < 20 || n > 40 {
			fx.Errorf("%d critical errors in two hours, want one every 5 minutes", n)
		}
		fx.broker.setFaults(faults{})
		fx.advance(10 * time.Minute)
		equal(fx, "bytes in the error queue", len(fx.onlyMessage("error").Body), 8000)
		equal(fx, "undelivered", ep.Health().Undelivered, 0)
		equal(fx, "runs", fmt.Sprint(runs.all()), "[large small]")
		fx.noError(running.stop())
	})
}
