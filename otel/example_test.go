package otelreprise_test

import (
	"context"
	"log/slog"
	"net/http"
	"os"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/propagation"

	"github.com/reprise-go/reprise/core"
	otelreprise "github.com/reprise-go/reprise/otel"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// The program chooses the SDK and its exporters, and makes its providers the global ones; the endpoint
// gets an observer, and a logger that names the trace in each line about a message.
func Example() {
	tracers, meters := otel.GetTracerProvider(), otel.GetMeterProvider()

	// snippet: setup
	billing, err := core.New("billing", inmemory.Open(), core.Config{
		Observers: []core.Observer{otelreprise.New(otelreprise.Config{TracerProvider: tracers, MeterProvider: meters}).Observer},
		Logger:    slog.New(otelreprise.Handler(slog.NewJSONHandler(os.Stderr, nil))),
	})
	// end
	if err != nil {
		slog.Error("billing cannot start", "error", err)
		return
	}
	_ = billing
}

// A command that should not be part of the sender's trace, such as one of ten thousand that a
// nightly job sends.
func ExampleNewTrace() {
	invoice := core.NewMessageType[[]byte]("invoice")
	ep, err := core.New("nightly", inmemory.Open(), core.Config{SendOnly: true, Observers: []core.Observer{otelreprise.New(otelreprise.Config{}).Observer}})
	if err != nil {
		panic(err)
	}
	// snippet: newtrace
	err = ep.Send(context.Background(), "billing", invoice.Of([]byte("4711")).With(core.SendOptions{
		Headers: otelreprise.NewTrace(),
	}))
	// end
	if err != nil {
		slog.Error("the command was not sent", "error", err)
	}
}

// Two handlers of one event, with a span each.
func ExampleObserver_HandlerSpan() {
	type orderPlaced struct{ ID string }
	var invoice, points func(ctx context.Context, m *core.Message, body orderPlaced) error
	observer := otelreprise.New(otelreprise.Config{})
	billing, err := core.New("billing", inmemory.Open(), core.Config{Observers: []core.Observer{observer.Observer}})
	if err != nil {
		panic(err)
	}
	// snippet: handler
	spans := func(name string) core.HandleOptions {
		return core.HandleOptions{Middleware: []core.Middleware{observer.HandlerSpan(name)}}
	}
	core.HandleEvent(billing, core.NewEvent[orderPlaced]("orders.placed"), invoice, spans("invoice"))
	core.HandleEvent(billing, core.NewEvent[orderPlaced]("orders.placed"), points, spans("points"))
	// end
}

// A request whose trace goes on in the messages that its handler sends.
func Example_http() {
	charge := core.NewMessageType[[]byte]("orders.charge")
	orders, err := core.New("shop", inmemory.Open(), core.Config{SendOnly: true, Observers: []core.Observer{otelreprise.New(otelreprise.Config{}).Observer}})
	if err != nil {
		panic(err)
	}
	// snippet: http
	otel.SetTextMapPropagator(propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{}))

	mux := http.NewServeMux() // serve otelhttp.NewHandler(mux, "orders")
	mux.HandleFunc("POST /orders", func(w http.ResponseWriter, r *http.Request) {
		if err := orders.Send(r.Context(), "billing", charge.Of([]byte("4711"))); err != nil {
			http.Error(w, "the order was not taken", http.StatusServiceUnavailable)
		}
	})
	// end
	_ = mux
}

// Traces of events and retries that continue, so that all is one trace, and statuses for people
// who look at each failed attempt.
func ExampleConfig() {
	// snippet: config
	observer := otelreprise.New(otelreprise.Config{
		ContinueEvents:  true,
		ContinueDelayed: true,
		ErrorOn:         otelreprise.ErrorOnAttempt,
	})
	// end
	_ = observer
}
