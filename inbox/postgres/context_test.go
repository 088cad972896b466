//go:build darwin || linux

package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/inbox/postgres"
	"github.com/reprise-go/reprise/internal/testserver/proxy"
)

// through returns a store through the proxy, with a pool of one connection.
func (d *database) through(t *testing.T) (provisioned, *proxy.Proxy) {
	at, err := url.Parse(d.url)
	if err != nil {
		t.Fatal(err)
	}
	network, err := proxy.New(at.Host)
	if err != nil {
		t.Fatal(err)
	}
	at.Host = network.Addr()
	d.url = at.String()
	if !d.bySQL {
		store, err := postgres.New(d.pool(1), postgres.Config{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = network.Close() }) // before the pool is
		return store, network
	}
	config, err := pgx.ParseConfig(d.url)
	if err != nil {
		t.Fatal(err)
	}
	db := stdlib.OpenDB(*config)
	db.SetMaxOpenConns(1)
	t.Cleanup(func() { _ = db.Close() })
	t.Cleanup(func() { _ = network.Close() }) // before the pool is
	store, err := postgres.NewSQL(db, postgres.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return store, network
}

// ends calls f with a context that ends soon, and checks that f returns an error then. A
// call that its context cannot end needs minutes.
func ends(t *testing.T, subject string, f func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	returned := make(chan error, 1)
	go func() { returned <- f(ctx) }()
	select {
	case err := <-returned:
		if err == nil {
			t.Errorf("%s: no error", subject)
		}
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s does not return when its context has ended", subject)
	}
}

// A shutdown, or HandlerTimeout, ends all that waits for the database.
func TestStore_ContextEndsEachCall(t *testing.T) {
	for name, bySQL := range map[string]bool{"pgx": false, "database/sql": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, bySQL, "")
			opened(t, d)
			store, network := d.through(t)
			begins := func(ctx context.Context) error {
				tx, _, err := store.Begin(ctx, m1, time.Hour)
				if tx != nil {
					err = errors.Join(errors.New("it has begun"), tx.Rollback(context.WithoutCancel(ctx)))
					t.Error(err)
				}
				return err
			}
			tx := begin(t, store, m1)
			ends(t, "Begin with an exhausted pool", begins)
			network.Stall()
			ends(t, "Rollback on a dead connection", tx.Rollback)
			ends(t, "Begin on a server that does not answer", begins)
		})
		t.Run(name+", commit", func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, bySQL, "")
			opened(t, d)
			store, network := d.through(t)
			tx := begin(t, store, m1)
			network.Stall()
			ends(t, "Commit on a dead connection", func(ctx context.Context) error { return tx.Commit(ctx, []byte("x")) })
		})
	}
}
