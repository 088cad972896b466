package core_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
)

// attemptSeen has the facts that a handler gets about its attempt.
type attemptSeen struct {
	attempt, delayed int
	lastError        string
	body             string
	at               time.Duration // since the test began
}

// Rule R1.
func TestAttempts_DefaultsMake24Attempts(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		start := time.Now()
		var seen recorder[attemptSeen]
		fx.runOrders(core.Config{}, func(_ context.Context, m *core.Message) error {
			seen.add(attemptSeen{m.Attempt, m.DelayedRetries, m.LastError, string(m.RawBody()), time.Since(start).Truncate(time.Second)})
			return errBoom
		})
		fx.enqueue("m1")
		time.Sleep(time.Minute + time.Second)
		var want []attemptSeen
		at := time.Duration(0)
		for round := range 4 {
			at += time.Duration(round) * 10 * time.Second
			for attempt := range 6 {
				last := "boom"
				if attempt == 0 {
					last = ""
				}
				want = append(want, attemptSeen{attempt + 1, round, last, "body of m1", at})
			}
		}
		synctest.Wait()
		if got := seen.all(); !slices.Equal(got, want) {
			fx.Errorf("attempts:\n%v\nwant\n%v", got, want)
		}
		fx.wantDepth("orders", 0)
		fx.onlyMessage("error")
	})
}

// Rule R21.
func TestImmediateRetry_AbandonsTheDelivery(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: immediateRetries(2)}, func(_ context.Context, m *core.Message) error {
			if m.Attempt < 3 {
				return errBoom
			}
			equal(fx, "last error", m.LastError, "boom")
			return nil
		})
		fx.enqueue("m1")
		want := []string{"Abandon m1", "Abandon m1", "Complete m1"}
		if fx.mode == core.TransactionSendsAtomicWithReceive {
			want[2] = "CompleteWith m1"
		}
		if got := fx.broker.attempted.all(); !slices.Equal(got, want) {
			fx.Errorf("asked of the transport: %v, want %v", got, want)
		}
		equal(fx, "messages sent", fx.broker.sent.len(), 0)
	})
}

// Rule R22.
func TestDelayedRetry_IsACopyToTheOwnQueue(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		sender := order("m1")
		sender.TimeToBeReceived = time.Minute
		sender.Headers.Set(headers.TimeToBeReceived, "00:01:00")
		failedAt := time.Now()
		fx.broker.setFaults(faults{send: func(out []core.Outgoing) error {
			if len(out) != 1 {
				fx.Errorf("%d messages sent together, want one", len(out))
				return nil
			}
			equal(fx, "queue", out[0].Queue, "orders")
			equal(fx, "delay", out[0].Delay, 7*time.Second)
			equal(fx, "time to be received", out[0].TimeToBeReceived, time.Minute)
			equal(fx, "id", out[0].ID, "m1")
			return nil
		}})
		var second recorder[*core.Message]
		_, run := fx.runOrders(core.Config{Recoverability: core.Recoverability{
			Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: 7 * time.Second},
		}}, func(_ context.Context, m *core.Message) error {
			if m.DelayedRetries == 0 {
				return errBoom
			}
			second.add(m)
			return nil
		})
		fx.send(sender)
		synctest.Wait()
		equal(fx, "messages waiting", fx.depth("orders").Delayed, 1)
		equal(fx, "messages held", fx.depth("orders").Locked, 0)
		operation := "Complete m1"
		if fx.mode == core.TransactionSendsAtomicWithReceive {
			operation = "ReplaceWith m1"
		}
		if got := fx.broker.attempted.all(); !slices.Equal(got, []string{"Abandon m1", operation}) {
			fx.Errorf("asked of the transport: %v", got)
		}
		time.Sleep(7*time.Second - time.Nanosecond)
		synctest.Wait()
		equal(fx, "attempts before the delay ended", second.len(), 0)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if second.len() != 1 {
			fx.Fatalf("%d attempts after the delay, want 1", second.len())
		}
		if err := run.stop(); err != nil {
			fx.Error(err)
		}
		m := second.all()[0]
		equal(fx, "id", m.ID, "m1")
		equal(fx, "attempt, which starts again", m.Attempt, 1)
		equal(fx, "body", string(m.RawBody()), "body of m1")
		want := order("m1").Headers.Map()
		want[headers.TimeToBeReceived] = "00:01:00"
		want[headers.Retries] = "1"
		want[headers.RetriesTimestamp] = headers.FormatTime(failedAt)
		equalHeaders(fx, "headers of the copy", m.Headers, want, headers.Attempts)
	})
}

