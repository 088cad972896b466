package logformat

import (
	"context"
	"log/slog"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/bounded"
	"github.com/reprise-go/reprise/internal/logattrs"
)

// AddMessageAttrs returns a handler that adds attributes of the message being handled to
// lines that are logged with a handler's context: message_id, message_type, attempt (1, 2,
// ... in this round), delayed_retries and conversation_id. Attributes that a line or its
// logger already has are not added, so the endpoint's lines have each of them once. Ids
// and types are cut at 256 bytes, as in the endpoint's lines. All other lines are passed to
// next unchanged.
//
//	slog.SetDefault(slog.New(logformat.AddMessageAttrs(slog.NewJSONHandler(os.Stdout, nil))))
//
// In a group (slog.Logger.WithGroup) the attributes are part of the group.
func AddMessageAttrs(next slog.Handler) slog.Handler { return logattrs.Add(next, messageAttrs) }

// messageAttrs returns the attributes of the message being handled in ctx, or none.
func messageAttrs(ctx context.Context) []slog.Attr {
	m, ok := core.MessageFromContext(ctx)
	if !ok {
		return nil
	}
	attrs := []slog.Attr{
		slog.String("message_id", bounded.Name(m.ID)),
		slog.String("message_type", bounded.Name(m.Type)),
		slog.Int("attempt", m.Attempt),
		slog.Int("delayed_retries", m.DelayedRetries),
	}
	if id := m.Headers.Get(headers.ConversationID); id != "" {
		attrs = append(attrs, slog.String("conversation_id", bounded.Name(id)))
	}
	return attrs
}
