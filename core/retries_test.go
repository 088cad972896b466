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
)

// attemptSeen is what a handler is told of its attempt.
type attemptSeen struct {
	attempt, delayed int
	lastError        string
	body             string
	at               time.Duration // since the test began
}

func TestR1_DefaultsMake24Attempts(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		start := time.Now()
		var seen record[attemptSeen]
		b.orders(core.Config{}, func(_ context.Context, m *core.Message) error {
			seen.add(attemptSeen{m.Attempt, m.DelayedRetries, m.LastError, string(m.RawBody()), time.Since(start).Truncate(time.Second)})
			return errBoom
		})
		b.put("m1")
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
			b.Errorf("attempts:\n%v\nwant\n%v", got, want)
		}
		b.holds("orders", 0)
		b.only("error")
	})
}

func TestR21_ImmediateRetryAbandonsTheDelivery(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.orders(core.Config{Recoverability: immediate(2)}, func(_ context.Context, m *core.Message) error {
			if m.Attempt < 3 {
				return errBoom
			}
			equal(b, "last error", m.LastError, "boom")
			return nil
		})
		b.put("m1")
		want := []string{"Abandon m1", "Abandon m1", "Complete m1"}
		if b.mode == core.TransactionSendsAtomicWithReceive {
			want[2] = "CompleteWith m1"
		}
		if got := b.broker.requested.all(); !slices.Equal(got, want) {
			b.Errorf("asked of the transport: %v, want %v", got, want)
		}
		equal(b, "messages sent", b.broker.sent.len(), 0)
	})
}

func TestR22_DelayedRetryIsACopyToTheOwnQueue(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		sender := order("m1")
		sender.TimeToBeReceived = 5 * time.Second // shorter than the delay
		sender.Headers.Set("NServiceBus.TimeToBeReceived", "00:00:05")
		failedAt := time.Now()
		b.broker.provoke(faults{send: func(out []core.Outgoing) error {
			if len(out) != 1 {
				b.Errorf("%d messages sent together, want one", len(out))
				return nil
			}
			equal(b, "queue", out[0].Queue, "orders")
			equal(b, "delay", out[0].Delay, 7*time.Second)
			equal(b, "time to be received", out[0].TimeToBeReceived, 0)
			equal(b, "id", out[0].ID, "m1")
			return nil
		}})
		var second record[*core.Message]
		_, run := b.orders(core.Config{Recoverability: core.Recoverability{
			Immediate: core.Immediate{Retries: 1}, Delayed: core.Delayed{Retries: 1, Increase: 7 * time.Second},
		}}, func(_ context.Context, m *core.Message) error {
			if m.DelayedRetries == 0 {
				return errBoom
			}
			second.add(m)
			return nil
		})
		b.send(sender)
		synctest.Wait()
		equal(b, "messages waiting", b.depth("orders").Delayed, 1)
		equal(b, "messages held", b.depth("orders").InFlight, 0)
		operation := "Complete m1"
		if b.mode == core.TransactionSendsAtomicWithReceive {
			operation = "ReplaceWith m1"
		}
		if got := b.broker.requested.all(); !slices.Equal(got, []string{"Abandon m1", operation}) {
			b.Errorf("asked of the transport: %v", got)
		}
		time.Sleep(7*time.Second - time.Nanosecond)
		synctest.Wait()
		equal(b, "attempts before the delay ended", second.len(), 0)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if second.len() != 1 {
			b.Fatalf("%d attempts after the delay, want 1", second.len())
		}
		if err := run.stop(); err != nil {
			b.Error(err)
		}
		m := second.all()[0]
		equal(b, "id", m.ID, "m1")
		equal(b, "attempt, which starts again", m.Attempt, 1)
		equal(b, "body", string(m.RawBody()), "body of m1")
		want := order("m1").Headers.Map()
		want[core.HeaderRetries] = "1"
		want[core.HeaderRetriesTimestamp] = core.FormatTime(failedAt)
		sameHeaders(b, "headers of the copy", m.Headers, want, core.HeaderAttempts)
	})
}

