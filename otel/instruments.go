package otelreprise

import (
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/semconv/v1.43.0/messagingconv"
)

// instruments are the instruments of messages.
type instruments struct {
	operationDuration metric.Float64Histogram
	sent              metric.Int64Counter
	consumed          metric.Int64Counter
	processDuration   metric.Float64Histogram
	criticalTime      metric.Float64Histogram
	actions           metric.Int64Counter
	failedAge         metric.Float64Histogram
	attempts          metric.Int64Histogram
	circuitChanges    metric.Int64Counter
}

func newInstruments(m metric.Meter) *instruments {
	i := &instruments{}
	var problems [9]error
	bounds := metric.WithExplicitBucketBoundaries(durationBounds...)
	duration, err := messagingconv.NewClientOperationDuration(m, bounds)
	i.operationDuration, problems[0] = duration.Inst(), err
	sent, err := messagingconv.NewClientSentMessages(m)
	i.sent, problems[1] = sent.Inst(), err
	consumed, err := messagingconv.NewClientConsumedMessages(m)
	i.consumed, problems[2] = consumed.Inst(), err
	process, err := messagingconv.NewProcessDuration(m, bounds)
	i.processDuration, problems[3] = process.Inst(), err
	i.criticalTime = histogram(m, &problems[4], metricCriticalTime, "s", ageBounds, "Time from the moment at which a message was sent, or due, to its success.")
	i.actions = counter(m, &problems[5], metricActions, "{message}", "Failed attempts, by the action on the message.")
	i.failedAge = histogram(m, &problems[6], metricFailedAge, "s", ageBounds, "Time from the first failure of a message to its move to an error or dead-letter queue.")
	i.attempts, problems[7] = m.Int64Histogram(metricAttempts, metric.WithUnit("{attempt}"), metric.WithExplicitBucketBoundaries(attemptBounds...),
		metric.WithDescription("Attempts that a message took, in all rounds, until it succeeded or was given up."))
	i.circuitChanges = counter(m, &problems[8], metricCircuitChanges, "{change}", "Changes of the states of circuits.")
	if i.attempts == nil {
		i.attempts = noop.Int64Histogram{}
	}
	tell(problems[:]...)
	return i
}

// tell reports errors of creating instruments. Those instruments do nothing.
func tell(problems ...error) {
	if err := errors.Join(problems...); err != nil {
		otel.Handle(err)
	}
}

// histogram creates a histogram, with the SDK's bounds if bounds is nil.
func histogram(m metric.Meter, problem *error, name, unit string, bounds []float64, description string) metric.Float64Histogram {
	options := []metric.Float64HistogramOption{metric.WithUnit(unit), metric.WithDescription(description)}
	if bounds != nil {
		options = append(options, metric.WithExplicitBucketBoundaries(bounds...))
	}
	h, err := m.Float64Histogram(name, options...)
	*problem = err
	if h == nil {
		return noop.Float64Histogram{}
	}
	return h
}

func counter(m metric.Meter, problem *error, name, unit, description string) metric.Int64Counter {
	c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(description))
	*problem = err
	if c == nil {
		return noop.Int64Counter{}
	}
	return c
}

func addOptions(attrs []attribute.KeyValue, more ...attribute.KeyValue) []metric.AddOption {
	return []metric.AddOption{metric.WithAttributeSet(setOf(attrs, more))}
}

func recordOptions(attrs []attribute.KeyValue, more ...attribute.KeyValue) []metric.RecordOption {
	return []metric.RecordOption{metric.WithAttributeSet(setOf(attrs, more))}
}

func setOf(attrs, more []attribute.KeyValue) attribute.Set {
	return attribute.NewSet(append(append(make([]attribute.KeyValue, 0, len(attrs)+len(more)), attrs...), more...)...)
}
