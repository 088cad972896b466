package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// orderError is an error of a type that the error queue can name.
type orderError struct{ id string }

func (e *orderError) Error() string { return "order " + e.id + " is wrong" }

// Rule R23.
func TestMoveToError_KeepsTheMessageAndNamesTheCause(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		failedAt := time.Now()
		machine, err := os.Hostname()
		if err != nil {
			fx.Fatal(err)
		}
		stale := order("m1")
		for key, value := range map[string]string{
			headers.Retries: "3", headers.RetriesTimestamp: headers.FormatTime(failedAt), headers.Deferrals: "2",
			headers.FailedQ: "elsewhere", headers.TimeOfFailure: "long ago",
			headers.ExceptionInnerType: "stale", "NServiceBus.ExceptionInfo.HelpLink": "stale",
			"NServiceBus.TimeToBeReceived": "00:00:05",
		} {
			stale.Headers.Set(key, value)
		}
		fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
			equal(fx, "time to be received", out[0].TimeToBeReceived, 0)
			equal(fx, "delay", out[0].Delay, 0)
			return nil
		}})
		fx.runOrders(core.Config{Instance: "instance 1"}, func(context.Context, *core.Message) error {
			return core.GiveUp(&orderError{"7"})
		})
		fx.send(stale)
		failed := fx.onlyMessage("error")
		fx.wantDepth("orders", 0)
		equal(fx, "id", failed.ID, "m1")
		equal(fx, "body", string(failed.Body), "body of m1")
		want := order("m1").Headers.Map()
		maps.Copy(want, map[string]string{
			headers.FailedQ:            "orders",
			headers.TimeOfFailure:      headers.FormatTime(failedAt),
			headers.ExceptionType:      "*core_test.orderError",
			headers.FailureReason:      string(headers.FailureUnrecoverable),
			headers.ExceptionMessage:   "order 7 is wrong",
			headers.ExceptionSource:    "github.com/reprise-go/reprise/core_test",
			headers.ProcessingEndpoint: "orders",
			headers.ProcessingMachine:  machine,
			headers.HostDisplayName:    "instance 1",
			headers.HandlerType:        "github.com/reprise-go/reprise/core_test.(*fixture).handle.func1",
			headers.HandlerStartTime:   headers.FormatTime(failedAt),
			headers.HandlerFailureTime: headers.FormatTime(failedAt),
			headers.HandledMessageType: "order",
			headers.TimeToBeReceived:   "00:00:05",
		})
		equalHeaders(fx, "headers", failed.Headers, want, headers.ExceptionStackTrace, headers.Attempts, headers.Cause, headers.HostID)
		for _, key := range []string{headers.ExceptionStackTrace, headers.Attempts, headers.Cause, headers.HostID} {
			if failed.Headers.Get(key) == "" {
				fx.Errorf("header %s is missing", key)
			}
		}
		if trace := failed.Headers.Get(headers.ExceptionStackTrace); !containsAll(trace, "*core_test.orderError", "order 7 is wrong") {
			fx.Errorf("stack trace is %q", trace)
		}
		operation := "Complete m1"
		if fx.mode == core.TransactionSendsAtomicWithReceive {
			operation = "ReplaceWith m1"
		}
		if got := fx.broker.settled.all(); !slices.Equal(got, []string{operation}) {
			fx.Errorf("settled by %v, want %s", got, operation)
		}
	})
}

// Rule R23.
func TestMoveToError_IsAtomic(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.broker.setFaults(faults{
			send: func(out []core.Outgoing) error {
				depth, err := fx.broker.Depth(fx.Context(), "orders")
				equal(fx, "messages held while the copy is sent", depth.Locked, 1)
				return err
			},
			settle: func(operation string, _ *core.Incoming) error {
				if operation == "Complete" {
					depth, err := fx.broker.Depth(fx.Context(), "error")
					equal(fx, "copies sent before the message is consumed", depth.Ready, 1)
					return err
				}
				return nil
			},
		})
		fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		fx.onlyMessage("error")
		fx.wantDepth("orders", 0)
	})
}

// Rule R23.
func TestMoveToError_ForeignMessageGetsAnID(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return nil })
		fx.send(core.Outgoing{ID: "1", Queue: "orders", Body: []byte("who am I"), Headers: core.HeadersFromMap(map[string]string{headers.GeneratedID: "True"})})
		failed := fx.onlyMessage("error")
		if id := failed.Headers.Get(headers.MessageID); id == "" || id != failed.ID {
			fx.Errorf("message id is %q, its header says %q", failed.ID, id)
		}
		equal(fx, "body", string(failed.Body), "who am I")
		if text := failed.Headers.Get(headers.ExceptionMessage); !strings.Contains(text, core.ErrNoType.Error()) {
			fx.Errorf("error text is %q", text)
		}
	})
}

