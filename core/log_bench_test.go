package core

import (
	"io"
	"log/slog"
	"testing"
)

// BenchmarkLogImmediateRetry is the one line that a flood of failures writes for every
// attempt.
func BenchmarkLogImmediateRetry(b *testing.B) {
	for name, handler := range map[string]slog.Handler{
		"off":  slog.DiscardHandler,
		"text": slog.NewTextHandler(io.Discard, nil),
	} {
		b.Run(name, func(b *testing.B) {
			l := newLoggers(slog.New(handler), "billing", "one")
			f := failureAfter(1, 0, errFailed)
			f.Handler = "example.com/shop/billing.charge"
			d := decision{action: ImmediateRetry()}
			b.ReportAllocs()
			for b.Loop() {
				l.logAction(b.Context(), &f, &d)
			}
		})
	}
}
