package otelreprise_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	otelreprise "github.com/reprise-go/reprise/otel"
	"github.com/reprise-go/reprise/transport/inmemory"
)

var errUnreachable = errors.New("503")

// Recoverability of tests.
var (
	none      = core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}}
	immediate = core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 2}, Delayed: core.Delayed{NumberOfRetries: core.Off}}
	delayed   = core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: 3}}
)

// bed is an in-memory transport, and an SDK that keeps what it is told.
type bed struct {
	*testing.T
	transport core.Transport
	broker    *inmemory.Transport
	spans     *tracetest.InMemoryExporter
	tracers   *sdktrace.TracerProvider
	reader    *sdkmetric.ManualReader
	meters    *sdkmetric.MeterProvider
	logger    *slog.Logger
}

// bubble runs body in a bubble of virtual time.
func bubble(t *testing.T, body func(b *bed)) {
	t.Helper()
	bubbleOn(t, inmemory.Config{}, body)
}

func bubbleOn(t *testing.T, c inmemory.Config, body func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		broker, err := inmemory.New(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { broker.Close(context.Background()) })
		if err := broker.Provision(t.Context(), core.Topology{Queues: []string{"orders", "error", "shipping", "audit"}}); err != nil {
			t.Fatal(err)
		}
		b := &bed{
			T: t, transport: broker, broker: broker,
			spans: tracetest.NewInMemoryExporter(), reader: sdkmetric.NewManualReader(), logger: slog.New(slog.DiscardHandler),
		}
		b.tracers = sdktrace.NewTracerProvider(sdktrace.WithSyncer(b.spans))
		b.meters = sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.reader))
		t.Cleanup(func() {
			shutDown(t, b.tracers, b.meters)
		})
		body(b)
	})
}

// shutDown ends providers, as often as it is called.
func shutDown(t *testing.T, providers ...interface{ Shutdown(context.Context) error }) {
	t.Helper()
	for _, p := range providers {
		if err := p.Shutdown(context.Background()); err != nil && !errors.Is(err, sdkmetric.ErrReaderShutdown) {
			t.Error(err)
		}
	}
}

// observer returns one for the SDK of the bed.
func (b *bed) observer(c otelreprise.Config) *otelreprise.Observer {
	if c.TracerProvider == nil {
		c.TracerProvider = b.tracers
	}
	if c.MeterProvider == nil {
		c.MeterProvider = b.meters
	}
	return otelreprise.New(c)
}

// endpoint makes an endpoint with a handler for each message type.
func (b *bed) endpoint(name string, c core.Config, o *otelreprise.Observer, h core.HandlerFunc, types ...string) *core.Endpoint {
	b.Helper()
	c.Logger = b.logger
	if o != nil {
		c.Observers = append(c.Observers, o.Observer)
	}
	ep, err := core.New(name, b.transport, c)
	if err != nil {
		b.Fatal(err)
	}
	for _, messageType := range types {
		handle := func(ctx context.Context, m *core.Message, _ []byte) error { return h(ctx, m) }
		if strings.HasPrefix(messageType, "event-") {
			core.HandleEvent(ep, core.NewEvent[[]byte](messageType), handle)
		} else {
			core.Handle(ep, core.NewMessageType[[]byte](messageType), handle)
		}
	}
	return ep
}

// run runs an endpoint until the test's end, or until stop.
func (b *bed) run(ep *core.Endpoint) (stop func()) { return b.runUnder(context.Background(), ep) }

func (b *bed) runUnder(ctx context.Context, ep *core.Endpoint) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- ep.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.Errorf("Run returned %v", err)
		}
	})
	b.Cleanup(stop)
	synctest.Wait()
	return stop
}

// orders makes and runs the endpoint "orders" with a handler for "order".
func (b *bed) orders(c core.Config, o *otelreprise.Observer, h core.HandlerFunc) *core.Endpoint {
	b.Helper()
	ep := b.endpoint("orders", c, o, h, "order")
	b.run(ep)
	return ep
}

// client makes an endpoint that only sends, with a separate observer.
func (b *bed) client() *core.Endpoint {
	b.Helper()
	return b.endpoint("shop", core.Config{SendOnly: true}, b.observer(otelreprise.Config{}), nil)
}

// The headers that the package writes beside those of the propagator.
const (
	headerPrevious      = "Reprise.Trace.Previous"
	headerStartNewTrace = "NServiceBus.OpenTelemetry.StartNewTrace"
)

// put sends messages past all endpoints, and waits for what becomes of them at once.
func (b *bed) put(more map[string]string, ids ...string) {
	b.Helper()
	for _, id := range ids {
		h := core.HeadersFromMap(map[string]string{headers.MessageID: id, headers.MessageTypes: "order"})
		for key, value := range more {
			h.Set(key, value)
		}
		if err := b.transport.Send(b.Context(), core.Outgoing{ID: id, Queue: "orders", Headers: h, Body: []byte(id)}); err != nil {
			b.Fatal(err)
		}
	}
	synctest.Wait()
}

func (b *bed) send(ep *core.Endpoint, opts ...core.SendOptions) {
	b.Helper()
	draft := orderByteType.Of([]byte("x"))
	for _, o := range opts {
		draft = draft.With(o)
	}
	if err := ep.Send(b.Context(), "orders", draft); err != nil {
		b.Fatal(err)
	}
	synctest.Wait()
}

func (b *bed) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// onlyMessage returns the one message that a queue holds.
func (b *bed) onlyMessage(queue string) core.Incoming {
	b.Helper()
	page, err := b.broker.Browse(b.Context(), queues.Request{Queue: queue, Limit: 2})
	if err != nil || len(page.Messages) != 1 {
		b.Fatalf("queue %q holds %d messages, %v; want one", queue, len(page.Messages), err)
	}
	return page.Messages[0].Incoming
}

