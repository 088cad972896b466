package sqlserver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
)

// These tests find the connections that listen by their last statement. In None that is "listen": in the other modes those
// connections also look at the numbers of processes.

// The connection that listens is opened as those of the pool are: a hook may fetch the
// password, or set up the session.
func TestNotify_ListenerUsesThePoolsHooks(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	set := make(chan uint32, 100) // the sessions that were set up
	pool := poolWith(t, db.url, func(cfg *pgxpool.Config) {
		good := cfg.ConnConfig.Password
		cfg.ConnConfig.Password = "expired"
		cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
			c.Password = good
			return nil
		}
		cfg.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
			set <- conn.PgConn().PID()
			return nil
		}
	})
	transport := db.open(t, sqlserver.Config{Pool: pool})
	provision(t, transport, "orders")
	openReceiver(t, transport, "orders", core.TransactionNone)
	await(t, "the transport listens", transport.Listens)
	channel := queues.ChannelOf(db.table("orders"))
	pids := db.column(t, `select pid::text from pg_stat_activity where query like 'listen%' || $1 || '%' and pid <> pg_backend_pid()`, channel)
	if len(pids) != 1 {
		t.Fatalf("the connections %v listen, want one", pids)
	}
	for {
		select {
		case pid := <-set:
			if fmt.Sprint(pid) == pids[0] {
				return
			}
		default:
			t.Fatal("AfterConnect was not called for the connection that listens")
		}
	}
}

// A queue that gets its first receiver while the transport listens for others is listened
// for at once.
func TestNotify_ListensForASecondQueueAtOnce(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{URL: db.url})
	names := []string{"0", "1", "2", "3", "4", "5"}
	provision(t, transport, names...)
	openReceiver(t, transport, names[0], core.TransactionNone)
	await(t, "the transport listens", transport.Listens)
	fastest := patience
	for _, queue := range names[1:] {
		channel := queues.ChannelOf(db.table(queue))
		opened := time.Now()
		openReceiver(t, transport, queue, core.TransactionNone)
		await(t, "the queue is listened for", func() bool {
			return len(db.column(t, `select query from pg_stat_activity where query like 'listen%' || $1 || '%' and pid <> pg_backend_pid()`, channel)) == 1
		})
		fastest = min(fastest, time.Since(opened))
	}
	if fastest > 15*time.Second { // the connection is tried every 30 s, which would be time enough
		t.Errorf("each of %d queues was listened for %v after it had a receiver, or later", len(names)-1, fastest)
	}
}

// Transports of a pool share the connection that listens, until the last one is closed.
func TestNotify_TransportsOfAPoolShareTheListener(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	pool := poolOf(t, db.url)
	names := []string{"first", "second", "third"}
	listening := func(names ...string) (pids []string) {
		channels := make([]string, len(names))
		for i, queue := range names {
			channels[i] = queues.ChannelOf(db.table(queue))
		}
		// A session shows its last statement, which is about one of the queues.
		return db.column(t, `select pid::text from pg_stat_activity
where exists (select from unnest($1::text[]) as channel where query like '%listen%' || channel || '%') and pid <> pg_backend_pid()`, channels)
	}
	var transports []*sqlserver.Transport
	var receivers []core.Receiver
	for _, queue := range names {
		transport := db.open(t, sqlserver.Config{Pool: pool})
		transport.NeverPoll()
		provision(t, transport, queue)
		transports = append(transports, transport)
		receivers = append(receivers, openReceiver(t, transport, queue, core.TransactionNone))
		await(t, "the queue is listened for", func() bool { return len(listening(queue)) == 1 })
	}
	sender := db.open(t, sqlserver.Config{}) // in this process, but it does not know the receivers
	for i, transport := range transports {
		if pids := listening(names...); len(pids) != 1 {
			t.Errorf("%d connections listen for %d transports, want 1", len(pids), len(transports)-i)
		}
		received := awaits(t, receivers[i])
		send(t, sender, letter("woken", names[i]))
		complete(t, next(t, "the receiver is woken", received))
		closed(t, transport)
	}
	await(t, "no connection listens", func() bool { return len(listening(names...)) == 0 })
}