// Rule R24.
func TestFailedCopy_HugeErrorsAreCut(t *testing.T) {
	if testing.Short() {
		t.Skip("texts of a quarter of a megabyte: not in short runs")
	}
	t.Parallel()
	inModes(t, allModes, func(fx *fixture) {
		huge := strings.Repeat("x", 1<<18) + "\xff\x00"
		fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
			var err error = &orderError{huge}
			for range 20 {
				err = fmt.Errorf("%s: %w", huge[:10], err)
			}
			return err
		})
		fx.enqueue("m1")
		failed := fx.onlyMessage("error")
		for _, key := range []string{headers.ExceptionMessage, headers.ExceptionStackTrace} {
			value := failed.Headers.Get(key)
			if len(value) > 16<<10 || len(value) < 8<<10 || !strings.HasSuffix(value, "[truncated]") {
				fx.Errorf("%s has %d bytes and ends with %q", key, len(value), value[max(0, len(value)-20):])
			}
		}
		equal(fx, "body", string(failed.Body), "body of m1")
	})
}

// Rule R24.
func TestFailedCopy_MoveFitsTinyTransports(t *testing.T) {
	body := strings.Repeat("b", 1000)
	own := order("m1").Headers.Bytes() + len(body)
	for _, c := range []struct {
		name string
		able func(*core.Capabilities)
		has  []string
		not  []string
	}{
		{
			name: "message limit with some room", able: func(c *core.Capabilities) { c.MaxMessageBytes = own + 400 },
			has: []string{headers.FailedQ, headers.ExceptionType, headers.ExceptionMessage}, not: []string{headers.ExceptionStackTrace},
		},
		{
			name: "message limit with room for FailedQ", able: func(c *core.Capabilities) { c.MaxMessageBytes = own + 25 },
			has: []string{headers.FailedQ}, not: []string{headers.TimeOfFailure},
		},
		{ // the limit is for applications: the broker takes more
			name: "message limit without room", able: func(c *core.Capabilities) { c.MaxMessageBytes = own + 24 },
			has: []string{headers.FailedQ, headers.ExceptionMessage, headers.ExceptionStackTrace},
		},
		{
			name: "header limit", able: func(c *core.Capabilities) { c.MaxHeaderBytes = own - len(body) + 25 },
			has: []string{headers.FailedQ}, not: []string{headers.TimeOfFailure},
		},
		{
			name: "short keys", able: func(c *core.Capabilities) { c.MaxHeaderKeyBytes = len(headers.MessageTypes) },
			has: []string{headers.FailedQ, headers.ExceptionType},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			inModesWith(t, withCapabilities(c.able), allModes, func(fx *fixture) {
				fx.runOrders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
					return errors.New(strings.Repeat("long ", 20))
				})
				m := order("m1")
				m.Body = []byte(body)
				fx.send(m)
				failed := fx.onlyMessage("error")
				equal(fx, "body", string(failed.Body), body)
				equal(fx, "sender's header", failed.Headers.Get("Sender"), "unit \u00e9")
				for _, key := range c.has {
					if failed.Headers.Get(key) == "" {
						fx.Errorf("header %s is missing; there are %v", key, failed.Headers.Map())
					}
				}
				for _, key := range c.not {
					if value := failed.Headers.Get(key); value != "" {
						fx.Errorf("header %s is %q", key, value)
					}
				}
				equal(fx, "critical errors", len(fx.logs.find("critical")), 0)
			})
		})
	}
}

// Rule R24.
func TestDelayedRetry_TooLargeMovesToTheErrorQueue(t *testing.T) {
	for name, verdict := range map[string]error{"policy": errBoom, "defer": core.Defer(errors.New("not yet"), time.Second), "retry after": core.RetryAfter(errBoom, time.Second)} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retryModes, func(fx *fixture) {
				fx.broker.setFaults(faults{send: refuseAbove(2000)})
				runs := 0
				fx.runOrders(core.Config{}, func(context.Context, *core.Message) error {
					runs++
					return verdict
				})
				m := order("m1")
				m.Body = make([]byte, 2000-m.Headers.Bytes()) // as a foreign sender may do
				fx.send(m)
				time.Sleep(time.Hour)
				synctest.Wait()
				fx.onlyMessage("error")
				fx.wantDepth("orders", 0)
				if runs > 6 {
					fx.Errorf("the handler ran %d times", runs)
				}
				equal(fx, "critical errors", len(fx.logs.find("critical")), 0)
			})
		})
	}
}

