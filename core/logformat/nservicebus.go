package logformat

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/reprise-go/reprise/core/internal/logline"
)

// WriteNServiceBusTexts returns a handler that writes the lines about immediate retries,
// delayed retries and moves to an error queue with the texts of NServiceBus, for which its
// operators search:
//
//	Immediate Retry is going to retry message 'XXX' because of an exception:
//	Delayed Retry will reschedule message 'XXX' after a delay of HH:MM:SS because of an exception:
//	Moving message 'XXX' to the error queue 'error' because processing failed due to an exception:
//
// Levels and attributes stay as they are, and so do all other lines.
func WriteNServiceBusTexts(next slog.Handler) slog.Handler { return textHandler{next} }

type textHandler struct{ next slog.Handler }

func (h textHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h textHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return textHandler{h.next.WithAttrs(attrs)}
}

func (h textHandler) WithGroup(name string) slog.Handler {
	return textHandler{h.next.WithGroup(name)}
}

func (h textHandler) Handle(ctx context.Context, r slog.Record) error {
	switch r.Message {
	case logline.RetryImmediately, logline.RetryAfterDelay, logline.MoveToErrorQueue:
		if text := nserviceBusText(r); text != "" {
			r.Message = text
		}
	}
	return h.next.Handle(ctx, r)
}

// nserviceBusText returns the text for a line, or "" if the line is not an endpoint's.
func nserviceBusText(r slog.Record) string {
	var id, queue string
	var delay time.Duration
	r.Attrs(func(a slog.Attr) bool {
		switch {
		case a.Key == "message_id":
			id = a.Value.String()
		case a.Key == "queue":
			queue = a.Value.String()
		case a.Key == "delay" && a.Value.Kind() == slog.KindDuration:
			delay = a.Value.Duration()
		}
		return true
	})
	switch {
	case id == "":
		return ""
	case r.Message == logline.RetryImmediately:
		return "Immediate Retry is going to retry message '" + id + "' because of an exception:"
	case r.Message == logline.RetryAfterDelay:
		return "Delayed Retry will reschedule message '" + id + "' after a delay of " + formatClock(delay) + " because of an exception:"
	default:
		return "Moving message '" + id + "' to the error queue '" + queue + "' because processing failed due to an exception:"
	}
}

// formatClock writes a duration as HH:MM:SS, with a fraction if there is one.
func formatClock(d time.Duration) string {
	text := fmt.Sprintf("%02d:%02d:%02d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
	if fraction := d % time.Second; fraction != 0 {
		text += fmt.Sprintf(".%03d", fraction.Milliseconds())
	}
	return text
}
