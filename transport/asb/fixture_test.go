//go:build darwin || linux

package asb_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	"github.com/reprise-go/reprise/transport/asb"
)

// patience is how long a test waits for an event that has to happen.
const patience = 2 * time.Minute

// site is a server of a test.
type site struct{ *sbserver.Server }

func startSite(t testing.TB, cfg sbserver.Config) *site {
	t.Helper()
	s, err := sbserver.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return &site{s}
}

// address is how the server is reached.
func (s *site) address() address {
	return address{s.ConnectionString(), "http://" + s.AdminAddr()}
}

// configured is a configuration that reaches the server, through a network if it is not nil.
func (s *site) configured(cfg asb.Config, through *proxy.Network) asb.Config {
	return s.address().configured(cfg, through)
}

// open opens a transport, and closes it at the end of the test.
func (s *site) open(t testing.TB, cfg asb.Config) *asb.Transport {
	t.Helper()
	return openConfigured(t, s.configured(cfg, nil))
}

func openConfigured(t testing.TB, cfg asb.Config) *asb.Transport {
	t.Helper()
	transport, err := asb.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := transport.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return transport
}

// provisioned opens a transport and creates queues, of which the first is its own.
func (s *site) provisioned(t testing.TB, cfg asb.Config, queues ...string) *asb.Transport {
	t.Helper()
	transport := s.open(t, cfg)
	topology := core.Topology{Queues: queues}
	if len(queues) > 0 {
		topology.InputQueue = queues[0]
	}
	if err := transport.Provision(t.Context(), topology); err != nil {
		t.Fatal(err)
	}
	return transport
}

// openReceiver opens a receiver, which its transport closes.
func openReceiver(t testing.TB, transport core.Transport, queue string, maxInFlight int) core.Receiver {
	t.Helper()
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{
		Queue: queue, Mode: core.TransactionReceiveOnly, MaxInFlight: maxInFlight, MaxDeliveries: 1000,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// take receives n deliveries.
func take(t testing.TB, r core.Receiver, n int) []core.Delivery {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var taken []core.Delivery
	for len(taken) < n {
		dst := make([]core.Delivery, n-len(taken))
		got, err := r.Receive(ctx, dst)
		if err != nil {
			t.Fatalf("after %d of %d deliveries: %v", len(taken), n, err)
		}
		taken = append(taken, dst[:got]...)
	}
	return taken
}

// send sends messages with bodies to a queue.
func send(t testing.TB, transport core.Transport, queue string, bodies ...string) {
	t.Helper()
	msgs := make([]core.Outgoing, len(bodies))
	for i, body := range bodies {
		msgs[i] = core.Outgoing{ID: body, Queue: queue, Body: []byte(body)}
	}
	if err := transport.Send(t.Context(), msgs...); err != nil {
		t.Fatal(err)
	}
}

// await waits until a condition holds.
func await(t testing.TB, condition string, holds func() bool) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for !holds() {
		if time.Now().After(deadline) {
			t.Fatalf("it did not happen that %s", condition)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// headersOf returns the headers of a map.
func headersOf(pairs ...string) core.Headers {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return core.HeadersFromMap(m)
}

// unauthorized is a policy of the SDK that answers every request as the service does for an identity without rights.
type unauthorized struct{}

// Do implements policy.Policy.
func (unauthorized) Do(req *policy.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusUnauthorized, Status: "401 Unauthorized", Body: http.NoBody, Request: req.Raw()}, nil
}
