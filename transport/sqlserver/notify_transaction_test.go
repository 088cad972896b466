package sqlserver_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// asked is a tracer that notes when queries with a text in them begin.
type asked struct {
	text string

	mu    sync.Mutex
	times []time.Time
}

func (a *asked) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, a.text) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.times = append(a.times, time.Now())
	}
	return ctx
}

func (a *asked) all() []time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.times)
}

func (*asked) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// tracedPool is a pool with a tracer, as an application may have one.
func tracedPool(t *testing.T, rawURL string, tracer pgx.QueryTracer) *pgxpool.Pool {
	t.Helper()
	return poolWith(t, rawURL, func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = tracer })
}

// poolWith is a pool that an application has configured.
func poolWith(t *testing.T, rawURL string, change func(cfg *pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	change(cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// A caller's transaction that stays open is asked about more and more seldom, and what it
// sent wakes receivers all the same.
func TestNotify_OpenTransactionIsPolledLessAndLess(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	outcomes := &asked{text: "pg_xact_status"}
	transport := db.open(t, sqlserver.Config{Pool: tracedPool(t, db.url, outcomes)})
	provision(t, transport, "orders")
	transport.NeverPoll()
	r := openReceiver(t, transport, "orders", core.TransactionReceiveOnly)
	received := awaits(t, r)
	await(t, "the server wakes it", func() bool { return transport.Listens() && sqlserver.Waits(r) })
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := transport.Send(sqlserver.WithTx(t.Context(), tx), letter("1", "orders")); err != nil {
		t.Fatal(err)
	}
	all := outcomes.all()
	await(t, "the outcome is asked for", func() bool {
		all = outcomes.all()
		return len(all) > 0 && all[len(all)-1].Sub(all[0]) > 2*time.Second
	})
	for i := range len(all) - 1 {
		if age, pause := all[i].Sub(all[0]), all[i+1].Sub(all[i]); pause < age/10 {
			t.Errorf("the outcome of a transaction more than %v old was asked for again after %v, want %v at least", age, pause, age/10)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wakes(t, received)
}

// After a failover there may be transactions that the server has never heard of. What it
// knows of others is not lost by that.
func TestNotify_UnknownTransaction(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{URL: db.url})
	provision(t, transport, "orders")
	transport.NeverPoll()
	r := openReceiver(t, transport, "orders", core.TransactionReceiveOnly)
	received := awaits(t, r)
	await(t, "the server wakes it", func() bool { return transport.Listens() && sqlserver.Waits(r) })
	if err := transport.Expect("9000000000000000000", "orders"); err != nil {
		t.Fatal(err)
	}
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := transport.Send(sqlserver.WithTx(t.Context(), tx), letter("1", "orders")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wakes(t, received)
}
