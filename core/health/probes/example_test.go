package probes_test

import (
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/health/probes"
	"github.com/reprise-go/reprise/transport/inmemory"
)

func Example() {
	orders, err := core.New("orders", inmemory.Open(), core.Config{Instance: "pod-1", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		log.Fatal(err)
	}
	probes, err := probes.New(probes.Config{AttemptLimit: 10 * time.Minute}, orders)
	if err != nil {
		log.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/livez", probes.Liveness())
	mux.Handle("/readyz", probes.Readiness())
	mux.Handle("/startupz", probes.Startup())
	server := httptest.NewServer(mux)
	defer server.Close()

	show := func(path string) {
		response, err := http.Get(server.URL + path)
		if err != nil {
			log.Fatal(err)
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		fmt.Println(path, response.StatusCode)
	}
	show("/livez")
	show("/readyz") // Run was not called yet

	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- orders.Run(ctx) }()
	<-orders.Ready()
	show("/readyz")
	stop()
	fmt.Println("Run:", <-ended)

	// Output:
	// /livez 200
	// /readyz 503
	// /readyz 200
	// Run: <nil>
}