// Rule R8.
func TestUnsupportedAction_IsMovedOnATransport(t *testing.T) {
	cases := []struct {
		name   string
		action core.Action
		fail   error
		modes  []core.TransactionMode
		able   func(*core.Capabilities)
		why    string
	}{
		{name: "immediate retry in None", action: core.ImmediateRetry(), modes: allModes[:1], why: "ImmediateRetry was asked for"},
		{name: "delayed retry in None", action: core.DelayedRetry(time.Second), modes: allModes[:1], why: "DelayedRetry(1s) was asked for"},
		{name: "defer in None", fail: core.Defer(errors.New("not yet"), time.Second), modes: allModes[:1], why: "Defer(1s) was asked for"},
		{
			name: "delayed retry without delayed delivery", action: core.DelayedRetry(time.Second), modes: retryModes,
			able: func(c *core.Capabilities) { c.DelayedDelivery = false }, why: "no delayed delivery",
		},
		{
			name: "defer without delayed delivery", fail: core.Defer(errors.New("not yet"), time.Second), modes: retryModes,
			able: func(c *core.Capabilities) { c.DelayedDelivery = false }, why: "no delayed delivery",
		},
		{
			name: "delay beyond MaxDelay", action: core.DelayedRetry(time.Hour), modes: retryModes,
			able: func(c *core.Capabilities) { c.MaxDelay = time.Minute }, why: "longest delay is 1m0s",
		},
		{name: "retry after in None", fail: core.RetryAfter(errBoom, time.Second), modes: allModes[:1], why: "DelayedRetry(1s) was asked for"},
		{
			name: "retry after without delayed delivery", fail: core.RetryAfter(errBoom, time.Second), modes: retryModes,
			able: func(c *core.Capabilities) { c.DelayedDelivery = false }, why: "no delayed delivery",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.able == nil {
				c.able = func(*core.Capabilities) {}
			}
			inModesWith(t, withCapabilities(c.able), c.modes, func(fx *fixture) {
				config := core.Config{}
				config.Recoverability.ErrorQueue = "failed"
				if c.action.Kind != 0 {
					config.Recoverability.Policy = func(context.Context, core.RecoverabilityConfig, core.ErrorContext) (core.Action, error) {
						return c.action, nil
					}
				}
				runs := 0
				fx.runOrders(config, func(context.Context, *core.Message) error {
					runs++
					return errors.Join(errBoom, c.fail)
				})
				fx.enqueue("m1")
				time.Sleep(time.Minute)
				fx.onlyMessage("failed")
				fx.wantDepth("orders", 0)
				equal(fx, "attempts", runs, 1)
				lines := fx.logs.find("recoverability action cannot be carried out", "message_id", "m1")
				if len(lines) != 1 || lines[0].level != slog.LevelWarn || !containsAll(fmt.Sprint(lines[0].attrs["reason"]), c.why) {
					fx.Errorf("logged %+v, want one warning saying %q", lines, c.why)
				}
			})
		})
	}
}

// Rule R34.
func TestMaxDeliveries_EndlessPolicyEnds(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		runs, told := 0, 0
		var last error
		ep := fx.newEndpoint("orders", core.Config{Recoverability: core.Recoverability{
			Policy: func(context.Context, core.RecoverabilityConfig, core.ErrorContext) (core.Action, error) {
				return core.ImmediateRetry(), nil
			},
		}})
		fx.handle(ep, "order", func(context.Context, *core.Message) error {
			runs++
			return fmt.Errorf("attempt %d: %w", runs, errBoom)
		})
		core.HandleFailed(ep, orderType, func(_ context.Context, _ *core.Message, _ []byte, f *core.Failed) error {
			told++
			last = f.Err
			return nil
		})
		fx.run(ep)
		fx.enqueue("m1")
		equal(fx, "attempts", runs, 50)
		equal(fx, "calls of HandleFailed", told, 1)
		if !errors.Is(last, errBoom) || errors.Is(last, core.ErrDeliveryCountExceeded) {
			fx.Errorf("HandleFailed was given %v", last)
		}
		equal(fx, "error text", fx.onlyMessage("error").Headers.Get(headers.ExceptionMessage), "attempt 50: boom")
		equal(fx, "lines that name MaxDeliveries", len(fx.logs.findReason("MaxDeliveries is 50")), 1)
	})
}

