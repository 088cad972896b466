//go:build darwin || linux

package asb_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/messaging/azservicebus"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/clock"
	"github.com/reprise-go/reprise/transport/asb"
)

// identity is a credential that has no token while Microsoft Entra or the machine's identity service is unreachable.
type identity struct{ unreachable atomic.Bool }

// GetToken implements azcore.TokenCredential.
func (c *identity) GetToken(context.Context, policy.TokenRequestOptions) (azcore.AccessToken, error) {
	if c.unreachable.Load() {
		return azcore.AccessToken{}, noToken{errors.New("DefaultAzureCredential: failed to acquire a token")}
	}
	return azcore.AccessToken{Token: "token", ExpiresOn: time.Now().Add(time.Hour)}, nil
}

// noToken is marked as azidentity marks its errors.
type noToken struct{ error }

func (noToken) NonRetriable() {}

// signedIn opens a transport that signs in with a credential.
func (s *site) signedIn(t *testing.T, credential azcore.TokenCredential) *asb.Transport {
	t.Helper()
	cfg := asb.Config{Namespace: "shop.servicebus.windows.net", Credential: credential, NoAdmin: true}
	cfg.Client.NewWebSocketConn = func(ctx context.Context, _ azservicebus.NewWebSocketConnArgs) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", s.Addr())
	}
	return openConfigured(t, cfg)
}

func TestToken_MissingWhileItRunsIsAnOutage(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	s.provisioned(t, asb.Config{}, "q")
	var entra identity
	transport := s.signedIn(t, &entra)
	var told changes
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{
		Queue: "q", Mode: core.TransactionReceiveOnly, MaxInFlight: 1, MaxDeliveries: 10, ConnectionChanged: told.ConnectionChanged,
	})
	if err != nil {
		t.Fatal(err)
	}
	entra.unreachable.Store(true)
	s.CutConnections()
	await(t, "the observer is told of more than would end the receiver if rights were refused", func() bool {
		missing := 0
		for _, err := range told.outages() {
			if strings.Contains(err.Error(), "sign in") {
				missing++
			}
		}
		return missing >= 6
	})
	err = transport.Send(t.Context(), core.Outgoing{ID: "id", Queue: "q"})
	if failed, ok := errors.AsType[*core.SendError](err); !ok || failed.Results[0].State != core.SendRefused || !strings.Contains(err.Error(), "Config.Credential") {
		t.Errorf("Send without a token returned %v", err)
	}
	entra.unreachable.Store(false)
	send(t, transport, "q", "after it")
	complete(t, take(t, r, 1)[0])
}

func TestToken_MissingAtTheStartIsAnError(t *testing.T) {
	t.Parallel()
	s := startSite(t, sbserver.Config{})
	s.provisioned(t, asb.Config{}, "q")
	var entra identity
	entra.unreachable.Store(true)
	err := s.signedIn(t, &entra).Check(t.Context(), core.Topology{InputQueue: "q", Queues: []string{"q"}})
	if err == nil || errors.Is(err, core.ErrUnavailable) || !strings.Contains(err.Error(), "Config.Credential") {
		t.Errorf("Check returned %v", err)
	}
}

// The service detaches links whose token has expired, more often than it may refuse rights in a row.
func TestToken_Expires(t *testing.T) {
	t.Parallel()
	clock := clock.NewFake(time.Now())
	const lifetime = time.Minute
	s := startSite(t, sbserver.Config{TokenLifetime: lifetime, Broker: broker.Config{Clock: clock}})
	cfg := asb.Config{SessionQueues: []string{"ordered"}, LockDuration: longestLock}
	transport := s.provisioned(t, cfg, "plain", "ordered")
	for _, queue := range []string{"plain", "ordered"} {
		r := openReceiver(t, transport, queue, 1)
		for range 7 {
			await(t, "a message is accepted", func() bool { return transport.Send(t.Context(), core.Outgoing{ID: "id", Queue: queue}) == nil })
			complete(t, take(t, r, 1)[0])
			clock.Advance(lifetime)
		}
		if n := s.Count(sbserver.OpAttachReceiver, queue); n < 7 {
			t.Errorf("%d links were opened to receive from %q; 7 tokens have expired", n, queue)
		}
	}
}
