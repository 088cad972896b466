package core_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"

	"github.com/reprise-go/reprise/core"
)

func TestLogHandler(t *testing.T) {
	m := &core.Message{ID: "m1", Type: "order", Attempt: 2, DelayedRetries: 1}
	m.Headers.Set(core.HeaderConversationID, "c1")
	all := map[string]any{"message_id": "m1", "message_type": "order", "attempt": 2.0, "delayed_retries": 1.0, "conversation_id": "c1"}
	without := func(keys ...string) map[string]any {
		rest := maps.Clone(all)
		for _, k := range keys {
			delete(rest, k)
		}
		return rest
	}
	with := func(rest map[string]any, key string, value any) map[string]any {
		rest[key] = value
		return rest
	}
	for name, c := range map[string]struct {
		ctx  context.Context
		log  func(ctx context.Context, l *slog.Logger)
		want map[string]any
	}{
		"a line of a handler":             {core.ContextWithMessage(t.Context(), m), func(ctx context.Context, l *slog.Logger) { l.InfoContext(ctx, "x", "n", 7) }, with(without(), "n", 7.0)},
		"a line without a message":        {t.Context(), func(ctx context.Context, l *slog.Logger) { l.InfoContext(ctx, "x", "n", 7) }, map[string]any{"n": 7.0}},
		"a line that has the attribute":   {core.ContextWithMessage(t.Context(), m), func(ctx context.Context, l *slog.Logger) { l.InfoContext(ctx, "x", "message_id", "own") }, with(without(), "message_id", "own")},
		"a logger that has the attribute": {core.ContextWithMessage(t.Context(), m), func(ctx context.Context, l *slog.Logger) { l.With("attempt", 9).With("n", 1).InfoContext(ctx, "x") }, with(with(without(), "attempt", 9.0), "n", 1.0)},
		"a group":                         {core.ContextWithMessage(t.Context(), m), func(ctx context.Context, l *slog.Logger) { l.With("attempt", 9).WithGroup("g").InfoContext(ctx, "x") }, map[string]any{"attempt": 9.0, "g": without()}},
		"no group":                        {core.ContextWithMessage(t.Context(), m), func(ctx context.Context, l *slog.Logger) { l.With("attempt", 9).WithGroup("").InfoContext(ctx, "x") }, with(without(), "attempt", 9.0)},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			c.log(c.ctx, slog.New(core.LogHandler(slog.NewJSONHandler(&out, nil))))
			line := eachKeyOnce(t, out.Bytes())
			for _, k := range []string{"time", "level", "msg"} {
				delete(line, k)
			}
			got, _ := json.Marshal(line)
			want, _ := json.Marshal(c.want)
			if !bytes.Equal(got, want) {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
	if core.LogHandler(slog.NewJSONHandler(&bytes.Buffer{}, &slog.HandlerOptions{Level: slog.LevelError})).Enabled(t.Context(), slog.LevelWarn) {
		t.Error("a level is enabled that the next handler does not have")
	}
}

// eachKeyOnce reads a JSON object, in which no key may be twice.
func eachKeyOnce(t *testing.T, line []byte) map[string]any {
	t.Helper()
	object := map[string]any{}
	d := json.NewDecoder(bytes.NewReader(line))
	if _, err := d.Token(); err != nil { // the opening brace
		t.Fatal(err)
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value any
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
		if _, twice := object[key.(string)]; twice {
			t.Errorf("%s is twice in %s", key, line)
		}
		object[key.(string)] = value
	}
	return object
}

// The endpoint's own lines about a message have its attributes already.
func TestLogHandler_OfTheEndpoint(t *testing.T) {
	bubble(t, func(fx *fixture) {
		var out bytes.Buffer
		ep := fx.newEndpoint("orders", core.Config{Recoverability: noRetries, Logger: slog.New(core.LogHandler(slog.NewJSONHandler(&out, nil)))})
		fx.handle(ep, "order", func(context.Context, *core.Message) error { return errBoom })
		run := fx.run(ep)
		fx.enqueue("m1")
		synctest.Wait()
		_ = run.stop()
		var about int
		for line := range bytes.SplitSeq(bytes.TrimSpace(out.Bytes()), []byte("\n")) {
			if eachKeyOnce(t, line)["message_id"] == "m1" {
				about++
			}
		}
		if about == 0 {
			t.Errorf("no line is about the message:\n%s", out.String())
		}
	})
}

func TestSendInHandler_WarnsOnce(t *testing.T) {
	bubble(t, func(fx *fixture) {
		const text = "with a handler's context"
		var ep *core.Endpoint
		other := fx.newEndpoint("other", core.Config{SendOnly: true})
		var send func(ctx context.Context, m *core.Message) error
		ep, _ = fx.runOrders(core.Config{Recoverability: noRetries}, func(ctx context.Context, m *core.Message) error { return send(ctx, m) })
		fx.provision("billing")
		for i, c := range []struct {
			name string
			send func(ctx context.Context, m *core.Message) error
			want int
		}{
			{"Message.Send", func(_ context.Context, m *core.Message) error { return m.Send("billing", "bill", "x") }, 0},
			{"Message.SendNow", func(ctx context.Context, m *core.Message) error { return m.SendNow(ctx, "billing", "bill", "x") }, 0},
			{"another endpoint's Send", func(ctx context.Context, _ *core.Message) error { return other.Send(ctx, "billing", "bill", "x") }, 0},
			{"Send with another context", func(context.Context, *core.Message) error {
				return ep.Send(context.Background(), "billing", "bill", "x")
			}, 0},
			{"Send", func(ctx context.Context, _ *core.Message) error { return ep.Send(ctx, "billing", "bill", "x") }, 1},
			{"Publish, later", func(ctx context.Context, _ *core.Message) error { return ep.Publish(ctx, "billed", "x") }, 1},
		} {
			send = c.send
			fx.enqueue(string(rune('a' + i)))
			synctest.Wait()
			equal(fx, "warnings after "+c.name, len(fx.logs.find(text)), c.want)
		}
		if line := fx.logs.find(text)[0]; line.level != slog.LevelWarn || line.attrs["message_type"] != "order" || line.attrs["sent_type"] != "bill" {
			fx.Errorf("the warning is %+v", line)
		}
		fx.wantDepth("error", 0)
	})
}
