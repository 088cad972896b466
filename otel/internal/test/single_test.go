package otelreprise_test

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// single is a propagator with one header, as B3 has.
type single struct{}

func (single) Fields() []string { return []string{"b3"} }

func (single) Inject(ctx context.Context, to propagation.TextMapCarrier) {
	to.Set("b3", ids(trace.SpanContextFromContext(ctx)))
}

func (single) Extract(ctx context.Context, from propagation.TextMapCarrier) context.Context {
	traceID, spanID, _ := strings.Cut(from.Get("b3"), "-")
	t, err := trace.TraceIDFromHex(traceID)
	if err != nil {
		return ctx
	}
	s, err := trace.SpanIDFromHex(spanID)
	if err != nil {
		return ctx
	}
	return trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{TraceID: t, SpanID: s, TraceFlags: trace.FlagsSampled, Remote: true}))
}
