package core

import (
	"context"
	"fmt"
	"log/slog"
	"time"
)

// loggers are the named loggers of an endpoint. slog has no names, so each line
// carries one as the attribute "logger".
type loggers struct {
	endpoint, immediate, delayed, moved, discarded, recoverability, rateLimit *slog.Logger
}

func newLoggers(base *slog.Logger, endpoint, instance string) *loggers {
	if base == nil {
		base = slog.Default()
	}
	named := func(name string) *slog.Logger {
		return base.With("logger", name, "endpoint", endpoint, "instance", instance)
	}
	return &loggers{
		endpoint:       named("reprise.Endpoint"),
		immediate:      named("reprise.ImmediateRetry"),
		delayed:        named("reprise.DelayedRetry"),
		moved:          named("reprise.MoveToError"),
		discarded:      named("reprise.Discard"),
		recoverability: named("reprise.Recoverability"),
		rateLimit:      named("reprise.RateLimit"),
	}
}

// failureAttrs are on every line about a message.
func failureAttrs(f *failure) []slog.Attr {
	return []slog.Attr{
		slog.String("message_id", f.MessageID),
		slog.String("message_type", f.MessageType),
		slog.Int("attempt", f.ImmediateProcessingFailures),
		slog.Int("delayed_retries", f.DelayedDeliveriesPerformed),
		slog.Any("error", f.Err),
	}
}

// logReasons says what was wrong with the policy, or why its answer cannot be
// fulfilled.
func (l *loggers) logReasons(ctx context.Context, f *failure, d *decision) {
	if d.policyErr != nil {
		l.recoverability.LogAttrs(ctx, slog.LevelError,
			fmt.Sprintf("Recoverability policy failed for message '%s'. Moving message to error queue instead.", f.MessageID),
			append(failureAttrs(f), slog.Any("policy_error", d.policyErr))...)
	}
	if d.fallback != "" {
		l.recoverability.LogAttrs(ctx, slog.LevelWarn,
			fmt.Sprintf("Recoverability for message '%s': %s. Moving message to error queue instead.", f.MessageID, d.fallback),
			failureAttrs(f)...)
	}
}

// logAction writes the line of seed 001, "Retry logging". It comes before the
// action, so that it is there whatever happens next.
func (l *loggers) logAction(ctx context.Context, f *failure, d *decision) {
	switch a := d.action; {
	case a.Kind == ActionImmediateRetry:
		// The one line that a flood of failures writes at every attempt: without Sprintf.
		if l.immediate.Enabled(ctx, slog.LevelInfo) {
			l.immediate.LogAttrs(ctx, slog.LevelInfo, "Immediate Retry is going to retry message '"+f.MessageID+"' because of an exception:", failureAttrs(f)...)
		}
	case d.deferral:
		l.log(ctx, l.delayed, slog.LevelInfo, f, "Deferring message '%s' for %s.", f.MessageID, clock(a.Delay))
	case a.Kind == ActionDelayedRetry:
		l.log(ctx, l.delayed, slog.LevelWarn, f, "Delayed Retry will reschedule message '%s' after a delay of %s because of an exception:", f.MessageID, clock(a.Delay))
	case d.deadLetter:
		l.log(ctx, l.moved, slog.LevelError, f, "Moving message '%s' to the broker's dead-letter queue because processing failed due to an exception:", f.MessageID)
	case a.Kind == ActionMoveToError:
		l.log(ctx, l.moved, slog.LevelError, f, "Moving message '%s' to the error queue '%s' because processing failed due to an exception:", f.MessageID, a.Queue)
	case a.Kind == ActionDiscard:
		l.log(ctx, l.discarded, slog.LevelInfo, f, "Discarding message with id '%s'. Reason: %s", f.MessageID, a.Reason)
	}
}

func (l *loggers) log(ctx context.Context, to *slog.Logger, level slog.Level, f *failure, format string, args ...any) {
	if to.Enabled(ctx, level) {
		to.LogAttrs(ctx, level, fmt.Sprintf(format, args...), failureAttrs(f)...)
	}
}

// clock writes a duration as HH:MM:SS, with a fraction where there is one.
func clock(d time.Duration) string {
	text := fmt.Sprintf("%02d:%02d:%02d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
	if fraction := d % time.Second; fraction != 0 {
		text += fmt.Sprintf(".%03d", fraction.Milliseconds())
	}
	return text
}
