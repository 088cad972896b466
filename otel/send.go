package otelreprise

import (
	"context"
	"errors"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/internal/bounded"
)

// outgoingKey identifies a series of sent messages.
type outgoingKey struct {
	transport                          *core.TransportInfo
	endpoint, destination, messageType string
	reason                             core.SendReason
	publish                            bool
}

// outgoing has the names, attributes and options that all messages of a series share.
type outgoing struct {
	send, create     string // names of spans
	producer, client []trace.SpanStartOption
	creation         []trace.SpanStartOption
	ofOthers         bool // of destinations or types beyond the bounds of metrics, which the options lack
	attrs            []attribute.KeyValue

	sent     []metric.AddOption
	duration []metric.RecordOption
	failures cache[string, *failedSends]
}

// failedSends has the options that all failures of a series with the same type of error
// share.
type failedSends struct {
	sent     []metric.AddOption
	duration []metric.RecordOption
}

func (o *Observer) outgoingOf(at *core.ObservedEndpoint, m *core.Outgoing) *outgoing {
	key := outgoingKey{at.Transport, at.Endpoint, destinationOf(m), m.Headers.Get(headers.MessageTypes), m.Reason, m.Topic != ""}
	if out, ok := o.outgoing.find(key); ok {
		return out
	}
	key.destination, key.messageType = o.bounds.sent(key.destination, key.messageType, key.reason)
	return o.outgoing.get(key, func() *outgoing { return o.newOutgoing(key) })
}

// with returns options of the series for a span about one message.
func (out *outgoing) with(options []trace.SpanStartOption, m *core.Outgoing) []trace.SpanStartOption {
	if !out.ofOthers {
		return options
	}
	return append(slices.Clip(options), trace.WithAttributes(
		semconv.MessagingDestinationName(bounded.Name(destinationOf(m))), typeAttr(m.Headers.Get(headers.MessageTypes))))
}

func destinationOf(m *core.Outgoing) string {
	if m.Topic != "" {
		return m.Topic
	}
	return m.Queue
}

// isSameSeries reports whether two messages of one series have equal attributes in spans.
func (out *outgoing) isSameSeries(m, n *core.Outgoing) bool {
	return !out.ofOthers || destinationOf(m) == destinationOf(n) && m.Headers.Get(headers.MessageTypes) == n.Headers.Get(headers.MessageTypes)
}

// severalOf returns the series for a send of messages of several series.
func (o *Observer) severalOf(at *core.ObservedEndpoint) *outgoing {
	key := outgoingKey{transport: at.Transport, endpoint: at.Endpoint}
	return o.outgoing.get(key, func() *outgoing { return o.newOutgoing(key) })
}

func (o *Observer) newOutgoing(key outgoingKey) *outgoing {
	operation := operationSend
	if key.publish {
		operation = operationPublish
	}
	destination := ""
	common := []attribute.KeyValue{systemOf(key.transport)}
	common = append(serverOf(key.transport, common), keyEndpoint.String(key.endpoint))
	spans := slices.Clip(common)
	out := &outgoing{attrs: slices.Clip(common)}
	if key.destination != "" {
		destination = " " + key.destination
		out.ofOthers = key.destination == other || key.messageType == other
		names := []attribute.KeyValue{semconv.MessagingDestinationName(key.destination), keyMessageType.String(key.messageType)}
		reason := keySendReason.String(sendReasons[key.reason])
		spans = append(spans, reason)
		if !out.ofOthers {
			spans = append(spans, names...)
		}
		out.attrs = append(append(out.attrs, names...), reason)
	}
	out.send, out.create = operation+destination, operationCreate+destination
	name := semconv.MessagingOperationName(operation)
	out.attrs = append(out.attrs, name)
	sends := slices.Concat(spans, []attribute.KeyValue{name, semconv.MessagingOperationTypeSend})
	out.producer = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(sends...)}
	out.client = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(sends...)}
	creates := slices.Concat(spans, []attribute.KeyValue{semconv.MessagingOperationName(operationCreate), semconv.MessagingOperationTypeCreate})
	out.creation = []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(creates...)}
	out.sent = addOptions(out.attrs)
	out.duration = recordOptions(out.attrs, semconv.MessagingOperationTypeSend)
	return out
}

