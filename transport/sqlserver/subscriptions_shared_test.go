package sqlserver_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// TestSubscribe_EndpointMovesToAnotherSchema, as one of NServiceBus does: where
// schemas share a table of subscriptions, a row is an endpoint's, and its queue's address
// is where the endpoint is now. Endpoints of other names are left alone.
func TestSubscribe_EndpointMovesToAnotherSchema(t *testing.T) {
	t.Parallel()
	before, after := newSchema(t), newSchema(t)
	shared := pgx.Identifier{before.schema, "Shared"}.Sanitize()
	cfg := sqlserver.Config{SubscriptionTable: shared, SubscriptionCache: -1}
	old, moved := before.open(t, cfg), after.open(t, cfg)
	provision(t, old, "orders", "billing")
	provision(t, moved, "orders")
	for _, c := range []struct {
		transport *sqlserver.Transport
		queue     string
	}{{old, "billing"}, {old, "orders"}, {moved, "orders"}, {moved, "orders"}} {
		if err := c.transport.Subscribe(t.Context(), c.queue, "topic"); err != nil {
			t.Fatal(err)
		}
	}
	got := before.column(t, `select endpoint || ' ' || queueaddress from `+shared+` order by 1`)
	if want := []string{"billing " + before.table("billing"), "orders " + after.table("orders")}; !slices.Equal(got, want) {
		t.Fatalf("the table has %q, want %q", got, want)
	}
	send(t, old, publication("1", "topic"))
	for table, want := range map[string]string{before.table("billing"): "1", before.table("orders"): "0", after.table("orders"): "1"} {
		if n := before.count(t, table); n != want {
			t.Errorf("%s messages in %s, want %s", n, table, want)
		}
	}

	// By its address, each queue of a name is a separate endpoint.
	if err := moved.Subscribe(t.Context(), before.table("orders"), "topic"); err != nil {
		t.Fatal(err)
	}
	send(t, old, publication("2", "topic"))
	complete(t, receive(t, openReceiver(t, old, "orders", core.TransactionReceiveOnly)))
	complete(t, receive(t, openReceiver(t, moved, "orders", core.TransactionReceiveOnly)))
}
