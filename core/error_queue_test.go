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
)

// orderError is an error of a type that the error queue can name.
type orderError struct{ id string }

func (e *orderError) Error() string { return "order " + e.id + " is wrong" }

func TestR23_MoveKeepsTheMessageAndNamesTheCause(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		failedAt := time.Now()
		machine, err := os.Hostname()
		if err != nil {
			b.Fatal(err)
		}
		stale := order("m1")
		for key, value := range map[string]string{
			core.HeaderRetries: "3", core.HeaderRetriesTimestamp: core.FormatTime(failedAt), core.HeaderDeferrals: "2",
			core.HeaderFailedQ: "elsewhere", core.HeaderTimeOfFailure: "long ago",
			core.HeaderExceptionInnerType: "stale", "NServiceBus.ExceptionInfo.HelpLink": "stale",
			"NServiceBus.TimeToBeReceived": "00:00:05",
		} {
			stale.Headers.Set(key, value)
		}
		b.broker.provoke(faults{send: func(out []core.Outgoing) error {
			equal(b, "time to be received", out[0].TimeToBeReceived, 0)
			equal(b, "delay", out[0].Delay, 0)
			return nil
		}})
		b.orders(core.Config{Instance: "instance 1"}, func(context.Context, *core.Message) error {
			return core.Unrecoverable(&orderError{"7"})
		})
		b.send(stale)
		failed := b.only("error")
		b.holds("orders", 0)
		equal(b, "id", failed.ID, "m1")
		equal(b, "body", string(failed.Body), "body of m1")
		want := order("m1").Headers.Map()
		maps.Copy(want, map[string]string{
			core.HeaderFailedQ:            "orders",
			core.HeaderTimeOfFailure:      core.FormatTime(failedAt),
			core.HeaderExceptionType:      "*core_test.orderError",
			core.HeaderExceptionMessage:   "order 7 is wrong",
			core.HeaderExceptionSource:    "github.com/reprise-go/reprise/core_test",
			core.HeaderProcessingEndpoint: "orders",
			core.HeaderProcessingMachine:  machine,
			core.HeaderHostDisplayName:    "instance 1",
			core.HeaderHandlerType:        "github.com/reprise-go/reprise/core_test.(*bed).handle.func1",
			core.HeaderHandlerStartTime:   core.FormatTime(failedAt),
			core.HeaderHandlerFailureTime: core.FormatTime(failedAt),
			core.HeaderHandledMessageType: "order",
		})
		sameHeaders(b, "headers", failed.Headers, want, core.HeaderExceptionStackTrace, core.HeaderAttempts, core.HeaderHostID)
		for _, key := range []string{core.HeaderExceptionStackTrace, core.HeaderAttempts, core.HeaderHostID} {
			if failed.Headers.Get(key) == "" {
				b.Errorf("header %s is missing", key)
			}
		}
		if trace := failed.Headers.Get(core.HeaderExceptionStackTrace); !containsAll(trace, "*core_test.orderError", "order 7 is wrong") {
			b.Errorf("stack trace is %q", trace)
		}
		operation := "Complete m1"
		if b.mode == core.TransactionSendsAtomicWithReceive {
			operation = "ReplaceWith m1"
		}
		if got := b.broker.settled.all(); !slices.Equal(got, []string{operation}) {
			b.Errorf("settled by %v, want %s", got, operation)
		}
	})
}

func TestR23_MoveIsAtomic(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.broker.provoke(faults{
			send: func(out []core.Outgoing) error {
				depth, err := b.broker.Depth("orders")
				equal(b, "messages held while the copy is sent", depth.InFlight, 1)
				return err
			},
			settle: func(operation string, _ *core.Incoming) error {
				if operation == "Complete" {
					depth, err := b.broker.Depth("error")
					equal(b, "copies sent before the message is consumed", depth.Total(), 1)
					return err
				}
				return nil
			},
		})
		b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return errBoom })
		b.put("m1")
		b.only("error")
		b.holds("orders", 0)
	})
}

func TestR23_ForeignMessageGetsAnID(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error { return nil })
		b.send(core.Outgoing{Queue: "orders", Body: []byte("who am I")})
		failed := b.only("error")
		if id := failed.Headers.Get(core.HeaderMessageID); id == "" || id != failed.ID {
			b.Errorf("message id is %q, its header says %q", failed.ID, id)
		}
		equal(b, "body", string(failed.Body), "who am I")
		if text := failed.Headers.Get(core.HeaderExceptionMessage); !strings.Contains(text, core.ErrNoType.Error()) {
			b.Errorf("error text is %q", text)
		}
	})
}

