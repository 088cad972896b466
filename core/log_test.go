package core_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// The table of actions in "Logging" of docs/recoverability.md, to the letter.
func TestLog_RecoverabilityLines(t *testing.T) {
	type line struct {
		level            slog.Level
		message          string
		logger           string
		id               string
		attempt, delayed int64
		more             string // the attributes that say the rest
	}
	delay := 3*time.Hour + 25*time.Minute + 45*time.Second
	want := []line{
		{slog.LevelInfo, "retrying message immediately", "reprise.ImmediateRetry", "m1", 1, 0, ""},
		{slog.LevelWarn, "retrying message after a delay", "reprise.DelayedRetry", "m1", 2, 0, "delay 3h25m45s"},
		{slog.LevelInfo, "retrying message immediately", "reprise.ImmediateRetry", "m1", 1, 1, ""},
		{slog.LevelError, "moving message to the error queue", "reprise.MoveToError", "m1", 2, 1, "queue error, failure_reason RetriesExhausted"},
		{slog.LevelInfo, "discarding message", "reprise.Discard", "discarded", 1, 0, ""},
		{slog.LevelInfo, "deferring message", "reprise.Defer", "deferred", 1, 0, "delay 1s"},
	}
	inModes(t, retryModes, func(fx *fixture) {
		fx.runOrders(core.Config{Instance: "i1", Recoverability: core.Recoverability{
			Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: delay},
		}}, failAsTold)
		before := fx.logs.len()
		fx.enqueue("m1")
		time.Sleep(4 * time.Hour)
		fx.enqueue("discarded")
		fx.enqueue("deferred")
		var got []line
		for i, l := range fx.logs.all()[before:] {
			keys := []string{"attempt", "delayed_retries", "endpoint", "error", "handler", "instance", "logger", "message_id", "message_type"}
			more := ""
			if i < len(want) && want[i].more != "" {
				var all []string
				for attr := range strings.SplitSeq(want[i].more, ", ") {
					key, _, _ := strings.Cut(attr, " ")
					keys, all = append(keys, key), append(all, fmt.Sprint(key, " ", l.attrs[key]))
				}
				more = strings.Join(all, ", ")
				slices.Sort(keys)
			}
			got = append(got, line{l.level, l.message, fmt.Sprint(l.attrs["logger"]), fmt.Sprint(l.attrs["message_id"]), l.attrs["attempt"].(int64), l.attrs["delayed_retries"].(int64), more})
			equal(fx, "endpoint", l.attrs["endpoint"], any("orders"))
			equal(fx, "instance", l.attrs["instance"], any("i1"))
			equal(fx, "message type", l.attrs["message_type"], any("order"))
			equal(fx, "handler", l.attrs["handler"], any("github.com/reprise-go/reprise/core_test.(*fixture).handle.func1"))
			if l.attrs["message_id"] == "m1" {
				equal(fx, "error", l.attrs["error"], any(errBoom))
			}
			if has := slices.Sorted(maps.Keys(l.attrs)); !slices.Equal(has, keys) {
				fx.Errorf("keys %v, want %v", has, keys)
			}
		}
		if !slices.Equal(got, want) {
			fx.Errorf("logged\n%v\nwant\n%v", got, want)
		}
	})
}

// failAsTold does as the id of the message says, and fails otherwise.
func failAsTold(_ context.Context, m *core.Message) error {
	switch {
	case m.ID == "discarded":
		return core.Discard(errors.New("not wanted"))
	case m.ID == "deferred" && m.Deferrals == 0:
		return core.Defer(errors.New("not yet"), time.Second)
	case m.ID == "deferred":
		return nil
	}
	return errBoom
}

// No text tells of one message, so that lines can be grouped by it.
func TestLog_ConstantTexts(t *testing.T) {
	recover := core.Recoverability{
		Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1}, RequeueLimit: 1,
		Policy: func(ctx context.Context, c core.RecoverabilityConfig, e core.ErrorContext) (core.Action, error) {
			switch strings.TrimPrefix(e.Message.ID, "id-") {
			case "policy":
				panic("in policy")
			case "downgrade":
				return core.MoveToError("orders"), nil
			case "missing":
				return core.MoveToError("nowhere"), nil
			}
			return core.DefaultPolicy(ctx, c, e)
		},
	}
	ids := []string{"id-policy", "id-downgrade", "id-missing", "id-discard", "id-defer", "id-last", "id-extra", "id-taken", "id-panic", "id-other"}
	inModes(t, retryModes, func(fx *fixture) {
		ep := fx.newEndpoint("orders", core.Config{Recoverability: recover})
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			switch strings.TrimPrefix(m.ID, "id-") {
			case "discard":
				return core.Discard(errors.New("why discard"))
			case "defer":
				return core.Defer(errors.New("not yet"), 0)
			case "panic":
				panic("boom")
			}
			return errBoom
		})
		core.HandleFailed(ep, orderType, func(_ context.Context, m *core.Message, _ []byte, f *core.Failed) error {
			switch strings.TrimPrefix(m.ID, "id-") {
			case "last":
				return errBoom
			case "extra":
				return m.Send("nowhere", shipType.Of("x"))
			case "taken":
				f.TakeOver()
			}
			return nil
		})
		fx.run(ep)
		fx.enqueue(ids...)
		time.Sleep(time.Hour)
		synctest.Wait()
		seen := map[string]int{}
		for _, line := range fx.logs.all() {
			seen[line.message]++
			if strings.Contains(line.message, "id-") || strings.Contains(line.message, "nowhere") {
				fx.Errorf("the text %q is about one message", line.message)
			}
		}
		for _, text := range []string{
			"retrying message immediately", "retrying message after a delay", "moving message to the error queue", "discarding message", "deferring message",
			"recoverability policy failed; moving message to the error queue",
			"recoverability action cannot be carried out; moving message to the error queue",
			"queue does not exist (Recoverability.CustomErrorQueues lets Run create it); moving message to the error queue",
			"HandleFailed failed; the message is moved", "HandleFailed took the message over; it is not moved",
			"messages of HandleFailed could not be delivered; the message is moved",
		} {
			if seen[text] == 0 {
				fx.Errorf("nothing was logged as %q", text)
			}
		}
	})
}

