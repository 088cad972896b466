package sqlserver_test

import (
	"fmt"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// TestPurge_RemovesMoreThanOneStatementDoes, in tables of either make.
func TestPurge_RemovesMoreThanOneStatementDoes(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for name, foreign := range map[string]bool{"Reprise's": false, "NServiceBus's": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newSchema(t)
			transport := db.open(t, sqlserver.Config{NServiceBusTables: foreign})
			if err := transport.Provision(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders"}}); err != nil {
				t.Fatal(err)
			}
			msgs := make([]core.Outgoing, 2_500)
			for i := range msgs {
				msgs[i] = core.Outgoing{ID: fmt.Sprint("m", i), Queue: "orders"}
			}
			if err := transport.Send(t.Context(), msgs...); err != nil {
				t.Fatal(err)
			}
			if n, err := transport.Purge(t.Context(), "orders"); n != len(msgs) || err != nil {
				t.Errorf("Purge returns %d, %v; want %d", n, err, len(msgs))
			}
		})
	}
}
