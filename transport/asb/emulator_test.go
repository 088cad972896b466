//go:build darwin || linux

package asb_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/transport/asb"
)

// startEmulator starts a server with the limits of Microsoft's emulator for entities.
func startEmulator(t *testing.T) *site {
	return startSite(t, sbserver.Config{Broker: broker.Config{EmulatorLimits: true}})
}

func TestEmulator_RefusalsTellTheSettings(t *testing.T) {
	t.Parallel()
	s := startEmulator(t)
	plain := s.open(t, asb.Config{})
	const settings = "set them in Config.CustomizeQueue and Config.CustomizeSubscription"
	if err := plain.Provision(t.Context(), core.Topology{InputQueue: "q", Queues: []string{"q"}}); err == nil || !strings.Contains(err.Error(), settings) {
		t.Errorf("Provision: %v", err)
	}
	customized, _ := emulatorConfig()
	transport := s.provisioned(t, customized, "q")
	if err := plain.Subscribe(t.Context(), "q", "Shop.Placed"); err == nil || !strings.Contains(err.Error(), settings) {
		t.Errorf("Subscribe: %v", err)
	}
	receiver := core.ReceiverConfig{Queue: "q", Mode: core.TransactionReceiveOnly, MaxInFlight: 1, MaxDeliveries: 10}
	if _, err := transport.OpenReceiver(t.Context(), receiver); err == nil || !strings.Contains(err.Error(), "set Recoverability.MaxDeliveries to 9") {
		t.Errorf("OpenReceiver for an endpoint with more deliveries: %v", err)
	}
	receiver.MaxDeliveries = 9
	if _, err := transport.OpenReceiver(t.Context(), receiver); err != nil {
		t.Error(err)
	}
	if warnings := transport.Warnings(); len(warnings) != 0 {
		t.Errorf("the warnings are %q, but the emulator allows no larger MaxDeliveryCount", warnings)
	}
}

// The configuration is that of the documentation. The second start finds the entities of the first one.
func TestEmulator_ServesAnEndpointWithEvents(t *testing.T) {
	t.Parallel()
	s := startEmulator(t)
	for range 2 {
		cfg, endpoint := emulatorConfig()
		endpoint.Provision = core.ProvisionAlways
		ep, err := core.New("q", s.open(t, cfg), endpoint)
		if err != nil {
			t.Fatal(err)
		}
		handled := make(chan struct{}, 1)
		core.HandleEvent(ep, placedEvent, func(context.Context, *core.Message, string) error {
			handled <- struct{}{}
			return nil
		})
		if err := ep.Provision(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- ep.Run(ctx) }()
		if err := ep.Publish(t.Context(), placedEvent.Of("order")); err != nil {
			t.Fatal(err)
		}
		select {
		case <-handled:
		case err := <-ended:
			t.Fatalf("the endpoint ended: %v", err)
		case <-time.After(patience):
			t.Fatal("the event did not arrive")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
