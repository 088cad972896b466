package core

import (
	"context"
	"log/slog"
	"time"

	"github.com/reprise-go/reprise/core/internal/logline"
	"github.com/reprise-go/reprise/core/internal/plan"
)

// loggers are the named loggers of an endpoint. slog has no names, so each line
// carries one as the attribute "logger".
type loggers struct {
	endpoint, immediate, delayed, deferred, moved, discarded, putBack, recoverability, rateLimit *slog.Logger
}

func newLoggers(base *slog.Logger, endpoint, instance string) *loggers {
	if base == nil {
		base = slog.Default()
	}
	limited := slog.New(boundedHandler{base.Handler()})
	named := func(name string) *slog.Logger {
		return limited.With("logger", name, "endpoint", endpoint, "instance", instance)
	}
	return &loggers{
		endpoint:       named(logline.Endpoint),
		immediate:      named(logline.ImmediateRetry),
		delayed:        named(logline.DelayedRetry),
		deferred:       named(logline.Defer),
		moved:          named(logline.MoveToError),
		discarded:      named(logline.Discard),
		putBack:        named(logline.PutBack),
		recoverability: named(logline.Recoverability),
		rateLimit:      named(logline.RateLimit),
	}
}

// logFailure writes a line about a failed message. Its text is the same for all messages,
// so that lines can be grouped by it; attributes tell of this one.
func logFailure(ctx context.Context, to *slog.Logger, level slog.Level, f *failure, text string, more ...slog.Attr) {
	if !to.Enabled(ctx, level) {
		return
	}
	attrs := append(make([]slog.Attr, 0, 10),
		slog.String("message_id", f.messageID),
		slog.String("message_type", f.messageType),
		slog.Int("attempt", f.ImmediateProcessingFailures),
		slog.Int("delayed_retries", f.DelayedDeliveriesPerformed),
		slog.Any("error", f.Err),
	)
	if f.Handler != "" {
		attrs = append(attrs, slog.String("handler", f.Handler))
	}
	// Without the place in the source, which costs a walk up the stack and is this one.
	r := slog.NewRecord(time.Now(), level, text, 0)
	r.AddAttrs(append(attrs, more...)...)
	_ = to.Handler().Handle(ctx, r)
}

// logReasons logs the error of the policy, or the reason why its answer cannot be
// fulfilled.
func (l *loggers) logReasons(ctx context.Context, f *failure, d *decision) {
	if d.reason.cause != nil {
		logFailure(ctx, l.recoverability, slog.LevelError, f, "recoverability policy failed; moving message to the error queue",
			withStack([]slog.Attr{slog.Any("policy_error", d.reason.cause)}, "policy_stack", d.reason.cause)...)
	}
	if d.reason.text != "" {
		logFailure(ctx, l.recoverability, slog.LevelWarn, f, "recoverability action cannot be carried out; moving message to the error queue",
			slog.String("reason", d.reason.text))
	}
}

// logNotUndone logs that users' code cannot work in the message's transaction.
func (l *loggers) logNotUndone(ctx context.Context, f *failure, err error) {
	logFailure(ctx, l.recoverability, slog.LevelWarn, f, "the failed handler's work could not be undone before the decision; it is undone with the decision, without HandleFailed",
		slog.Any("reset_error", err))
}

// logAction writes the line about a failed attempt. It is written before the action, so
// that it exists even if the action fails.
func (l *loggers) logAction(ctx context.Context, f *failure, d *decision) {
	to, level, text, more := l.actionLine(d)
	if to == nil || !to.Enabled(ctx, level) {
		return
	}
	logFailure(ctx, to, level, f, text, withStack(more, "stack", f.Err)...)
}

// actionLine returns the line about an action, or no logger if there is none.
func (l *loggers) actionLine(d *decision) (to *slog.Logger, level slog.Level, text string, more []slog.Attr) {
	switch a := d.action; {
	case a.Kind == ActionImmediateRetry:
		if a.Delay > 0 {
			more = []slog.Attr{slog.Duration("pause", a.Delay)}
		}
		return l.immediate, slog.LevelInfo, logline.RetryImmediately, more
	case a.Kind == ActionDefer || a.Kind == ActionRefuse:
		level = slog.LevelInfo
		if a.Kind == ActionRefuse { // middleware may refuse all messages, and logs the reason itself
			level = slog.LevelDebug
		}
		return l.deferred, level, "deferring message", []slog.Attr{slog.Duration("delay", a.Delay)}
	case d.as == asNewCopy:
		return l.recoverability, slog.LevelWarn, "sending a new copy of the message, whose deliveries are counted from 1: the broker may have counted deliveries in which no handler began",
			[]slog.Attr{slog.Duration("delay", a.Delay)}
	case a.Kind == ActionDelayedRetry:
		return l.delayed, slog.LevelWarn, logline.RetryAfterDelay, []slog.Attr{slog.Duration("delay", a.Delay)}
	case a.Kind == ActionMoveToError:
		queue, reason := slog.String("queue", a.Queue), slog.String("failure_reason", string(d.reason.kind))
		switch d.target {
		case plan.BrokerQueue:
			return l.moved, slog.LevelError, "moving message to the broker's dead-letter queue", []slog.Attr{reason}
		case plan.NamedQueue:
			return l.moved, slog.LevelError, "moving message to another queue than the error queue", []slog.Attr{queue, reason}
		}
		return l.moved, slog.LevelError, logline.MoveToErrorQueue, []slog.Attr{queue, reason}
	case a.Kind == ActionDiscard:
		return l.discarded, slog.LevelInfo, "discarding message", nil
	}
	return nil, 0, "", nil
}

// logLeftOut logs the keys of the headers that the bare form of a failed message lacks.
func (l *loggers) logLeftOut(ctx context.Context, f *failure, text string, keys []string) {
	logFailure(ctx, l.moved, slog.LevelError, f, text, slog.Any("headers_left_out", keys))
}

// withStack adds the stack of a panic or an error. A retry may succeed, and then no header
// in an error queue has the stack.
func withStack(attrs []slog.Attr, key string, err error) []slog.Attr {
	if stack := stackIn(err); stack != "" {
		attrs = append(attrs, slog.String(key, stack))
	}
	return attrs
}

// observerPanicked logs the panic of an observer or a hook.
func (l *loggers) observerPanicked(value any) {
	l.endpoint.Error("an observer or hook panicked", "panic", value)
}