func (out *outgoing) failuresOf(errorType string) *failedSends {
	return out.failures.get(errorType, func() *failedSends {
		kind := semconv.ErrorTypeKey.String(errorType)
		return &failedSends{sent: addOptions(out.attrs, kind), duration: recordOptions(out.attrs, semconv.MessagingOperationTypeSend, kind)}
	})
}

// sending is the context of a send.
type sending struct {
	context.Context
	observer *Observer
	span     trace.Span
	series   *outgoing // of the span
}

// sendKey is the context key of an observer's sending.
type sendKey struct{ *Observer }

// Value finds the send by its observer.
func (s *sending) Value(key any) any {
	if k, ok := key.(sendKey); ok && k.Observer == s.observer {
		return s
	}
	return s.Context.Value(key)
}

// sendStart starts the span of the send, and writes trace contexts to messages that have
// none.
func (o *Observer) sendStart(ctx context.Context, e core.Sending) context.Context {
	s := &sending{observer: o}
	if len(e.Messages) == 1 {
		o.startOne(ctx, s, &e.ObservedEndpoint, &e.Messages[0])
	} else {
		o.startSeveral(ctx, s, &e.ObservedEndpoint, e.Messages)
	}
	return s
}

func (o *Observer) startOne(ctx context.Context, s *sending, at *core.ObservedEndpoint, m *core.Outgoing) {
	s.series = o.outgoingOf(at, m)
	if o.needsContext(m) {
		s.Context, s.span = o.tracer.Start(ctx, s.series.send, s.series.with(s.series.producer, m)...)
		o.inject(s.Context, &m.Headers)
	} else {
		s.Context, s.span = o.tracer.Start(ctx, s.series.send, o.linked(s.series.with(s.series.client, m), o.creationOf(&m.Headers))...)
	}
	o.mark(ctx, m)
	if s.span.IsRecording() {
		s.span.SetAttributes(o.sendAttributes(m)...)
	}
}

func (o *Observer) startSeveral(ctx context.Context, s *sending, at *core.ObservedEndpoint, messages []core.Outgoing) {
	s.series = o.outgoingOf(at, &messages[0])
	for i := range messages {
		if o.outgoingOf(at, &messages[i]) != s.series || !s.series.isSameSeries(&messages[i], &messages[0]) {
			s.series = o.severalOf(at)
			break
		}
	}
	var creations []trace.SpanContext
	for i := range messages {
		m := &messages[i]
		if !o.needsContext(m) {
			creations = append(creations, o.creationOf(&m.Headers))
			continue
		}
		out := o.outgoingOf(at, m)
		created, span := o.tracer.Start(ctx, out.create, out.with(out.creation, m)...)
		if span.IsRecording() {
			span.SetAttributes(o.sendAttributes(m)...)
		}
		o.inject(created, &m.Headers)
		span.End()
		creations = append(creations, span.SpanContext())
	}
	s.Context, s.span = o.tracer.Start(ctx, s.series.send, o.linked(s.series.with(s.series.client, &messages[0]), creations...)...)
	for i := range messages {
		o.mark(ctx, &messages[i])
	}
	if s.span.IsRecording() {
		s.span.SetAttributes(semconv.MessagingBatchMessageCount(len(messages)))
	}
}

// linked adds links to creation contexts to options.
func (o *Observer) linked(options []trace.SpanStartOption, creations ...trace.SpanContext) []trace.SpanStartOption {
	var links []trace.Link
	for _, creation := range creations {
		if creation.IsValid() {
			links = append(links, trace.Link{SpanContext: creation, Attributes: []attribute.KeyValue{linkToCreation}})
		}
	}
	if links == nil {
		return options
	}
	return append(slices.Clip(options), trace.WithLinks(links...))
}

// needsContext reports whether this is the first send of a message, and the sender has
// not set a context. The context of an existing message is not changed.
func (o *Observer) needsContext(m *core.Outgoing) bool {
	return (m.Reason == core.ReasonApplication || m.Reason == core.ReasonAcknowledgement) && !o.hasContext(&m.Headers)
}

