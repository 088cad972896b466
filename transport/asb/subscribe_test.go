//go:build darwin || linux

package asb_test

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/asb"
	"github.com/reprise-go/reprise/transport/asb/internal/sbserver"
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
	for _, shared := range []string{"", "events"} {
		var u unlimited
		cfg := s.configured(asb.Config{SharedTopic: shared}, nil)
		cfg.Admin.PerCallPolicies = append(cfg.Admin.PerCallPolicies, &u)
		transport := openConfigured(t, cfg)
		if err := transport.Provision(t.Context(), core.Topology{Queues: []string{"q"}}); err != nil {
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
}
