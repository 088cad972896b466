package kubernetes_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/health/probes"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// snippet: service
// serve receives messages and answers probes until the process is asked to end.
func serve(ctx context.Context, listener net.Listener, orders, mail *core.Endpoint) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	all, err := probes.New(probes.Config{AttemptLimit: 15 * time.Minute}, orders, mail)
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/livez", all.Liveness())
	mux.Handle("/readyz", all.Readiness())
	mux.Handle("/startupz", all.Startup())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()

	err = core.RunAll(ctx, orders, mail) // drains when ctx ends; the probes are answered as long as it does
	return errors.Join(err, server.Close(), ignoreClosed(<-served))
}

// end

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

func TestServe(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	endpoint := func(name string) *core.Endpoint {
		ep, err := core.New(name, inmemory.Open(), core.Config{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		return ep
	}
	orders, mail := endpoint("orders"), endpoint("mail")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, listener, orders, mail) }()
	<-orders.Ready()
	<-mail.Ready()
	for _, path := range []string{"/livez", "/readyz", "/startupz"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+listener.Addr().String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if err != nil || response.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, %v\n%s", path, response.Status, err, body)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
