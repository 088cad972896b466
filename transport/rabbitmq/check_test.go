package rabbitmq_test

import (
	"errors"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
	testserver "github.com/reprise-go/reprise/internal/testserver/rabbitmq"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

func TestCheck_NamesEveryMissingQueue(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		transport := s.provisioned(t, rabbitmq.Config{}, "orders", "audit")
		before := s.catalogue(t)
		for _, topology := range []core.Topology{{}, {InputQueue: "orders", Queues: []string{"orders"}}, {InputQueue: "orders", Queues: []string{"orders", "audit"}}} {
			if err := transport.Check(t.Context(), topology); err != nil {
				t.Errorf("Check of %v: %v", topology.Queues, err)
			}
		}
		err := transport.Check(t.Context(), core.Topology{InputQueue: "nowhere", Queues: []string{"nowhere", "audit", "error"}})
		saysAll(t, err, "rabbitmq: check", "'nowhere'", "'error'", "Provision")
		if !errors.Is(err, core.ErrQueueNotFound) {
			t.Errorf("Check = %v, want ErrQueueNotFound", err)
		}
		if err != nil && strings.Contains(err.Error(), "audit") {
			t.Errorf("Check names a queue that exists: %v", err)
		}
		saysAll(t, transport.Check(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders", "amq.error"}}), `"amq.error"`)
		sameCatalogue(t, s.catalogue(t), before)
	})
}

// Messages in other queues are the responsibility of their own receivers.
func TestCheck_LooksAtTheInputQueue(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		s.queue(t, "error", amqp.Table{"x-queue-type": "classic"})
		for _, cfg := range []rabbitmq.Config{{}, {ManagementURL: s.ManagementURL()}} {
			transport := s.provisioned(t, cfg, "orders")
			if err := transport.Check(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders", "error"}}); err != nil {
				t.Error(err)
			}
			saysAll(t, transport.Check(t.Context(), core.Topology{InputQueue: "error", Queues: []string{"error", "orders"}}), `"error"`, "classic", "quorum")
		}
	})
}

func TestCheck_ClassicQueues(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		s.queue(t, "untyped", nil)
		for _, cfg := range []rabbitmq.Config{{QueueType: rabbitmq.Classic}, {QueueType: rabbitmq.Classic, ManagementURL: s.ManagementURL()}} {
			transport := s.provisioned(t, cfg, "orders", "untyped")
			for _, queue := range []string{"orders", "untyped"} {
				if err := transport.Check(t.Context(), core.Topology{InputQueue: queue, Queues: []string{queue}}); err != nil {
					t.Error(err)
				}
				if err := receive(t, transport, queue, 50); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// OpenReceiver waits for a broker that cannot be reached; Check does not.
func TestCheck_DoesNotWaitForTheBroker(t *testing.T) {
	t.Parallel()
	onNewest(t, func(t *testing.T, s *site) {
		p, err := proxy.New(s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		transport := s.open(t, rabbitmq.Config{URLs: []string{testserver.Via(s.PasswordURL(s.vhost), p.Addr())}})
		if err := p.Refuse(); err != nil {
			t.Fatal(err)
		}
		saysAll(t, transport.Check(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders"}}), "rabbitmq: check", p.Addr())
		if err := p.Accept(); err != nil {
			t.Fatal(err)
		}
		if err := transport.Check(t.Context(), core.Topology{}); err != nil {
			t.Error(err)
		}
	})
}

func TestCheck_NamesTheRefusal(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, s *site) {
		wrong := s.open(t, rabbitmq.Config{URLs: []string{"amqp://reprise:s3cret@" + s.Addr() + "/" + s.vhost}})
		err := wrong.Check(t.Context(), core.Topology{})
		saysAll(t, err, "rabbitmq: check", s.Addr())
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the error tells the password: %v", err)
		}
		nowhere := s.open(t, rabbitmq.Config{URLs: []string{s.PasswordURL("nowhere")}})
		saysAll(t, nowhere.Check(t.Context(), core.Topology{}), "rabbitmq: check", "nowhere")
	})
}
