package otelreprise_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	"github.com/reprise-go/reprise/core/headers"
	otelreprise "github.com/reprise-go/reprise/otel"
)

// TestTelemetry_FailuresDoNotAffectMessages: a message is handled and sent once, also if telemetry fails.
func TestTelemetry_FailuresDoNotAffectMessages(t *testing.T) {
	for name, config := range map[string]func(b *bed) otelreprise.Config{
		"a provider that panics":   func(*bed) otelreprise.Config { return otelreprise.Config{TracerProvider: panicky{}} },
		"spans that panic":         func(*bed) otelreprise.Config { return otelreprise.Config{TracerProvider: panicky{spans: true}} },
		"instruments that panic":   func(*bed) otelreprise.Config { return otelreprise.Config{MeterProvider: panickyMeters{}} },
		"no instruments":           func(*bed) otelreprise.Config { return otelreprise.Config{MeterProvider: noMeters{}} },
		"a propagator that panics": func(*bed) otelreprise.Config { return otelreprise.Config{Propagator: panickyPropagator{}} },
		"a provider that was shut down": func(b *bed) otelreprise.Config {
			shutDown(b.T, b.tracers, b.meters)
			return otelreprise.Config{}
		},
		"an exporter that hangs": func(b *bed) otelreprise.Config {
			hanging := &hangingExporter{end: make(chan struct{})}
			tracers := sdktrace.NewTracerProvider(sdktrace.WithBatcher(hanging, sdktrace.WithMaxQueueSize(2), sdktrace.WithMaxExportBatchSize(1), sdktrace.WithBatchTimeout(time.Millisecond)))
			b.Cleanup(func() {
				close(hanging.end)
				shutDown(b.T, tracers)
			})
			return otelreprise.Config{TracerProvider: tracers}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, mode := range []core.TransactionMode{core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive} {
				bubble(t, func(b *bed) {
					attempts := 0
					b.orders(core.Config{Transactions: mode, Recoverability: delayed, AuditQueue: "audit"}, b.observer(config(b)), func(_ context.Context, m *core.Message) error {
						if attempts++; attempts < 3 {
							return errUnreachable
						}
						return m.Send("shipping", shipType.Of("x"))
					})
					b.put(map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, "m1")
					b.pass(time.Hour)
					equal(b, "attempts", attempts, 3)
					b.onlyMessage("shipping")
					b.onlyMessage("audit")
				})
			}
		})
	}
}

type panicky struct {
	tracenoop.TracerProvider
	spans bool
}

func (p panicky) Tracer(string, ...trace.TracerOption) trace.Tracer {
	return panickyTracer{spans: p.spans}
}

type panickyTracer struct {
	tracenoop.Tracer
	spans bool
}

func (p panickyTracer) Start(ctx context.Context, _ string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	if !p.spans {
		panic("Start")
	}
	return ctx, panickySpan{}
}

type panickySpan struct{ tracenoop.Span }

func (panickySpan) IsRecording() bool { panic("IsRecording") }

type panickyMeters struct{ metricnoop.MeterProvider }

func (panickyMeters) Meter(string, ...metric.MeterOption) metric.Meter { return panickyMeter{} }

type panickyMeter struct{ metricnoop.Meter }

func (panickyMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return panickyCounter{}, nil
}

type panickyCounter struct{ metricnoop.Int64Counter }

func (panickyCounter) Add(context.Context, int64, ...metric.AddOption) { panic("Add") }

type noMeters struct{ metricnoop.MeterProvider }

func (noMeters) Meter(string, ...metric.MeterOption) metric.Meter { return noMeter{} }

type noMeter struct{ metricnoop.Meter }

func (noMeter) Float64Histogram(string, ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	return nil, errors.New("no histograms here")
}

type panickyPropagator struct{ single }

func (panickyPropagator) Inject(context.Context, propagation.TextMapCarrier) { panic("Inject") }

// hangingExporter never returns before the test's end.
type hangingExporter struct {
	end chan struct{}
}

func (e *hangingExporter) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	<-e.end
	return nil
}

func (*hangingExporter) Shutdown(context.Context) error { return nil }

// TestObserver_IsShared by endpoints that run at the same time.
func TestObserver_IsShared(t *testing.T) {
	bubble(t, func(b *bed) {
		o := b.observer(otelreprise.Config{NServiceBusMetrics: true})
		handler := func(ctx context.Context, m *core.Message) error {
			if m.Attempt == 1 {
				return errUnreachable
			}
			return m.Send("audit", seenType.Of("x"))
		}
		b.run(b.endpoint("orders", core.Config{Recoverability: immediate}, o, handler, "order"))
		b.run(b.endpoint("shipping", core.Config{Recoverability: immediate}, o, handler, "order"))
		var wg sync.WaitGroup
		for _, queue := range []string{"orders", "shipping"} {
			wg.Go(func() {
				for range 200 {
					h := core.HeadersFromMap(map[string]string{headers.MessageTypes: "order"})
					if err := b.broker.Send(context.Background(), core.Outgoing{ID: "m", Queue: queue, Headers: h}); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		for _, queue := range []string{"orders", "shipping"} {
			equal(b, "attempts of "+queue, b.total("messaging.process.duration", "messaging.destination.name="+queue), int64(400))
		}
	})
}

// TestAllocations: with no-op providers a message costs few allocations beside the endpoint's own.
func TestAllocations(t *testing.T) {
	// testing.AllocsPerRun needs the time of the machine, not a bubble.
	o := otelreprise.New(otelreprise.Config{TracerProvider: tracenoop.NewTracerProvider(), MeterProvider: metricnoop.NewMeterProvider()})
	m := newMessage("order", coretest.Options{})
	at := core.ObservedEndpoint{Endpoint: "orders", Queue: "orders"}
	ctx := context.Background()
	allocs := testing.AllocsPerRun(1000, func() {
		ctx := o.HandleStart(ctx, core.Handling{ObservedEndpoint: at, Message: m})
		o.HandleEnd(ctx, core.Handling{ObservedEndpoint: at, Message: m, Duration: time.Millisecond})
		o.Succeeded(ctx, core.Handling{ObservedEndpoint: at, Message: m})
	})
	if allocs > 2 {
		t.Errorf("a message takes %v allocations, want 2 at most", allocs)
	}
}
