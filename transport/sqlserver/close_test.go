package sqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// A network that swallows what is said to it, while handlers have transactions: many of them
// take no longer to give up than one, and who closes the transport says how long that may take.
func TestClose_NetworkStalls(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, c := range []struct {
		name    string
		allowed time.Duration
		close   func(ctx context.Context, transport *sqlserver.Transport, r core.Receiver) error
		fails   bool
	}{
		{"the receiver", patience, func(ctx context.Context, _ *sqlserver.Transport, r core.Receiver) error { return r.Close(ctx) }, false},
		{"the transport", 50 * time.Millisecond, func(ctx context.Context, transport *sqlserver.Transport, _ core.Receiver) error {
			return transport.Close(ctx)
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const messages = 30 // one after the other they would take 2 s each
			b := brokerOn(t, server)
			transport := open(t, sqlserver.Config{URL: b.url, Lease: time.Minute}) // a quarter of which is how long the release may take
			provision(t, transport, "orders")
			r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "orders", Mode: core.TransactionSendsAtomicWithReceive, MaxInFlight: messages})
			if err != nil {
				t.Fatal(err)
			}
			for i := range messages {
				send(t, transport, letter(fmt.Sprint(i), "orders"))
				if _, err := sqlserver.Tx(receive(t, r).BindContext(t.Context())); err != nil {
					t.Fatal(err)
				}
			}
			b.proxy.Stall()
			defer b.proxy.Resume()
			ctx, cancel := context.WithTimeout(t.Context(), c.allowed)
			defer cancel()
			start := time.Now()
			err = c.close(ctx, transport, r)
			if took := time.Since(start); took > messages*time.Second {
				t.Errorf("Close took %v", took)
			}
			if c.fails != errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Close returns %v", err)
			}
		})
	}
}

// releases counts how often messages are released.
type releases struct {
	text string
	n    *atomic.Int64
}

func (r releases) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if data.SQL == r.text {
		r.n.Add(1)
	}
	return ctx
}
func (releases) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// What a fetch brings after the receiver was closed goes back together.
func TestClose_ReleasesAFetchTogether(t *testing.T) {
	t.Parallel()
	const messages = 8
	db := newSchema(t)
	other := db.open(t, sqlserver.Config{})
	provision(t, other, "orders")
	for i := range messages {
		send(t, other, letter(fmt.Sprint(i), "orders"))
	}
	cfg, err := pgxpool.ParseConfig(db.url)
	if err != nil {
		t.Fatal(err)
	}
	released := releases{statements(t, other, "orders")["release"], new(atomic.Int64)}
	cfg.ConnConfig.Tracer = released
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	r := openReceiver(t, db.open(t, sqlserver.Config{Pool: pool}), "orders", core.TransactionReceiveOnly)
	lock, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.Background()) }()
	if _, err := lock.Exec(t.Context(), `lock table `+db.table("orders")); err != nil {
		t.Fatal(err)
	}
	fetched, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := r.Receive(t.Context(), make([]core.Delivery, messages))
		fetched <- err
	}()
	await(t, "the fetch waits for the lock", func() bool {
		return db.column(t, `select count(*)::text from pg_locks where not granted and relation = $1::text::regclass`, db.table("orders"))[0] == "1"
	})
	go func() { closed <- r.Close(t.Context()) }()
	await(t, "the receiver is being closed", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		_, err := r.Receive(ctx, make([]core.Delivery, 1))
		return errors.Is(err, core.ErrClosed)
	})
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := next(t, "the fetch ends", fetched); !errors.Is(err, core.ErrClosed) {
		t.Errorf("Receive returns %v, want ErrClosed", err)
	}
	if err := next(t, "the receiver is closed", closed); err != nil {
		t.Error(err)
	}
	if n := db.column(t, `select count(*)::text from `+db.table("orders")+` where due <= now()`)[0]; n != fmt.Sprint(messages) {
		t.Errorf("%s of %d messages are available", n, messages)
	}
	if n := released.n.Load(); n != 1 {
		t.Errorf("they were released in %d statements, want 1", n)
	}
}
