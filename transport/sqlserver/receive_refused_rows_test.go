package sqlserver_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// refuseBad makes each statement that receives a row with the body "bad" fail with a data exception.
func refuseBad(t *testing.T, db *testDatabase, table string) {
	t.Helper()
	for _, text := range []string{
		`create or replace function ` + schemaOf(db) + `.refuse() returns trigger language plpgsql as $$ begin perform 1 / case old.body when 'bad' then 0 else 1 end; return case tg_op when 'DELETE' then old else new end; end $$`,
		`create trigger refuse before update or delete on ` + table + ` for each row execute function ` + schemaOf(db) + `.refuse()`,
	} {
		db.exec(t, text)
	}
}

// TestReceive_RowThatTheServerRefuses: its error is about that row, which stays in the table. Others
// are received, before and behind it.
func TestReceive_RowThatTheServerRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		cfg  sqlserver.Config
		mode core.TransactionMode
	}{
		{"leases", sqlserver.Config{}, core.TransactionReceiveOnly},
		{"none", sqlserver.Config{}, core.TransactionNone},
		{"transactions", sqlserver.Config{NServiceBusTables: true}, core.TransactionSendsAtomicWithReceive},
		{"none of NServiceBus", sqlserver.Config{NServiceBusTables: true}, core.TransactionNone},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := newSchema(t)
			transport := db.open(t, c.cfg)
			const queue = "order by" // which statements have too
			provision(t, transport, queue)
			want := []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}
			for _, id := range want {
				send(t, transport, letter(id, queue))
				if id == "2" || id == "7" {
					send(t, transport, letter("bad", queue))
				}
			}
			refuseBad(t, db, db.table(queue))
			warnings := make(chan string, 10)
			r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{
				Queue: queue, Mode: c.mode, MaxInFlight: 8,
				Warn:              func(text string) { warnings <- text },
				ConnectionChanged: func(e core.ConnectionChange) { t.Errorf("it is reported as an outage: %v", e.Err) },
			})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for len(got) < len(want) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				var batch [8]core.Delivery
				n, err := r.Receive(ctx, batch[:])
				cancel()
				if err != nil {
					t.Fatalf("receive: %v, after %q", err, got)
				}
				for _, d := range batch[:n] {
					got = append(got, d.Incoming().ID)
					complete(t, d)
				}
			}
			if slices.Sort(got); !slices.Equal(got, want) {
				t.Errorf("received %q, want %q", got, want)
			}
			for range 2 {
				if text := next(t, "a warning", warnings); !strings.Contains(text, "cannot be received") || !strings.Contains(text, "division by zero") {
					t.Errorf("the warning is %q", text)
				}
			}
			if err := r.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if n := db.count(t, db.table(queue)); n != "2" {
				t.Errorf("%s rows are left, want 2", n)
			}
			db.exec(t, `drop trigger refuse on `+db.table(queue))
			r = openReceiver(t, transport, queue, c.mode)
			for range 2 {
				complete(t, receive(t, r))
			}
		})
	}
}

// TestReceive_ColumnIsAltered: the first error of a receiver names the column and the fix. With one
// connection the statement was certainly prepared before.
func TestReceive_ColumnIsAltered(t *testing.T) {
	t.Parallel()
	for _, mode := range []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly} {
		for over, config := range map[string]func(t *testing.T, url string) sqlserver.Config{"pgx": overPgxPool, "database/sql": overSQLPool} {
			t.Run(fmt.Sprint(mode, " ", over), func(t *testing.T) {
				t.Parallel()
				db := newSchema(t)
				cfg := config(t, db.url)
				if cfg.DB == nil {
					cfg.URL = withOptions(t, db.url, "pool_max_conns", "1")
				} else {
					cfg.DB.SetMaxOpenConns(1)
				}
				transport := db.open(t, cfg)
				provision(t, transport, "q")
				r := openReceiver(t, transport, "q", mode)
				receiveOne := func() {
					t.Helper()
					send(t, transport, letter("1", "q"))
					complete(t, receive(t, r))
				}
				receiveOne()
				alter := func(kind string) {
					db.exec(t, `alter table `+db.table("q")+` alter column headers type `+kind)
				}
				alter("varchar(100000)")
				alter("text") // in time
				receiveOne()
				alter("varchar(100000)")
				send(t, transport, letter("1", "q"))
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				var got [1]core.Delivery
				_, err := r.Receive(ctx, got[:])
				const want = "the column headers is of the type character varying(100000), but must be text; to fix: alter it back"
				if err == nil || !strings.Contains(err.Error(), want) || strings.Index(err.Error(), want) > strings.Index(err.Error()+"cached plan", "cached plan") {
					t.Errorf("receive: %v, want first %q", err, want)
				}
			})
		}
	}
}
