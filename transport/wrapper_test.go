package transport_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/inmemory"
)

// counting is a wrapper as a user writes it.
type counting struct {
	transport.Wrapper
	sent *atomic.Int64
}

func (c counting) Send(ctx context.Context, msgs ...core.Outgoing) error {
	c.sent.Add(int64(len(msgs)))
	return c.Wrapper.Send(ctx, msgs...)
}

// bare hides the optional interfaces of a transport.
type bare struct{ core.Transport }

func TestWrapper_PassesOptionalInterfacesOn(t *testing.T) {
	able := inmemory.Open()
	defer able.Close(t.Context())
	topology := core.Topology{InputQueue: "orders", Queues: []string{"orders"}}
	for name, c := range map[string]struct {
		wrapped core.Transport
		want    error
	}{
		"of a transport with all of them": {able, nil},
		"of a transport without any":      {bare{able}, errors.ErrUnsupported},
	} {
		w := transport.Wrapper{Transport: c.wrapped}
		for method, err := range map[string]error{
			"Provision":   w.Provision(t.Context(), topology),
			"Check":       w.Check(t.Context(), topology),
			"Subscribe":   w.Subscribe(t.Context(), "orders", "topic"),
			"Unsubscribe": w.Unsubscribe(t.Context(), "orders", "topic"),
			"Purge":       second(w.Purge(t.Context(), "orders")),
			"Browse":      second(w.Browse(t.Context(), queues.Request{Queue: "orders", Limit: 1})),
			"Take":        second(w.Take(t.Context(), "orders", []queues.Take{{Key: "1"}})),
			"Depth":       second(w.Depth(t.Context(), "orders")),
			"ListQueues":  second(w.ListQueues(t.Context())),
		} {
			if !errors.Is(err, c.want) {
				t.Errorf("%s of a wrapper %s: %v, want %v", method, name, err, c.want)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

// A tool gets the same from a wrapper as from the transport.
func TestWrapper_LooksIntoQueues(t *testing.T) {
	able := inmemory.Open()
	defer able.Close(t.Context())
	w := transport.Wrapper{Transport: able}
	if err := w.Provision(t.Context(), core.Topology{Queues: []string{"error", "orders"}}); err != nil {
		t.Fatal(err)
	}
	if err := w.Send(t.Context(), core.Outgoing{ID: "1", Queue: "error", Body: []byte("failed")}); err != nil {
		t.Fatal(err)
	}
	if names, err := w.ListQueues(t.Context()); err != nil || !slices.Equal(names, []string{"error", "orders"}) {
		t.Errorf("queues %q, %v", names, err)
	}
	page, err := w.Browse(t.Context(), queues.Request{Queue: "error", Limit: 10})
	if err != nil || len(page.Messages) != 1 || string(page.Messages[0].Body) != "failed" {
		t.Fatalf("page %+v, %v", page, err)
	}
	back := core.Outgoing{ID: "1", Queue: "orders", Body: page.Messages[0].Body, Reason: core.ReasonReturn}
	results, err := w.Take(t.Context(), "error", []queues.Take{{Key: page.Messages[0].Key, Out: []core.Outgoing{back}}})
	if err != nil || len(results) != 1 || results[0].State != queues.TakeDone {
		t.Errorf("results %+v, %v", results, err)
	}
	for queue, want := range map[string]int{"error": 0, "orders": 1} {
		if depth, err := w.Depth(t.Context(), queue); err != nil || depth.Ready != want {
			t.Errorf("depth of %s is %+v, %v; want %d", queue, depth, err, want)
		}
	}
}

func TestWrapper_DescribesTheTransport(t *testing.T) {
	able := inmemory.Open()
	defer able.Close(t.Context())
	if got, want := (transport.Wrapper{Transport: able}).Describe(), able.Describe(); got != want || want.System == "" {
		t.Errorf("a wrapper tells %+v, and the transport %+v", got, want)
	}
	if got := (transport.Wrapper{Transport: bare{able}}).Describe(); got != (core.TransportInfo{}) {
		t.Errorf("a wrapper of a transport that tells nothing tells %+v", got)
	}
}

// TestWrapper_RunsEndpoints: an endpoint runs on a wrapper as it does on the
// transport itself, whichever interfaces that has.
func TestWrapper_RunsEndpoints(t *testing.T) {
	for name, hide := range map[string]bool{"all interfaces": false, "no optional interface": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				able := inmemory.Open()
				defer able.Close(t.Context())
				var wrapped core.Transport = able
				if hide {
					wrapped = bare{able}
					if err := able.Provision(t.Context(), core.Topology{Queues: []string{"orders", "error"}}); err != nil {
						t.Fatal(err)
					}
				}
				var sent atomic.Int64
				handled := make(chan string, 1)
				run := func(c core.Config) (*core.Endpoint, func() error) {
					ep, err := core.New("orders", counting{transport.Wrapper{Transport: wrapped}, &sent}, c)
					if err != nil {
						t.Fatal(err)
					}
					core.Handle(ep, orderType, func(_ context.Context, _ *core.Message, body string) error {
						handled <- body
						return nil
					})
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan error, 1)
					go func() { ended <- ep.Run(ctx) }()
					synctest.Wait()
					return ep, func() error { cancel(); return <-ended }
				}
				ep, stop := run(core.Config{})
				if err := ep.Send(t.Context(), "orders", orderType.Of("x")); err != nil {
					t.Fatal(err)
				}
				if body := <-handled; body != "x" || sent.Load() != 1 {
					t.Errorf("handled %q, and the wrapper saw %d messages", body, sent.Load())
				}
				if err := stop(); err != nil {
					t.Errorf("Run: %v", err)
				}
				_, stop = run(core.Config{Provision: core.ProvisionAlways})
				if err := stop(); errors.Is(err, errors.ErrUnsupported) != hide {
					t.Errorf("Run with ProvisionAlways: %v, want errors.ErrUnsupported: %t", err, hide)
				}
				if _, err := ep.Purge(t.Context()); errors.Is(err, errors.ErrUnsupported) != hide {
					t.Errorf("Purge: %v, want errors.ErrUnsupported: %t", err, hide)
				}
			})
		})
	}
}