func TestR8_UnsupportedActionIsMovedOnATransport(t *testing.T) {
	cases := []struct {
		name   string
		action core.Action
		fail   error
		modes  []core.TransactionMode
		able   func(*core.Capabilities)
		why    string
	}{
		{name: "immediate retry in None", action: core.ImmediateRetry(), modes: everyMode[:1], why: "ImmediateRetry was asked for"},
		{name: "delayed retry in None", action: core.DelayedRetry(time.Second), modes: everyMode[:1], why: "DelayedRetry(1s) was asked for"},
		{name: "defer in None", fail: core.Defer(time.Second), modes: everyMode[:1], why: "DelayedRetry(1s) was asked for"},
		{
			name: "delayed retry without delayed delivery", action: core.DelayedRetry(time.Second), modes: retrying,
			able: func(c *core.Capabilities) { c.DelayedDelivery = false }, why: "no delayed delivery",
		},
		{
			name: "defer without delayed delivery", fail: core.Defer(time.Second), modes: retrying,
			able: func(c *core.Capabilities) { c.DelayedDelivery = false }, why: "no delayed delivery",
		},
		{
			name: "delay beyond MaxDelay", action: core.DelayedRetry(time.Hour), modes: retrying,
			able: func(c *core.Capabilities) { c.MaxDelay = time.Minute }, why: "longest delay is 1m0s",
		},
		{name: "retry after in None", fail: core.RetryAfter(errBoom, time.Second), modes: everyMode[:1], why: "DelayedRetry(1s) was asked for"},
		{
			name: "retry after without delayed delivery", fail: core.RetryAfter(errBoom, time.Second), modes: retrying,
			able: func(c *core.Capabilities) { c.DelayedDelivery = false }, why: "no delayed delivery",
		},
		{
			name: "retry after where the default delays are too long", fail: core.RetryAfter(errBoom, time.Second), modes: retrying,
			able: func(c *core.Capabilities) { c.MaxDelay = 20 * time.Second }, why: "delayed retries are off: the longest delay would be 30s",
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if c.able == nil {
				c.able = func(*core.Capabilities) {}
			}
			inModesOn(t, able(c.able), c.modes, func(b *bed) {
				config := core.Config{}
				config.Recoverability.ErrorQueue = "failed"
				if c.action.Kind != core.ActionNone {
					config.Recoverability.Policy = func(context.Context, core.RecoverabilityConfig, core.ErrorContext) core.Action { return c.action }
				}
				runs := 0
				b.orders(config, func(context.Context, *core.Message) error {
					runs++
					return errors.Join(errBoom, c.fail)
				})
				b.put("m1")
				time.Sleep(time.Minute)
				b.only("failed")
				b.holds("orders", 0)
				equal(b, "attempts", runs, 1)
				lines := b.logs.about("Moving message to error queue instead.")
				if len(lines) != 1 || lines[0].level != slog.LevelWarn || !containsAll(lines[0].message, "'m1'", c.why) {
					b.Errorf("logged %+v, want one warning saying %q", lines, c.why)
				}
			})
		})
	}
}

func TestR34_EndlessPolicyEndsAtMaxDeliveries(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		runs, told := 0, 0
		var last error
		ep := b.endpoint("orders", core.Config{Recoverability: core.Recoverability{
			Policy: func(context.Context, core.RecoverabilityConfig, core.ErrorContext) core.Action {
				return core.ImmediateRetry()
			},
		}})
		b.handle(ep, "order", func(context.Context, *core.Message) error {
			runs++
			return fmt.Errorf("attempt %d: %w", runs, errBoom)
		})
		core.HandleFailed(ep, "order", func(_ context.Context, _ *core.TypedMessage[[]byte], f *core.Failed) error {
			told++
			last = f.Err
			return nil
		})
		b.run(ep)
		b.put("m1")
		equal(b, "attempts", runs, 50)
		equal(b, "calls of HandleFailed", told, 1)
		if !errors.Is(last, errBoom) || errors.Is(last, core.ErrDeliveryCountExceeded) {
			b.Errorf("HandleFailed was given %v", last)
		}
		equal(b, "error text", b.only("error").Headers.Get(core.HeaderExceptionMessage), "attempt 50: boom")
		equal(b, "lines that name MaxDeliveries", len(b.logs.about("MaxDeliveries is 50")), 1)
	})
}

