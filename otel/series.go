package otelreprise

import (
	"strings"

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
	ofInstance                             bool // the queue is the instance's own
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
	key := incomingKey{at.Transport, at.Endpoint, at.Instance, at.Queue, messageType, at.InstanceQueue}
	return o.incoming.get(key, func() *incoming { return o.newIncoming(key) })
}

func (o *Observer) newIncoming(key incomingKey) *incoming {
	messageType := o.bounds.messageType(key.messageType)
	queue := o.bounds.destination(key.queue)
	destination := []attribute.KeyValue{semconv.MessagingDestinationName(key.queue)}
	measured := []attribute.KeyValue{semconv.MessagingDestinationName(queue)}
	if key.ofInstance { // otherwise there would be a value for each process
		queue = templateOf(key.queue, key.instance)
		measured = []attribute.KeyValue{semconv.MessagingDestinationTemplate(queue)}
		destination = append(destination, measured...)
	}
	operation := semconv.MessagingOperationName(operationProcess)
	common := func(destination []attribute.KeyValue, messageType string) []attribute.KeyValue {
		attrs := append([]attribute.KeyValue{systemOf(key.transport), operation}, destination...)
		attrs = serverOf(key.transport, attrs)
		return append(attrs, keyEndpoint.String(key.endpoint), keyMessageType.String(messageType))
	}
	in := &incoming{
		process: operationProcess + " " + queue, recover: "recover " + queue,
		endpoint: key.endpoint,
		attrs:    common(measured, messageType),
	}
	in.start = []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(append(common(destination, key.messageType), semconv.MessagingOperationTypeProcess, semconv.MessagingClientID(key.instance))...),
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

// templateOf returns the address of an instance queue without the instance. The instance
// is at the end of the address, where a transport may add a suffix: quotes, or ".fifo".
func templateOf(queue, instance string) string {
	i := strings.LastIndex(queue, "-"+instance)
	if i < 0 { // the transport writes the name in another way
		return "{instance}"
	}
	return queue[:i] + "-{instance}" + queue[i+1+len(instance):]
}

// failuresOf returns the options for failures with an error of this type, which is
// bounded.
func (in *incoming) failuresOf(errorType string) *failures {
	return in.failures.get(errorType, func() *failures {
		kind := semconv.ErrorTypeKey.String(errorType)
		return &failures{processed: recordOptions(in.attrs, kind), consumed: addOptions(in.attrs, kind)}
	})
}
