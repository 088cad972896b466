package sqlexec_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/testdatabase"
)

// eachLibrary runs a test with a database of each client library. It has one connection,
// whose sessions have the isolation level serializable.
func eachLibrary(t *testing.T, test func(t *testing.T, db sqlexec.Database, schema *testdatabase.Schema)) {
	t.Parallel()
	schema := testdatabase.New(t)
	schema.Exec(t, `create table `+schema.Table("numbers")+` (n bigint unique)`)
	rawURL := schema.URL + "&default_transaction_isolation=serializable"
	t.Run("pgx", func(t *testing.T) {
		pool, err := pgxpool.New(t.Context(), rawURL+"&pool_max_conns=1")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(pool.Close) // after the transactions of the test
		test(t, sqlexec.NewPgx(pool, 1), schema)
	})
	schema.Exec(t, `truncate `+schema.Table("numbers"))
	t.Run("database/sql", func(t *testing.T) {
		pool, err := sql.Open("pgx", rawURL)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = pool.Close() })
		pool.SetMaxOpenConns(1)
		test(t, sqlexec.NewSQL(pool, nil), schema)
	})
}

// numbers returns the rows of the table.
func numbers(t *testing.T, schema *testdatabase.Schema) string {
	t.Helper()
	return schema.Text(t, `select n::text from `+schema.Table("numbers")+` order by n`)
}

func insert(schema *testdatabase.Schema, n int64) *sqlexec.Statement {
	return sqlexec.Command(`insert into `+schema.Table("numbers")+` values ($1)`, n)
}

func TestExec_StatementsAreOneTransaction(t *testing.T) {
	eachLibrary(t, func(t *testing.T, db sqlexec.Database, schema *testdatabase.Schema) {
		if err := db.Exec(t.Context(), insert(schema, 1), insert(schema, 2)); err != nil {
			t.Fatal(err)
		}
		if err := db.Exec(t.Context(), insert(schema, 3), insert(schema, 2)); err == nil {
			t.Error("a duplicate was inserted")
		}
		if got := numbers(t, schema); got != "1,2" {
			t.Errorf("the table has %s, want 1,2", got)
		}
	})
}

func TestExec_ReportsRowsAndChanges(t *testing.T) {
	eachLibrary(t, func(t *testing.T, db sqlexec.Database, schema *testdatabase.Schema) {
		var got []int64
		read := sqlexec.Query(func(scan sqlexec.Scanner) error {
			var n int64
			err := scan(&n)
			got = append(got, n)
			return err
		}, `select n from generate_series(1, $1::bigint) n`, int64(3))
		change := sqlexec.Command(`insert into ` + schema.Table("numbers") + ` select generate_series(1, 5)`)
		for _, statements := range [][]*sqlexec.Statement{{read}, {change}} { // alone
			if err := db.Exec(t.Context(), statements...); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, []int64{1, 2, 3}) || !read.Done {
			t.Errorf("read %v, done: %t; want 1 to 3", got, read.Done)
		}
		if change.Affected != 5 || !change.Done {
			t.Errorf("changed %d rows, done: %t; want 5", change.Affected, change.Done)
		}
		refused := insert(schema, 1)
		if err := db.Exec(t.Context(), refused); err == nil || refused.Done {
			t.Errorf("a refused statement: %v, done: %t", err, refused.Done)
		}
	})
}

// A row that cannot be read is the same at the next attempt.
func TestExec_UnreadableRowIsPermanent(t *testing.T) {
	eachLibrary(t, func(t *testing.T, db sqlexec.Database, _ *testdatabase.Schema) {
		unreadable := errors.New("unreadable")
		read := sqlexec.Query(func(sqlexec.Scanner) error { return unreadable }, `select 1`)
		if err := db.Exec(t.Context(), read); !errors.Is(err, unreadable) || !transport.IsPermanent(err) || read.Done {
			t.Errorf("Exec returned %v (done: %t), want a permanent error about the row", err, read.Done)
		}
	})
}

func TestExec_EndedContextReachesNothing(t *testing.T) {
	t.Parallel()
	schema := testdatabase.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := sqlexec.NewPgx(schema.Pool, 1).Exec(ctx, sqlexec.Command("select 1"))
	if unreached, ok := errors.AsType[*sqlexec.UnreachedError](err); !ok || !errors.Is(unreached, context.Canceled) {
		t.Errorf("Exec returned %v (%T), want an UnreachedError about the context", err, err)
	}
}

// sessionOf returns the number of the server's process for a transaction.
func sessionOf(t *testing.T, tx sqlexec.Transaction) (pid int64) {
	t.Helper()
	if err := tx.Run(t.Context(), sqlexec.Query(func(scan sqlexec.Scanner) error { return scan(&pid) }, `select pg_backend_pid()::bigint`)); err != nil {
		t.Fatal(err)
	}
	return pid
}

// terminate ends a session of the server, and waits for that.
func terminate(t *testing.T, schema *testdatabase.Schema, pid int64) {
	t.Helper()
	if got := schema.Text(t, `select pg_terminate_backend($1, 60000)::text`, pid); got != "true" {
		t.Fatalf("pg_terminate_backend returned %s", got)
	}
}

func TestIsAboutText_TextAndValueDiffer(t *testing.T) {
	t.Parallel()
	schema := testdatabase.New(t)
	db := sqlexec.NewPgx(schema.Pool, 1)
	if err := db.Exec(t.Context(), sqlexec.Command(`select * from nowhere`)); !sqlexec.IsAboutText(err) {
		t.Errorf("%v is not taken to be about the text", err)
	}
	if err := db.Exec(t.Context(), sqlexec.Command(`select 1 / $1::int`, 0)); err == nil || sqlexec.IsAboutText(err) {
		t.Errorf("%v is taken to be about the text", err)
	}
	if sqlexec.IsAboutText(errors.New("the network")) {
		t.Error("an error that is not the server's is taken to be about the text")
	}
}
