package sqlserver_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

const (
	// patience is how long a test waits for what must happen: for ever.
	patience = 5 * time.Minute
	// wakePatience is less than that after which a look at the queue would find what
	// nothing announced.
	wakePatience = 50 * time.Second
	// longLease never ends in a test: a message that waited for that would be late.
	longLease = 30 * time.Minute
)

// open returns a transport that the end of the test closes. Its leases are long, unless
// the configuration says how long.
func open(t *testing.T, cfg sqlserver.Config) *sqlserver.Transport {
	t.Helper()
	if cfg.Lease == 0 {
		cfg.Lease = longLease
	}
	transport, err := sqlserver.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := transport.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return transport
}

// provision creates queues: of many, as many at a time as a busy server creates within the
// limit of one call.
func provision(t *testing.T, transport *sqlserver.Transport, queues ...string) {
	t.Helper()
	const limit = 5
	for first := true; first || len(queues) > 0; first = false {
		n := min(limit, len(queues))
		topology := core.Topology{Queues: queues[:n]}
		if n > 0 {
			topology.InputQueue = queues[0]
		}
		if err := transport.Provision(t.Context(), topology); err != nil {
			t.Fatal(err)
		}
		queues = queues[n:]
	}
}

// await returns when a condition holds.
func await(t *testing.T, subject string, holds func() bool) {
	t.Helper()
	pause := time.Millisecond
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, subject)
		}
		pause = min(pause+pause/4, 20*time.Millisecond) // others have work to do
	}
}

// asleep opens a receiver and calls Receive, which waits for what wakes it. The
// channel brings what it was delivered.
func asleep(t *testing.T, transport *sqlserver.Transport, mode core.TransactionMode) (core.Receiver, <-chan core.Delivery) {
	t.Helper()
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "orders", Mode: mode, MaxInFlight: 4})
	if err != nil {
		t.Fatal(err)
	}
	received := make(chan core.Delivery, 1)
	go func() {
		defer close(received)
		dst := make([]core.Delivery, 1)
		if n, err := r.Receive(context.WithoutCancel(t.Context()), dst); err == nil && n == 1 {
			received <- dst[0]
		}
	}()
	await(t, "Receive waits", func() bool { return sqlserver.Waits(r) })
	return r, received
}

func wakes(t *testing.T, received <-chan core.Delivery) {
	t.Helper()
	select {
	case d := <-received:
		if d == nil {
			t.Fatal("Receive returned no delivery")
		}
		if err := d.Complete(t.Context()); err != nil {
			t.Fatal(err)
		}
	case <-time.After(wakePatience):
		t.Fatal("nothing woke the receiver")
	}
}

func message(body string) core.Outgoing {
	return core.Outgoing{ID: body, Queue: "orders", Body: []byte(body)}
}

// TestNotify_SendWakesReceivers sends to receivers that do not poll.
func TestNotify_SendWakesReceivers(t *testing.T) {
	t.Parallel()
	url := server.PasswordURL(server.NewDatabase(t))
	pool, err := pgxpool.New(t.Context(), url+"&pool_max_conns=10")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	overSQL := sqlserver.Config{DB: openDB(t, url)}
	overPool := sqlserver.Config{Pool: pool}
	overURL := sqlserver.Config{URL: url}
	provision(t, open(t, overURL), "orders")

	inTransaction := func(t *testing.T, transport *sqlserver.Transport) {
		tx, err := pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := transport.Send(sqlserver.WithTx(t.Context(), tx), message("sent")); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	plain := func(t *testing.T, transport *sqlserver.Transport) {
		if err := transport.Send(t.Context(), message("sent")); err != nil {
			t.Fatal(err)
		}
	}
	// Another receiver has the message before the one that is to be woken waits, which would
	// take it otherwise.
	heldByAnother := func(t *testing.T, transport *sqlserver.Transport) (release func()) {
		r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "orders", Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
		if err != nil {
			t.Fatal(err)
		}
		plain(t, transport)
		d := receive(t, r)
		return func() {
			if err := d.Abandon(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if err := r.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name      string
		receiving sqlserver.Config
		sending   sqlserver.Config // the zero value: by the transport that receives
		mode      core.TransactionMode
		send      func(t *testing.T, transport *sqlserver.Transport) // nil: the message is given back
	}{
		{"another transport", overURL, overURL, core.TransactionReceiveOnly, plain},
		{"another transport, in a transaction each", overPool, overURL, core.TransactionSendsAtomicWithReceive, plain},
		{"another transport, consumed", overURL, overPool, core.TransactionNone, plain},
		{"a caller's transaction", overURL, overURL, core.TransactionReceiveOnly, inTransaction},
		{"a caller's transaction, by the same transport", overURL, sqlserver.Config{}, core.TransactionReceiveOnly, inTransaction},
		{"a message that another gave back", overURL, overURL, core.TransactionSendsAtomicWithReceive, nil},
		{"the same transport, which cannot listen", overSQL, sqlserver.Config{}, core.TransactionReceiveOnly, plain},
	} {
		t.Run(c.name, func(t *testing.T) { // one after the other: they share the queue
			receiving := open(t, c.receiving)
			receiving.NeverPoll()
			sending := receiving
			if c.sending != (sqlserver.Config{}) {
				sending = open(t, c.sending)
			}
			send := func() { c.send(t, sending) }
			if c.send == nil {
				send = heldByAnother(t, sending)
			}
			r, received := asleep(t, receiving, c.mode)
			if c.receiving.DB == nil {
				// Messages that are sent before it listens are found by the poll that follows.
				await(t, "the transport listens", func() bool { return receiving.Listens() && sqlserver.Waits(r) })
			}
			send()
			wakes(t, received)
		})
	}
}

// counter is a tracer that notes when something is sent to the server: queries and
// batches.
type counter struct{ n chan time.Time }

func (c counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n <- time.Now()
	return ctx
}
func (counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.n <- time.Now()
	return ctx
}
func (counter) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// TestPolling_IdleQueueCostsLittle counts what 16 workers on an empty queue ask of the server,
// once they have settled down: a look at the queue a second, and where messages are leased one at the numbers of other
// processes.
func TestPolling_IdleQueueCostsLittle(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, mode := range []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			asked := counter{make(chan time.Time, 100_000)}
			cfg, err := pgxpool.ParseConfig(server.PasswordURL(server.NewDatabase(t)))
			if err != nil {
				t.Fatal(err)
			}
			cfg.MaxConns = 20
			cfg.ConnConfig.Tracer = asked
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			transport := open(t, sqlserver.Config{Pool: pool})
			provision(t, transport, "orders")
			r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "orders", Mode: mode, MaxInFlight: 16})
			if err != nil {
				t.Fatal(err)
			}
			for range 16 {
				go func() { _, _ = r.Receive(context.WithoutCancel(t.Context()), make([]core.Delivery, 1)) }()
			}
			await(t, "the transport listens, and somebody waits", func() bool { return transport.Listens() && sqlserver.Waits(r) })
			queries, watched := 7, 4*time.Second // with what comes a little early
			if mode != core.TransactionNone {
				queries = 11
			}
			var last []time.Time
			for deadline := time.Now().Add(time.Minute); len(last) < queries || last[queries-1].Sub(last[0]) < watched; {
				last = append(last, next(t, "a query", asked.n))
				last = last[max(0, len(last)-queries):]
				if time.Now().After(deadline) {
					t.Fatalf("in a minute, there were never less than %d queries in %v", queries, watched)
				}
			}
		})
	}
}
