package sqlexec_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/testdatabase"
)

// onFullServer returns a pool whose server accepts one connection if the pool is to have one,
// and refuses all others. Each refusal is told, as far as the test asks.
func onFullServer(t *testing.T, has bool) (pool *pgxpool.Pool, held *pgxpool.Conn, refused <-chan struct{}) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(testdatabase.New(t).URL + "&pool_max_conns=10")
	if err != nil {
		t.Fatal(err)
	}
	accept, told := make(chan struct{}, 1), make(chan struct{}, 1)
	if has {
		accept <- struct{}{}
	}
	cfg.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		select {
		case <-accept:
			return nil
		default:
		}
		select {
		case told <- struct{}{}:
		default:
		}
		return &pgconn.PgError{Severity: "FATAL", Code: "53300", Message: "sorry, too many clients already"}
	}
	if pool, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if has {
		if held, err = pool.Acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(held.Release) // before the pool waits for it
	}
	return pool, held, told
}

// wantRefused checks the error of a statement for which there was no connection.
func wantRefused(t *testing.T, err error) {
	t.Helper()
	unreached, ok := errors.AsType[*sqlexec.UnreachedError](err)
	if !ok {
		t.Fatalf("the statement returned %v (%T), want an UnreachedError", err, err)
	}
	if server, ok := errors.AsType[*pgconn.PgError](unreached); !ok || server.Code != "53300" {
		t.Errorf("the statement returned %v, want the server's 53300", err)
	}
}

func TestAcquire_WaitsForAnIdleConnectionOfAFullServer(t *testing.T) {
	t.Parallel()
	for name, do := range map[string]func(context.Context, *sqlexec.PgxDatabase) error{
		"Exec": func(ctx context.Context, db *sqlexec.PgxDatabase) error {
			return db.Exec(ctx, sqlexec.Command("select 1"))
		},
		"Begin": func(ctx context.Context, db *sqlexec.PgxDatabase) error {
			tx, err := db.Begin(ctx, sqlexec.Command("select 1"))
			if err == nil {
				tx.Rollback(ctx)
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pool, held, refused := onFullServer(t, true)
			db := sqlexec.NewPgx(pool, 10)
			db.SetIdleWait(time.Hour)
			result := make(chan error, 1)
			go func() { result <- do(t.Context(), db) }()
			<-refused
			held.Release()
			if err := <-result; err != nil {
				t.Error(err)
			}
		})
	}
}

func TestAcquire_ReturnsTheRefusalWhereNoConnectionBecomesIdle(t *testing.T) {
	t.Parallel()
	t.Run("in time", func(t *testing.T) {
		t.Parallel()
		pool, _, _ := onFullServer(t, true)
		db := sqlexec.NewPgx(pool, 10)
		db.SetIdleWait(time.Millisecond)
		wantRefused(t, db.Exec(t.Context(), sqlexec.Command("select 1")))
	})
	t.Run("before the context ends", func(t *testing.T) {
		t.Parallel()
		pool, _, refused := onFullServer(t, true)
		db := sqlexec.NewPgx(pool, 10)
		db.SetIdleWait(time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		result := make(chan error, 1)
		go func() { result <- db.Exec(ctx, sqlexec.Command("select 1")) }()
		<-refused
		cancel()
		err := <-result // the context may have ended before the pool knew of the refusal
		if unreached, ok := errors.AsType[*sqlexec.UnreachedError](err); !ok || !errors.Is(unreached, context.Canceled) {
			t.Errorf("the statement returned %v (%T), want an UnreachedError about the context", err, err)
		}
	})
	t.Run("since there is none", func(t *testing.T) {
		t.Parallel()
		pool, _, _ := onFullServer(t, false)
		db := sqlexec.NewPgx(pool, 10)
		db.SetIdleWait(time.Hour)
		wantRefused(t, db.Exec(t.Context(), sqlexec.Command("select 1")))
	})
}
