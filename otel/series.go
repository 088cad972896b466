package otelreprise

import (
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/bounded"
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
	ofOthers         bool                    // of the types beyond the bounds of metrics
	start            []trace.SpanStartOption // for startOptions
	attrs            []attribute.KeyValue    // of metrics: semconv's and ours

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
	if in, ok := o.incoming.find(key); ok {
		return in
	}
	key.messageType = o.bounds.messageType(messageType)
	return o.incoming.get(key, func() *incoming { return o.newIncoming(key) })
}

// startOptions returns the options of the span of an attempt. Series of other types lack the
// type.
func (in *incoming) startOptions(messageType string) []trace.SpanStartOption {
	if !in.ofOthers {
		return in.start
	}
	return append(slices.Clip(in.start), trace.WithAttributes(typeAttr(messageType)))
}

// typeAttr returns the attribute of a span with a message's type.
func typeAttr(messageType string) attribute.KeyValue {
	return keyMessageType.String(bounded.Name(messageType))
}

func (o *Observer) newIncoming(key incomingKey) *incoming {
	queue := o.bounds.destination(key.queue)
	operation := semconv.MessagingOperationName(operationProcess)
	messageType := keyMessageType.String(key.messageType)
	common := func(queue string) []attribute.KeyValue {
		attrs := []attribute.KeyValue{systemOf(key.transport), operation, semconv.MessagingDestinationName(queue)}
		return append(serverOf(key.transport, attrs), keyEndpoint.String(key.endpoint))
	}
	in := &incoming{
		process: operationProcess + " " + queue, recover: "recover " + queue,
		endpoint: key.endpoint, ofOthers: key.messageType == other,
		attrs: append(common(queue), messageType),
	}
	spans := append(common(key.queue), semconv.MessagingOperationTypeProcess, semconv.MessagingClientID(key.instance))
	if !in.ofOthers {
		spans = append(spans, messageType)
	}
	in.start = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(spans...)}
	in.consumed = addOptions(in.attrs)
	in.processed = recordOptions(in.attrs)
	ours := []attribute.KeyValue{keyEndpoint.String(key.endpoint), messageType}
	in.critical = recordOptions(ours)
	in.attempts = recordOptions(ours, keyOutcome.String(outcomeSucceeded))
	in.repeated = recordOptions(ours, keyOutcome.String(outcomeDuplicate))
	if o.nservicebus != nil {
		in.nservicebus = newNServiceBusSeries(queue, key.messageType)
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
