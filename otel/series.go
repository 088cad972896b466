package otelreprise

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/core"
)

// incomingKey identifies a series of received messages.
type incomingKey struct {
	transport                              *core.TransportInfo
	endpoint, instance, queue, messageType string
}

// incoming has the names, attributes and options that all messages of a series share.
type incoming struct {
	process, recover string // names of spans
	endpoint         string
	start            []trace.SpanStartOption
	attrs            []attribute.KeyValue // of metrics: semconv's and ours

	consumed  []metric.AddOption
	processed []metric.RecordOption // without an error
	critical  []metric.RecordOption
	attempts  []metric.RecordOption // of messages that succeeded
	repeated  []metric.RecordOption // of duplicates
	failures  cache[string, *failures]

	nservicebus *nservicebusSeries
}

// failures has the options that all failures of a series with the same type of error
// share.
type failures struct {
	processed []metric.RecordOption
	consumed  []metric.AddOption
}

func (o *Observer) incomingOf(at *core.ObservedEndpoint, messageType string) *incoming {
	key := incomingKey{at.Transport, at.Endpoint, at.Instance, at.Queue, messageType}
	return o.incoming.get(key, func() *incoming { return o.newIncoming(key) })
}

func (o *Observer) newIncoming(key incomingKey) *incoming {
	messageType := o.bounds.messageType(key.messageType)
	queue := o.bounds.destination(key.queue)
	operation := semconv.MessagingOperationName(operationProcess)
	common := func(queue, messageType string) []attribute.KeyValue {
		attrs := []attribute.KeyValue{systemOf(key.transport), operation, semconv.MessagingDestinationName(queue)}
		attrs = serverOf(key.transport, attrs)
		return append(attrs, keyEndpoint.String(key.endpoint), keyMessageType.String(messageType))
	}
	in := &incoming{
		process: operationProcess + " " + queue, recover: "recover " + queue,
		endpoint: key.endpoint,
		attrs:    common(queue, messageType),
	}
	in.start = []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(append(common(key.queue, key.messageType), semconv.MessagingOperationTypeProcess, semconv.MessagingClientID(key.instance))...),
	}
	in.consumed = addOptions(in.attrs)
	in.processed = recordOptions(in.attrs)
	ours := []attribute.KeyValue{keyEndpoint.String(key.endpoint), keyMessageType.String(messageType)}
	in.critical = recordOptions(ours)
	in.attempts = recordOptions(ours, keyOutcome.String(outcomeSucceeded))
	in.repeated = recordOptions(ours, keyOutcome.String(outcomeDuplicate))
	if o.nservicebus != nil {
		in.nservicebus = newNServiceBusSeries(queue, messageType)
	}
	return in
}

// failuresOf returns the options for failures with an error of this type, which is
// bounded.
func (in *incoming) failuresOf(errorType string) *failures {
	return in.failures.get(errorType, func() *failures {
		kind := semconv.ErrorTypeKey.String(errorType)
		return &failures{processed: recordOptions(in.attrs, kind), consumed: addOptions(in.attrs, kind)}
	})
}
