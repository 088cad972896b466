package sqlexec_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/testdatabase"
)

// calls counts round trips to the server.
type calls struct{ n int }

func (c *calls) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n++
	return ctx
}

func (*calls) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (c *calls) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	c.n++
	return ctx
}

func (*calls) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*calls) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// withCalls returns a database with one connection, and the count of its calls.
func withCalls(t *testing.T, schema *testdatabase.Schema, mode pgx.QueryExecMode) (sqlexec.Database, *calls) {
	t.Helper()
	config, err := pgxpool.ParseConfig(schema.URL + "&pool_max_conns=1")
	if err != nil {
		t.Fatal(err)
	}
	count := &calls{}
	config.ConnConfig.Tracer, config.ConnConfig.DefaultQueryExecMode = count, mode
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return sqlexec.NewPgx(pool, 1), count
}

var execModes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

func setSavepoint() *sqlexec.Statement {
	return &sqlexec.Statement{SQL: `savepoint before`, Savepoint: true}
}

// The text of a later statement names a table that never existed, or one that was dropped after
// the connection had used it.
func TestTransaction_SavepointBeforeRefusedText(t *testing.T) {
	t.Parallel()
	for _, mode := range execModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			schema := testdatabase.New(t)
			schema.Exec(t, `create table `+schema.Table("numbers")+` (n bigint unique)`)
			db, _ := withCalls(t, schema, mode)
			want := ""
			commitWithout := func(number int64, table string) {
				t.Helper()
				tx := begin(t, db, insert(schema, number))
				refused := sqlexec.Command(`insert into `+schema.Table(table)+` values ($1)`, number)
				if err := tx.Commit(t.Context(), setSavepoint(), refused); err == nil {
					t.Fatalf("an insert into the missing table %s succeeds", table)
				}
				if err := tx.Run(t.Context(), sqlexec.Command(`rollback to savepoint before`)); err != nil {
					t.Fatalf("the rollback to the savepoint after an insert into the missing table %s: %v", table, err)
				}
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				if want += string(rune('0' + number)); numbers(t, schema) != want {
					t.Errorf("the table has %s, want %s", numbers(t, schema), want)
				}
				want += ","
			}
			commitWithout(1, "missing")
			schema.Exec(t, `create table `+schema.Table("dropped")+` (n bigint)`)
			for i := range int64(2) {
				if err := begin(t, db).Commit(t.Context(), setSavepoint(), sqlexec.Command(`insert into `+schema.Table("dropped")+` values ($1)`, i)); err != nil {
					t.Fatal(err)
				}
			}
			schema.Exec(t, `drop table `+schema.Table("dropped"))
			commitWithout(2, "dropped")
			commitWithout(3, "dropped")
		})
	}
}

func TestTransaction_SavepointTakesNoRoundTripLater(t *testing.T) {
	t.Parallel()
	schema := testdatabase.New(t)
	schema.Exec(t, `create table `+schema.Table("numbers")+` (n bigint unique)`)
	db, count := withCalls(t, schema, pgx.QueryExecModeCacheStatement)
	for number, want := range []int{2, 1, 1} {
		tx := begin(t, db)
		before := count.n
		if err := tx.Commit(t.Context(), setSavepoint(), insert(schema, int64(number))); err != nil {
			t.Fatal(err)
		}
		if got := count.n - before; got != want {
			t.Errorf("commit %d with a savepoint takes %d calls, want %d", number+1, got, want)
		}
	}
}
