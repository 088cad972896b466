package logformat

import (
	"context"
	"log/slog"
	"slices"

	"github.com/reprise-go/reprise/core"
)

// AddMessageAttrs returns a handler that adds attributes of the message being handled to
// lines that are logged with a handler's context: message_id, message_type, attempt (1, 2,
// ... in this round), delayed_retries and conversation_id. Attributes that a line or its
// logger already has are not added, so the endpoint's lines have each of them once. All
// other lines are passed to next unchanged.
//
//	slog.SetDefault(slog.New(logformat.AddMessageAttrs(slog.NewJSONHandler(os.Stdout, nil))))
//
// In a group (slog.Logger.WithGroup) the attributes are part of the group.
func AddMessageAttrs(next slog.Handler) slog.Handler { return &messageHandler{next: next} }

type messageHandler struct {
	next slog.Handler
	has  []string // the keys of the logger's own attributes, in its innermost group
}

func (h *messageHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *messageHandler) Handle(ctx context.Context, r slog.Record) error {
	m, ok := core.MessageFromContext(ctx)
	if !ok {
		return h.next.Handle(ctx, r)
	}
	attrs := []slog.Attr{
		slog.String("message_id", m.ID),
		slog.String("message_type", m.Type),
		slog.Int("attempt", m.Attempt),
		slog.Int("delayed_retries", m.DelayedRetries),
	}
	if id := m.Headers.Get(core.HeaderConversationID); id != "" {
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

func (h *messageHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	has := slices.Clone(h.has)
	for _, a := range attrs {
		has = append(has, a.Key)
	}
	return &messageHandler{h.next.WithAttrs(attrs), has}
}

func (h *messageHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &messageHandler{next: h.next.WithGroup(name)}
}
