package otelreprise

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// The meter, instruments and tags of NServiceBus 9.1 to 10.2 (IncomingPipelineMetrics), for
// dashboards that were made for it.
const (
	nservicebusMeter   = "NServiceBus.Core.Pipeline.Incoming"
	nservicebusVersion = "0.2.0"

	tagQueue         = attribute.Key("nservicebus.queue")
	tagDiscriminator = attribute.Key("nservicebus.discriminator")
	tagMessageType   = attribute.Key("nservicebus.message_type")
	tagHandlerTypes  = attribute.Key("nservicebus.message_handler_types")
	tagHandlerType   = attribute.Key("nservicebus.message_handler_type")
	tagResult        = attribute.Key("execution.result")
	tagErrorType     = attribute.Key("error.type")

	resultSuccess = "success"
	resultFailure = "failure"
)

// nservicebusMetrics has the instruments.
type nservicebusMetrics struct {
	fetches, successes, failures           metric.Int64Counter
	immediate, delayed, movedToError       metric.Int64Counter
	handlerTime, criticalTime, processTime metric.Float64Histogram
}

// nservicebusSeries has the attributes and options that all messages of one queue and
// type share. The tags of handlers are empty in successes: an attempt runs all handlers
// of its type. The discriminator of an instance is empty, because it would create a
// series for each process.
type nservicebusSeries struct {
	tags      []attribute.KeyValue
	fetched   []metric.AddOption
	counted   []metric.AddOption
	succeeded []metric.RecordOption
	handled   []metric.RecordOption
}

func newNServiceBusMetrics(provider metric.MeterProvider) *nservicebusMetrics {
	m := provider.Meter(nservicebusMeter, metric.WithInstrumentationVersion(nservicebusVersion))
	var problems [9]error
	count := func(problem *error, name, description string) metric.Int64Counter {
		return counter(m, problem, name, "", description)
	}
	seconds := func(problem *error, name, description string) metric.Float64Histogram {
		return histogram(m, problem, name, "s", nil, description)
	}
	n := &nservicebusMetrics{
		successes:    count(&problems[0], "nservicebus.messaging.successes", "Total number of messages processed successfully by the endpoint."),
		fetches:      count(&problems[1], "nservicebus.messaging.fetches", "Total number of messages fetched from the queue by the endpoint."),
		failures:     count(&problems[2], "nservicebus.messaging.failures", "Total number of messages processed unsuccessfully by the endpoint."),
		handlerTime:  seconds(&problems[3], "nservicebus.messaging.handler_time", "The time in seconds for the execution of the business code."),
		criticalTime: seconds(&problems[4], "nservicebus.messaging.critical_time", "The time in seconds between when the message was sent until processed by the endpoint."),
		processTime:  seconds(&problems[5], "nservicebus.messaging.processing_time", "The time in seconds between when the message was fetched from the input queue until successfully processed by the endpoint."),
		immediate:    count(&problems[6], "nservicebus.recoverability.immediate", "Total number of immediate retries requested."),
		delayed:      count(&problems[7], "nservicebus.recoverability.delayed", "Total number of delayed retries requested."),
		movedToError: count(&problems[8], "nservicebus.recoverability.error", "Total number of messages sent to the error queue."),
	}
	tell(problems[:]...)
	return n
}

func newNServiceBusSeries(queue, messageType string) *nservicebusSeries {
	s := &nservicebusSeries{tags: []attribute.KeyValue{tagQueue.String(queue), tagDiscriminator.String(""), tagMessageType.String(messageType)}}
	s.fetched = addOptions(s.tags)
	success := []attribute.KeyValue{tagHandlerTypes.String(""), tagResult.String(resultSuccess)}
	s.counted, s.succeeded = addOptions(s.tags, success...), recordOptions(s.tags, success...)
	s.handled = recordOptions(s.tags, tagHandlerType.String(""), tagResult.String(resultSuccess))
	return s
}

func (n *nservicebusMetrics) fetched(ctx context.Context, s *nservicebusSeries) {
	n.fetches.Add(ctx, 1, s.fetched...)
}

func (n *nservicebusMetrics) handled(a *attempt, took time.Duration, errorType string) {
	s := a.series.nservicebus
	if errorType == "" {
		n.handlerTime.Record(a, took.Seconds(), s.handled...)
		return
	}
	n.handlerTime.Record(a, took.Seconds(), recordOptions(s.tags, tagHandlerType.String(""), tagResult.String(resultFailure), tagErrorType.String(errorType))...)
}

// succeeded counts a message that was processed successfully. Its critical time is
// recorded together with ours.
func (n *nservicebusMetrics) succeeded(a *attempt) {
	s := a.series.nservicebus
	n.successes.Add(a, 1, s.counted...)
	n.processTime.Record(a, time.Since(a.began).Seconds(), s.succeeded...)
}

// recovered counts a failure, and the action for the message. a is nil if no attempt
// began. failed is the attribute error.type, or empty if a handler decided without an
// error, or the message waits.
func (n *nservicebusMetrics) recovered(ctx context.Context, s *nservicebusSeries, a *attempt, handler, action string, failed []attribute.KeyValue) {
	if a == nil {
		n.fetched(ctx, s)
	}
	if len(failed) == 0 {
		return
	}
	n.failures.Add(ctx, 1, addOptions(s.tags, tagHandlerTypes.String(""), tagResult.String(resultFailure), failed[0])...)
	options := addOptions(s.tags, tagHandlerType.String(handler), failed[0])
	switch action {
	case actionImmediateRetry:
		n.immediate.Add(ctx, 1, options...)
	case actionDelayedRetry, actionNewCopy:
		n.delayed.Add(ctx, 1, options...)
	case actionError, actionDeadLetter:
		n.movedToError.Add(ctx, 1, options...)
	}
}
