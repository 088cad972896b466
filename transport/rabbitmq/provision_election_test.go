package rabbitmq_test

import (
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/rabbitmq"
)

// A quorum queue elects a leader before it exists. If the node cannot do that now, since it
// is too busy, the broker answers with an internal error, and a repetition helps. Here the
// part of the node that runs quorum queues is stopped for as long.
func testProvisionElectionFails(t *testing.T, _ *broker, s *site) {
	eval := func(expression string) {
		t.Helper()
		if value, err := s.Eval(t.Context(), expression); err != nil || value != "ok" {
			t.Fatal(expression, " = ", value, err)
		}
	}
	for _, c := range []struct {
		delays bool
		queue  string
	}{{false, "late"}, {true, "later"}} {
		s.delays = c.delays
		transport := s.open(t, rabbitmq.Config{})
		eval("supervisor:terminate_child(ra_systems_sup, quorum_queues), supervisor:delete_child(ra_systems_sup, quorum_queues).")
		provisioned := make(chan error, 1)
		go func() {
			provisioned <- transport.Provision(t.Context(), core.Topology{Queues: []string{c.queue}})
		}()
		awaitTrue(t, "the broker gives up", func() bool {
			return strings.Contains(s.Log(), "Cannot declare quorum queue '"+c.queue+"'") || len(provisioned) > 0
		})
		if len(provisioned) > 0 {
			t.Fatalf("Provision returned %v while no leader could be elected", <-provisioned)
		}
		eval("rabbit_ra_systems:ensure_ra_system_started(quorum_queues).")
		if err := <-provisioned; err != nil {
			t.Error(err)
		}
		mustSend(t, transport, numbered(c.queue, 0, 1)...)
	}
}
