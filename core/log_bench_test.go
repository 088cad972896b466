package core

import (
	"fmt"
	"io"
	"log/slog"
	"testing"
)

// BenchmarkLogImmediateRetry is the one line that a flood of failures writes for every
// attempt.
func BenchmarkLogImmediateRetry(b *testing.B) {
	handlers := map[string]slog.Handler{
		"off":  slog.DiscardHandler,
		"text": slog.NewTextHandler(io.Discard, nil),
	}
	for name, handler := range handlers {
		for _, format := range []LogFormat{LogNServiceBus, LogConstant} {
			b.Run(fmt.Sprint(name, "/", format), func(b *testing.B) {
				l := newLoggers(slog.New(handler), format, 0, "billing", "one")
				f := failureAfter(1, 0, errFailed)
				d := decision{action: ImmediateRetry()}
				b.ReportAllocs()
				for b.Loop() {
					l.logAction(b.Context(), &f, &d)
				}
			})
		}
	}
}
