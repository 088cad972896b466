package otelreprise

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/core"
)

// carrier lets propagators read and write the headers of a message. In an event of
// CloudEvents (middleware/cloudevents) the trace is an attribute too.
type carrier core.Headers

// eventPrefixes are those of headers with attributes of CloudEvents; the first is written.
var eventPrefixes = []string{"cloudEvents:", "cloudEvents_", "ce-"}

// Get returns the header, or else the attribute.
func (c *carrier) Get(key string) string {
	h := (*core.Headers)(c)
	value := h.Get(key)
	if value != "" || key != headerTraceParent && key != headerTraceState {
		return value
	}
	for _, prefix := range eventPrefixes {
		if value = h.Get(prefix + key); value != "" {
			break
		}
	}
	return value
}

func (c *carrier) Set(key, value string) {
	h := (*core.Headers)(c)
	h.Set(key, value)
	if key != headerTraceParent && key != headerTraceState {
		return
	}
	if _, isEvent := h.Lookup(eventPrefixes[0] + "specversion"); isEvent {
		h.Set(eventPrefixes[0]+key, value)
	}
}

func (c *carrier) Keys() []string {
	var keys []string
	for key := range (*core.Headers)(c).All() {
		keys = append(keys, key)
	}
	return keys
}

// extract returns ctx with the creation context and the baggage of a message, and the
// creation context, which is invalid if the message has none or it cannot be parsed. A
// span in ctx is removed.
func (o *Observer) extract(ctx context.Context, h *core.Headers) (context.Context, trace.SpanContext) {
	if trace.SpanContextFromContext(ctx).IsValid() { // for example the span of Run's caller
		ctx = trace.ContextWithSpanContext(ctx, trace.SpanContext{})
	}
	if o.standard && (*carrier)(h).Get(headerTraceParent) == "" && h.Get(headerBaggage) == "" { // avoids allocations
		return ctx, trace.SpanContext{}
	}
	ctx = o.propagator.Extract(ctx, (*carrier)(h))
	return ctx, trace.SpanContextFromContext(ctx)
}

// creationOf returns the creation context in a message.
func (o *Observer) creationOf(h *core.Headers) trace.SpanContext {
	if o.standard && (*carrier)(h).Get(headerTraceParent) == "" {
		return trace.SpanContext{}
	}
	return trace.SpanContextFromContext(o.propagator.Extract(context.Background(), (*carrier)(h)))
}

// inject writes the trace context and the baggage of ctx to a message that has none.
func (o *Observer) inject(ctx context.Context, h *core.Headers) {
	o.propagator.Inject(ctx, (*carrier)(h))
}

// hasContext reports whether the sender of a message has set a trace context or baggage.
func (o *Observer) hasContext(h *core.Headers) bool {
	for _, field := range o.fields {
		if _, ok := h.Lookup(field); ok {
			return true
		}
	}
	return false
}

// previousOf reads headerPrevious. A value that is not a span context counts as none.
func previousOf(h core.Headers) trace.SpanContext {
	text := h.Get(headerPrevious)
	if text == "" {
		return trace.SpanContext{}
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{headerTraceParent: text})
	return trace.SpanContextFromContext(ctx)
}

// setPrevious writes headerPrevious.
func setPrevious(h *core.Headers, span trace.SpanContext) {
	written := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(trace.ContextWithSpanContext(context.Background(), span), written)
	if text := written[headerTraceParent]; text != "" {
		h.Set(headerPrevious, text)
	}
}

// startsNew reports whether a message asks for a new trace. NServiceBus writes "True".
func startsNew(h core.Headers) bool { return strings.EqualFold(h.Get(headerStartNewTrace), startNew) }