// An action that a verdict asked for and the engine did not take is logged with the reason.
func TestLog_ReasonOfADowngradedVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		on     inmemory.Config
		asked  error
		limit  int
		reason string
	}{
		"RetryAfter without delays": {withCapabilities(func(c *core.Capabilities) { c.DelayedDelivery = false }), core.RetryAfter(errBoom, time.Second), 0, "no delayed delivery"},
		"Defer without delays":      {withCapabilities(func(c *core.Capabilities) { c.DelayedDelivery = false }), core.Defer(errors.New("not yet"), time.Second), 0, "no delayed delivery"},
		"a delay that is too long":  {withCapabilities(func(c *core.Capabilities) { c.MaxDelay = time.Minute }), core.Defer(errors.New("not yet"), time.Hour), 0, "longest delay is 1m0s"},
		"RequeueLimit":              {inmemory.Config{}, core.Defer(errors.New("not yet"), time.Second), 1, "RequeueLimit"},
	} {
		t.Run(name, func(t *testing.T) {
			bubbleWith(t, c.on, func(fx *fixture) {
				fx.runOrders(core.Config{Recoverability: core.Recoverability{RequeueLimit: c.limit}}, func(context.Context, *core.Message) error { return c.asked })
				fx.enqueue("m1")
				time.Sleep(time.Minute)
				fx.wantDepth("error", 1)
				told := 0
				for _, line := range fx.logs.all() {
					if line.level >= slog.LevelWarn && line.attrs["message_id"] == "m1" && strings.Contains(fmt.Sprint(line.attrs["reason"], line.attrs["error"]), c.reason) {
						told++
					}
				}
				if told == 0 {
					fx.Errorf("no line says %q: %v", c.reason, fx.logs.all())
				}
			})
		})
	}
}

// A message whose retry succeeds is in no error queue: only the log has the stack.
func TestLog_StackOfEachPanic(t *testing.T) {
	inModes(t, retryModes, func(fx *fixture) {
		fx.runOrders(core.Config{Recoverability: immediateRetries(2)}, func(_ context.Context, m *core.Message) error {
			switch {
			case m.ID == "error":
				return errBoom
			case m.ID == "panics" || m.Attempt == 1:
				panicWithError()
			}
			return nil
		})
		before := fx.logs.len()
		fx.enqueue("recovers")
		fx.enqueue("panics")
		fx.enqueue("error")
		stacks := map[any]int{}
		for _, line := range fx.logs.all()[before:] {
			stack, ok := line.attrs["stack"].(string)
			if ok != (line.attrs["message_id"] != "error") || ok && !strings.Contains(stack, "core_test.panicWithError") {
				fx.Errorf("%s of %v has the stack %q", line.message, line.attrs["message_id"], stack)
			}
			if ok {
				stacks[line.attrs["message_id"]]++
			}
		}
		equal(fx, "stacks of the message that succeeded", stacks["recovers"], 1)
		equal(fx, "stacks of the message that failed", stacks["panics"], 3)
	})
}

func TestLog_NamesTheInstance(t *testing.T) {
	bubble(t, func(fx *fixture) {
		one, two := fx.newEndpoint("orders", core.Config{}), fx.newEndpoint("orders", core.Config{})
		if one.Health().Instance == two.Health().Instance || one.Health().Instance == "" {
			fx.Errorf("instances %q and %q", one.Health().Instance, two.Health().Instance)
		}
	})
}

func TestLog_HandlerMayCallTheEndpoint(t *testing.T) {
	bubble(t, func(fx *fixture) {
		asking := &healthLogHandler{logHandler: logHandler{recorder: fx.logs}, ep: new(*core.Endpoint)}
		recover := rateLimitedConfig(1)
		ep := fx.newEndpoint("orders", core.Config{Logger: slog.New(asking), Recoverability: recover})
		*asking.ep = ep
		fx.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			if m.Attempt == 1 {
				return errBoom
			}
			return nil
		})
		fx.run(ep)
		fx.enqueue("m1")
		time.Sleep(time.Minute)
		fx.wantDepth("orders", 0)
	})
}

// healthLogHandler asks for the endpoint's health at every line.
type healthLogHandler struct {
	logHandler
	ep **core.Endpoint
}

func (h *healthLogHandler) Handle(ctx context.Context, r slog.Record) error {
	if ep := *h.ep; ep != nil {
		r.AddAttrs(slog.Any("health", ep.Health()))
	}
	return h.logHandler.Handle(ctx, r)
}

func (h *healthLogHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &healthLogHandler{h.logHandler.WithAttrs(attrs).(logHandler), h.ep}
}