func TestR24_HugeErrorsAreCut(t *testing.T) {
	if testing.Short() {
		t.Skip("texts of a quarter of a megabyte: not in short runs")
	}
	t.Parallel()
	inModes(t, everyMode, func(b *bed) {
		huge := strings.Repeat("x", 1<<18) + "\xff\x00"
		b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
			var err error = &orderError{huge}
			for range 20 {
				err = fmt.Errorf("%s: %w", huge[:10], err)
			}
			return err
		})
		b.put("m1")
		failed := b.only("error")
		for _, key := range []string{core.HeaderExceptionMessage, core.HeaderExceptionStackTrace} {
			value := failed.Headers.Get(key)
			if len(value) > 16<<10 || len(value) < 8<<10 || !strings.HasSuffix(value, "[truncated]") {
				b.Errorf("%s has %d bytes and ends with %q", key, len(value), value[max(0, len(value)-20):])
			}
		}
		equal(b, "body", string(failed.Body), "body of m1")
	})
}

func TestR24_MoveFitsTinyTransports(t *testing.T) {
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
			has: []string{core.HeaderFailedQ, core.HeaderExceptionType, core.HeaderExceptionMessage}, not: []string{core.HeaderExceptionStackTrace},
		},
		{
			name: "message limit with room for FailedQ", able: func(c *core.Capabilities) { c.MaxMessageBytes = own + 25 },
			has: []string{core.HeaderFailedQ}, not: []string{core.HeaderTimeOfFailure},
		},
		{ // the limit, which is for applications, does not tell what the broker takes
			name: "message limit without room", able: func(c *core.Capabilities) { c.MaxMessageBytes = own + 24 },
			has: []string{core.HeaderFailedQ, core.HeaderExceptionMessage, core.HeaderExceptionStackTrace},
		},
		{
			name: "header limit", able: func(c *core.Capabilities) { c.MaxHeaderBytes = own - len(body) + 25 },
			has: []string{core.HeaderFailedQ}, not: []string{core.HeaderTimeOfFailure},
		},
		{
			name: "short keys", able: func(c *core.Capabilities) { c.MaxHeaderKeyBytes = len(core.HeaderMessageTypes) },
			has: []string{core.HeaderFailedQ, core.HeaderExceptionType},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			inModesOn(t, able(c.able), everyMode, func(b *bed) {
				b.orders(core.Config{Recoverability: noRetries}, func(context.Context, *core.Message) error {
					return errors.New(strings.Repeat("long ", 20))
				})
				m := order("m1")
				m.Body = []byte(body)
				b.send(m)
				failed := b.only("error")
				equal(b, "body", string(failed.Body), body)
				equal(b, "sender's header", failed.Headers.Get("Sender"), "unit \u00e9")
				for _, key := range c.has {
					if failed.Headers.Get(key) == "" {
						b.Errorf("header %s is missing; there are %v", key, failed.Headers.Map())
					}
				}
				for _, key := range c.not {
					if value := failed.Headers.Get(key); value != "" {
						b.Errorf("header %s is %q", key, value)
					}
				}
				equal(b, "critical errors", len(b.logs.about("critical")), 0)
			})
		})
	}
}

func TestR24_TooLargeDelayedRetryMovesToTheErrorQueue(t *testing.T) {
	for name, verdict := range map[string]error{"policy": errBoom, "defer": core.Defer(time.Second), "retry after": core.RetryAfter(errBoom, time.Second)} {
		t.Run(name, func(t *testing.T) {
			inModes(t, retrying, func(b *bed) {
				b.broker.provoke(faults{send: refusingAbove(2000)})
				runs := 0
				b.orders(core.Config{}, func(context.Context, *core.Message) error {
					runs++
					return verdict
				})
				m := order("m1")
				m.Body = make([]byte, 2000-m.Headers.Bytes()) // as a foreign sender may do
				b.send(m)
				time.Sleep(time.Hour)
				synctest.Wait()
				b.only("error")
				b.holds("orders", 0)
				if runs > 6 {
					b.Errorf("the handler ran %d times", runs)
				}
				equal(b, "critical errors", len(b.logs.about("critical")), 0)
			})
		})
	}
}

