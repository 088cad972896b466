package sqlserver_test

import (
	"slices"
	"testing"
	"time"

	"github.com/reprise-go/reprise/transport/sqlserver"
)

func TestRemove_RemovesDelayedMessagesOfTheQueueAlone(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	gone, dropped, kept := db.theirTable(t, "gone"), db.theirTable(t, "dropped"), db.theirTable(t, "kept")
	waiting := db.table("reprise_delayed")
	transport := db.open(t, sqlserver.Config{})
	for _, queue := range []string{"gone", "dropped", "kept"} {
		send(t, transport, delayed("1", queue, time.Hour), delayed("2", queue, time.Hour))
	}
	db.exec(t, `drop table `+dropped)
	if err := transport.Remove(t.Context(), []string{gone, "dropped"}, nil); err != nil {
		t.Fatal(err)
	}
	if got := db.column(t, `select destination from `+waiting); !slices.Equal(got, []string{kept, kept}) {
		t.Errorf("messages wait for %q, want two for %s", got, kept)
	}
	db.exec(t, `drop table `+waiting)
	if err := transport.Remove(t.Context(), []string{"kept"}, nil); err != nil {
		t.Errorf("without the table of delayed messages: %v", err)
	}
}

func TestRemove_NamesMissingRights(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	provision(t, db.open(t, sqlserver.Config{}), "orders")
	role, rawURL := db.role(t)
	db.grant(t, "grant usage on schema "+schemaOf(db)+" to "+role)
	db.grant(t, "grant select, delete on "+db.table("SubscriptionRouting")+" to "+role)
	transport := db.open(t, sqlserver.Config{URL: rawURL})
	err := transport.Remove(t.Context(), []string{"missing"}, nil)
	want := "grant select, delete on " + db.table("reprise_delayed") + " to " + role
	if !isDenied(err) || !slices.Equal(grantsIn(err), []string{want}) {
		t.Fatalf("Remove = %v, want it to say %q", err, want)
	}
	db.grant(t, want)
	if err := transport.Remove(t.Context(), []string{"missing"}, nil); err != nil {
		t.Error(err)
	}
}
