package sqlserver_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// With one connection for all, which the caller's transaction has, sends in it do not wait
// for another connection.
func TestSend_TransactionHasTheOnlyConnection(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		message func(db *testDatabase) core.Outgoing
		table   string // where it is then
		drop    string // which does not exist
	}{
		"at once":                       {func(*testDatabase) core.Outgoing { return letter("1", "orders") }, "orders", ""},
		"later":                         {func(*testDatabase) core.Outgoing { return delayed("1", "orders", time.Hour) }, "orders", ""},
		"later, to NServiceBus":         {func(*testDatabase) core.Outgoing { return delayed("1", "theirs", time.Hour) }, "reprise_delayed", ""},
		"published":                     {func(*testDatabase) core.Outgoing { return publication("1", "topic") }, "orders", ""},
		"published without subscribers": {func(*testDatabase) core.Outgoing { return publication("1", "topic") }, "", "SubscriptionRouting"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newSchema(t)
			owner := db.open(t, sqlserver.Config{})
			provision(t, owner, "orders")
			if err := owner.Subscribe(t.Context(), "orders", "topic"); err != nil {
				t.Fatal(err)
			}
			db.theirTable(t, "theirs")
			if c.drop != "" {
				db.exec(t, `drop table `+db.table(c.drop))
			}
			pool := limitedPool(t, db.url, 1)
			transport := db.open(t, sqlserver.Config{Pool: pool})
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			for range 2 { // the first time there is something to look up
				if err := transport.Send(sqlserver.WithTx(ctx, tx), c.message(db)); err != nil {
					t.Errorf("send: %v", err)
				}
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Errorf("commit: %v", err)
			}
			if c.table != "" {
				if n := db.count(t, db.table(c.table)); n != "2" {
					t.Errorf("%s messages in %s, want 2", n, c.table)
				}
			}
		})
	}
}

// A transaction that is nil is a mistake of the caller's. What belongs to its rows is not
// sent without them.
func TestSend_NilTransactionIsRefused(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{})
	provision(t, transport, "orders")
	for name, ctx := range map[string]context.Context{
		"WithTx":    sqlserver.WithTx(t.Context(), nil),
		"WithSQLTx": sqlserver.WithSQLTx(t.Context(), nil),
	} {
		for _, out := range []core.Outgoing{letter("1", "orders"), publication("2", "topic")} {
			err := transport.Send(ctx, out)
			if err == nil {
				t.Errorf("%s: Send succeeds", name)
				continue
			}
			wantSendError(t, err, core.SendRefused, 1)
		}
	}
	if n := db.count(t, db.table("orders")); n != "0" {
		t.Errorf("%s messages were sent", n)
	}
}

// A queue gets an event once, with any number of names under which it has subscribed.
func TestPublish_QueueSubscribedUnderTwoNames(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{})
	provision(t, transport, "orders", "others")
	addresses := []string{db.table("orders"), "orders", db.table("others")}
	for i, address := range addresses {
		db.exec(t, `insert into `+db.table("SubscriptionRouting")+` (queueaddress, endpoint, topic) values ($1, $2, 'topic')`,
			address, []string{"first", "second", "third"}[i])
	}
	send(t, transport, publication("1", "topic"))
	got := []string{db.count(t, db.table("orders")), db.count(t, db.table("others"))}
	if !slices.Equal(got, []string{"1", "1"}) {
		t.Errorf("the queues got %v messages, want one each", got)
	}
}
