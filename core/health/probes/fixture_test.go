package probes_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/health/probes"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// fakeTransport is an in-memory transport that can be made to fail.
type fakeTransport struct {
	*inmemory.Transport
	mu             sync.Mutex
	openErr        error
	sendErr        error
	receiverErrors chan error // ends Receive of the newest receiver
	report         func(core.ConnectionChange)
}

func (b *fakeTransport) fail(open, send error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.openErr, b.sendErr = open, send
}

func (b *fakeTransport) OpenReceiver(ctx context.Context, c core.ReceiverConfig) (core.Receiver, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.openErr != nil {
		return nil, b.openErr
	}
	b.report = c.ConnectionChanged
	r, err := b.Transport.OpenReceiver(ctx, c)
	return failingReceiver{r, b.receiverErrors}, err
}

func (b *fakeTransport) Send(ctx context.Context, out ...core.Outgoing) error {
	b.mu.Lock()
	err := b.sendErr
	b.mu.Unlock()
	if err != nil {
		return err
	}
	return b.Transport.Send(ctx, out...)
}

type failingReceiver struct {
	core.Receiver
	errs chan error
}

func (r failingReceiver) Receive(ctx context.Context, dst []core.Delivery) (int, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	done := make(chan struct{})
	defer close(done)
	go func() {
		select {
		case err := <-r.errs:
			cancel(err)
		case <-done:
		}
	}()
	n, err := r.Receiver.Receive(ctx, dst)
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		err = cause
	}
	return n, err
}

// fixture is a broker with an endpoint, in a bubble of virtual time.
type fixture struct {
	*testing.T
	broker *fakeTransport
	ep     *core.Endpoint
}

// bubble runs body with the endpoint "orders", whose handler is h.
func bubble(t *testing.T, c core.Config, h func(ctx context.Context, m *core.Message, body string) error, body func(fx *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		fx := &fixture{T: t, broker: &fakeTransport{Transport: inmemory.Open(), receiverErrors: make(chan error)}}
		t.Cleanup(func() { _ = fx.broker.Close(context.Background()) })
		fx.ep = fx.endpoint("orders", c)
		core.Handle(fx.ep, orderType, h)
		body(fx)
	})
}

func (fx *fixture) endpoint(name string, c core.Config) *core.Endpoint {
	fx.Helper()
	c.Logger = slog.New(slog.DiscardHandler)
	ep, err := core.New(name, fx.broker, c)
	if err != nil {
		fx.Fatal(err)
	}
	return ep
}

// run runs the endpoint until the test's end, or until stop, which returns Run's error.
func (fx *fixture) run() (stop func() error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var err error
	go func() {
		err = fx.ep.Run(ctx)
		close(done)
	}()
	stop = func() error {
		cancel()
		<-done
		return err
	}
	fx.Cleanup(func() { _ = stop() })
	synctest.Wait()
	return stop
}

// send sends a message to the endpoint past all others.
func (fx *fixture) send() {
	fx.Helper()
	out := core.Outgoing{ID: "m1", Queue: "orders", Body: []byte(`"x"`), Headers: core.HeadersFromMap(map[string]string{headers.MessageID: "m1", headers.MessageTypes: "order"})}
	if err := fx.broker.Transport.Send(fx.Context(), out); err != nil {
		fx.Fatal(err)
	}
	synctest.Wait()
}

// probes makes probes of the endpoint and others.
func (fx *fixture) probes(c probes.Config, others ...*core.Endpoint) *probes.Probes {
	fx.Helper()
	p, err := probes.New(c, append([]*core.Endpoint{fx.ep}, others...)...)
	if err != nil {
		fx.Fatal(err)
	}
	return p
}

// body is the part of an answer that tests look at.
type body struct {
	Probe   string
	OK      bool
	Reasons []struct{ Endpoint, Text string }
}

func ask(t testing.TB, h http.Handler, method string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/", nil))
	return w
}

// wantAnswers checks the three probes, each as "" for yes, or the text of its reason.
func (fx *fixture) wantAnswers(when string, p *probes.Probes, live, ready, startup string) {
	fx.Helper()
	for _, c := range []struct {
		name    string
		handler http.Handler
		want    string
	}{{"liveness", p.Liveness(), live}, {"readiness", p.Readiness(), ready}, {"startup", p.Startup(), startup}} {
		w := ask(fx, c.handler, http.MethodGet)
		var got body
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			fx.Fatal(err)
		}
		code, reasons := http.StatusOK, 0
		if c.want != "" {
			code, reasons = http.StatusServiceUnavailable, 1
		}
		if w.Code != code || got.Probe != c.name || got.OK != (c.want == "") || len(got.Reasons) != reasons ||
			reasons == 1 && (got.Reasons[0].Endpoint != "orders" || got.Reasons[0].Text != c.want) {
			fx.Errorf("%s: %s answers %d %s, want the reason %q", when, c.name, w.Code, w.Body, c.want)
		}
	}
}