// Rule R31.
func TestCustomQueue_MissingGivesWayToTheErrorQueue(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: core.Recoverability{
			Policy: func(context.Context, core.RecoverabilityConfig, core.ErrorContext) (core.Action, error) {
				return core.MoveToError("custom"), nil
			},
		}}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		fx.onlyMessage("error")
		fx.wantDepth("orders", 0)
		if slices.Contains(fx.queues(), "custom") {
			fx.Error("the custom error queue was created")
		}
		lines := fx.logs.find("queue does not exist (Recoverability.CustomErrorQueues lets Run create it); moving message to the error queue", "message_id", "m1", "instead_of", "custom", "queue", "error")
		if len(lines) != 1 || lines[0].level != slog.LevelError {
			fx.Errorf("logged %+v, want it to say once that the queue does not exist", fx.logs.all())
		}
		if err := fx.broker.Provision(fx.Context(), core.Topology{Queues: []string{"custom"}}); err != nil {
			fx.Fatal(err)
		}
		fx.enqueue("m2")
		equal(fx, "message in the custom queue", fx.onlyMessage("custom").ID, "m2")
		fx.wantDepth("error", 1)
	})
}

// Rule R6.
func TestUnrecoverable_PermanentFailuresMoveAtOnce(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		errKnown := errors.New("known")
		ep := fx.newEndpoint("orders", core.Config{Recoverability: core.Recoverability{
			Unrecoverable: []error{errKnown, core.ErrNoHandler, core.ErrorOfType[*orderError]()},
		}})
		var runs atomic.Int64
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			runs.Add(1)
			switch m.ID {
			case "listed":
				return fmt.Errorf("wrapped: %w", errKnown)
			case "type":
				return &orderError{"7"}
			}
			return nil
		})
		core.Handle(ep, numberType, func(context.Context, *core.Message, int) error {
			runs.Add(1)
			return nil
		})
		fx.broker.setFaults(faults{onReceive: func(in *core.Incoming) {
			if in.ID == "malformed" {
				in.Malformed = errBoom
			}
		}})
		fx.run(ep)
		fx.enqueue("listed", "type", "malformed")
		for _, messageType := range []string{"number", "unknown"} {
			m := order(messageType)
			m.Headers.Set(headers.MessageTypes, messageType)
			fx.send(m)
		}
		var failed []string
		for _, m := range fx.messages("error") {
			failed = append(failed, m.ID)
			if m.ID == "malformed" {
				equal(fx, "its exception type", m.Headers.Get(headers.ExceptionType), "*core.malformedError")
				equal(fx, "its message", m.Headers.Get(headers.ExceptionMessage), "message cannot be parsed: "+errBoom.Error())
			}
			equal(fx, "attempts of "+m.ID, strings.Count(m.Headers.Get(headers.Attempts), `"attempts":1,`), 1)
		}
		slices.Sort(failed)
		if want := []string{"listed", "malformed", "number", "type", "unknown"}; !slices.Equal(failed, want) {
			fx.Errorf("in the error queue: %v, want %v", failed, want)
		}
		equal(fx, "runs", runs.Load(), 2)
		fx.wantDepth("orders", 0)
	})
}

// Rule R30.
func TestNone_FailureIsFinal(t *testing.T) {
	inModes(t, allModes[:1], func(fx *fixture) {
		var attempts recorder[string]
		fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
			attempts.add(m.ID + " " + strconv.Itoa(m.Attempt))
			fx.wantDepthNow("orders", 0)
			return errBoom
		})
		equal(fx, "lines that say retries are off", len(fx.logs.find("default retries are off")), 2)
		fx.enqueue("m1", "m2")
		time.Sleep(time.Minute)
		slices.Sort(attempts.items)
		if got := attempts.all(); !slices.Equal(got, []string{"m1 1", "m2 1"}) {
			fx.Errorf("attempts %v, want one for each", got)
		}
		fx.wantDepth("error", 2)
		equal(fx, "abandoned", fx.broker.countSettled("Abandon", "m1"), 0)
	})
}

func TestErrorQueue_OfAMessageType(t *testing.T) {
	inModes(t, allModes, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: core.Recoverability{MessageTypes: map[string]core.TypeRecoverability{
			"order": {ErrorQueue: "failed-orders", Unrecoverable: []error{errBoom}},
			"price": {ErrorQueue: "failed-prices"},
		}}}, func(context.Context, *core.Message) error { return errBoom })
		fx.enqueue("m1")
		fx.wantDepth("orders", 0)
		fx.wantDepth("error", 0)
		fx.wantDepth("failed-prices", 0) // it was provisioned
		equal(fx, "moved", fx.onlyMessage("failed-orders").ID, "m1")
	})
}
