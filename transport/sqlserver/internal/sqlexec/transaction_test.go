package sqlexec_test

import (
	"context"
	"errors"
	"testing"

	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/testdatabase"
)

func begin(t *testing.T, db sqlexec.Database, statements ...*sqlexec.Statement) sqlexec.Transaction {
	t.Helper()
	tx, err := db.Begin(t.Context(), statements...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback(context.WithoutCancel(t.Context())) })
	return tx
}

func TestTransaction_CommitsOrRollsBack(t *testing.T) {
	eachLibrary(t, func(t *testing.T, db sqlexec.Database, schema *testdatabase.Schema) {
		tx := begin(t, db, insert(schema, 1))
		if err := tx.Run(t.Context(), insert(schema, 2)); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(t.Context(), insert(schema, 3)); err != nil {
			t.Fatal(err)
		}
		begin(t, db, insert(schema, 4)).Rollback(t.Context())
		if err := begin(t, db, insert(schema, 5)).Undo(t.Context()); err != nil {
			t.Errorf("undo: %v", err)
		}
		if got := numbers(t, schema); got != "1,2,3" {
			t.Errorf("the table has %s, want 1,2,3", got)
		}
	})
}

func TestTransaction_IsReadCommitted(t *testing.T) {
	eachLibrary(t, func(t *testing.T, db sqlexec.Database, _ *testdatabase.Schema) {
		var level string
		tx := begin(t, db, sqlexec.Query(func(scan sqlexec.Scanner) error { return scan(&level) }, `select current_setting('transaction_isolation')`))
		tx.Rollback(t.Context())
		if level != "read committed" {
			t.Errorf("the isolation level is %s although a lease needs read committed", level)
		}
	})
}

// With one connection in the pool, the next transaction would wait for ever.
func TestBegin_RefusedStatementReturnsTheConnection(t *testing.T) {
	eachLibrary(t, func(t *testing.T, db sqlexec.Database, schema *testdatabase.Schema) {
		if _, err := db.Begin(t.Context(), insert(schema, 1), sqlexec.Command(`select * from nowhere`)); err == nil {
			t.Fatal("a transaction began with a refused statement")
		}
		begin(t, db).Rollback(t.Context())
		if got := numbers(t, schema); got != "" {
			t.Errorf("the table has %s, want nothing", got)
		}
	})
}

func TestTransaction_FailedStatementLeavesARollback(t *testing.T) {
	eachLibrary(t, func(t *testing.T, db sqlexec.Database, schema *testdatabase.Schema) {
		tx := begin(t, db, insert(schema, 1), sqlexec.Command(`savepoint before`))
		if err := tx.Run(t.Context(), insert(schema, 2), insert(schema, 1)); err == nil {
			t.Fatal("a duplicate was inserted")
		}
		if tx.Lost() {
			t.Error("the transaction counts as lost")
		}
		if err := tx.Commit(t.Context()); err == nil {
			t.Fatal("the aborted transaction was committed, which would be a rollback without an error")
		}
		if _, ok := db.(*sqlexec.PgxDatabase); !ok {
			return // a failed commit has ended it
		}
		if !tx.Aborted() {
			t.Error("the transaction does not count as aborted")
		}
		if err := tx.Run(t.Context(), sqlexec.Command(`rollback to savepoint before`)); err != nil || tx.Aborted() {
			t.Fatalf("the rollback to a savepoint: %v, aborted: %t", err, tx.Aborted())
		}
		if err := tx.Commit(t.Context(), insert(schema, 3)); err != nil {
			t.Fatal(err)
		}
		if got := numbers(t, schema); got != "1,3" {
			t.Errorf("the table has %s, want 1,3", got)
		}
	})
}

func TestTransaction_IsLostWithItsConnection(t *testing.T) {
	eachLibrary(t, func(t *testing.T, db sqlexec.Database, schema *testdatabase.Schema) {
		tx := begin(t, db, insert(schema, 1))
		if tx.Lost() {
			t.Error("an open transaction counts as lost")
		}
		terminate(t, schema, sessionOf(t, tx))
		if err := tx.Run(t.Context(), insert(schema, 2)); err == nil {
			t.Error("a statement succeeded after its session had ended")
		}
		if !tx.Lost() {
			t.Error("the transaction does not count as lost")
		}
		if err := tx.Undo(t.Context()); err == nil {
			t.Error("a rollback that the server has not confirmed returned no error")
		}
		if err := db.Exec(t.Context(), insert(schema, 3)); err != nil {
			t.Errorf("the next statement: %v", err)
		}
		if got := numbers(t, schema); got != "3" {
			t.Errorf("the table has %s, want 3", got)
		}
	})
}

func TestTransaction_EndedOneDoesNothing(t *testing.T) {
	eachLibrary(t, func(t *testing.T, db sqlexec.Database, schema *testdatabase.Schema) {
		tx := begin(t, db)
		tx.Rollback(t.Context())
		errs := []error{tx.Run(t.Context(), insert(schema, 1)), tx.Commit(t.Context(), insert(schema, 2)), tx.Undo(t.Context())}
		for i, err := range errs {
			if err == nil {
				t.Errorf("call %d after the rollback succeeded", i)
			}
		}
		if _, ok := db.(*sqlexec.PgxDatabase); ok && !errors.Is(errs[0], sqlexec.ErrEnded) {
			t.Errorf("Run returned %v, want ErrEnded", errs[0])
		}
		if got := numbers(t, schema); got != "" || !tx.Lost() {
			t.Errorf("the table has %q, and the transaction is lost: %t", got, tx.Lost())
		}
	})
}
