package otelreprise

import (
	"context"
	"log/slog"
	"slices"

	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/core/logformat"
)

// Handler returns a log handler that adds attributes to records and passes them to next.
// Records made in the context of a span get trace_id and span_id. Records made in a
// handler's context get the attributes of [logformat.AddMessageAttrs], such as message_id.
// Attributes that a record or its logger already has stay unchanged. It can also serve as
// the handler of core.Config.Logger: the endpoint logs a failed attempt in the context of
// its span.
func Handler(next slog.Handler) slog.Handler {
	return &logHandler{next: logformat.AddMessageAttrs(next)}
}

type logHandler struct {
	next slog.Handler
	has  []string // the keys of the logger's own attributes, in its innermost group
}

func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return h.next.Handle(ctx, r)
	}
	attrs := []slog.Attr{slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String())}
	attrs = slices.DeleteFunc(attrs, func(a slog.Attr) bool { return slices.Contains(h.has, a.Key) })
	r.Attrs(func(own slog.Attr) bool {
		attrs = slices.DeleteFunc(attrs, func(a slog.Attr) bool { return a.Key == own.Key })
		return len(attrs) > 0
	})
	r = r.Clone()
	r.AddAttrs(attrs...)
	return h.next.Handle(ctx, r)
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	has := slices.Clone(h.has)
	for _, a := range attrs {
		has = append(has, a.Key)
	}
	return &logHandler{h.next.WithAttrs(attrs), has}
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &logHandler{next: h.next.WithGroup(name)}
}
