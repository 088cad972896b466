package otelreprise_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	otelreprise "github.com/reprise-go/reprise/otel"
)

// TestLogCorrelation: lines of handlers, and those of the endpoint about their failures, name the trace.
func TestLogCorrelation(t *testing.T) {
	bubble(t, func(b *bed) {
		var written bytes.Buffer
		b.logger = slog.New(otelreprise.Handler(slog.NewJSONHandler(&written, nil))).With("service", "orders").WithGroup("g")
		b.orders(core.Config{Recoverability: none}, b.observer(otelreprise.Config{}), func(ctx context.Context, _ *core.Message) error {
			b.logger.InfoContext(ctx, "paying")
			b.logger.InfoContext(ctx, "paying another", "message_id", "other")
			b.logger.Info("without a context")
			return errAway
		})
		b.put(nil, "m1")
		span := b.one("process orders").SpanContext
		seen := map[string]int{}
		for line := range strings.Lines(written.String()) {
			var record struct {
				Msg, Service string
				G            map[string]any
			}
			if err := json.Unmarshal([]byte(line), &record); err != nil {
				b.Fatal(err)
			}
			equal(b, "duplicate ids in "+line, strings.Count(line, `"message_id"`) <= 1, true)
			id := map[string]any{"paying": "m1", "paying another": "other", "without a context": nil}
			if want, mine := id[record.Msg]; mine {
				seen[record.Msg]++
				equal(b, "id of "+record.Msg, record.G["message_id"], want)
				equal(b, "service of "+record.Msg, record.Service, "orders")
			}
			traced := record.G["trace_id"] == span.TraceID().String() && record.G["span_id"] == span.SpanID().String()
			if strings.Contains(line, `"m1"`) || record.Msg == "paying another" {
				seen["traced"]++
				equal(b, "trace in "+line, traced, true)
			}
		}
		for _, text := range []string{"paying", "paying another", "without a context"} {
			equal(b, "lines of "+text, seen[text], 1)
		}
		if seen["traced"] < 3 {
			b.Errorf("%d lines are about the message, want those of the handler and the endpoint's own", seen["traced"])
		}
	})
}
