package otelreprise

import (
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

	// Propagator writes trace contexts to messages and reads them. Set it beside services
	// that use another format, such as B3. The default is W3C trace context and baggage,
	// which NServiceBus understands.
	Propagator propagation.TextMapPropagator

	// ContinueEvents makes the handling of events a part of the publisher's trace, for
	// teams that want to see a whole process as one trace. By default it begins a trace
	// that links to the publisher's, as in NServiceBus.
	ContinueEvents bool

	// ContinueDelayed does the same for messages that are sent with a delay, delayed
	// retries and deferrals. A trace then lasts as long as the delays: some backends do not
	// show traces of hours.
	ContinueDelayed bool

	// ErrorOn selects the failures that mark their span as an error. Set it for people who
	// look at each failed attempt.
	ErrorOn ErrorOn

	// NServiceBusMetrics adds the metrics of NServiceBus 9.1 to 10.2, under its meter and
	// with its tags, so that dashboards for NServiceBus show these endpoints too.
	// NServiceBus's headers are always understood.
	NServiceBusMetrics bool
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
func NewTrace() map[string]string { return map[string]string{headerStartNewTrace: startNew} }

// ContinueTrace returns headers for core.SendOptions.Headers: the receiver of this
// message continues the sender's trace, regardless of Config.
func ContinueTrace() map[string]string {
	return map[string]string{headerStartNewTrace: continueCurrent}
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
	o.tracer = c.TracerProvider.Tracer(Scope, trace.WithSchemaURL(semconv.SchemaURL))
	meter := c.MeterProvider.Meter(Scope, metric.WithSchemaURL(semconv.SchemaURL))
	o.instruments = newInstruments(meter)
	o.health.register(meter)
	if c.NServiceBusMetrics {
		o.nservicebus = newNServiceBusMetrics(c.MeterProvider)
	}
	return o
}
