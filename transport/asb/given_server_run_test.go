//go:build darwin || linux

package asb_test

import (
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/internal/testserver/asb/amqp10"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/broker"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/condition"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/properties"
	"github.com/reprise-go/reprise/internal/testserver/asb/sbserver/rules"
	"github.com/reprise-go/reprise/internal/testserver/given"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
)

// everything returns the queues, topics and subscriptions of a server.
func (s *site) everything(t *testing.T) (all []string) {
	t.Helper()
	queues, err := s.Broker().Queues()
	if err != nil {
		t.Fatal(err)
	}
	for _, queue := range queues {
		all = append(all, "queue "+queue.Name)
	}
	topics, err := s.Broker().Topics()
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range topics {
		all = append(all, "topic "+topic.Name)
		subscriptions, err := s.Broker().Subscriptions(topic.Name)
		if err != nil && condition.Of(err) != condition.NotFound { // it may have been deleted since it was listed
			t.Fatal(err)
		}
		for _, subscription := range subscriptions {
			all = append(all, "subscription "+topic.Name+" "+subscription.Name)
		}
	}
	return all
}

// environment names a server as the one that is given.
func (s *site) environment() []string {
	at := s.address()
	return []string{givenVariable + "=" + at.ConnectionString, adminVariable + "=" + at.AdminEndpoint}
}

// madeByCheck is how many queues, topics and subscriptions there are before the first case.
const madeByCheck = 6

func TestGivenServer_IsLeftAsItWas(t *testing.T) {
	if testing.Short() {
		t.Skip("a part of the suite on a server: not in short runs")
	}
	t.Parallel()
	s := startSite(t, sbserver.Config{Key: secretKey})
	for _, queue := range []string{"orders", "reprise_test"} {
		if err := s.Broker().CreateQueue(queue, properties.Queue{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Broker().CreateTopic("reprise_test_events", properties.Topic{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Broker().CreateSubscription("reprise_test_events", "orders", properties.Subscription{}, rules.Rule{}); err != nil {
		t.Fatal(err)
	}
	before := s.everything(t)
	for _, c := range []struct {
		name, cases string
		kill        bool
	}{
		{"at the end of the tests", "^(C18|C19 a queue that subscribes|C22 [^D]|C24 in mode None)", false},
		{"when the tests are killed", "^C19", true}, // long before the last of them
	} {
		t.Run(c.name, func(t *testing.T) {
			run := given.Start(t, "^TestConformance$/"+c.cases, s.environment()...)
			if c.kill {
				run.Await("a case has made entities", func() bool { return len(s.everything(t)) >= len(before)+madeByCheck+5 })
				run.Kill()
			} else if err := run.End(); err != nil || !strings.Contains(run.Output(), "all that the run has made") || !strings.Contains(run.Output(), "conformance: ") {
				t.Errorf("the tests ended with %v:\n%s", err, run.Output())
			}
			if after := s.everything(t); !slices.Equal(after, before) {
				t.Errorf("the server was changed:\nbefore: %q\nafter:  %q\n%s", before, after, run.Output())
			}
			if strings.Contains(run.Output(), secretKey) {
				t.Errorf("the key is in the output:\n%s", run.Output())
			}
		})
	}
}

// A refusal says how to fix it, and does not have the key.
func TestGivenServer_RefusalIsExplained(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the tests once more: not in short runs")
	}
	t.Parallel()
	unauthorized := &amqp10.Error{Condition: amqp10.ErrUnauthorizedAccess, Description: "Unauthorized access. Manage claim is required."}
	for _, c := range []struct {
		name        string
		server      sbserver.Config
		fault       *sbserver.Fault
		environment []string
		want        string
	}{
		{"no connection string", sbserver.Config{}, nil, []string{givenVariable + "=" + secretKey}, "Config.ConnectionString is this variable"},
		{"another key", sbserver.Config{Key: "another"}, nil, nil, "to fix: copy the connection string again"},
		{"no right Manage", sbserver.Config{}, &sbserver.Fault{Ops: []sbserver.Op{sbserver.OpAdministration}, Times: -1, Action: sbserver.Refuse, Error: unauthorized}, nil, "with the right Manage"},
		{"no right Send", sbserver.Config{}, &sbserver.Fault{Ops: []sbserver.Op{sbserver.OpAttachSender}, Times: -1, Action: sbserver.Refuse, Error: unauthorized}, nil, "to fix: use a shared access policy with the right Manage, which has Send and Listen"},
		{"the tier Basic", sbserver.Config{Broker: broker.Config{Tier: "Basic"}}, nil, nil, "to fix: name one of the tier Standard or Premium"},
		{"no administration API", sbserver.Config{}, nil, []string{adminVariable + "="}, "to fix: set " + adminVariable},
		{"a wrong endpoint of the administration API", sbserver.Config{}, nil, []string{adminVariable + "=localhost"}, "must be a URL"},
		{"no server", sbserver.Config{}, nil, []string{adminVariable + "=http://127.0.0.1:1"}, "to fix: check Endpoint"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := startSite(t, c.server)
			if c.fault != nil {
				s.Inject(*c.fault)
			}
			environment := slices.Concat([]string{
				givenVariable + "=Endpoint=sb://" + s.Addr() + ";SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=" + secretKey + ";UseDevelopmentEmulator=true",
				adminVariable + "=http://" + s.AdminAddr(),
			}, c.environment)
			run := given.Start(t, "^TestConformance$/^C24", environment...)
			if err := run.End(); err == nil || !strings.Contains(run.Output(), c.want) {
				t.Errorf("the tests ended with %v, and have not said %q:\n%s", err, c.want, run.Output())
			}
			if strings.Contains(run.Output(), secretKey) {
				t.Errorf("the key is in the output:\n%s", run.Output())
			}
			if left := s.everything(t); len(left) > 0 {
				t.Errorf("the tests have left %v", left)
			}
		})
	}
}

// The network of the suite verifies the server as the SDK does, so that no other server gets the key.
func TestGivenServer_CertificateIsVerified(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // it would log the refusal
	s.StartTLS()
	t.Cleanup(s.Close)
	at := address{ConnectionString: "Endpoint=sb://" + s.Listener.Addr().String() + "/;SharedAccessKeyName=any;SharedAccessKey=" + secretKey}
	conn, err := at.dial(t.Context(), proxy.NewNetwork(t))
	if conn != nil {
		_ = conn.Close() // nothing was sent
	}
	if _, refused := errors.AsType[*tls.CertificateVerificationError](err); !refused {
		t.Errorf("a connection to a server whose certificate is not trusted: %v", err)
	}
}
