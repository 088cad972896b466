//go:build darwin || linux

package asb_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/rules"
	"github.com/reprise-go/reprise/transport/asb"
)

// unlimited counts requests that no deadline ends.
type unlimited struct{ requests, total atomic.Int64 }

// Do implements policy.Policy.
func (u *unlimited) Do(req *policy.Request) (*http.Response, error) {
	u.total.Add(1)
	if _, ok := req.Raw().Context().Deadline(); !ok {
		u.requests.Add(1)
	}
	return req.Next()
}

func TestAdmin_EveryRequestHasATimeLimit(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	var u unlimited
	cfg := s.configured(asb.Config{}, nil)
	cfg.Admin.PerCallPolicies = append(cfg.Admin.PerCallPolicies, &u)
	transport := openConfigured(t, cfg)
	if err := transport.Provision(t.Context(), core.Topology{InputQueue: "q", Queues: []string{"q"}}); err != nil {
		t.Fatal(err)
	}
	openReceiver(t, transport, "q", 1)
	for range 2 { // the second time it is there
		if err := transport.Subscribe(t.Context(), "q", "Shop.Placed", "Shop.Paid"); err != nil {
			t.Fatal(err)
		}
	}
	if err := transport.Unsubscribe(t.Context(), "q", "Shop.Placed"); err != nil {
		t.Error(err)
	}
	if u.total.Load() < 6 || u.requests.Load() != 0 {
		t.Errorf("%d of %d requests have no time limit", u.requests.Load(), u.total.Load())
	}
}

// The entities were deployed, with more rights than the endpoint has.
func TestNoAdmin_EndpointReceivesEvents(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	deployed := s.provisioned(t, asb.Config{}, "q", "error")
	if err := deployed.Subscribe(t.Context(), "q", "Shop.Placed"); err != nil {
		t.Fatal(err)
	}
	before := s.Count(sbserver.OpAdministration, "")
	ep, err := core.New("q", s.open(t, asb.Config{NoAdmin: true}), core.Config{Provision: core.ProvisionNever})
	if err != nil {
		t.Fatal(err)
	}
	handled := make(chan struct{}, 1)
	core.HandleEvent(ep, placedEvent, func(context.Context, *core.Message, string) error {
		handled <- struct{}{}
		return nil
	})
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
	if n := s.Count(sbserver.OpAdministration, "") - before; n != 0 {
		t.Errorf("there were %d requests that need the right Manage", n)
	}
}

func TestSubscribe_WithoutTheRightManageNamesTheCommands(t *testing.T) {
	t.Parallel()
	cfg := startSite(t, sbserver.Config{}).configured(asb.Config{}, nil)
	cfg.Admin.PerCallPolicies = append(cfg.Admin.PerCallPolicies, unauthorized{})
	err := openConfigured(t, cfg).Subscribe(t.Context(), "q", "Shop.Placed")
	if err == nil || !strings.Contains(err.Error(), "set Config.NoAdmin after: az servicebus topic create") {
		t.Errorf("the error is %v", err)
	}
}

// The service forwards events to the queue that had the name when the subscription was changed last. They are lost when that was deleted.
func TestSubscribe_RecreatedQueueGetsItsEvents(t *testing.T) {
	t.Parallel()
	const foreign = "of the team Billing"
	for name, c := range map[string]struct {
		topic string
		made  func(t *testing.T, s *site) // instead of Subscribe
		keeps string                      // in the user metadata of the subscription
	}{
		"a topic each": {topic: "Shop.Placed"},
		"a subscription that others have made": {topic: "Shop.Placed", keeps: foreign, made: func(t *testing.T, s *site) {
			if err := s.Broker().CreateTopic("Shop.Placed", properties.Topic{}); err != nil {
				t.Fatal(err)
			}
			if err := s.Broker().CreateSubscription("Shop.Placed", "q", properties.Subscription{ForwardTo: "q", UserMetadata: foreign}, rules.Rule{}); err != nil {
				t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, sbserver.Config{})
			transport := s.provisioned(t, asb.Config{}, "q")
			if c.made != nil {
				c.made(t, s)
			}
			subscribe := func() broker.SubscriptionInfo {
				if err := transport.Subscribe(t.Context(), "q", "Shop.Placed"); err != nil {
					t.Fatal(err)
				}
				info, err := s.Broker().Subscription(c.topic, "q")
				if err != nil {
					t.Fatal(err)
				}
				return info
			}
			first := subscribe()
			if second := subscribe(); !second.Runtime.Updated.Equal(first.Runtime.Updated) {
				t.Error("a subscription that forwards to its queue was changed")
			}
			if err := s.Broker().DeleteQueue("q"); err != nil {
				t.Fatal(err)
			}
			if err := transport.Provision(t.Context(), core.Topology{InputQueue: "q", Queues: []string{"q"}}); err != nil {
				t.Fatal(err)
			}
			renewed := subscribe()
			if metadata := renewed.Properties.UserMetadata; !strings.HasPrefix(metadata, c.keeps) {
				t.Errorf("the user metadata are %q, and were %q", metadata, c.keeps)
			}
			if second := subscribe(); !second.Runtime.Updated.Equal(renewed.Runtime.Updated) {
				t.Error("a subscription that forwards to its new queue was changed once more")
			}
			if err := transport.Send(t.Context(), core.Outgoing{ID: "event", Topic: "Shop.Placed", Body: []byte("event")}); err != nil {
				t.Fatal(err)
			}
			if dead, err := s.Broker().Subscription(c.topic, "q"); err != nil || dead.Runtime.DeadLetter != 0 {
				t.Fatalf("the subscription has %d dead letters, %v", dead.Runtime.DeadLetter, err)
			}
			complete(t, take(t, openReceiver(t, transport, "q", 1), 1)[0])
		})
	}
}
