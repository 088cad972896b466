package logformat_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"testing"

	"github.com/reprise-go/reprise/core/logformat"
)

// BenchmarkFoldRepeats is a line that is counted, and one of another kind.
func BenchmarkFoldRepeats(b *testing.B) {
	for name, logger := range map[string]string{"folded": "reprise.ImmediateRetry", "written": "reprise.MoveToError"} {
		b.Run(name, func(b *testing.B) {
			folder := logformat.FoldRepeats(slog.NewTextHandler(io.Discard, nil), 1)
			defer folder.Flush()
			log := slog.New(folder).With("logger", logger, "endpoint", "billing", "instance", "one")
			err := errors.New("charge order 17: dial tcp 10.0.0.1:443: connection refused")
			b.ReportAllocs()
			for b.Loop() {
				log.LogAttrs(context.Background(), slog.LevelInfo, "retrying message immediately", slog.String("message_id", "m1"), slog.String("message_type", "order"),
					slog.Int("attempt", 1), slog.Int("delayed_retries", 0), slog.Any("error", err), slog.String("handler", "ship"))
			}
		})
	}
}
