package otelreprise

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/bounded"
)

// recovered creates a span for the handling of a failure, from the failure until its
// action was done, and counts it.
func (o *Observer) recovered(ctx context.Context, e core.Recovery) {
	action := actionOf(&e)
	kind := ""
	if action != actionDeferral && action != actionDiscard { // which are no failures
		kind = core.ErrorTypeOf(e.Failure.Err)
	}
	failed := []attribute.KeyValue{keyAction.String(action)} // and the type of the error, if there is one
	limited := failed
	if kind != "" {
		failed = append(failed[:1:1], semconv.ErrorTypeKey.String(kind))
		limited = append(limited[:1:1], semconv.ErrorTypeKey.String(o.bounds.errorType(kind)))
	}
	series := o.incomingOf(&e.ObservedEndpoint, e.Failure.Message.Type)
	options := []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindInternal), trace.WithTimestamp(e.Failure.FailedAt),
		trace.WithAttributes(append(failed, keyEndpoint.String(e.Endpoint), typeAttr(e.Failure.Message.Type))...),
	}
	a := o.attemptOf(ctx)
	if a == nil { // no attempt has begun: the message was malformed, or delivered too often
		ctx, options = o.relate(ctx, &e.Failure.Message.Headers, options, attemptedCopy{})
		o.instruments.consumed.Add(ctx, 1, series.failuresOf(o.bounds.errorType(kind)).consumed...)
	}
	ctx, span := o.tracer.Start(ctx, series.recover, options...)
	defer span.End()
	o.measureRecovery(ctx, &e, a, series, limited)
	if !span.IsRecording() {
		return
	}
	attrs := append(o.messageAttributes(e.Failure.Message.ID, e.Failure.Message.Headers), keyAttempt.Int(e.Failure.ImmediateProcessingFailures))
	switch e.Action.Kind {
	case core.ActionDelayedRetry, core.ActionDefer, core.ActionRefuse:
		attrs = append(attrs, keyDelay.Float64(e.Action.Delay.Seconds()))
	}
	if e.Action.Queue != "" && action == actionError {
		attrs = append(attrs, keyErrorQueue.String(bounded.Name(e.Action.Queue)))
	}
	if e.Reason != "" {
		attrs = append(attrs, keyFailureReason.String(string(e.Reason)))
	}
	if e.Failure.Handler != "" {
		attrs = append(attrs, keyHandler.String(e.Failure.Handler))
	}
	span.SetAttributes(attrs...)
	if a == nil {
		recordException(span, e.Failure.Err, kind)
	}
	if action == actionError || action == actionDeadLetter {
		span.SetStatus(codes.Error, statusText(e.Failure.Err))
	}
}

func (o *Observer) measureRecovery(ctx context.Context, e *core.Recovery, a *attempt, series *incoming, failed []attribute.KeyValue) {
	action := failed[0].Value.AsString()
	ours := []attribute.KeyValue{keyEndpoint.String(e.Endpoint), keyMessageType.String(o.bounds.messageType(e.Failure.Message.Type))}
	o.instruments.actions.Add(ctx, 1, addOptions(ours, failed...)...)
	switch action {
	case actionError, actionDeadLetter, actionDiscard, actionTakenOver:
		o.instruments.attempts.Record(ctx, int64(e.Failure.ImmediateProcessingFailures+attemptsBefore(e.Failure.Message.Headers)), recordOptions(ours, keyOutcome.String(outcomeGivenUp))...)
	}
	if action == actionError || action == actionDeadLetter {
		first := e.Failure.FirstFailure
		if first.IsZero() {
			first = e.Failure.FailedAt
		}
		o.instruments.failedAge.Record(ctx, max(time.Since(first), 0).Seconds(), recordOptions(ours)...)
	}
	if o.nservicebus != nil {
		failed = failed[1:]
		if v := core.VerdictOf(e.Failure.Err); action == actionPutBack || action == actionDeferral && v != nil && v.Action.Kind == core.ActionRefuse {
			failed = nil // the message waits, and has not failed
		}
		o.nservicebus.recovered(ctx, series.nservicebus, a, e.Failure.Handler, action, failed)
	}
}
