package core

import (
	"context"
	"log/slog"
	"strings"

	"github.com/reprise-go/reprise/core/internal/calls"
	"github.com/reprise-go/reprise/internal/bounded"
)

// This file limits the size of log lines. The sender of a message chooses its id, its type,
// and texts that are in errors.

// maxLogText is the length in bytes of the longest text in a log line, such as an error's.
const maxLogText = 16 << 10

// nameKeys has the attributes whose values are names that a sender may have chosen. They are
// cut at bounded.MaxName bytes, all other texts at maxLogText.
var nameKeys = map[string]bool{
	"message_id": true, "message_type": true, "sent_type": true, "intent": true, "topic": true, "subscriber": true,
	"originating_endpoint": true, "queue": true, "error_queue": true, "instead_of": true, "since": true, "handler": true,
}

// boundedHandler passes on lines whose texts are cut. Lines with short texts are passed on
// as they are.
type boundedHandler struct{ slog.Handler }

func (h boundedHandler) WithGroup(name string) slog.Handler {
	return boundedHandler{h.Handler.WithGroup(name)}
}

func (h boundedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	cut := make([]slog.Attr, len(attrs))
	for i, a := range attrs {
		cut[i] = cutAttr(a, nil)
	}
	return boundedHandler{h.Handler.WithAttrs(cut)}
}

func (h boundedHandler) Handle(ctx context.Context, r slog.Record) error {
	isLong := len(r.Message) > maxLogText
	r.Attrs(func(a slog.Attr) bool {
		isLong = isLong || exceedsLogLimit(a)
		return !isLong
	})
	if !isLong {
		return h.Handler.Handle(ctx, r)
	}
	var names []string
	r.Attrs(func(a slog.Attr) bool {
		if nameKeys[a.Key] && exceedsLogLimit(a) {
			names = append(names, a.Value.String())
		}
		return true
	})
	cut := slog.NewRecord(r.Time, r.Level, bounded.Text(r.Message, maxLogText), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		cut.AddAttrs(cutAttr(a, names))
		return true
	})
	return h.Handler.Handle(ctx, cut)
}

// exceedsLogLimit reports whether an attribute has to be cut.
func exceedsLogLimit(a slog.Attr) bool {
	switch a.Value.Kind() {
	case slog.KindString:
		n := len(a.Value.String())
		return n > bounded.MaxName && (n > maxLogText || nameKeys[a.Key])
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case error:
			return len(calls.ErrorText(v)) > maxLogText
		case []string:
			return bytesIn(v) > maxLogText
		}
	}
	return false
}

func bytesIn(list []string) (n int) {
	for _, text := range list {
		n += len(text)
	}
	return n
}

// cutAttr returns an attribute whose text is cut. In an error's text the names of the line,
// those that are too long, are cut too.
func cutAttr(a slog.Attr, names []string) slog.Attr {
	switch a.Value.Kind() {
	case slog.KindString:
		if exceedsLogLimit(a) {
			a.Value = slog.StringValue(cutText(a.Key, a.Value.String()))
		}
	case slog.KindAny:
		switch v := a.Value.Any().(type) {
		case error:
			text := calls.ErrorText(v)
			cut := text
			for _, name := range names {
				cut = strings.ReplaceAll(cut, name, bounded.Name(name))
			}
			if cut = bounded.Text(cut, maxLogText); len(cut) != len(text) {
				a.Value = slog.AnyValue(&cutError{cut, v})
			}
		case []string:
			if exceedsLogLimit(a) {
				a.Value = slog.StringValue(bounded.Text(strings.Join(v, " "), maxLogText))
			}
		}
	}
	return a
}

func cutText(key, text string) string {
	if nameKeys[key] {
		return bounded.Name(text)
	}
	return bounded.Text(text, maxLogText)
}

// cutError is an error with a shorter text.
type cutError struct {
	text string
	err  error
}

func (e *cutError) Error() string { return e.text }
func (e *cutError) Unwrap() error { return e.err }
