package core

import (
	"context"
	"log/slog"
	"slices"
)

// LogHandler returns a handler for log/slog that adds attributes of the message being
// handled to lines that are logged with a handler's context: message_id, message_type,
// attempt (1, 2, ... in this round), delayed_retries and conversation_id. Attributes that
// a line or its logger already has are not added, so the endpoint's lines have each of
// them once. All other lines are passed to next unchanged.
//
//	slog.SetDefault(slog.New(core.LogHandler(slog.NewJSONHandler(os.Stdout, nil))))
//
// In a group (slog.Logger.WithGroup) the attributes are part of the group.
func LogHandler(next slog.Handler) slog.Handler { return &logHandler{next: next} }

type logHandler struct {
	next slog.Handler
	has  []string // the keys of the logger's own attributes, in its innermost group
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	m, ok := MessageFromContext(ctx)
	if !ok {
		return h.next.Handle(ctx, r)
	}
	attrs := []slog.Attr{
		slog.String("message_id", m.ID),
		slog.String("message_type", m.Type),
		slog.Int("attempt", m.Attempt),
		slog.Int("delayed_retries", m.DelayedRetries),
	}
	if id := m.Headers.Get(HeaderConversationID); id != "" {
		attrs = append(attrs, slog.String("conversation_id", id))
	}
	attrs = slices.DeleteFunc(attrs, func(a slog.Attr) bool { return slices.Contains(h.has, a.Key) })
	r.Attrs(func(own slog.Attr) bool {
		attrs = slices.DeleteFunc(attrs, func(a slog.Attr) bool { return a.Key == own.Key })
		return len(attrs) > 0
	})
	r = r.Clone()
	r.AddAttrs(attrs...)
	return h.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	has := slices.Clone(h.has)
	for _, a := range attrs {
		has = append(has, a.Key)
	}
	return &logHandler{h.next.WithAttrs(attrs), has}
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &logHandler{next: h.next.WithGroup(name)}
}
