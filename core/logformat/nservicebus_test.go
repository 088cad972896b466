package logformat_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/logformat"
)

// messagesOnly writes nothing but the level and the message of each line about a message.
func messagesOnly(log *buffer) slog.Handler {
	return slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.LevelKey || a.Key == slog.MessageKey {
			return a
		}
		return slog.Attr{}
	}})
}

// Each text is NServiceBus's to the letter, whichever of the two handlers is the outer one.
func TestWriteNServiceBusTexts_OfAnEndpoint(t *testing.T) {
	for name, wrap := range map[string]func(slog.Handler) slog.Handler{
		"alone":      logformat.WriteNServiceBusTexts,
		"around":     func(h slog.Handler) slog.Handler { return logformat.WriteNServiceBusTexts(logformat.FoldRepeats(h, 3)) },
		"within":     func(h slog.Handler) slog.Handler { return logformat.FoldRepeats(logformat.WriteNServiceBusTexts(h), 3) },
		"in a group": func(h slog.Handler) slog.Handler { return logformat.WriteNServiceBusTexts(h).WithGroup("g") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log buffer
				c := core.Config{
					Logger:         slog.New(wrap(messagesOnly(&log))),
					Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: 1, TimeIncrease: 10 * time.Second}},
				}
				runOrders(t, c, 1, func(context.Context, *core.Message) error { return errors.New("boom") })
				got := slices.DeleteFunc(log.take(), func(line string) bool { return strings.Contains(line, "endpoint") })
				want := []string{
					`level=INFO msg="Immediate Retry is going to retry message 'm0' because of an exception:"`,
					`level=WARN msg="Delayed Retry will reschedule message 'm0' after a delay of 00:00:10 because of an exception:"`,
					`level=INFO msg="Immediate Retry is going to retry message 'm0' because of an exception:"`,
					`level=ERROR msg="Moving message 'm0' to the error queue 'error' because processing failed due to an exception:"`,
				}
				if !slices.Equal(got, want) {
					t.Errorf("wrote\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			})
		})
	}
}

func TestWriteNServiceBusTexts_FoldsWithFoldRepeats(t *testing.T) {
	for name, wrap := range map[string]func(folded *slog.Handler, h slog.Handler) *logformat.Folder{
		"around": func(outer *slog.Handler, h slog.Handler) *logformat.Folder {
			folder := logformat.FoldRepeats(h, 2)
			*outer = logformat.WriteNServiceBusTexts(folder)
			return folder
		},
		"within": func(outer *slog.Handler, h slog.Handler) *logformat.Folder {
			folder := logformat.FoldRepeats(logformat.WriteNServiceBusTexts(h), 2)
			*outer = folder
			return folder
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log buffer
				var outer slog.Handler
				folder := wrap(&outer, messagesOnly(&log))
				c := core.Config{Logger: slog.New(outer), Recoverability: core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 1}, Delayed: core.Delayed{NumberOfRetries: core.Off}}}
				runOrders(t, c, 5, func(_ context.Context, m *core.Message) error {
					if m.Attempt == 1 {
						return errors.New("boom")
					}
					return nil
				})
				folder.Flush()
				lines := log.take()
				if retries, others := count(lines, "Immediate Retry is going to retry message 'm"), count(lines, leftOut); retries != 2 || others != 1 {
					t.Errorf("%d lines about retries and %d that count others, want 2 and 1:\n%s", retries, others, strings.Join(lines, "\n"))
				}
			})
		})
	}
}

// Lines that are not an endpoint's, or about something else, are not changed.
func TestWriteNServiceBusTexts_OtherLines(t *testing.T) {
	for name, write := range map[string]func(l *slog.Logger){
		"another message":    func(l *slog.Logger) { l.Info("deferring message", "message_id", "m1") },
		"no message's id":    func(l *slog.Logger) { l.Info("retrying message immediately") },
		"a text like theirs": func(l *slog.Logger) { l.Info("retrying message immediately, said a user", "message_id", "m1") },
	} {
		var plain, log buffer
		write(slog.New(messagesOnly(&plain)))
		write(slog.New(logformat.WriteNServiceBusTexts(messagesOnly(&log))))
		if got, want := log.take(), plain.take(); len(want) != 1 || !slices.Equal(got, want) {
			t.Errorf("%s: wrote %q, want %q", name, got, want)
		}
	}
	if logformat.WriteNServiceBusTexts(slog.DiscardHandler).Enabled(t.Context(), slog.LevelError) {
		t.Error("a level is enabled that the next handler does not have")
	}
}

func TestWriteNServiceBusTexts_Delays(t *testing.T) {
	for delay, want := range map[time.Duration]string{
		3*time.Hour + 25*time.Minute + 45*time.Second: "03:25:45",
		100 * time.Hour:         "100:00:00",
		1500 * time.Millisecond: "00:00:01.500",
	} {
		var log buffer
		slog.New(logformat.WriteNServiceBusTexts(messagesOnly(&log))).Warn("retrying message after a delay", "message_id", "m1", "delay", delay)
		if lines := log.take(); count(lines, " a delay of "+want+" because") != 1 {
			t.Errorf("wrote %q, want the delay %s", lines, want)
		}
	}
}
