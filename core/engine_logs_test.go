package core_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
)

// The table "Logs" of the rules, to the letter.
func TestRecoverabilityLogLines(t *testing.T) {
	inModes(t, retrying, func(b *bed) {
		b.orders(core.Config{Instance: "i1", Recoverability: core.Recoverability{
			Immediate: core.Immediate{Retries: 1}, Delayed: core.Delayed{Retries: 1, Increase: 3*time.Hour + 25*time.Minute + 45*time.Second},
		}}, func(_ context.Context, m *core.Message) error {
			if m.ID == "discarded" {
				return core.Discard("not wanted")
			}
			return errBoom
		})
		before := b.logs.len()
		b.put("m1")
		time.Sleep(4 * time.Hour)
		b.put("discarded")
		type line struct {
			level            slog.Level
			message          string
			logger           string
			id               string
			attempt, delayed int64
		}
		want := []line{
			{slog.LevelInfo, "Immediate Retry is going to retry message 'm1' because of an exception:", "reprise.ImmediateRetry", "m1", 1, 0},
			{slog.LevelWarn, "Delayed Retry will reschedule message 'm1' after a delay of 03:25:45 because of an exception:", "reprise.DelayedRetry", "m1", 2, 0},
			{slog.LevelInfo, "Immediate Retry is going to retry message 'm1' because of an exception:", "reprise.ImmediateRetry", "m1", 1, 1},
			{slog.LevelError, "Moving message 'm1' to the error queue 'error' because processing failed due to an exception:", "reprise.MoveToError", "m1", 2, 1},
			{slog.LevelInfo, "Discarding message with id 'discarded'. Reason: not wanted", "reprise.Discard", "discarded", 1, 0},
		}
		var got []line
		for _, l := range b.logs.all()[before:] {
			got = append(got, line{l.level, l.message, fmt.Sprint(l.attrs["logger"]), fmt.Sprint(l.attrs["message_id"]), l.attrs["attempt"].(int64), l.attrs["delayed_retries"].(int64)})
			equal(b, "endpoint", l.attrs["endpoint"], any("orders"))
			equal(b, "instance", l.attrs["instance"], any("i1"))
			equal(b, "message type", l.attrs["message_type"], any("order"))
			if l.message[0] != 'D' || l.level == slog.LevelWarn {
				equal(b, "error", l.attrs["error"], any(errBoom))
			}
			keys := slices.Sorted(maps.Keys(l.attrs))
			if want := []string{"attempt", "delayed_retries", "endpoint", "error", "instance", "logger", "message_id", "message_type"}; !slices.Equal(keys, want) {
				b.Errorf("keys %v, want %v", keys, want)
			}
		}
		if !slices.Equal(got, want) {
			b.Errorf("logged\n%v\nwant\n%v", got, want)
		}
	})
}

func TestInstancesOfAnEndpointDiffer(t *testing.T) {
	bubble(t, func(b *bed) {
		one, two := b.endpoint("orders", core.Config{}), b.endpoint("orders", core.Config{})
		if one.Instance() == two.Instance() || one.Instance() == "" {
			b.Errorf("instances %q and %q", one.Instance(), two.Instance())
		}
	})
}

func TestALogHandlerMayAskTheEndpoint(t *testing.T) {
	bubble(t, func(b *bed) {
		asking := &askingHandler{logHandler: logHandler{book: b.logs}, about: new(*core.Endpoint)}
		recover := limited(1)
		ep := b.endpoint("orders", core.Config{Logger: slog.New(asking), Recoverability: recover})
		*asking.about = ep
		b.handle(ep, "order", func(_ context.Context, m *core.Message) error {
			if m.Attempt == 1 {
				return errBoom
			}
			return nil
		})
		b.run(ep)
		b.put("m1")
		time.Sleep(time.Minute)
		b.holds("orders", 0)
	})
}

// askingHandler asks for the endpoint's health at every line.
type askingHandler struct {
	logHandler
	about **core.Endpoint
}

func (h *askingHandler) Handle(ctx context.Context, r slog.Record) error {
	if ep := *h.about; ep != nil {
		r.AddAttrs(slog.Any("health", ep.Health()))
	}
	return h.logHandler.Handle(ctx, r)
}

func (h *askingHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &askingHandler{h.logHandler.WithAttrs(attrs).(logHandler), h.about}
}
