package otelreprise

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/core/logformat"
	"github.com/reprise-go/reprise/internal/logattrs"
)

// Handler returns a log handler that adds attributes to records and passes them to next.
// Records made in the context of a span get trace_id and span_id. Records made in a
// handler's context get the attributes of [logformat.AddMessageAttrs], such as message_id.
// Attributes that a record or its logger already has stay unchanged. It can also serve as
// the handler of core.Config.Logger: the endpoint logs a failed attempt in the context of
// its span.
func Handler(next slog.Handler) slog.Handler {
	return logattrs.Add(logformat.AddMessageAttrs(next), spanAttrs)
}

// spanAttrs returns the attributes of the span in ctx, or none.
func spanAttrs(ctx context.Context) []slog.Attr {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return nil
	}
	return []slog.Attr{slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String())}
}
