package otelreprise_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
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
			b.logger.With("message_id", "kept", "trace_id", "kept").InfoContext(ctx, "paying with a logger")
			b.logger.Info("without a context")
			return errUnreachable
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
			for _, key := range []string{"message_id", "trace_id", "span_id", "message_type", "attempt"} {
				if n := strings.Count(line, `"`+key+`"`); n > 1 {
					b.Errorf("%s is %d times in %s", key, n, line)
				}
			}
			if record.Msg == "paying with a logger" {
				seen[record.Msg]++
				equal(b, "attributes of the logger", fmt.Sprint(record.G["message_id"], record.G["trace_id"]), "keptkept")
			}
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
		for _, text := range []string{"paying", "paying another", "paying with a logger", "without a context"} {
			equal(b, "lines of "+text, seen[text], 1)
		}
		if seen["traced"] < 3 {
			b.Errorf("%d lines are about the message, want those of the handler and the endpoint's own", seen["traced"])
		}
	})
}
