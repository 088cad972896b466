package sqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// Messages whose handlers have no transaction are settled by one statement, with what was sent. What
// cannot be settled fails alone.
func TestSettlement_EachOfAGroupForItself(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]func(db *testDatabase) sqlserver.Config{
		"pgx":          func(*testDatabase) sqlserver.Config { return sqlserver.Config{} },
		"database/sql": func(db *testDatabase) sqlserver.Config { return sqlserver.Config{DB: openDB(t, db.url)} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newSchema(t)
			transport := db.open(t, config(db))
			provision(t, transport, "orders", "billing", "refusing")
			db.exec(t, `alter table `+db.table("refusing")+` add check (octet_length(body) < 100)`)
			const messages = 24
			deliveries := make([]core.Delivery, messages)
			r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "orders", Mode: core.TransactionSendsAtomicWithReceive, MaxInFlight: messages})
			if err != nil {
				t.Fatal(err)
			}
			for i := range deliveries {
				send(t, transport, letter(fmt.Sprint(i), "orders"))
				deliveries[i] = receive(t, r)
			}
			const missing, refused, lost = 3, 7, 11
			seq := db.column(t, `select seq::text from `+db.table("orders")+` order by due`)[lost]
			db.exec(t, `update `+db.table("orders")+` set leased_until = now() where seq = $1::text::bigint`, seq)
			errs := make([]error, messages)
			var all sync.WaitGroup
			for i, d := range deliveries {
				out := []core.Outgoing{letter(fmt.Sprint("a", i), "billing"), delayed(fmt.Sprint("b", i), "billing", time.Hour), letter(fmt.Sprint("c", i), "orders")}
				switch i {
				case missing:
					out = append(out, letter("x", "no such queue"))
				case refused:
					large := letter("x", "refusing")
					large.Body = []byte(strings.Repeat("x", 100))
					out = append(out, large)
				}
				all.Go(func() { errs[i] = d.CompleteWith(t.Context(), out) })
			}
			all.Wait()
			for i, err := range errs {
				var sent *core.SendError
				switch {
				case i == lost:
					if !errors.Is(err, core.ErrLockLost) {
						t.Errorf("with a lost lease CompleteWith returns %v", err)
					}
				case i == missing || i == refused:
					if !errors.As(err, &sent) || len(sent.Results) != 4 || sent.Results[0].State != core.SendRefused {
						t.Errorf("with a send that is refused CompleteWith returns %v", err)
					}
					if errors.Is(err, core.ErrQueueNotFound) != (i == missing) {
						t.Errorf("message %d: %v", i, err)
					}
					if err := deliveries[i].Abandon(t.Context(), nil); err != nil {
						t.Errorf("message %d is not leased any more: %v", i, err)
					}
				case err != nil:
					t.Errorf("message %d: %v", i, err)
				}
			}
			const settled = messages - 3
			if n := db.count(t, db.table("billing")); n != fmt.Sprint(2*settled) {
				t.Errorf("%s messages were sent, want %d", n, 2*settled)
			}
			if n := db.count(t, db.table("orders")); n != fmt.Sprint(settled+3) {
				t.Errorf("%s messages are in the queue, want %d that were sent and 3 that are left", n, settled)
			}
		})
	}
}

// The messages of a handler to one queue arrive in their order.
func TestSettlement_KeepsTheOrderOfSends(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{})
	provision(t, transport, "orders", "billing")
	send(t, transport, letter("1", "orders"))
	var out []core.Outgoing
	for i := range 300 {
		out = append(out, letter(fmt.Sprintf("%03d", i), "billing"))
	}
	if err := receive(t, openReceiver(t, transport, "orders", core.TransactionSendsAtomicWithReceive)).CompleteWith(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	ids := db.column(t, `select headers::json ->> 'NServiceBus.MessageId' from `+db.table("billing")+` order by due, seq`)
	for i, id := range ids {
		if id != fmt.Sprintf("%03d", i) {
			t.Fatalf("message %d is %s", i, id)
		}
	}
}

// Messages that exceed one statement go in a transaction.
func TestSettlement_SendsMuch(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{})
	provision(t, transport, "orders", "billing")
	send(t, transport, letter("1", "orders"))
	var out []core.Outgoing
	for i := range 5 {
		large := letter(fmt.Sprint(i), "billing")
		large.Body = make([]byte, 4<<20)
		out = append(out, large)
	}
	d := receive(t, openReceiver(t, transport, "orders", core.TransactionSendsAtomicWithReceive))
	if err := d.CompleteWith(t.Context(), append(out, letter("x", "no such queue"))); !errors.Is(err, core.ErrQueueNotFound) {
		t.Errorf("with a queue that is missing CompleteWith returns %v", err)
	}
	if err := d.ReplaceWith(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	if n := db.count(t, db.table("billing")); n != "5" {
		t.Errorf("%s messages were sent", n)
	}
	if n := db.count(t, db.table("orders")); n != "0" {
		t.Errorf("%s messages are left", n)
	}
}

// Handlers that do not ask for their transaction share a handful of connections.
func TestPool_HandlersThatOnlySendShareConnections(t *testing.T) {
	t.Parallel()
	e := newBusiness(t, brokerOn(t, server), core.TransactionSendsAtomicWithReceive)
	e.config.Concurrency = 100
	pool := limitedPool(t, e.broker.url, 90)
	e.transport = sqlserver.Config{Pool: pool}
	const messages = 1000
	e.handle = func(_ context.Context, m *core.Message, body []byte) error {
		return m.Send(outputQueue, sendType.Of(body))
	}
	e.order(messages)
	e.run()
	await(t, "all messages are sent", func() bool { return e.number(`select count(*) from `+outputQueue) == messages })
	if n := pool.Stat().TotalConns(); n > 10 {
		t.Errorf("100 handlers took %d connections", n)
	}
}
