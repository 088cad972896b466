package otelreprise

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/bounded"
	"github.com/reprise-go/reprise/middleware/fallback"
)

// attempt is the context of an attempt: the context of its span, by which the attempt
// itself is found again.
type attempt struct {
	context.Context
	observer *Observer
	span     trace.Span
	series   *incoming
	began    time.Time // zero unless NServiceBusMetrics

	// copyRefused: a copy with our headers was too large, or its headers were refused.
	copyRefused atomic.Bool
}

// Value finds the attempt by its observer.
func (a *attempt) Value(key any) any {
	if o, ok := key.(*Observer); ok && o == a.observer {
		return a
	}
	return a.Context.Value(key)
}

// attemptOf returns the attempt that ctx belongs to, or nil.
func (o *Observer) attemptOf(ctx context.Context) *attempt {
	a, _ := ctx.Value(o).(*attempt)
	return a
}

// handleStart starts the span of the attempt.
func (o *Observer) handleStart(ctx context.Context, e core.Handling) context.Context {
	m := e.Message
	a := &attempt{observer: o, series: o.incomingOf(&e.ObservedEndpoint, m.Type)}
	parent, options := o.relate(ctx, &m.Headers, a.series.startOptions(m.Type), attemptedCopy{e.Queue, m.NativeID()})
	a.Context, a.span = o.tracer.Start(parent, a.series.process, options...)
	if a.span.IsRecording() {
		a.span.SetAttributes(append(o.messageAttributes(m.ID, m.Headers),
			keyAttempt.Int(m.Attempt), keyDelayedRetries.Int(m.DelayedRetries), keyDeferrals.Int(m.Deferrals))...)
	}
	o.instruments.consumed.Add(a, 1, a.series.consumed...)
	if o.nservicebus != nil {
		a.began = time.Now()
		o.nservicebus.fetched(a, a.series.nservicebus)
	}
	return a
}

// relate places a span about a received message in its trace: it returns the context in
// which the span starts, and its options.
func (o *Observer) relate(ctx context.Context, h *core.Headers, options []trace.SpanStartOption, copied attemptedCopy) (context.Context, []trace.SpanStartOption) {
	if around := trace.SpanContextFromContext(ctx); around.IsValid() && !o.health.isOfRun(around) && h.Get(headerTraceParent) == "" {
		return ctx, options // the span of Invoke's caller
	}
	ctx, creation := o.extract(ctx, h)
	previous := previousOf(*h)
	if copied.nativeID != "" {
		if span, ok := o.previous.find(copied); ok {
			previous = span
		}
	}
	isNew := startsNew(*h)
	var links []trace.Link
	if isNew && creation.IsValid() {
		links = append(links, trace.Link{SpanContext: creation, Attributes: []attribute.KeyValue{linkToCreation}})
	}
	if previous.IsValid() {
		links = append(links, trace.Link{SpanContext: previous, Attributes: []attribute.KeyValue{linkToPrevious}})
	}
	if !isNew && links == nil {
		return ctx, options
	}
	options = append(slices.Clip(options), trace.WithLinks(links...))
	if isNew {
		options = append(options, trace.WithNewRoot())
	}
	return ctx, options
}

// messageAttributes returns the attributes that differ for each message, with capacity
// for more.
func (o *Observer) messageAttributes(id string, h core.Headers) []attribute.KeyValue {
	attrs := append(make([]attribute.KeyValue, 0, 8), semconv.MessagingMessageID(bounded.Name(id)))
	if conversation := h.Get(headers.ConversationID); conversation != "" {
		attrs = append(attrs, semconv.MessagingMessageConversationID(bounded.Name(conversation)))
	}
	return attrs
}

// handleEnd ends the span.
func (o *Observer) handleEnd(ctx context.Context, e core.Handling) {
	a := o.attemptOf(ctx)
	if a == nil {
		return
	}
	defer a.span.End()
	outcome, kind := outcomeOf(&e)
	errorType := ""
	if kind != "" {
		errorType = o.bounds.errorType(kind)
	}
	if o.nservicebus != nil {
		o.nservicebus.handled(a, e.Duration, errorType)
	}
	options := a.series.processed
	if kind != "" {
		options = a.series.failuresOf(errorType).processed
	}
	o.instruments.processDuration.Record(a, e.Duration.Seconds(), options...)
	if e.Err != nil {
		o.previous.remember(attemptedCopy{e.Queue, e.Message.NativeID()}, a.span.SpanContext())
	}
	if !a.span.IsRecording() {
		return
	}
	a.span.SetAttributes(keyOutcome.String(outcome))
	switch {
	case outcome == outcomeFallback:
		cause := fallback.Cause(e.Message)
		causeType := core.ErrorTypeOf(cause)
		a.span.SetAttributes(keyFallback.String(causeType))
		recordException(a.span, cause, causeType)
	case kind != "":
		a.span.SetAttributes(semconv.ErrorTypeKey.String(kind))
		recordException(a.span, e.Err, kind)
		if o.config.ErrorOn == ErrorOnAttempt {
			a.span.SetStatus(codes.Error, statusText(e.Err))
		}
	}
}