func TestR29_ChangesOfAHandlerStayInItsAttempt(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		sender := order("m1")
		var bodies record[string]
		b.orders(core.Config{
			Recoverability: core.Recoverability{Immediate: core.Immediate{Retries: 1}, Delayed: core.Delayed{Retries: 1, Increase: time.Second}},
			Middleware: []core.Middleware{func(next core.HandlerFunc) core.HandlerFunc {
				return func(ctx context.Context, m *core.Message) error {
					m.Headers.Set("Middleware", "was here")
					return next(ctx, m)
				}
			}},
		}, func(_ context.Context, m *core.Message) error {
			body := m.RawBody()
			bodies.add(string(body) + " " + m.Headers.Get("Sender"))
			clear(body)
			clear(m.RawBody())
			m.Headers.Set("Sender", "overwritten")
			m.Headers.Set("Handler", "was here")
			m.Headers.Del(core.HeaderMessageTypes)
			m.ID, m.Type = "another", "something else"
			return errBoom
		})
		b.send(sender)
		time.Sleep(2 * time.Second)
		failed := b.only("error")
		want := []string{"body of m1 unit \u00e9"}
		if got := bodies.all(); !slices.Equal(got, slices.Repeat(want, 4)) {
			b.Errorf("handlers got %q", got)
		}
		equal(b, "id in the error queue", failed.ID, "m1")
		equal(b, "body in the error queue", string(failed.Body), "body of m1")
		equal(b, "message type", failed.Headers.Get(core.HeaderMessageTypes), "order")
		equal(b, "sender's header", failed.Headers.Get("Sender"), "unit \u00e9")
		for _, key := range []string{"Middleware", "Handler"} {
			if value, ok := failed.Headers.Lookup(key); ok {
				b.Errorf("header %s: %s reached the error queue", key, value)
			}
		}
	})
}

func TestR33_TraceInTheErrorQueue(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		start := time.Now()
		b.orders(core.Config{Recoverability: core.Recoverability{
			Immediate: core.Immediate{Retries: 2}, Delayed: core.Delayed{Retries: 2, Increase: 10 * time.Second},
		}}, func(_ context.Context, m *core.Message) error {
			if m.DelayedRetries == 2 {
				return core.Unrecoverable(errBoom)
			}
			return errBoom
		})
		b.put("m1")
		time.Sleep(time.Minute)
		var trace []map[string]any
		if err := json.Unmarshal([]byte(b.only("error").Headers.Get(core.HeaderAttempts)), &trace); err != nil {
			b.Fatal(err)
		}
		if len(trace) != 3 {
			b.Fatalf("trace is %v, want an entry for each of 3 rounds", trace)
		}
		for round, want := range []struct {
			after    time.Duration
			attempts int
			action   string
			delay    any
		}{{0, 3, "DelayedRetry", "10s"}, {10 * time.Second, 3, "DelayedRetry", "20s"}, {30 * time.Second, 1, "MoveToError", nil}} {
			name := "round " + strconv.Itoa(round)
			equal(b, name+": time", trace[round]["at"], any(core.FormatTime(start.Add(want.after))))
			equal(b, name+": error", trace[round]["error"], any("*errors.errorString"))
			equal(b, name+": attempts", trace[round]["attempts"], any(float64(want.attempts)))
			equal(b, name+": action", trace[round]["action"], any(want.action))
			equal(b, name+": delay", trace[round]["delay"], want.delay)
		}
	})
}

func TestR34_MessageDeliveredTooOftenIsNotRun(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.broker.provoke(faults{arrive: func(in *core.Incoming) {
			in.DeliveryCount, in.LastError = 51, "killed the process"
			if in.ID == "m2" {
				in.DeliveryCount = 50
			}
		}})
		var ran record[string]
		config := core.Config{Recoverability: core.Recoverability{
			Policy: func(_ context.Context, _ core.RecoverabilityConfig, f core.ErrorContext) core.Action {
				b.Errorf("the policy was asked about %s", f.MessageID)
				return core.ImmediateRetry()
			},
			RateLimit: core.RateLimit{ConsecutiveFailures: 1},
		}}
		ep, _ := b.orders(config, func(_ context.Context, m *core.Message) error {
			ran.add(m.ID)
			return nil
		})
		b.put("m1", "m2")
		if got := ran.all(); !slices.Equal(got, []string{"m2"}) {
			b.Errorf("handled %v, want m2, whose count is at the limit", got)
		}
		text := b.only("error").Headers.Get(core.HeaderExceptionMessage)
		if !containsAll(text, core.ErrDeliveryCountExceeded.Error(), "51", "50", "killed the process") {
			b.Errorf("error text is %q", text)
		}
		equal(b, "rate limited", ep.Health().RateLimited, false)
	})
}

func TestR34_LimitCanBeSetAndTurnedOff(t *testing.T) {
	for name, c := range map[string]struct {
		max  core.MaxDeliveries
		runs int
	}{"set": {core.MaxDeliveries{Count: 10}, 0}, "off": {core.MaxDeliveries{Off: true}, 1}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				b.broker.provoke(faults{arrive: func(in *core.Incoming) { in.DeliveryCount = 11 }})
				runs := 0
				b.orders(core.Config{Recoverability: core.Recoverability{MaxDeliveries: c.max}}, func(context.Context, *core.Message) error {
					runs++
					return nil
				})
				b.put("m1")
				equal(b, "runs", runs, c.runs)
				b.holds("error", 1-c.runs)
			})
		})
	}
}
