package inmemory

import (
	"context"

	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/reprise-go/reprise/bench/internal/compare"
	"github.com/reprise-go/reprise/bench/internal/measure"
	"github.com/reprise-go/reprise/bench/internal/reprise"
	"github.com/reprise-go/reprise/bench/internal/scenario"
	"github.com/reprise-go/reprise/bench/internal/table"
	"github.com/reprise-go/reprise/core"
	otelreprise "github.com/reprise-go/reprise/otel"
)

// Rows of the table.
const (
	otelOff     = "without"
	otelNoOp    = "no-op providers"
	otelMetrics = "SDK, metrics alone"
	otelTraces  = "SDK, traces alone, 0 % sampled"
	otelBoth    = "SDK, metrics and traces, 0 % sampled"
	otelAll     = "SDK, metrics and traces, 100 % sampled"
)

// openTelemetry measures the cost of package otel. The aim is the share of the rate
// that is left with an SDK that records metrics and samples no trace.
func openTelemetry(ctx context.Context, l scenario.Load) ([]table.Table, error) {
	var tables []table.Table
	for _, sends := range []struct {
		title    string
		endpoint bool
	}{
		{"Messages through Transport.Send", false},
		{"Messages through Endpoint.Send, which is traced and measured too", true},
	} {
		var contenders []measure.Contender
		for _, row := range []struct {
			name    string
			tracers trace.TracerProvider
			meters  metric.MeterProvider
		}{
			{otelOff, nil, nil},
			{otelNoOp, tracenoop.NewTracerProvider(), metricnoop.NewMeterProvider()},
			{otelMetrics, tracenoop.NewTracerProvider(), meterProvider()},
			{otelTraces, tracerProvider(0), metricnoop.NewMeterProvider()},
			{otelBoth, tracerProvider(0), meterProvider()},
			{otelAll, tracerProvider(1), meterProvider()},
		} {
			setup := reprise.Setup{Mode: core.TransactionReceiveOnly, EndpointSend: sends.endpoint}
			if row.tracers != nil {
				setup.Observers = []core.Observer{otelreprise.New(otelreprise.Config{TracerProvider: row.tracers, MeterProvider: row.meters}).Observer}
			}
			contenders = append(contenders, repriseContender(setup, row.name))
		}
		c, err := compare.Run(ctx, l.Repetitions, measure.Work{Messages: l.Messages}.Trials(contenders...))
		if err != nil {
			return nil, err
		}
		t := c.Table(sends.title, otelOff)
		t.Aims = append(t.Aims, table.Aim{Figure: "times the rate without, " + otelBoth, Want: 0.85, Got: c.RateRatio(otelBoth, otelOff)})
		tables = append(tables, t)
	}
	return tables, nil
}

// tracerProvider samples a share of all traces, and drops them at their end.
func tracerProvider(share float64) trace.TracerProvider {
	return sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(share))), sdktrace.WithSpanProcessor(dropping{}))
}

func meterProvider() metric.MeterProvider {
	return sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
}

// dropping is a processor that drops all spans.
type dropping struct{}

func (dropping) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (dropping) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (dropping) Shutdown(context.Context) error                  { return nil }
func (dropping) ForceFlush(context.Context) error                { return nil }
