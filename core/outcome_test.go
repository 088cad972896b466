package core_test

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/messagekit"
)

// reported is an order that an operator's tool has returned, and whose outcome it wants to know.
func reported(id string) core.Outgoing {
	out := returnedByAnOperator(id, "acks")
	out.Headers.Set(headers.Replay, "report")
	return out
}

// outcomes returns the reports in the queue acks, as "ID OUTCOME QUEUE".
func (fx *fixture) outcomes() (all []string) {
	fx.Helper()
	for _, m := range fx.messages("acks") {
		unique := m.Headers.Get(headers.RetryUniqueMessageID)
		text := strings.TrimPrefix(unique, "unique ") + " " + m.Headers.Get(headers.ReplayOutcome)
		if queue := m.Headers.Get(headers.ReplayQueue); queue != "" {
			text += " " + queue
		}
		all = append(all, text)
		succeeded := slices.Contains([]string{"succeeded", "duplicate"}, m.Headers.Get(headers.ReplayOutcome))
		if _, ok := m.Headers.Lookup(headers.RetrySuccessful); ok != succeeded {
			fx.Errorf("%s has %s: %t", text, headers.RetrySuccessful, ok)
		}
		equal(fx, "control message", m.Headers.Get(headers.ControlMessage), "True")
		for _, key := range []string{headers.Cause, headers.ExceptionType} {
			if (m.Headers.Get(key) == "") != succeeded {
				fx.Errorf("%s has %s: %q", text, key, m.Headers.Get(key))
			}
		}
		for key, value := range m.Headers.All() {
			if strings.Contains(value, "boom") || strings.Contains(value, "secret") {
				fx.Errorf("%s has the text of an error in %s: %q", text, key, value)
			}
		}
	}
	slices.Sort(all)
	return all
}

// Rule R65.
func TestOutcome_OfEachEnd(t *testing.T) {
	secret := fmt.Errorf("secret: %w", errBoom)
	policy := func(action core.Action) func(c *core.Config) {
		return func(c *core.Config) {
			c.Recoverability.Policy = func(context.Context, core.RecoverabilityConfig, core.ErrorContext) (core.Action, error) {
				return action, nil
			}
		}
	}
	for name, test := range map[string]struct {
		handle func(m *core.Message) error
		change func(c *core.Config)
		spoil  func(m *core.Outgoing)
		modes  []core.TransactionMode
		want   string
	}{
		"handled":             {handle: func(*core.Message) error { return nil }, want: "succeeded"},
		"handled, with sends": {handle: func(m *core.Message) error { return m.Send("shipping", shipType.Of("x")) }, want: "succeeded"},
		"handled, with an audit copy": {
			handle: func(m *core.Message) error { return m.Send("shipping", shipType.Of("x")) },
			change: func(c *core.Config) { c.AuditQueue = "audit" }, want: "succeeded",
		},
		"handled before": {
			handle: func(*core.Message) error { return nil },
			change: func(c *core.Config) {
				c.Middleware = []core.Middleware{core.MiddlewareFunc(func(core.HandlerFunc) core.HandlerFunc {
					return func(_ context.Context, m *core.Message) error {
						messagekit.MarkDuplicate(m)
						return nil
					}
				})}
			}, want: "duplicate",
		},
		"failed":                    {handle: func(*core.Message) error { return secret }, want: "failed error"},
		"given up":                  {handle: func(*core.Message) error { return core.GiveUp(secret) }, want: "failed error"},
		"given up to a queue":       {handle: func(*core.Message) error { return core.GiveUpTo(secret, "shipping") }, want: "failed shipping"},
		"given up to no queue":      {handle: func(*core.Message) error { return core.GiveUpTo(secret, "nowhere") }, want: "failed error"},
		"moved by a policy":         {handle: func(*core.Message) error { return secret }, change: policy(core.MoveToError("shipping")), want: "failed shipping"},
		"invalid":                   {handle: func(*core.Message) error { return core.GiveUpTo(secret, core.InvalidQueue) }, change: func(c *core.Config) { c.Recoverability.InvalidQueue = "invalid" }, want: "failed invalid"},
		"of a type without handler": {spoil: func(m *core.Outgoing) { m.Headers.Set(headers.MessageTypes, "unknown") }, want: "failed error"},
		"without a type":            {spoil: func(m *core.Outgoing) { m.Headers.Del(headers.MessageTypes) }, want: "failed error"},
		"dead-lettered": {
			handle: func(*core.Message) error { return core.GiveUpTo(secret, core.DeadLetterQueue) }, modes: retryModes, want: "dead-lettered",
		},
		"discarded":           {handle: func(*core.Message) error { return core.Discard(secret) }, want: "discarded"},
		"discarded by policy": {handle: func(*core.Message) error { return secret }, change: policy(core.DiscardMessage()), want: "discarded"},
		"retried, then handled": {
			handle: func(m *core.Message) error {
				if m.DelayedRetries < 2 {
					return secret
				}
				return nil
			}, modes: retryModes, want: "succeeded",
		},
		"deferred, then discarded": {
			handle: func(m *core.Message) error {
				if m.Deferrals < 2 {
					return core.Defer(secret, time.Second)
				}
				return core.Discard(secret)
			}, modes: retryModes, want: "discarded",
		},
		"retried, then failed": {
			handle: func(m *core.Message) error {
				if m.DelayedRetries < 2 {
					return secret
				}
				return core.GiveUp(secret)
			}, modes: retryModes, want: "failed error",
		},
	} {
		t.Run(name, func(t *testing.T) {
			modes := test.modes
			if modes == nil {
				modes = allModes
			}
			inModes(t, modes, func(fx *fixture) {
				fx.provision("acks", "audit", "invalid")
				c := core.Config{RetryAckQueues: ackQueues}
				if test.change != nil {
					test.change(&c)
				}
				fx.runOrders(c, func(_ context.Context, m *core.Message) error { return test.handle(m) })
				plain, m := order("plain"), reported("m1")
				if test.spoil != nil {
					test.spoil(&m)
				}
				fx.send(plain, m)
				fx.advance(10 * time.Minute)
				equal(fx, "outcomes", fmt.Sprint(fx.outcomes()), fmt.Sprintf("[m1 %s]", test.want))
				fx.wantDepth("orders", 0)
			})
		})
	}
}

