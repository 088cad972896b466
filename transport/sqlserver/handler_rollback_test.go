package sqlserver_test

import (
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/transport/sqlserver"
)

// A transaction that has ended has no connection any more: the pool may have handed it
// to the application, which shares it. To roll it back again must not end what the
// application does there.
func TestTransaction_RolledBackTwice(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		// open returns a configuration, and the application's view of its only connection.
		open func(t *testing.T, url string) (sqlserver.Config, *sql.DB)
	}{
		{"pgx", func(t *testing.T, url string) (sqlserver.Config, *sql.DB) {
			pool := limitedPool(t, url, 1)
			return sqlserver.Config{Pool: pool}, stdlib.OpenDBFromPool(pool)
		}},
		{"database/sql", func(t *testing.T, url string) (sqlserver.Config, *sql.DB) {
			pool := openDB(t, url)
			pool.SetMaxOpenConns(1)
			return sqlserver.Config{DB: pool}, pool
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := newSchema(t)
			cfg, application := c.open(t, db.url)
			transport := db.open(t, cfg)
			db.exec(t, `create table `+db.table("rows")+` (n integer)`)
			rollback, ended, err := transport.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if ended() {
				t.Error("a transaction that has begun counts as ended")
			}
			rollback()
			tx, err := application.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.ExecContext(t.Context(), `insert into `+db.table("rows")+` values (1)`); err != nil {
				t.Fatal(err)
			}
			if !ended() {
				t.Error("a transaction that was rolled back counts as under way")
			}
			rollback()
			if err := tx.Commit(); err != nil {
				t.Error(err)
			}
			if n := db.count(t, db.table("rows")); n != "1" {
				t.Errorf("the application committed %s rows, want 1", n)
			}
		})
	}
}