// Rule R29.
func TestHandler_ChangesStayInItsAttempt(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		sender := order("m1")
		var bodies recorder[string]
		fx.runOrders(core.Config{
			Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: time.Second}},
			Middleware: []core.Middleware{core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					m.Headers.Set("Middleware", "was here")
					return next(ctx, m)
				}
			})},
		}, func(_ context.Context, m *core.Message) error {
			body := m.RawBody()
			bodies.add(string(body) + " " + m.Headers.Get("Sender"))
			clear(body)
			clear(m.RawBody())
			m.Headers.Set("Sender", "overwritten")
			m.Headers.Set("Handler", "was here")
			m.Headers.Del(headers.MessageTypes)
			m.ID, m.Type = "another", "something else"
			return errBoom
		})
		fx.send(sender)
		time.Sleep(2 * time.Second)
		failed := fx.onlyMessage("error")
		want := []string{"body of m1 unit \u00e9"}
		if got := bodies.all(); !slices.Equal(got, slices.Repeat(want, 4)) {
			fx.Errorf("handlers got %q", got)
		}
		equal(fx, "id in the error queue", failed.ID, "m1")
		equal(fx, "body in the error queue", string(failed.Body), "body of m1")
		equal(fx, "message type", failed.Headers.Get(headers.MessageTypes), "order")
		equal(fx, "sender's header", failed.Headers.Get("Sender"), "unit \u00e9")
		for _, key := range []string{"Middleware", "Handler"} {
			if value, ok := failed.Headers.Lookup(key); ok {
				fx.Errorf("header %s: %s reached the error queue", key, value)
			}
		}
	})
}

// Rule R33.
func TestTrace_InTheErrorQueue(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		start := time.Now()
		fx.runOrders(core.Config{Recoverability: core.Recoverability{
			Immediate: core.Immediate{NumberOfRetries: 2}, Delayed: core.Delayed{NumberOfRetries: 2, TimeIncrease: 10 * time.Second},
		}}, func(_ context.Context, m *core.Message) error {
			if m.DelayedRetries == 2 {
				return core.GiveUp(errBoom)
			}
			return errBoom
		})
		fx.enqueue("m1")
		time.Sleep(time.Minute)
		var trace []map[string]any
		if err := json.Unmarshal([]byte(fx.onlyMessage("error").Headers.Get(headers.Attempts)), &trace); err != nil {
			fx.Fatal(err)
		}
		if len(trace) != 3 {
			fx.Fatalf("trace is %v, want an entry for each of 3 rounds", trace)
		}
		for round, want := range []struct {
			after    time.Duration
			attempts int
			action   string
			delay    any
		}{{0, 3, "DelayedRetry", "10s"}, {10 * time.Second, 3, "DelayedRetry", "20s"}, {30 * time.Second, 1, "MoveToError", nil}} {
			name := "round " + strconv.Itoa(round)
			equal(fx, name+": time", trace[round]["at"], any(headers.FormatTime(start.Add(want.after))))
			equal(fx, name+": error", trace[round]["error"], any("*errors.errorString"))
			equal(fx, name+": attempts", trace[round]["attempts"], any(float64(want.attempts)))
			equal(fx, name+": action", trace[round]["action"], any(want.action))
			equal(fx, name+": delay", trace[round]["delay"], want.delay)
		}
	})
}

// Rule R34.
func TestMaxDeliveries_MessageDeliveredTooOftenIsNotRun(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.broker.setFaults(faults{onReceive: func(in *core.Incoming) {
			in.DeliveryCount, in.LastError = 51, "killed the process"
			if in.ID == "m2" {
				in.DeliveryCount = 50
			}
		}})
		var ran recorder[string]
		config := core.Config{Recoverability: core.Recoverability{
			Policy: func(_ context.Context, _ core.RecoverabilityConfig, f core.ErrorContext) (core.Action, error) {
				fx.Errorf("the policy was asked about %s", f.Message.ID)
				return core.ImmediateRetry(), nil
			},
			RateLimit: core.RateLimit{ConsecutiveFailures: 1},
		}}
		ep, _ := fx.runOrders(config, func(_ context.Context, m *core.Message) error {
			ran.add(m.ID)
			return nil
		})
		fx.enqueue("m1", "m2")
		if got := ran.all(); !slices.Equal(got, []string{"m2"}) {
			fx.Errorf("handled %v, want m2, whose count is at the limit", got)
		}
		text := fx.onlyMessage("error").Headers.Get(headers.ExceptionMessage)
		if !containsAll(text, core.ErrDeliveryCountExceeded.Error(), "51", "50", "killed the process") {
			fx.Errorf("error text is %q", text)
		}
		equal(fx, "rate limited", ep.Health().RateLimited, false)
	})
}

// Rule R34.
func TestMaxDeliveries_LimitCanBeSetAndTurnedOff(t *testing.T) {
	for name, c := range map[string]struct {
		max  int
		runs int
	}{"set": {10, 0}, "off": {core.Off, 1}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(fx *fixture) {
				fx.broker.setFaults(faults{onReceive: func(in *core.Incoming) { in.DeliveryCount = 11 }})
				runs := 0
				fx.runOrders(core.Config{Recoverability: core.Recoverability{MaxDeliveries: c.max}}, func(context.Context, *core.Message) error {
					runs++
					return nil
				})
				fx.enqueue("m1")
				equal(fx, "runs", runs, c.runs)
				fx.wantDepth("error", 1-c.runs)
			})
		})
	}
}
