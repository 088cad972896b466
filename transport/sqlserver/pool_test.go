package sqlserver_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// poolOf returns a pool of n connections, which is the application's.
func limitedPool(t *testing.T, url string, connections int32) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	cfg.MaxConns = connections
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !t.Failed() { // it waits for the connection of a handler that hangs
			pool.Close()
		}
	})
	return pool
}

// sendNow writes the row and sends at once, on a second connection.
func (e *business) sendNow(ctx context.Context, m *core.Message, body []byte) error {
	if err := e.write(ctx, m, body); err != nil {
		return err
	}
	return m.SendNow(ctx, outputQueue, sendType.Of(body))
}

// With one connection for the message there is none for its handler's messages.
func TestPool_NeedsAConnectionForSends(t *testing.T) {
	t.Parallel()
	e := newBusiness(t, brokerOn(t, server), core.TransactionSendsAtomicWithReceive)
	transport := open(t, sqlserver.Config{URL: e.broker.url + "&pool_max_conns=1"})
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: inputQueue, Mode: e.mode, MaxInFlight: 1})
	if err == nil {
		_ = r.Close(t.Context())
		t.Error("OpenReceiver accepts a pool of 1 connection, with which a handler that sends would wait for itself")
	}
}

// Two transports on one pool must not take all connections for messages between
// them.
func TestPool_TwoTransportsShareIt(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	e := newBusiness(t, brokerOn(t, server), core.TransactionSendsAtomicWithReceive)
	e.transport = sqlserver.Config{Pool: limitedPool(t, e.broker.url, 4)}
	e.config.Concurrency = 2
	e.config.DrainTimeout = time.Second
	e.handle = e.sendNow
	const n = 200
	e.order(n)
	e.run()
	e.run()
	e.awaitDone()
	e.checkDone(n)
}

// After a short outage each connection of the pool may be dead, and none known to be.
func TestPool_AllConnectionsDiedIdle(t *testing.T) {
	t.Parallel()
	b := brokerOn(t, server)
	const connections = 20
	pool := limitedPool(t, b.url, connections)
	transport := open(t, sqlserver.Config{Pool: pool})
	topology := core.Topology{InputQueue: inputQueue, Queues: []string{inputQueue}}
	provision(t, transport, topology.Queues...)
	var all []*pgxpool.Conn
	for range connections {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, conn)
	}
	for name, use := range map[string]func() error{
		"Provision": func() error { return transport.Provision(t.Context(), topology) },
		"Check":     func() error { return transport.Check(t.Context(), topology) },
		"Send":      func() error { return transport.Send(t.Context(), letter("x", inputQueue)) },
		"Subscribe": func() error { return transport.Subscribe(t.Context(), inputQueue, "topic") },
		"Purge":     func() error { _, err := transport.Purge(t.Context(), inputQueue); return err },
	} {
		for _, conn := range all {
			conn.Release()
		}
		b.proxy.Cut()
		if err := use(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		all = all[:0]
		for range connections {
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, conn)
		}
	}
	for _, conn := range all {
		conn.Release()
	}
}