// Rule R65.
func TestOutcome_TakenOver(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.provision("acks")
		fx.runHandleFailed(core.Config{RetryAckQueues: ackQueues, Recoverability: noRetries}, func(_ context.Context, m *core.Message, f *core.Failed) error {
			f.TakeOver()
			return nil
		})
		fx.send(reported("m1"))
		fx.advance(time.Minute)
		equal(fx, "outcomes", fmt.Sprint(fx.outcomes()), "[m1 taken-over]")
		fx.wantDepth("error", 0)
	})
}

// The report has the cause, error type and reason of the message in the error queue.
func TestOutcome_CauseIsThatOfTheMessage(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.provision("acks")
		fx.runOrders(core.Config{RetryAckQueues: ackQueues, Recoverability: noRetries}, func(context.Context, *core.Message) error { return &orderError{"17"} })
		fx.send(reported("m1"))
		failed, report := fx.onlyMessage("error"), fx.onlyMessage("acks")
		for _, key := range []string{headers.Cause, headers.ExceptionType, headers.FailureReason, headers.RetryUniqueMessageID} {
			equal(fx, key, report.Headers.Get(key), failed.Headers.Get(key))
		}
		if cause := report.Headers.Get(headers.Cause); !regexp.MustCompile(`^1:[0-9a-f]{12}$`).MatchString(cause) {
			fx.Errorf("cause is %q", cause)
		}
		if report.ID == failed.ID || report.ID == "" || report.Headers.Get(headers.MessageID) != report.ID {
			fx.Errorf("report has the id %q, the message %q", report.ID, failed.ID)
		}
	})
}

// A broker may drop a second message with one id.
func TestOutcome_EachReturnHasItsReport(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.provision("acks")
		fail := true
		fx.runOrders(core.Config{RetryAckQueues: ackQueues, Recoverability: noRetries}, func(context.Context, *core.Message) error {
			if fail {
				return errBoom
			}
			return nil
		})
		for n := range 4 {
			m := reported("m1")
			m.Headers.Set(headers.RetryUniqueMessageID, fmt.Sprint("campaign/", n))
			fail = n < 2
			fx.send(m)
			synctest.Wait()
		}
		ids := map[string]bool{}
		for _, m := range fx.messages("acks") {
			ids[m.ID] = true
		}
		equal(fx, "ids of reports", len(ids), 4)
	})
}

