// Observability is a service with traces and metrics: orders are placed, billed, retried and
// given up, and a page has the metrics for Prometheus.
//
//	go run ./examples/observability
//
// It needs no server: messages stay in the process, unless -database names a PostgreSQL. While
// it runs, http://localhost:9464/metrics has the metrics, and the log the trace of each
// failure. In monitoring/ are a dashboard for Grafana, alerts and a configuration for
// Prometheus.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	prometheusexporter "go.opentelemetry.io/otel/exporters/prometheus"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/reprise-go/reprise/core"
	otelreprise "github.com/reprise-go/reprise/otel"
	"github.com/reprise-go/reprise/transport/inmemory"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// options are the flags, and the settings that tests change.
type options struct {
	listen   string
	database string
	every    time.Duration // between orders
	delay    time.Duration // before the first delayed retry
	spans    []sdktrace.TracerProviderOption
	log      io.Writer
	ready    func(address string) // of the page
}

func main() {
	o := options{every: 200 * time.Millisecond, delay: 2 * time.Second, log: os.Stderr, ready: func(address string) {
		fmt.Printf("metrics are on http://%s/metrics; end with Ctrl+C\n", address)
	}}
	flag.StringVar(&o.listen, "listen", "localhost:9464", "where the metrics are")
	flag.StringVar(&o.database, "database", "", "URL of a PostgreSQL for the messages, instead of memory")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run runs the service until ctx ends.
func run(ctx context.Context, o options) (err error) {
	transport, err := o.transport()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, transport.Close(context.WithoutCancel(ctx))) }()

	// snippet: prometheus
	registry := prometheus.NewRegistry()
	exporter, err := prometheusexporter.New(prometheusexporter.WithRegisterer(registry))
	if err != nil {
		return err
	}
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter))
	tracers := sdktrace.NewTracerProvider(o.spans...) // add sdktrace.WithBatcher(exporter) to send traces somewhere
	observer := otelreprise.New(otelreprise.Config{MeterProvider: meters, TracerProvider: tracers, NServiceBusMetrics: true})
	page := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	// end
	defer func() {
		uncancelled := context.WithoutCancel(ctx)
		err = errors.Join(err, tracers.Shutdown(uncancelled), meters.Shutdown(uncancelled))
	}()

	log := slog.New(otelreprise.Handler(slog.NewTextHandler(o.log, &slog.HandlerOptions{Level: slog.LevelWarn})))
	shop, billing, err := endpoints(transport, observer, log, o.delay)
	if err != nil {
		return err
	}

	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", page)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		err = errors.Join(err, server.Close())
		if end := <-served; !errors.Is(end, http.ErrServerClosed) {
			err = errors.Join(err, end)
		}
	}()
	go func() {
		select {
		case <-billing.Ready():
			o.ready(listener.Addr().String())
			placeOrders(ctx, shop, o.every, log)
		case <-ctx.Done():
		}
	}()
	return core.RunAll(ctx, shop, billing)
}

func (o options) transport() (core.Transport, error) {
	if o.database == "" {
		return inmemory.Open(), nil
	}
	return sqlserver.Open(o.database)
}