// outcomeOf returns the name of an attempt's outcome, and the type of its error, which is
// "" for a success.
func outcomeOf(e *core.Handling) (outcome, kind string) {
	switch {
	case e.Err == nil && e.Message != nil && fallback.Cause(e.Message) != nil:
		return outcomeFallback, ""
	case e.Err == nil && e.Duplicate:
		return outcomeDuplicate, ""
	case e.Err == nil:
		return outcomeSucceeded, ""
	}
	if v := core.VerdictOf(e.Err); v != nil { // those that do not count as failures
		switch v.Action.Kind {
		case core.ActionPutBack:
			return outcomePutBack, ""
		case core.ActionDefer, core.ActionRefuse:
			return outcomeDeferred, ""
		case core.ActionDiscard:
			return outcomeDiscarded, ""
		}
	}
	return outcomeFailed, core.ErrorTypeOf(e.Err)
}

// recordException adds the event that semconv defines for errors.
func recordException(span trace.Span, err error, kind string) {
	attrs := []attribute.KeyValue{semconv.ExceptionType(kind), semconv.ExceptionMessage(boundedText(err.Error(), maxErrorText))}
	if p, ok := errors.AsType[*core.PanicError](err); ok {
		attrs = append(attrs, semconv.ExceptionStacktrace(boundedText(string(p.Stack), maxStack)))
	}
	span.AddEvent(semconv.ExceptionEventName, trace.WithAttributes(attrs...))
}

// These limit recorded texts, in bytes.
const (
	maxErrorText = 4 << 10
	maxStack     = 16 << 10
	maxStatus    = 200
)

func statusText(err error) string { return boundedText(err.Error(), maxStatus) }

// boundedText returns the beginning of a text, in whole characters.
func boundedText(text string, limit int) string {
	if len(text) <= limit {
		return strings.ToValidUTF8(text, "\uFFFD")
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return strings.ToValidUTF8(text[:limit], "\uFFFD")
}

// succeeded records the metrics of successes.
func (o *Observer) succeeded(ctx context.Context, e core.Handling) {
	a := o.attemptOf(ctx)
	if a == nil {
		return
	}
	attempts := a.series.attempts
	if e.Duplicate {
		attempts = a.series.repeated
	} else if since, ok := criticalTime(e.Message.Headers); ok {
		o.instruments.criticalTime.Record(a, since.Seconds(), a.series.critical...)
		if o.nservicebus != nil {
			o.nservicebus.criticalTime.Record(a, since.Seconds(), a.series.nservicebus.succeeded...)
		}
	}
	o.instruments.attempts.Record(a, int64(e.Message.Attempt+attemptsBefore(e.Message.Headers)), attempts...)
	if o.nservicebus != nil {
		o.nservicebus.succeeded(a)
	}
}

// criticalTime returns the age of a message: the time since it was due or, without a
// delay, sent. It is 0 if the sender's clock is ahead.
func criticalTime(h core.Headers) (time.Duration, bool) {
	text := h.Get(headers.DeliverAt)
	if text == "" {
		text = h.Get(headers.TimeSent)
	}
	if text == "" {
		return 0, false
	}
	since, err := headers.ParseTime(text)
	if err != nil {
		return 0, false
	}
	return max(time.Since(since), 0), true
}

// attemptsBefore returns the number of attempts that failed in earlier rounds since the
// message was last in an error queue.
func attemptsBefore(h core.Headers) int {
	if h.Get(headers.Attempts) == "" {
		return 0
	}
	n := 0
	for _, round := range headers.ParseAttempts(h.Get(headers.Attempts)) {
		n += max(round.Attempts, 0)
		if round.Action == core.ActionMoveToError.String() {
			n = 0
		}
	}
	return n
}
