package postgres_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/inbox/postgres"
)

// TestClock_OfTheServer: the clock of a process may be wrong by years, as that of the bubble is.
// An entry is as old as the server says.
func TestClock_OfTheServer(t *testing.T) {
	t.Parallel()
	const century = 100 * 365 * 24 * time.Hour
	for name, bySQL := range map[string]bool{"pgx": false, "database/sql": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDatabase(t, bySQL, "")
			opened(t, d)
			began := time.Now()
			synctest.Test(t, func(t *testing.T) {
				config, err := pgxpool.ParseConfig(d.url)
				if err != nil {
					t.Fatal(err)
				}
				config.HealthCheckPeriod = 2 * century // it would be done for each minute
				pool, err := pgxpool.NewWithConfig(t.Context(), config)
				if err != nil {
					t.Fatal(err)
				}
				defer pool.Close()
				var store provisioned
				if bySQL {
					db := stdlib.OpenDBFromPool(pool)
					defer func() { _ = db.Close() }()
					store, err = postgres.NewSQL(db, postgres.Config{})
				} else {
					store, err = postgres.New(pool, postgres.Config{})
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, clock := range []string{"behind", "ahead"} {
					if err := begin(t, store, m1).Commit(t.Context(), nil); err != nil {
						t.Fatal(err)
					}
					_, entry, err := store.Begin(t.Context(), m1, time.Minute)
					if err != nil || entry == nil {
						t.Fatalf("%v, %v", entry, err)
					}
					if distance := entry.HandledAt.Sub(began); distance < -time.Hour || distance > time.Hour {
						t.Errorf("a process that is %s, at %v, dates an entry %v", clock, time.Now(), entry.HandledAt)
					}
					for _, step := range []struct {
						written string
						want    int
					}{{"1 hour", 0}, {"3 hours", 1}} {
						if _, err := pool.Exec(t.Context(), "update reprise_inbox set handled_at = now() - $1::text::interval", step.written); err != nil {
							t.Fatal(err)
						}
						if n, err := store.Remove(t.Context(), 2*time.Hour, 10); err != nil || n != step.want {
							t.Errorf("a process that is %s removes %d entries that were written %s ago, %v, want %d", clock, n, step.written, err, step.want)
						}
					}
					time.Sleep(century)
				}
			})
		})
	}
}