// Rule R65.
func TestOutcome_IsReportedAfterTheMove(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.provision("acks")
		var moved, tooEarly atomic.Bool
		fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
			if out[0].Reason == core.ReasonAcknowledgement {
				depth, _ := fx.broker.Depth(fx.Context(), "error")
				moved.Store(true)
				tooEarly.Store(total(depth) == 0)
			}
			return nil
		}})
		fx.runOrders(core.Config{RetryAckQueues: ackQueues, Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		fx.send(reported("m1"))
		synctest.Wait()
		equal(fx, "reported", moved.Load(), true)
		equal(fx, "reported too early", tooEarly.Load(), false)
	})
}

// A message whose queue cannot be reached has its outcome when it is moved, by any instance.
func TestOutcome_OfAStoredMessage(t *testing.T) {
	for _, queue := range []string{"error", "fraud"} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprint(queue, ", restart ", restart), func(t *testing.T) {
				inModes(t, retryModes, func(fx *fixture) {
					fx.provision("acks", "fraud")
					reachable := fx.failSendsTo("error", "fraud")
					c := core.Config{RetryAckQueues: ackQueues, Recoverability: noRetries}
					c.Recoverability.CustomErrorQueues = []string{"fraud"}
					fail := func(context.Context, *core.Message) error {
						if queue == "fraud" {
							return core.GiveUpTo(&orderError{"17"}, "fraud")
						}
						return &orderError{"17"}
					}
					_, run := fx.runOrders(c, fail)
					fx.send(reported("m1"))
					fx.advance(10 * time.Minute)
					equal(fx, "outcomes before the move", fmt.Sprint(fx.outcomes()), "[]")
					if restart {
						if err := run.stop(); err != nil {
							fx.Error(err)
						}
						fx.runOrders(c, fail)
						fx.advance(time.Minute)
						equal(fx, "outcomes before the move", fmt.Sprint(fx.outcomes()), "[]")
					}
					reachable()
					fx.advance(10 * time.Minute)
					failed, report := fx.onlyMessage(queue), fx.onlyMessage("acks")
					equal(fx, "outcomes", fmt.Sprint(fx.outcomes()), "[m1 failed "+queue+"]")
					equal(fx, "cause", report.Headers.Get(headers.Cause), failed.Headers.Get(headers.Cause))
					equal(fx, "options", failed.Headers.Get(headers.Replay), "")
				})
			})
		}
	}
}

// Rule R65. A report never decides about its message.
func TestOutcome_RefusedReport(t *testing.T) {
	for name, fail := range map[string]error{"failed": core.GiveUp(errBoom), "discarded": core.Discard(errBoom), "handled": nil} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				runs := 0
				fx.runOrders(core.Config{RetryAckQueues: ackQueues}, func(_ context.Context, m *core.Message) error {
					runs++
					if err := m.Send("shipping", shipType.Of("x")); err != nil {
						return err
					}
					return fail
				})
				m := reported("m1")
				m.Headers.Set(headers.RetryAckQueue, "nowhere")
				fx.send(m)
				fx.advance(time.Hour)
				equal(fx, "runs", runs, 1)
				fx.wantDepth("orders", 0)
				failed := 0
				if name == "failed" {
					failed = 1
				}
				fx.wantDepth("error", failed)
				if lines := fx.logs.find("given up"); len(lines) != 1 || lines[0].attrs["queue"] != "nowhere" || lines[0].attrs["message_id"] != "m1" {
					fx.Errorf("logged %+v", lines)
				}
			})
		})
	}
}

// Reports are repeated while their queue cannot be reached, and no more than the backlog keeps.
func TestOutcome_ReportsThatCannotBeSent(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.provision("acks")
		reachable := fx.failSendsTo("acks")
		ep, _ := fx.runOrders(core.Config{RetryAckQueues: ackQueues, Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		const many = 1100
		for i := range many {
			fx.send(reported(fmt.Sprint("m", i)))
		}
		fx.advance(10 * time.Minute)
		fx.wantDepth("error", many)
		fx.wantDepth("orders", 0)
		equal(fx, "critical errors", ep.Health().CriticalErrors, 0)
		equal(fx, "stalled", ep.Health().Stalled, false)
		reachable()
		fx.advance(10 * time.Minute)
		fx.wantDepth("acks", 1000)
		equal(fx, "given up", len(fx.logs.find("given up")), many-1000)
	})
}

