package sqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// takeAll takes every connection of a pool, as an application may that shares its own.
func takeAll(t *testing.T, pool *pgxpool.Pool) (free func()) {
	t.Helper()
	var all []*pgxpool.Conn
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Error(err)
			break
		}
		all = append(all, conn)
	}
	return func() {
		for _, conn := range all {
			conn.Release()
		}
	}
}

// Without a connection in the application's pool nothing is done, and nothing is lost.
func TestPool_ApplicationTakesAllConnections(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, mode := range bothModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			const messages = 300
			e := newBusiness(t, brokerOn(t, server), mode)
			pool := limitedPool(t, e.broker.url, 6)
			e.transport.URL, e.transport.Pool = "", pool
			transport := open(t, e.transport)
			goOn := e.handleFirst()
			e.order(messages)
			e.runOn(transport)
			await(t, "messages are handled", func() bool { return e.written() >= 10 })
			taken := make(chan func(), 1)
			go func() { taken <- takeAll(t, pool) }() // as they become free: first come, first served
			await(t, "all connections are in use", func() bool { return pool.Stat().AcquiredConns() == pool.Config().MaxConns })
			goOn()
			free := next(t, "the application has all connections", taken)
			short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			err := transport.Send(short, letter("x", outputQueue))
			wantSendError(t, err, core.SendRefused, 1)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Send returns %v, want DeadlineExceeded", err)
			}
			if n := e.waiting(); n == 0 {
				t.Error("the messages were handled without connections, or too soon for this test")
			}
			free()
			e.awaitDone()
			e.checkDone(messages)
		})
	}
}

// A server that accepts no more connections is an outage for an endpoint without one. An
// endpoint that has some goes on with them.
func TestPool_ServerHasTooManyConnections(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, mode := range bothModes {
		for _, left := range []int{0, 3} {
			t.Run(fmt.Sprintf("%v/%d are left", mode, left), func(t *testing.T) {
				t.Parallel()
				const messages = 200
				e := newBusiness(t, brokerOn(t, server), mode)
				refused := &refusals{}
				e.transport.URL, e.transport.Pool = "", tracedPool(t, e.broker.url+"&pool_max_conns=20", refused)
				e.transport.Lease = 5 * time.Second // claims break off as their sessions end
				e.config.Concurrency = 8
				goOn := e.handleFirst()
				e.order(messages)
				e.runOn(open(t, e.transport))
				await(t, "messages are handled", func() bool { return e.written() >= 10 })
				if left == 0 {
					e.connectionLimit(0)
				} else { // the application's own are counted, but not refused
					e.connectionLimit(int(e.app.Config().MaxConns) + left)
				}
				goOn() // all sessions have ended, and more are needed than are left
				await(t, "connections are refused", func() bool { return refused.Load() > 0 })
				if left > 0 {
					e.awaitDone()
				}
				e.connectionLimit(-1)
				e.awaitDone()
				e.checkDone(messages)
			})
		}
	}
}

// refusals counts the connections that the server refuses because it has too many.
type refusals struct{ atomic.Int64 }

func (*refusals) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return ctx
}

func (r *refusals) TraceConnectEnd(_ context.Context, data pgx.TraceConnectEndData) {
	if server, ok := errors.AsType[*pgconn.PgError](data.Err); ok && server.Code == "53300" {
		r.Add(1)
	}
}

func (*refusals) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (*refusals) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// Endpoints of both modes share one transport, and its pool, which is smaller than what
// they could use.
func TestPool_TwoEndpointsShareATransport(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	const messages = 200
	b := brokerOn(t, server)
	e := newBusiness(t, b, core.TransactionSendsAtomicWithReceive)
	transport := open(t, sqlserver.Config{Pool: limitedPool(t, b.url, 6)})
	e.handle = e.sendNow
	e.order(messages)
	other := &business{t: t, broker: b, mode: core.TransactionReceiveOnly, app: e.app, config: e.config}
	other.config.Transactions = other.mode
	other.handle = other.sendNow
	e.runOn(transport)
	other.runOn(transport)
	e.awaitDone()
	e.checkDone(messages)
}

// However many handlers publish at the same moment, and none knows the subscribers, few
// connections are opened to read them.
func TestPool_ManyPublishersNeedFewConnections(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	const handlers = 64
	e := newBusiness(t, brokerOn(t, server), core.TransactionReceiveOnly)
	e.config.Concurrency = handlers
	begin, begun := make(chan struct{}), make(chan struct{}, handlers)
	e.handle = func(ctx context.Context, m *core.Message, body []byte) error {
		begun <- struct{}{}
		<-begin
		begun <- struct{}{}
		return m.Publish(placedByteType.Of(body))
	}
	e.order(handlers)
	e.run()
	all := func() {
		for range handlers {
			next(t, "a handler goes on", begun)
		}
	}
	all()
	unlock := e.lock(`"SubscriptionRouting"`)
	close(begin)
	all()
	e.awaitWaiting(1)
	unlock()
	e.awaitDone()
	// Unused connections stay open for a long time.
	if n := e.number(`select count(*) from pg_stat_activity where datname = current_database() and usename = $1`, postgres.User); n > handlers/2 {
		t.Errorf("there are %d connections for %d handlers", n, handlers)
	}
}
