package sqlserver_test

import (
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// TestSQLTx_BelongsToTheMessage does what a handler may do with the transaction that
// database/sql gives it, and what it may not: to commit it, and to leave rows open.
func TestSQLTx_BelongsToTheMessage(t *testing.T) {
	t.Parallel()
	db := openDB(t, server.PasswordURL(server.NewDatabase(t)))
	transport := open(t, sqlserver.Config{DB: db})
	provision(t, transport, "orders", "billing")
	if _, err := db.ExecContext(t.Context(), `create table rows (n int primary key, name text)`); err != nil {
		t.Fatal(err)
	}
	if err := transport.Send(t.Context(), message("order")); err != nil {
		t.Fatal(err)
	}
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "orders", Mode: core.TransactionSendsAtomicWithReceive, MaxInFlight: 1})
	if err != nil {
		t.Fatal(err)
	}
	dst := make([]core.Delivery, 1)
	if _, err := r.Receive(t.Context(), dst); err != nil {
		t.Fatal(err)
	}
	d := dst[0]
	ctx := d.BindContext(t.Context())
	tx, err := sqlserver.SQLTx(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(ctx, `insert into rows values ($1, $2), ($3, $4)`, 1, "one", 2, "two"); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := tx.QueryRowContext(ctx, `select count(*) from rows where name like $1`, "%o%").Scan(&n); err != nil || n != 2 {
		t.Fatalf("the transaction sees %d of its rows, %v", n, err)
	}
	prepared, err := tx.PrepareContext(ctx, `insert into rows values ($1, $2)`)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := prepared.ExecContext(ctx, 3, "three"); err != nil {
		t.Fatal(err)
	}
	left, err := tx.QueryContext(ctx, `select n from rows`)
	if err != nil {
		t.Fatal(err)
	}
	if !left.Next() { // the other two are not read, nor are the rows closed
		t.Fatal(left.Err())
	}
	if err := tx.Commit(); err == nil {
		t.Error("a handler commits the transaction of its message")
	}
	if err := d.CompleteWith(t.Context(), []core.Outgoing{{ID: "bill", Queue: "billing"}}); err != nil {
		t.Fatal(err)
	}
	if err := db.QueryRowContext(t.Context(), `select count(*) from rows`).Scan(&n); err != nil || n != 3 {
		t.Errorf("%d rows were committed, want 3; %v", n, err)
	}
	for queue, want := range map[string]int{"orders": 0, "billing": 1} {
		if err := db.QueryRowContext(t.Context(), `select count(*) from "`+queue+`"`).Scan(&n); err != nil || n != want {
			t.Errorf("%s has %d messages, want %d; %v", queue, n, want, err)
		}
	}
	if _, err := tx.ExecContext(ctx, `insert into rows values (4, 'late')`); err == nil {
		t.Error("the transaction can still be used when its message is settled")
	}
}
