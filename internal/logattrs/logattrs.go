// Package logattrs is a slog.Handler that adds attributes of the context to records.
package logattrs

import (
	"context"
	"log/slog"
	"slices"
)

// Add returns a handler that adds the attributes that of returns for the context of a record,
// except those that the record or its logger already has, and passes it to next. A record
// for which of returns none is passed on unchanged. of is called by several goroutines, and
// returns a new slice at each call. In a group the attributes are part of the group.
func Add(next slog.Handler, attrs func(context.Context) []slog.Attr) slog.Handler {
	return &handler{next: next, attrs: attrs}
}

type handler struct {
	next  slog.Handler
	attrs func(context.Context) []slog.Attr
	has   []string // the keys of the logger's own attributes, in its innermost group
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	attrs := slices.DeleteFunc(h.attrs(ctx), func(a slog.Attr) bool { return slices.Contains(h.has, a.Key) })
	if len(attrs) == 0 {
		return h.next.Handle(ctx, r)
	}
	r.Attrs(func(own slog.Attr) bool {
		attrs = slices.DeleteFunc(attrs, func(a slog.Attr) bool { return a.Key == own.Key })
		return len(attrs) > 0
	})
	r = r.Clone()
	r.AddAttrs(attrs...)
	return h.next.Handle(ctx, r)
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	has := slices.Clone(h.has)
	for _, a := range attrs {
		has = append(has, a.Key)
	}
	return &handler{h.next.WithAttrs(attrs), h.attrs, has}
}

func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &handler{next: h.next.WithGroup(name), attrs: h.attrs}
}
