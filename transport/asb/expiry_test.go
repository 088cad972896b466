package asb_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/transport/asb"
)

// expiring is the topology of an endpoint with an input queue that expires.
func expiring(queue string, after time.Duration) core.Topology {
	return core.Topology{InputQueue: queue, Queues: []string{queue, "error"}, QueueExpiry: after}
}

// The service deletes the queue that long after its last receiver has left, with its messages,
// and not before.
func TestProvision_QueueExpiresWithoutAReceiver(t *testing.T) {
	t.Parallel()
	const expiry = 20 * time.Minute
	clock := clock.NewFake(time.Now().Add(-24 * time.Hour))
	s := startSite(t, sbserver.Config{Broker: broker.Config{Clock: clock}})
	transport := s.open(t, asb.Config{})
	exists := func() bool { _, err := s.Broker().Queue("q"); return err == nil }
	for range 2 {
		if err := errors.Join(transport.Provision(t.Context(), expiring("q", expiry)), transport.Check(t.Context(), expiring("q", expiry))); err != nil {
			t.Fatal(err)
		}
	}
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "q", Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
	if err != nil {
		t.Fatal(err)
	}
	if clock.Advance(2 * expiry); !exists() {
		t.Fatal("the queue was deleted although it has a receiver")
	}
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	send := func() error {
		return transport.Send(t.Context(), core.Outgoing{ID: "m", Queue: "q", Body: []byte("x")})
	}
	if err := send(); err != nil { // a message does not keep it
		t.Fatal(err)
	}
	if clock.Advance(expiry - time.Second); !exists() {
		t.Error("the queue was deleted too early")
	}
	if clock.Advance(time.Second); exists() {
		t.Error("the queue was not deleted")
	}
	if _, err := s.Broker().Queue("error"); err != nil {
		t.Errorf("the error queue: %v", err)
	}
	if err := send(); !errors.Is(err, core.ErrQueueNotFound) {
		t.Errorf("Send to it: %v", err)
	}
	if err := transport.Provision(t.Context(), expiring("q", expiry)); err != nil || !exists() {
		t.Errorf("it is created anew: %v, %v", exists(), err)
	}
}

func TestQueueExpiry_Refused(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	transport := s.open(t, asb.Config{SessionQueues: []string{"ordered*"}})
	for name, c := range map[string]struct {
		topology core.Topology
		says     string
	}{
		"too short":     {expiring("q", 5*time.Minute-1), "Config.QueueExpiry of the endpoint is 4m59.999999999s, but Service Bus deletes a queue (AutoDeleteOnIdle) after 5m0s at the earliest"},
		"with sessions": {expiring("ordered-1", time.Hour), `the queue "ordered-1" has sessions`},
	} {
		for operation, err := range map[string]error{"Provision": transport.Provision(t.Context(), c.topology), "Check": transport.Check(t.Context(), c.topology)} {
			if err == nil || !strings.Contains(err.Error(), c.says) || errors.Is(err, errors.ErrUnsupported) || errors.Is(err, core.ErrUnavailable) {
				t.Errorf("%s, %s: %v", name, operation, err)
			}
		}
	}
	if queues, err := s.Broker().Queues(); err != nil || len(queues) > 0 {
		t.Errorf("there are the queues %v, %v", queues, err)
	}
}

func TestProvision_QueueOfAnotherExpiry(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	for queue, idle := range map[string]time.Duration{"stays": 0, "shorter": 10 * time.Minute, "same": time.Hour} {
		if err := s.Broker().CreateQueue(queue, properties.Queue{AutoDeleteOnIdle: idle, MaxDeliveryCount: 2000}); err != nil {
			t.Fatal(err)
		}
	}
	transport := s.open(t, asb.Config{})
	for queue, says := range map[string]string{"stays": "AutoDeleteOnIdle P10675199DT2H48M5.4775807S", "shorter": "AutoDeleteOnIdle PT10M", "same": ""} {
		err := transport.Provision(t.Context(), expiring(queue, time.Hour))
		switch {
		case says == "":
			if err != nil {
				t.Errorf("%s: %v", queue, err)
			}
		case err == nil || !strings.Contains(err.Error(), says+", and Provision would create it with PT3600S") || !strings.Contains(err.Error(), "--name "+queue+" --auto-delete-on-idle PT3600S"):
			t.Errorf("%s: %v", queue, err)
		}
	}
	err := s.open(t, asb.Config{NoAdmin: true}).Provision(t.Context(), expiring("missing", time.Hour))
	if err == nil || !strings.Contains(err.Error(), "--auto-delete-on-idle PT3600S") {
		t.Errorf("without administration: %v", err)
	}
}
