package otelreprise

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/reprise-go/reprise/core"
)

// HandlerSpan returns middleware for core.HandleOptions: a span "handle {type}" around one
// handler, below that of the attempt, with name as reprise.handler. It is for messages with
// several handlers: the span of the attempt has the time of all of them together.
//
// Messages that the handler sends with SendNow are below its span. Those that it collects
// leave with the attempt, and are below that. A tracer that panics does not fail the message.
func (o *Observer) HandlerSpan(name string) core.Middleware {
	return core.MiddlewareFunc(func(next core.HandlerFunc) core.HandlerFunc {
		return func(ctx context.Context, m *core.Message) (err error) {
			ctx, span := o.startHandler(ctx, m, name)
			returned := false
			defer func() { o.endHandler(span, err, returned) }() // also where the handler panics or ends its goroutine
			err = next(ctx, m)
			returned = true
			return err
		}
	})
}

func (o *Observer) startHandler(ctx context.Context, m *core.Message, name string) (inner context.Context, span trace.Span) {
	inner, span = ctx, noop.Span{} // where the tracer panics
	unharmed(func() {
		attrs := []attribute.KeyValue{keyHandler.String(name), keyMessageType.String(m.Type), semconv.MessagingMessageID(m.ID)}
		if a := o.attemptOf(ctx); a != nil {
			attrs = append(attrs, keyEndpoint.String(a.series.endpoint))
		}
		inner, span = o.tracer.Start(ctx, "handle "+o.bounds.messageType(m.Type), trace.WithSpanKind(trace.SpanKindInternal), trace.WithAttributes(attrs...))
	})
	return inner, span
}

// endHandler ends the span of a handler. The error is an event of the attempt's span.
func (o *Observer) endHandler(span trace.Span, err error, returned bool) {
	unharmed(func() {
		defer span.End()
		if !span.IsRecording() {
			return
		}
		outcome, kind := outcomeFailed, other
		if returned {
			outcome, kind = outcomeOf(&core.Handling{Err: err})
		}
		span.SetAttributes(keyOutcome.String(outcome))
		if kind == "" {
			return
		}
		span.SetAttributes(semconv.ErrorTypeKey.String(kind))
		if o.config.ErrorOn == ErrorOnAttempt {
			text := "the handler has not returned"
			if returned {
				text = statusText(err)
			}
			span.SetStatus(codes.Error, text)
		}
	})
}

// unharmed calls telemetry from middleware, whose panics core takes for those of a handler.
func unharmed(f func()) {
	defer func() { _ = recover() }()
	f()
}
