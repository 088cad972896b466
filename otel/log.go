package otelreprise

import (
	"context"
	"log/slog"

	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/core"
)

// Handler returns a log handler that adds trace_id and span_id to the records that are made with
// a context of a span, and message_id to those made with a handler's context, before it passes
// them to next. It also serves core.Config.Logger: the endpoint's lines about a failed attempt are
// made with the context of its span; they have a message_id already.
func Handler(next slog.Handler) slog.Handler { return &logHandler{next: next} }

type logHandler struct{ next slog.Handler }

func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	span := trace.SpanContextFromContext(ctx)
	message, handled := core.MessageFrom(ctx)
	if handled {
		r.Attrs(func(a slog.Attr) bool {
			handled = a.Key != attrMessageID
			return handled
		})
	}
	if span.IsValid() || handled {
		r = r.Clone()
	}
	if span.IsValid() {
		r.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	if handled {
		r.AddAttrs(slog.String(attrMessageID, message.ID))
	}
	return h.next.Handle(ctx, r)
}

const attrMessageID = "message_id"

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &logHandler{h.next.WithAttrs(attrs)}
}

func (h *logHandler) WithGroup(name string) slog.Handler { return &logHandler{h.next.WithGroup(name)} }