func TestR31_MissingCustomQueueGivesWayToTheErrorQueue(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		b.orders(core.Config{Recoverability: core.Recoverability{
			Policy: func(context.Context, core.RecoverabilityConfig, core.ErrorContext) core.Action {
				return core.MoveToError("custom")
			},
		}}, func(context.Context, *core.Message) error { return errBoom })
		b.put("m1")
		b.only("error")
		b.holds("orders", 0)
		if slices.Contains(b.broker.Queues(), "custom") {
			b.Error("the custom error queue was created")
		}
		lines := b.logs.about("'custom' does not exist. Moving message 'm1' to 'error' instead.")
		if len(lines) != 1 || lines[0].level != slog.LevelError {
			b.Errorf("logged %+v, want it to say once that the queue does not exist", b.logs.all())
		}
		if err := b.broker.Provision(b.Context(), core.Topology{Queues: []string{"custom"}}); err != nil {
			b.Fatal(err)
		}
		b.put("m2")
		equal(b, "message in the custom queue", b.only("custom").ID, "m2")
		b.holds("error", 1)
	})
}

func TestR6_PermanentFailuresMoveAtOnce(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		errKnown := errors.New("known")
		ep := b.endpoint("orders", core.Config{Recoverability: core.Recoverability{
			Unrecoverable:     []error{errKnown, core.ErrNoHandler},
			UnrecoverableFunc: func(err error) bool { return strings.Contains(err.Error(), "by func") },
		}})
		var runs atomic.Int64
		b.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			runs.Add(1)
			switch m.ID {
			case "listed":
				return fmt.Errorf("wrapped: %w", errKnown)
			case "func":
				return errors.New("by func")
			}
			return nil
		})
		core.Handle(ep, "number", func(context.Context, *core.TypedMessage[int]) error {
			runs.Add(1)
			return nil
		})
		b.broker.provoke(faults{arrive: func(in *core.Incoming) {
			if in.ID == "malformed" {
				in.Malformed = errBoom
			}
		}})
		b.run(ep)
		b.put("listed", "func", "malformed")
		for _, messageType := range []string{"number", "unknown"} {
			m := order(messageType)
			m.Headers.Set(core.HeaderMessageTypes, messageType)
			b.send(m)
		}
		var failed []string
		for _, m := range b.queue("error") {
			failed = append(failed, m.ID)
			if m.ID == "malformed" {
				equal(b, "its exception type", m.Headers.Get(core.HeaderExceptionType), "*core.MalformedError")
				equal(b, "its message", m.Headers.Get(core.HeaderExceptionMessage), "message cannot be parsed: "+errBoom.Error())
			}
			equal(b, "attempts of "+m.ID, strings.Count(m.Headers.Get(core.HeaderAttempts), `"attempts":1,`), 1)
		}
		slices.Sort(failed)
		if want := []string{"func", "listed", "malformed", "number", "unknown"}; !slices.Equal(failed, want) {
			b.Errorf("in the error queue: %v, want %v", failed, want)
		}
		equal(b, "runs", runs.Load(), 2)
		b.holds("orders", 0)
	})
}

func TestR30_InNoneAFailureIsFinal(t *testing.T) {
	inModes(t, everyMode[:1], func(b *bed) {
		var attempts record[string]
		b.orders(core.Config{}, func(_ context.Context, m *core.Message) error {
			attempts.add(m.ID + " " + strconv.Itoa(m.Attempt))
			b.holdsNow("orders", 0)
			return errBoom
		})
		equal(b, "lines that say retries are off", len(b.logs.about("default retries are off")), 2)
		b.put("m1", "m2")
		time.Sleep(time.Minute)
		slices.Sort(attempts.items)
		if got := attempts.all(); !slices.Equal(got, []string{"m1 1", "m2 1"}) {
			b.Errorf("attempts %v, want one for each", got)
		}
		b.holds("error", 2)
		equal(b, "abandoned", b.broker.settledAs("Abandon", "m1"), 0)
	})
}

func TestErrorQueue_OfAMessageType(t *testing.T) {
	inModes(t, everyMode, func(b *bed) {
		b.orders(core.Config{Recoverability: core.Recoverability{MessageTypes: map[string]core.TypeRecoverability{
			"order": {ErrorQueue: "failed-orders", Unrecoverable: []error{errBoom}},
			"price": {ErrorQueue: "failed-prices"},
		}}}, func(context.Context, *core.Message) error { return errBoom })
		b.put("m1")
		b.holds("orders", 0)
		b.holds("error", 0)
		b.holds("failed-prices", 0) // it was provisioned
		equal(b, "moved", b.only("failed-orders").ID, "m1")
	})
}
