package otelreprise

import (
	"maps"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/core"
)

// Config says what is traced and measured, and with what. The zero value takes the global
// providers, and the defaults below.
type Config struct {
	// TracerProvider makes the spans. The default is otel.GetTracerProvider(), also where
	// that is set later.
	TracerProvider trace.TracerProvider

	// MeterProvider makes the metrics. The default is otel.GetMeterProvider(), also where that
	// is set later.
	MeterProvider metric.MeterProvider

	// Propagator writes trace contexts to messages and reads them. The default is W3C trace
	// context and baggage, which NServiceBus understands.
	Propagator propagation.TextMapPropagator

	// SendTrace is for commands and replies, PublishTrace for events, DelayedTrace for sends with
	// a delay, delayed retries and deferrals, and ErrorTrace for messages in an error queue, for
	// the day on which they are sent back. The defaults are those of NServiceBus: commands and
	// replies continue the sender's trace, and all others begin a trace that links to it.
	SendTrace, PublishTrace, DelayedTrace, ErrorTrace TraceMode

	// NoCreateSpans: several messages that leave together have the span of their send as
	// creation context, instead of a span each.
	NoCreateSpans bool

	// ErrorOn says which failures are errors of their span.
	ErrorOn ErrorOn

	// NServiceBusMetrics also makes the metrics of NServiceBus 9.1 to 10.2, under its meter and
	// with its tags, so that dashboards that were made for NServiceBus show these endpoints too.
	// NServiceBus's headers are always understood.
	NServiceBusMetrics bool
}

// TraceMode says whether the processing of a message belongs to the trace of its sender.
type TraceMode int

const (
	// TraceDefault is the default of the field.
	TraceDefault TraceMode = iota
	// TraceContinue: the attempt is a child of the span that sent the message.
	TraceContinue
	// TraceNew: each attempt begins a trace, which links to the span that sent the message.
	TraceNew
)

// or returns the mode, or another one for TraceDefault.
func (m TraceMode) or(standard TraceMode) TraceMode {
	if m == TraceDefault {
		return standard
	}
	return m
}

// ErrorOn says which failures are errors of their span.
type ErrorOn int

const (
	// ErrorOnFinal: an attempt that fails has an event, and a status only on the span of what
	// became of it ("recover"), where the message was given up. A failure that a retry fixes
	// makes no trace an error, so that a sampler can keep the others.
	ErrorOnFinal ErrorOn = iota
	// ErrorOnAttempt: the span of every attempt that failed is an error, too.
	ErrorOnAttempt
)

// NewTrace returns headers for core.SendOptions.Headers: whoever processes this message begins a
// trace that links to the sender's, whatever Config says.
func NewTrace() map[string]string { return map[string]string{HeaderStartNewTrace: startNew} }

// ContinueTrace returns headers for core.SendOptions.Headers: whoever processes this message
// continues the sender's trace, whatever Config says.
func ContinueTrace() map[string]string {
	return map[string]string{HeaderStartNewTrace: continueCurrent}
}

// WithHeaders returns headers that have those of several maps, the later ones in place of the
// earlier ones: WithHeaders(NewTrace(), mine).
func WithHeaders(all ...map[string]string) map[string]string {
	merged := map[string]string{}
	for _, each := range all {
		maps.Copy(merged, each)
	}
	return merged
}

// Observer traces and measures the endpoints whose core.Config.Observers list its core.Observer.
// It may be listed by several. It is safe for concurrent use.
type Observer struct {
	core.Observer // for core.Config.Observers; it is not to be changed

	config     Config
	tracer     trace.Tracer
	propagator propagation.TextMapPropagator
	standard   bool // the propagator is the default one
	fields     []string

	instruments *instruments
	nservicebus *nservicebusMetrics // nil: off
	incoming    cache[incomingKey, *incoming]
	outgoing    cache[outgoingKey, *outgoing]
	bounds      bounds
	previous    previousAttempts
	health      health
}

// New returns an observer. What the metrics API refuses is told to otel.Handle, and not measured.
func New(c Config) *Observer {
	if c.TracerProvider == nil {
		c.TracerProvider = otel.GetTracerProvider()
	}
	if c.MeterProvider == nil {
		c.MeterProvider = otel.GetMeterProvider()
	}
	o := &Observer{config: c, propagator: c.Propagator, standard: c.Propagator == nil}
	o.Observer = core.Observer{
		HandleStart: o.handleStart, HandleEnd: o.handleEnd, Succeeded: o.succeeded,
		SendStart: o.sendStart, SendEnd: o.sendEnd, Recovered: o.recovered,
		RunStarted: o.runStarted, RunEnded: o.runEnded, ConnectionChanged: o.connectionChanged,
	}
	if o.standard {
		o.propagator = propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	}
	o.fields = o.propagator.Fields()
	o.config.SendTrace = c.SendTrace.or(TraceContinue)
	o.config.PublishTrace = c.PublishTrace.or(TraceNew)
	o.config.DelayedTrace = c.DelayedTrace.or(TraceNew)
	o.config.ErrorTrace = c.ErrorTrace.or(TraceNew)
	o.tracer = c.TracerProvider.Tracer(Scope, trace.WithSchemaURL(semconv.SchemaURL))
	meter := c.MeterProvider.Meter(Scope, metric.WithSchemaURL(semconv.SchemaURL))
	o.instruments = newInstruments(meter)
	o.health.register(meter)
	if c.NServiceBusMetrics {
		o.nservicebus = newNServiceBusMetrics(c.MeterProvider)
	}
	return o
}
