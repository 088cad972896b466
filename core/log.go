package core

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/reprise-go/reprise/core/internal/logrepeats"
)

// loggers are the named loggers of an endpoint. slog has no names, so each line
// carries one as the attribute "logger".
type loggers struct {
	endpoint, immediate, delayed, moved, discarded, putBack, recoverability, rateLimit *slog.Logger

	format  LogFormat
	repeats logrepeats.Limiter
}

func newLoggers(base *slog.Logger, format LogFormat, maxRepeats int, endpoint, instance string) *loggers {
	if base == nil {
		base = slog.Default()
	}
	named := func(name string) *slog.Logger {
		return base.With("logger", name, "endpoint", endpoint, "instance", instance)
	}
	return &loggers{
		format:         format,
		repeats:        logrepeats.Limiter{Limit: maxRepeats},
		endpoint:       named("reprise.Endpoint"),
		immediate:      named("reprise.ImmediateRetry"),
		delayed:        named("reprise.DelayedRetry"),
		moved:          named("reprise.MoveToError"),
		discarded:      named("reprise.Discard"),
		putBack:        named("reprise.PutBack"),
		recoverability: named("reprise.Recoverability"),
		rateLimit:      named("reprise.RateLimit"),
	}
}

// failureAttrs are on every line about a failed message.
func failureAttrs(f *failure) []slog.Attr {
	return []slog.Attr{
		slog.String("message_id", f.MessageID),
		slog.String("message_type", f.MessageType),
		slog.Int("attempt", f.ImmediateProcessingFailures),
		slog.Int("delayed_retries", f.DelayedDeliveriesPerformed),
		slog.Any("error", f.Err),
	}
}

// logFailure writes a line about a failed message. Its text is the sentence made of
// format and args or, with LogConstant, a constant; all details of the sentence are
// attributes too.
func (l *loggers) logFailure(ctx context.Context, to *slog.Logger, level slog.Level, f *failure, more []slog.Attr, constant, format string, args ...any) {
	if !to.Enabled(ctx, level) {
		return
	}
	text := constant
	if l.format != LogConstant {
		text = fmt.Sprintf(format, args...)
	}
	to.LogAttrs(ctx, level, text, append(failureAttrs(f), more...)...)
}

// logReasons logs the error of the policy, or the reason why its answer cannot be
// fulfilled.
func (l *loggers) logReasons(ctx context.Context, f *failure, d *decision) {
	if d.policyErr != nil {
		l.logFailure(ctx, l.recoverability, slog.LevelError, f, withStack([]slog.Attr{slog.Any("policy_error", d.policyErr)}, "policy_stack", d.policyErr),
			"recoverability policy failed; moving message to the error queue",
			"Recoverability policy failed for message '%s'. Moving message to error queue instead.", f.MessageID)
	}
	if d.whyReplaced != "" {
		l.logFailure(ctx, l.recoverability, slog.LevelWarn, f, []slog.Attr{slog.String("reason", d.whyReplaced)},
			"recoverability action cannot be carried out; moving message to the error queue",
			"Recoverability for message '%s': %s. Moving message to error queue instead.", f.MessageID, d.whyReplaced)
	}
}

