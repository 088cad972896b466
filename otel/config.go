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

// Config selects the traces and metrics, and their providers. The zero value uses the
// global providers, and the defaults below.
type Config struct {
	// TracerProvider creates the spans. The default is otel.GetTracerProvider(), even if
	// that is set later.
	TracerProvider trace.TracerProvider

	// MeterProvider creates the metrics. The default is otel.GetMeterProvider(), even if
	// that is set later.
	MeterProvider metric.MeterProvider

	// Propagator writes trace contexts to messages and reads them. The default is W3C trace
	// context and baggage, which NServiceBus understands.
	Propagator propagation.TextMapPropagator

	// SendTrace is for commands and replies, PublishTrace for events, and DelayedTrace
	// for sends with a delay, delayed retries and deferrals. ErrorTrace is for messages
	// in an error queue, and applies when they are sent back. The defaults are those of
	// NServiceBus: commands and replies continue the sender's trace, and all others begin
	// a trace that links to it.
	SendTrace, PublishTrace, DelayedTrace, ErrorTrace TraceMode

	// NoCreateSpans omits the create span of each message when several messages are sent
	// together: their creation context is then the span of the send.
	NoCreateSpans bool

	// ErrorOn selects the failures that mark their span as an error.
	ErrorOn ErrorOn

	// NServiceBusMetrics adds the metrics of NServiceBus 9.1 to 10.2, under its meter and
	// with its tags, so that dashboards for NServiceBus show these endpoints too.
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

// or returns the mode, or standard for TraceDefault.
func (m TraceMode) or(standard TraceMode) TraceMode {
	if m == TraceDefault {
		return standard
	}
	return m
}

// ErrorOn selects the failures that mark their span as an error.
type ErrorOn int

const (
	// ErrorOnFinal: a failed attempt has an event. Only a message that is given up has a
	// span with error status, that of its recovery ("recover"). A failure that a retry
	// fixes does not make its trace an error, so that a sampler can keep only the traces
	// with errors.
	ErrorOnFinal ErrorOn = iota
	// ErrorOnAttempt: the span of every failed attempt has error status, too.
	ErrorOnAttempt
)

// NewTrace returns headers for core.SendOptions.Headers: the receiver of this message
// begins a trace that links to the sender's, regardless of Config.
func NewTrace() map[string]string { return map[string]string{HeaderStartNewTrace: startNew} }

// ContinueTrace returns headers for core.SendOptions.Headers: the receiver of this
// message continues the sender's trace, regardless of Config.
func ContinueTrace() map[string]string {
	return map[string]string{HeaderStartNewTrace: continueCurrent}
}

// WithHeaders merges several maps of headers; later values replace earlier ones:
// WithHeaders(NewTrace(), mine).
func WithHeaders(all ...map[string]string) map[string]string {
	merged := map[string]string{}
	for _, each := range all {
		maps.Copy(merged, each)
	}
	return merged
}

// Observer traces and measures the endpoints whose core.Config.Observers list its
// core.Observer. Several endpoints may list it. It is safe for concurrent use.
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

// New returns an observer. If the metrics API refuses an instrument, the error goes to
// otel.Handle, and the instrument measures nothing.
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
