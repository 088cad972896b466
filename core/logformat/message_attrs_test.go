package logformat_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/logformat"
)

func TestAddMessageAttrs(t *testing.T) {
	m := &core.Message{ID: "m1", Type: "order", Attempt: 2, DelayedRetries: 1}
	m.Headers.Set(headers.ConversationID, "c1")
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
		"a line of a handler":             {coretest.Context(t.Context(), m), func(ctx context.Context, l *slog.Logger) { l.InfoContext(ctx, "x", "n", 7) }, with(without(), "n", 7.0)},
		"a line without a message":        {t.Context(), func(ctx context.Context, l *slog.Logger) { l.InfoContext(ctx, "x", "n", 7) }, map[string]any{"n": 7.0}},
		"a line that has the attribute":   {coretest.Context(t.Context(), m), func(ctx context.Context, l *slog.Logger) { l.InfoContext(ctx, "x", "message_id", "own") }, with(without(), "message_id", "own")},
		"a logger that has the attribute": {coretest.Context(t.Context(), m), func(ctx context.Context, l *slog.Logger) { l.With("attempt", 9).With("n", 1).InfoContext(ctx, "x") }, with(with(without(), "attempt", 9.0), "n", 1.0)},
		"a group":                         {coretest.Context(t.Context(), m), func(ctx context.Context, l *slog.Logger) { l.With("attempt", 9).WithGroup("g").InfoContext(ctx, "x") }, map[string]any{"attempt": 9.0, "g": without()}},
		"no group":                        {coretest.Context(t.Context(), m), func(ctx context.Context, l *slog.Logger) { l.With("attempt", 9).WithGroup("").InfoContext(ctx, "x") }, with(without(), "attempt", 9.0)},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			c.log(c.ctx, slog.New(logformat.AddMessageAttrs(slog.NewJSONHandler(&out, nil))))
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
	if logformat.AddMessageAttrs(slog.NewJSONHandler(&bytes.Buffer{}, &slog.HandlerOptions{Level: slog.LevelError})).Enabled(t.Context(), slog.LevelWarn) {
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
		if _, repeated := object[key.(string)]; repeated {
			t.Errorf("%s is twice in %s", key, line)
		}
		object[key.(string)] = value
	}
	return object
}

// The endpoint's own lines about a message have its attributes already.
func TestAddMessageAttrs_OfTheEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log buffer
		c := core.Config{Recoverability: noRetries, Logger: slog.New(logformat.AddMessageAttrs(slog.NewJSONHandler(&log, nil)))}
		runOrders(t, c, 1, func(context.Context, *core.Message) error { return errors.New("boom") })
		lines, about := log.take(), 0
		for _, line := range lines {
			if eachKeyOnce(t, []byte(line))["message_id"] == "m0" {
				about++
			}
		}
		if about == 0 {
			t.Errorf("no line is about the message: %q", lines)
		}
	})
}