// mark writes the headers that place the next attempt in its trace.
func (o *Observer) mark(ctx context.Context, m *core.Outgoing) {
	isNew := true
	switch m.Reason {
	case core.ReasonApplication:
		if _, chosen := m.Headers.Lookup(headerStartNewTrace); chosen {
			return
		}
		if m.Delay > 0 {
			isNew = !o.config.ContinueDelayed
		} else {
			isNew = m.Topic != "" && !o.config.ContinueEvents
		}
	case core.ReasonDelayedRetry, core.ReasonDeferral, core.ReasonNewCopy:
		isNew = !o.config.ContinueDelayed
	case core.ReasonMoveToError, core.ReasonUndelivered, core.ReasonForward:
	default:
		return
	}
	if m.Reason != core.ReasonApplication {
		a := o.attemptOf(ctx)
		if a != nil && a.copyRefused.Load() { // R24: no room, or not allowed
			return
		}
		if a != nil && a.span.SpanContext().IsValid() {
			setPrevious(&m.Headers, a.span.SpanContext())
		}
	}
	switch _, has := m.Headers.Lookup(headerStartNewTrace); {
	case m.Reason == core.ReasonForward: // the header stays as it is
	case isNew && o.hasContext(&m.Headers):
		m.Headers.Set(headerStartNewTrace, startNew)
	case !isNew && has:
		m.Headers.Set(headerStartNewTrace, continueCurrent)
	}
}

func (o *Observer) sendAttributes(m *core.Outgoing) []attribute.KeyValue {
	attrs := o.messageAttributes(m.ID, m.Headers)
	if m.Delay > 0 {
		attrs = append(attrs, keyDelay.Float64(m.Delay.Seconds()))
	}
	return attrs
}

// sendEnd ends the span.
func (o *Observer) sendEnd(ctx context.Context, e core.Sending) {
	s, _ := ctx.Value(sendKey{o}).(*sending)
	if s == nil {
		return
	}
	defer s.span.End()
	if e.Err == nil {
		o.instruments.operationDuration.Record(s, e.Duration.Seconds(), s.series.duration...)
		for i := range e.Messages {
			o.instruments.sent.Add(s, 1, o.seriesOf(s, &e, i).sent...)
		}
		return
	}
	kind := o.bounds.errorType(sendErrorType(e.Err))
	o.instruments.operationDuration.Record(s, e.Duration.Seconds(), s.series.failuresOf(kind).duration...)
	var results []core.SendResult
	if sent, ok := errors.AsType[*core.SendError](e.Err); ok && len(sent.Results) == len(e.Messages) {
		results = sent.Results
	}
	for i := range e.Messages {
		series := o.seriesOf(s, &e, i)
		switch {
		case results == nil:
			o.instruments.sent.Add(s, 1, series.failuresOf(kind).sent...)
		case results[i].State == core.SendAccepted:
			o.instruments.sent.Add(s, 1, series.sent...)
		default:
			o.instruments.sent.Add(s, 1, series.failuresOf(o.bounds.errorType(sendErrorType(results[i].Err))).sent...)
		}
	}
	a := o.attemptOf(ctx)
	if a != nil && (errors.Is(e.Err, core.ErrTooLarge) || errors.Is(e.Err, core.ErrInvalidHeader)) {
		a.copyRefused.Store(true)
	}
	if s.span.IsRecording() {
		s.span.SetAttributes(semconv.ErrorTypeKey.String(sendErrorType(e.Err)))
		recordException(s.span, e.Err, core.ErrorTypeOf(e.Err))
		if a == nil || o.config.ErrorOn == ErrorOnAttempt { // otherwise the message has another attempt, or its last span has the error status
			s.span.SetStatus(codes.Error, statusText(e.Err))
		}
	}
}

// seriesOf returns the series of one message of a send.
func (o *Observer) seriesOf(s *sending, e *core.Sending, i int) *outgoing {
	if len(e.Messages) == 1 {
		return s.series
	}
	return o.outgoingOf(&e.ObservedEndpoint, &e.Messages[i])
}

// sendErrorType returns the name of a send's error. Errors of core have names of a few
// words, because they differ by errors.Is, not by type.
func sendErrorType(err error) string {
	for _, known := range []struct {
		target error
		name   string
	}{
		{core.ErrQueueNotFound, "queue_not_found"},
		{core.ErrTooLarge, "too_large"},
		{core.ErrInvalidHeader, "invalid_header"},
		{core.ErrLockLost, "lock_lost"},
		{core.ErrClosed, "closed"},
		{errors.ErrUnsupported, "unsupported"},
		{context.DeadlineExceeded, "timeout"},
		{context.Canceled, "canceled"},
	} {
		if errors.Is(err, known.target) {
			return known.name
		}
	}
	return core.ErrorTypeOf(err)
}
