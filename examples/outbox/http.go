package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/reprise-go/reprise/core"
)

// serve takes orders over HTTP until ctx ends.
func serve(ctx context.Context, out io.Writer, address string, s *shop, billing *core.Endpoint) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: s.routes(), ReadHeaderTimeout: 10 * time.Second}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		served <- server.Serve(listener)
		cancel() // the endpoints are useless without it
	}()
	fmt.Fprintf(out, `The shop is open at http://%[1]s. From another terminal:

  curl -i http://%[1]s/orders -d '{"Request": "my first", "Item": "lamps", "Quantity": 2}'
  curl http://%[1]s/orders/1

`, listener.Addr())

	err = core.RunAll(ctx, s.endpoint, billing)
	closing, done := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer done()
	err = errors.Join(err, server.Shutdown(closing))
	if reason := <-served; !errors.Is(reason, http.ErrServerClosed) {
		err = errors.Join(err, reason)
	}
	return err
}

// routes takes orders (POST /orders), and returns their status (GET /orders/{id}).
func (s *shop) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.servePlace)
	mux.HandleFunc("GET /orders/{id}", s.serveStatus)
	return mux
}

func (s *shop) servePlace(w http.ResponseWriter, r *http.Request) {
	var o Order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Request == "" || o.Quantity < 1 {
		http.Error(w, `an order looks like this: {"Request": "my first", "Item": "lamps", "Quantity": 2}`, http.StatusBadRequest)
		return
	}
	id, err := s.place(r.Context(), o)
	if err != nil {
		serveError(w, err)
		return
	}
	w.Header().Set("Location", fmt.Sprintf("/orders/%d", id))
	w.WriteHeader(http.StatusCreated)
}

func (s *shop) serveStatus(w http.ResponseWriter, r *http.Request) {
	status, err := s.status(r.Context(), r.PathValue("id"))
	if err != nil {
		serveError(w, err)
		return
	}
	fmt.Fprintln(w, status)
}

func serveError(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch {
	case errors.Is(err, errNoOrder):
		code = http.StatusNotFound
	case errors.Is(err, errOutOfStock):
		code = http.StatusConflict
	}
	http.Error(w, err.Error(), code)
}
