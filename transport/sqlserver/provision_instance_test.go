package sqlserver_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// instanceTopology is that of an endpoint whose instance has a queue.
var instanceTopology = core.Topology{InputQueue: "orders", Queues: []string{"orders", "orders-a", "error"}, InstanceQueue: "orders-a"}

// An instance's queue is a table like any other, which stays until somebody drops it.
func TestProvision_InstanceQueue(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]sqlserver.Config{"of Reprise": {}, "of NServiceBus": {NServiceBusTables: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, alone := newSchema(t), newSchema(t)
			transport := db.open(t, cfg)
			for range 2 {
				if err := transport.Provision(t.Context(), instanceTopology); err != nil {
					t.Fatal(err)
				}
			}
			provision(t, alone.open(t, cfg), instanceTopology.Queues...)
			if lines := differences(db.catalogue(t), alone.catalogue(t)); len(lines) > 0 {
				t.Errorf("it differs from another queue:\n%s", strings.Join(lines, "\n"))
			}
			if err := transport.Check(t.Context(), instanceTopology); err != nil {
				t.Error(err)
			}
			db.exec(t, "drop table "+db.table("orders-a")) // as the documentation says
			if err := db.open(t, cfg).Check(t.Context(), instanceTopology); !errors.Is(err, core.ErrQueueNotFound) || !strings.Contains(err.Error(), "orders-a") {
				t.Errorf("Check without it: %v", err)
			}
		})
	}
}

// The endpoint receives from the instance's queue, so it takes the rights for that.
func TestCheck_RightsOnTheInstanceQueue(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	provision(t, db.open(t, sqlserver.Config{}), instanceTopology.Queues...)
	role, rawURL := db.role(t)
	for _, right := range []string{
		"usage on schema " + schemaOf(db), "select, update, delete on " + db.table("orders"), "insert on " + db.table("error"), "insert on " + db.table("orders-a"),
	} {
		db.grant(t, "grant "+right+" to "+role)
	}
	transport := db.open(t, sqlserver.Config{URL: rawURL})
	if err := transport.Check(t.Context(), core.Topology{InputQueue: "orders", Queues: instanceTopology.Queues}); err != nil {
		t.Fatalf("to send there the rights suffice, but %v", err)
	}
	err := transport.Check(t.Context(), instanceTopology)
	grants := grantsIn(err)
	if err == nil || len(grants) == 0 {
		t.Fatalf("Check = %v", err)
	}
	for _, grant := range grants {
		if !strings.Contains(grant, "orders-a") {
			t.Errorf("Check asks for %s", grant)
		}
		db.grant(t, grant)
	}
	if err := transport.Check(t.Context(), instanceTopology); err != nil {
		t.Errorf("after the grants %v: %v", grants, err)
	}
}