// logAction writes the line about a failed attempt, by default in the words of
// NServiceBus, which its operators search for. It is written before the action, so that
// it exists even if the action fails.
func (l *loggers) logAction(ctx context.Context, f *failure, d *decision) {
	a := d.action
	if a.Kind == ActionImmediateRetry {
		// The one line that a flood of failures writes at every attempt: without Sprintf.
		if l.immediate.Enabled(ctx, slog.LevelInfo) && l.allowsRepeat(l.immediate, slog.LevelInfo, f) {
			text := "retrying message immediately"
			if l.format != LogConstant {
				text = "Immediate Retry is going to retry message '" + f.MessageID + "' because of an exception:"
			}
			attrs := failureAttrs(f)
			if a.Delay > 0 {
				attrs = append(attrs, slog.Duration("pause", a.Delay))
			}
			l.immediate.LogAttrs(ctx, slog.LevelInfo, text, withStack(attrs, "stack", f.Err)...)
		}
		return
	}
	if a.Kind == ActionDelayedRetry && !d.newCopy {
		level := slog.LevelWarn
		if d.deferral {
			level = slog.LevelInfo
		}
		if !l.delayed.Enabled(ctx, level) || !l.allowsRepeat(l.delayed, level, f) {
			return
		}
	}
	stack := withStack(nil, "stack", f.Err)
	switch {
	case d.deferral:
		l.logFailure(ctx, l.delayed, slog.LevelInfo, f, append(stack, slog.Duration("delay", a.Delay)),
			"deferring message", "Deferring message '%s' for %s.", f.MessageID, formatClock(a.Delay))
	case d.newCopy:
		l.logFailure(ctx, l.delayed, slog.LevelWarn, f, append(stack, slog.Duration("delay", a.Delay)),
			"sending a new copy of the message, whose deliveries are counted anew: the broker may have counted deliveries in which no handler began",
			"Sending a new copy of message '%s' after a delay of %s, whose deliveries are counted anew: the broker may have counted deliveries in which no handler began:", f.MessageID, formatClock(a.Delay))
	case a.Kind == ActionDelayedRetry:
		l.logFailure(ctx, l.delayed, slog.LevelWarn, f, append(stack, slog.Duration("delay", a.Delay)),
			"retrying message after a delay", "Delayed Retry will reschedule message '%s' after a delay of %s because of an exception:", f.MessageID, formatClock(a.Delay))
	case d.deadLetter:
		l.logFailure(ctx, l.moved, slog.LevelError, f, append(stack, slog.String("failure_reason", string(d.reason))),
			"moving message to the broker's dead-letter queue", "Moving message '%s' to the broker's dead-letter queue because processing failed due to an exception:", f.MessageID)
	case a.Kind == ActionMoveToError && d.reason != "":
		l.logFailure(ctx, l.moved, slog.LevelError, f, append(stack, slog.String("queue", a.Queue), slog.String("failure_reason", string(d.reason))),
			"moving message to another queue than the error queue", "Moving message '%s' to the queue '%s' (%s) because processing failed due to an exception:", f.MessageID, a.Queue, d.reason)
	case a.Kind == ActionMoveToError:
		l.logFailure(ctx, l.moved, slog.LevelError, f, append(stack, slog.String("queue", a.Queue)),
			"moving message to the error queue", "Moving message '%s' to the error queue '%s' because processing failed due to an exception:", f.MessageID, a.Queue)
	case a.Kind == ActionDiscard:
		l.logFailure(ctx, l.discarded, slog.LevelInfo, f, append(stack, slog.String("reason", a.Reason)),
			"discarding message", "Discarding message with id '%s'. Reason: %s", f.MessageID, a.Reason)
	}
}

// allowsRepeat reports whether a line about a retry is to be written (Config.LogRepeats).
func (l *loggers) allowsRepeat(to *slog.Logger, level slog.Level, f *failure) bool {
	return l.repeats.Allows(logrepeats.Line{Logger: to, Level: level, MessageType: f.MessageType, Handler: f.Handler, Err: f.Err, FailedAt: f.FailedAt})
}

// withStack adds the stack of a panic. A retry may succeed, and then no header in an
// error queue has the stack.
func withStack(attrs []slog.Attr, key string, err error) []slog.Attr {
	if p := panicIn(err); p != nil {
		attrs = append(attrs, slog.String(key, string(p.Stack)))
	}
	return attrs
}

// formatClock writes a duration as HH:MM:SS, with a fraction if there is one.
func formatClock(d time.Duration) string {
	text := fmt.Sprintf("%02d:%02d:%02d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
	if fraction := d % time.Second; fraction != 0 {
		text += fmt.Sprintf(".%03d", fraction.Milliseconds())
	}
	return text
}

// LogHandler returns a handler for log/slog that adds attributes of the message being
// handled to lines that are logged with a handler's context: message_id, message_type,
// attempt (1, 2, ... in this round), delayed_retries and conversation_id. Attributes that
// a line or its logger already has are not added, so the endpoint's lines have each of
// them once. All other lines are passed to next unchanged.
//
//	slog.SetDefault(slog.New(core.LogHandler(slog.NewJSONHandler(os.Stdout, nil))))
//
// In a group (slog.Logger.WithGroup) the attributes are part of the group.
func LogHandler(next slog.Handler) slog.Handler { return &logHandler{next: next} }

type logHandler struct {
	next slog.Handler
	has  []string // the keys of the logger's own attributes, in its innermost group
}

// Enabled implements slog.Handler.
func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (h *logHandler) Handle(ctx context.Context, r slog.Record) error {
	m, ok := MessageFromContext(ctx)
	if !ok {
		return h.next.Handle(ctx, r)
	}
	attrs := []slog.Attr{
		slog.String("message_id", m.ID),
		slog.String("message_type", m.Type),
		slog.Int("attempt", m.Attempt),
		slog.Int("delayed_retries", m.DelayedRetries),
	}
	if id := m.Headers.Get(HeaderConversationID); id != "" {
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

// WithAttrs implements slog.Handler.
func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	has := slices.Clone(h.has)
	for _, a := range attrs {
		has = append(has, a.Key)
	}
	return &logHandler{h.next.WithAttrs(attrs), has}
}

// WithGroup implements slog.Handler.
func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &logHandler{next: h.next.WithGroup(name)}
}
