package rabbitmq_test

import (
	"errors"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// The removed topic is derived from one that is kept, and both queues have subscribed to both.
func TestRemove_EachTopology(t *testing.T) {
	t.Parallel()
	const gone, kept = "Shop.Gone", "Shop.Kept"
	onBoth(t, func(t *testing.T, s *site) {
		for _, topology := range []rabbitmq.RoutingTopology{rabbitmq.Conventional, rabbitmq.Direct, rabbitmq.NServiceBus} {
			t.Run(topology.String(), func(t *testing.T) {
				s := newSite(t, s.Server)
				cfg := s.beside(t)
				cfg.Topology = topology
				publishGone := func(transport *rabbitmq.Transport) error {
					return transport.Send(t.Context(), core.Outgoing{ID: "1", Topic: gone, BaseTopics: []string{kept}, Body: []byte(gone)})
				}
				transport, publisher := s.provisioned(t, cfg, "sales"), s.open(t, cfg)
				subscribe(t, transport, "sales", kept)
				publish(t, publisher, kept)
				everything := func() []string { return append(s.catalogue(t), s.manage(t, "GET", "/api/policies/"+s.vhost, nil)) }
				before := everything()

				provision(t, transport, "billing")
				subscribe(t, transport, "billing", gone, kept)
				subscribe(t, transport, "sales", gone)
				if err := publishGone(publisher); err != nil {
					t.Fatal(err)
				}
				if got, want := s.arrived(t, "sales"), kept+" "+gone; got != want {
					t.Errorf("sales has %q, want %q", got, want)
				}
				topics := []string{gone}
				if topology == rabbitmq.Direct {
					all := everything()
					if err := transport.Remove(t.Context(), []string{"billing"}, topics); !errors.Is(err, errors.ErrUnsupported) {
						t.Errorf("Remove of a topic = %v, want errors.ErrUnsupported", err)
					}
					sameCatalogue(t, everything(), all)
					unsubscribe(t, transport, "sales", gone)
					topics = nil
				} else {
					topics = append(topics, "Shop.Missing")
				}
				for range 2 {
					if err := transport.Remove(t.Context(), []string{"billing", "missing"}, topics); err != nil {
						t.Fatal(err)
					}
					sameCatalogue(t, everything(), before)
				}

				awaitTrue(t, "the removed topic is published to again", func() bool { return publishGone(publisher) == nil })
				if got := s.arrived(t, "sales"); got != gone {
					t.Errorf("by its subscription to the base topic sales has %q, want %q", got, gone)
				}
				provision(t, transport, "billing")
				subscribe(t, transport, "billing", gone)
				if err := publishGone(publisher); err != nil {
					t.Fatal(err)
				}
				if got := s.arrived(t, "billing"); got != gone {
					t.Errorf("created again, billing has %q, want %q", got, gone)
				}
			})
		}
	})
}

func TestRemove_PolicyNeedsTheTag(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		provision(t, s.open(t, s.beside(t)), "billing")
		cfg := s.beside(t)
		cfg.ManagementURL = s.managementAs(t, "management")
		transport := s.open(t, cfg)
		saysAll(t, transport.Remove(t.Context(), []string{"billing"}, nil), `delete the policy "nsb.billing.delivery-limit"`, "tag policymaker")
		if err := transport.Remove(t.Context(), []string{"missing"}, nil); err != nil {
			t.Errorf("a queue without a policy: %v", err)
		}
	})
}
