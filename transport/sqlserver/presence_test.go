package sqlserver_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

const (
	presenceVariable        = "REPRISE_TEST_SQLSERVER_PRESENCE"
	presenceOverSQLVariable = "REPRISE_TEST_SQLSERVER_PRESENCE_SQL"
)

// receiveAndHang is a process that receives a message, says so, and never settles it.
func receiveAndHang(url string, overSQL bool) error {
	cfg := sqlserver.Config{URL: url}
	if overSQL {
		db, err := sql.Open("pgx", url)
		if err != nil {
			return err
		}
		cfg = sqlserver.Config{DB: db}
	}
	transport, err := sqlserver.New(cfg)
	if err != nil {
		return err
	}
	r, err := transport.OpenReceiver(context.Background(), core.ReceiverConfig{Queue: "orders", Mode: core.TransactionSendsAtomicWithReceive, MaxInFlight: 1})
	if err != nil {
		return err
	}
	if _, err := r.Receive(context.Background(), make([]core.Delivery, 1)); err != nil {
		return err
	}
	if _, err := os.Stdout.WriteString("received\n"); err != nil {
		return err
	}
	select {}
}

// The server knows when a process has died: its messages do not wait for the end of their leases,
// whether another receiver was there before or begins afterwards.
func TestPresence_LeasesOfAKilledProcessAreReleased(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ before, overSQL bool }{
		"to a receiver that was there":     {before: true},
		"to one that is opened afterwards": {},
		"over database/sql":                {overSQL: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := server.PasswordURL(server.NewDatabase(t))
			cfg := sqlserver.Config{URL: url, Lease: time.Hour}
			variable := presenceVariable
			if c.overSQL {
				cfg.URL, cfg.DB = "", openDB(t, url)
				variable = presenceOverSQLVariable
			}
			transport := open(t, cfg)
			provision(t, transport, "orders")
			if err := transport.Send(t.Context(), message("1")); err != nil {
				t.Fatal(err)
			}
			child := exec.CommandContext(t.Context(), os.Args[0])
			child.Env = append(os.Environ(), variable+"="+url)
			said, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			if _, err := said.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
			var r core.Receiver
			if c.before {
				r = openReceiver(t, transport, "orders", core.TransactionSendsAtomicWithReceive)
			}
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			killed := time.Now()
			_ = child.Wait()
			if !c.before {
				r = openReceiver(t, transport, "orders", core.TransactionSendsAtomicWithReceive)
			}
			d := receive(t, r)
			t.Logf("redelivered %v after the kill", time.Since(killed))
			if n := d.Incoming().DeliveryCount; n != 2 {
				t.Errorf("the count is %d, want 2", n)
			}
			complete(t, d)
		})
	}
}

// A process whose session breaks takes its number again before others release its leases.
func TestPresence_LostSessionKeepsTheLeases(t *testing.T) {
	t.Parallel()
	database := server.NewDatabase(t)
	url := server.PasswordURL(database)
	one, other := open(t, sqlserver.Config{URL: url}), open(t, sqlserver.Config{URL: url})
	provision(t, one, "orders")
	if err := one.Send(t.Context(), message("1")); err != nil {
		t.Fatal(err)
	}
	d := receive(t, openReceiver(t, one, "orders", core.TransactionReceiveOnly))
	number := one.Number()
	if number == 0 {
		t.Fatal("the process has no number")
	}
	openReceiver(t, other, "orders", core.TransactionReceiveOnly)
	db := poolOf(t, server.URL(database))
	session := func(number int32) (pid, lastLook string) {
		err := db.QueryRow(t.Context(), `select coalesce(min(pid)::text, ''), coalesce(min(query_start)::text, '') from pg_locks join pg_stat_activity using (pid)
			where locktype = 'advisory' and objid = $1 and database = (select oid from pg_database where datname = current_database())`, number).Scan(&pid, &lastLook)
		if err != nil {
			t.Fatal(err)
		}
		return pid, lastLook
	}
	before, _ := session(number)
	if _, err := db.Exec(t.Context(), fmt.Sprintf(`select pg_terminate_backend(%s)`, before)); err != nil {
		t.Fatal(err)
	}
	await(t, "the process holds its number again, perhaps beside another one", func() bool {
		pid, _ := session(number)
		return pid != before && pid != ""
	})
	for range 5 {
		_, last := session(other.Number())
		await(t, "the other process looks again", func() bool {
			_, look := session(other.Number())
			return look != last
		})
	}
	if err := d.Complete(t.Context()); err != nil {
		t.Errorf("the lease is lost: %v", err)
	}
}

// Transports of a pool have one number and one connection for it, which the first receiver has from its
// first lease on, also where there was none for a while.
func TestPresence_TransportsOfAPoolHaveOneNumber(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	pool := poolOf(t, db.url)
	one, other := db.open(t, sqlserver.Config{Pool: pool}), db.open(t, sqlserver.Config{Pool: pool})
	provision(t, one, "orders", "billing")
	numberOf := func(transport *sqlserver.Transport, queue string) (core.Receiver, string) {
		r := openReceiver(t, transport, queue, core.TransactionReceiveOnly)
		send(t, transport, letter("1", queue))
		receive(t, r)
		return r, db.column(t, `select (claims >> 15)::text from `+db.table(queue))[0]
	}
	r, first := numberOf(one, "orders")
	if first == "0" {
		t.Error("the first lease has no number")
	}
	if _, second := numberOf(other, "billing"); second != first {
		t.Errorf("the numbers of the leases are %s and %s", first, second)
	}
	closed(t, other)
	if err := r.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "no connection holds the number", func() bool {
		return db.count(t, `pg_locks where locktype = 'advisory' and objid = `+first+` and database = (select oid from pg_database where datname = current_database())`) == "0"
	})
	db.exec(t, `truncate `+db.table("orders"))
	if _, second := numberOf(one, "orders"); second != first {
		t.Errorf("the number is %s after the connection was closed, and was %s", second, first)
	}
}