// all returns the spans that have ended, in the order of their starts. Of those that start at the same
// virtual time, which are many, the first sends come first: they may end last.
func (b *bed) all() tracetest.SpanStubs {
	spans := b.spans.GetSpans()
	later := func(s tracetest.SpanStub) int {
		if s.SpanKind == trace.SpanKindProducer {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(spans, func(x, y tracetest.SpanStub) int {
		return cmp.Or(x.StartTime.Compare(y.StartTime), cmp.Compare(later(x), later(y)))
	})
	return spans
}

// named returns the spans of a name.
func (b *bed) named(name string) (spans tracetest.SpanStubs) {
	for _, span := range b.all() {
		if span.Name == name {
			spans = append(spans, span)
		}
	}
	return spans
}

// one returns the one span of a name.
func (b *bed) one(name string) tracetest.SpanStub {
	b.Helper()
	spans := b.named(name)
	if len(spans) != 1 {
		b.Fatalf("there are %d spans %q, want one; all are %v", len(spans), name, names(b.all()))
	}
	return spans[0]
}

// several returns the spans of a name, of which there must be n.
func (b *bed) several(name string, n int) tracetest.SpanStubs {
	b.Helper()
	spans := b.named(name)
	if len(spans) != n {
		b.Fatalf("there are %d spans %q, want %d; all are %v", len(spans), name, n, names(b.all()))
	}
	return spans
}

func names(spans tracetest.SpanStubs) (list []string) {
	for _, span := range spans {
		list = append(list, span.Name)
	}
	return list
}

// isChild checks the parent of a span.
func (b *bed) isChild(span tracetest.SpanStub, parent trace.SpanContext) {
	b.Helper()
	if span.Parent.SpanID() != parent.SpanID() || span.SpanContext.TraceID() != parent.TraceID() {
		b.Errorf("span %q has the parent %v, want %v", span.Name, ids(span.Parent), ids(parent))
	}
}

// isRoot checks that a span begins a trace.
func (b *bed) isRoot(span tracetest.SpanStub) {
	b.Helper()
	if span.Parent.IsValid() {
		b.Errorf("span %q has the parent %v, and should begin a trace", span.Name, ids(span.Parent))
	}
}

// links checks the links of a span, each as "what:span id".
func (b *bed) links(span tracetest.SpanStub, want ...string) {
	b.Helper()
	var got []string
	for _, link := range span.Links {
		kind := ""
		for _, a := range link.Attributes {
			kind = a.Value.AsString()
		}
		got = append(got, linkText(kind, link.SpanContext))
	}
	if !slices.Equal(got, want) {
		b.Errorf("span %q has the links %v, want %v", span.Name, got, want)
	}
}

func linkText(kind string, to trace.SpanContext) string { return kind + ":" + ids(to) }
func creation(to trace.SpanContext) string              { return linkText("creation", to) }
func previous(to trace.SpanContext) string              { return linkText("previous_attempt", to) }

func ids(c trace.SpanContext) string { return c.TraceID().String() + "-" + c.SpanID().String() }

// attr returns an attribute as text, or "".
func attr(span tracetest.SpanStub, key string) string { return valueOf(span.Attributes, key) }

func valueOf(attrs []attribute.KeyValue, key string) string {
	for _, a := range attrs {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

func equal[T comparable](b testing.TB, subject string, got, want T) {
	b.Helper()
	if got != want {
		b.Errorf("%s is %v, want %v", subject, got, want)
	}
}

// collect returns all metrics by name.
func (b *bed) collect() map[string]metricdata.Metrics {
	b.Helper()
	var all metricdata.ResourceMetrics
	if err := b.reader.Collect(context.Background(), &all); err != nil {
		b.Fatal(err)
	}
	byName := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// point is one series of a metric: its count, or its value, and the sum of a histogram.
type point struct {
	attrs string // sorted, "k=v k=v"
	n     int64
	sum   float64
}

// points returns the series of a metric.
func (b *bed) points(name string) (list []point) {
	b.Helper()
	m, ok := b.collect()[name]
	if !ok {
		return nil
	}
	return pointsOf(m)
}

func pointsOf(m metricdata.Metrics) (list []point) {
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			list = append(list, point{shown(p.Attributes), p.Value, 0})
		}
	case metricdata.Gauge[int64]:
		for _, p := range data.DataPoints {
			list = append(list, point{shown(p.Attributes), p.Value, 0})
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			list = append(list, point{shown(p.Attributes), int64(p.Count), p.Sum})
		}
	case metricdata.Histogram[int64]:
		for _, p := range data.DataPoints {
			list = append(list, point{shown(p.Attributes), int64(p.Count), float64(p.Sum)})
		}
	default:
		panic(fmt.Sprintf("%s has data of type %T", m.Name, data))
	}
	slices.SortFunc(list, func(x, y point) int { return strings.Compare(x.attrs, y.attrs) })
	return list
}

// total adds the series of a metric whose attributes contain a text.
func (b *bed) total(name, with string) (n int64) {
	b.Helper()
	for _, p := range b.points(name) {
		if strings.Contains(p.attrs+" ", with+" ") || with == "" {
			n += p.n
		}
	}
	return n
}

func shown(set attribute.Set) string {
	var list []string
	for _, a := range set.ToSlice() {
		list = append(list, string(a.Key)+"="+a.Value.String())
	}
	return strings.Join(list, " ")
}
