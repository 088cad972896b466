package otelreprise_test

import (
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	"github.com/reprise-go/reprise/core/headers"
	otelreprise "github.com/reprise-go/reprise/otel"
)

// BenchmarkObserver is the price of one message that succeeds, and of one send, without the
// endpoint and the transport around it.
func BenchmarkObserver(b *testing.B) {
	meters := func() metric.MeterProvider {
		return sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	}
	neverSampled := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
	for _, bench := range []struct {
		name    string
		tracers trace.TracerProvider
		meters  metric.MeterProvider
	}{
		{"no-op", tracenoop.NewTracerProvider(), metricnoop.NewMeterProvider()},
		{"metrics", tracenoop.NewTracerProvider(), meters()},
		{"traces, 0 %", neverSampled, metricnoop.NewMeterProvider()},
		{"metrics, traces 0 %", neverSampled, meters()},
	} {
		o := otelreprise.New(otelreprise.Config{TracerProvider: bench.tracers, MeterProvider: bench.meters})
		at := core.ObservedEndpoint{Endpoint: "orders", Instance: "pod", Queue: "orders"}
		sent := map[string]string{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"}
		b.Run("handle/"+bench.name, func(b *testing.B) {
			m := newMessage("order", coretest.Options{Headers: sent})
			b.ReportAllocs()
			for b.Loop() {
				ctx := o.HandleStart(b.Context(), core.Handling{ObservedEndpoint: at, Message: m})
				o.HandleEnd(ctx, core.Handling{ObservedEndpoint: at, Message: m, Duration: time.Millisecond})
				o.Succeeded(ctx, core.Handling{ObservedEndpoint: at, Message: m})
			}
		})
		b.Run("send/"+bench.name, func(b *testing.B) {
			fresh := core.HeadersFromMap(map[string]string{headers.MessageTypes: "order", headers.TimeSent: headers.FormatTime(time.Now())})
			out := []core.Outgoing{{ID: "m1", Queue: "orders"}}
			b.ReportAllocs()
			for b.Loop() {
				out[0].Headers = fresh
				ctx := o.SendStart(b.Context(), core.Sending{ObservedEndpoint: at, Messages: out})
				o.SendEnd(ctx, core.Sending{ObservedEndpoint: at, Messages: out, Duration: time.Millisecond})
			}
		})
	}
}

// newMessage returns a message that no endpoint received.
func newMessage(messageType string, o coretest.Options) *core.Message {
	m, _, _ := coretest.Message(core.NewMessageType[[]byte](messageType), []byte("x"), o)
	return m
}