// A report has to be asked for and allowed.
func TestOutcome_OnlyToConfiguredQueues(t *testing.T) {
	for name, change := range map[string]func(m *core.Outgoing){
		"another queue":  func(m *core.Outgoing) { m.Headers.Set(headers.RetryAckQueue, "shipping") },
		"no queue":       func(m *core.Outgoing) { m.Headers.Del(headers.RetryAckQueue) },
		"no id":          func(m *core.Outgoing) { m.Headers.Del(headers.RetryUniqueMessageID) },
		"a long id":      func(m *core.Outgoing) { m.Headers.Set(headers.RetryUniqueMessageID, strings.Repeat("x", 256)) },
		"no option":      func(m *core.Outgoing) { m.Headers.Del(headers.Replay) },
		"another option": func(m *core.Outgoing) { m.Headers.Set(headers.Replay, "once, reports") },
	} {
		t.Run(name, func(t *testing.T) {
			inModes(t, allModes, func(fx *fixture) {
				fx.provision("acks")
				fx.runOrders(core.Config{RetryAckQueues: ackQueues, Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
				m := reported("m1")
				change(&m)
				fx.send(m)
				fx.wantDepth("error", 1)
				fx.wantDepth("acks", 0)
				fx.wantDepth("shipping", 0)
			})
		})
	}
}

// A message that TransactionNone loses is in no queue.
func TestOutcome_OfALostMessage(t *testing.T) {
	inModes(t, allModes[:1], func(fx *fixture) {
		fx.provision("acks")
		fx.failSendsTo("error")
		fx.runOrders(core.Config{RetryAckQueues: ackQueues}, func(context.Context, *core.Message) error { return errBoom })
		fx.send(reported("m1"))
		fx.advance(time.Minute)
		equal(fx, "outcomes", fmt.Sprint(fx.outcomes()), "[m1 failed]")
	})
}

// A handler's sends may be refused: then the attempt fails after all.
func TestOutcome_SuccessIsReportedAfterTheSends(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.provision("acks")
		fx.runOrders(core.Config{RetryAckQueues: ackQueues}, func(_ context.Context, m *core.Message) error {
			return errors.Join(m.Send("shipping", shipType.Of("x")), m.Send("missing", shipType.Of("x")))
		})
		fx.send(reported("m1"))
		fx.advance(time.Hour)
		equal(fx, "outcomes", fmt.Sprint(fx.outcomes()), "[m1 failed error]")
	})
}

// MaxDeliveries ends a message before a handler.
func TestOutcome_OfTooManyDeliveries(t *testing.T) {
	inModesWith(t, countsReleasesConfig(), retryModes, func(fx *fixture) {
		fx.provision("acks")
		ep := fx.newEndpoint("orders", core.Config{RetryAckQueues: ackQueues, Recoverability: core.Recoverability{MaxDeliveries: 7}})
		fx.handle(ep, "order", func(context.Context, *core.Message) error { return nil })
		m := reported("m1")
		m.Headers.Set(headers.Deliveries, "101") // it is the new copy
		fx.send(m)
		fx.redeliverTimes("orders", 8)
		fx.run(ep)
		fx.advance(time.Minute)
		equal(fx, "outcomes", fmt.Sprint(fx.outcomes()), "[m1 failed error]")
	})
}

// A sender can write the note of a stored message, and the headers that its report repeats.
func TestOutcome_OfAForgedNote(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.provision("acks")
		fx.runOrders(core.Config{RetryAckQueues: ackQueues}, func(context.Context, *core.Message) error { return nil })
		m := reported("m1")
		m.Headers.Set(headers.Undelivered, `{"queue":"error","report":true,"tries":1,"since":"x"}`)
		m.Headers.Set(headers.FailedQ, "orders")
		for _, key := range []string{headers.Cause, headers.ExceptionType, headers.FailureReason} {
			m.Headers.Set(key, strings.Repeat("x", 100_000))
		}
		fx.send(m)
		report := fx.onlyMessage("acks")
		equal(fx, "outcomes", fmt.Sprint(fx.outcomes()), "[m1 failed error]")
		fx.wantDepth("error", 1)
		if n := report.Headers.Bytes(); n > 1500 {
			fx.Errorf("the report has %d bytes of headers", n)
		}
	})
}
