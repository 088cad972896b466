//go:build mssql

package sqlserver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// mssqlNames are names of tables in Microsoft SQL Server: those of PostgreSQL that it
// takes too, and further ones.
func mssqlNames() (names []string) {
	for _, name := range append(legalNames, "[", "]", "a]]b", "a[b]", "it's", strings.Repeat("n", 128), strings.Repeat("\U0001F4EC", 64), strings.Repeat("]", 100)) {
		switch {
		case strings.Contains(name, "@"), strings.HasPrefix(name, "#"), strings.TrimSpace(name) == "", strings.HasPrefix(name, "[") && strings.HasSuffix(name, "]"):
		default:
			names = append(names, name)
		}
	}
	return names
}

// TestMSSQL_EveryStatementQuotesNames uses queues of all legal names in every way that
// there is, on tables of both makers, one after the other: names that differ in case
// alone are the same to most servers.
func TestMSSQL_EveryStatementQuotesNames(t *testing.T) {
	t.Parallel()
	d := newMSSQL(t)
	d.exec(t, `create table `+d.table("victim")+` (id int); insert into `+d.table("victim")+` values (1)`)
	cfg := sqlserver.Config{SubscriptionCache: -1}
	ours := d.open(t, cfg)
	cfg.NServiceBusTables = true
	theirs := d.open(t, cfg)
	for _, name := range mssqlNames() {
		for _, transport := range []*sqlserver.Transport{ours, theirs} {
			provision(t, transport, name)
			useQueue(t, d.countAt, transport, name)
			d.exec(t, `drop table `+d.table(name))
		}
		if t.Failed() {
			t.Fatalf("the name is %q", name)
		}
	}
	if n := d.count(t, "victim"); n != 1 {
		t.Errorf("the victim has %d rows", n)
	}
	left := d.column(t, `select t.name from sys.tables as t inner join sys.schemas as s on s.schema_id = t.schema_id where s.name = @p1 order by t.name`, d.schema)
	if got := strings.Join(left, " "); got != "reprise_delayed SubscriptionRouting victim" {
		t.Errorf("there are the tables %q beside the queues", left)
	}
}

// TestMSSQL_NamesOfSchemas does the same where the schema has the name.
func TestMSSQL_NamesOfSchemas(t *testing.T) {
	t.Parallel()
	for i, name := range []string{"Sales", "sales.orders", "1", `a"b`, "a]b", "]", "a[b", "it's", "a@b", `a'; drop table victim; --`, "%s", "\u00fc", strings.Repeat("s", 100)} {
		name = fmt.Sprintf("%s %d", name, i)
		d := newMSSQLIn(t, serverURL(t), name)
		cfg := sqlserver.Config{SubscriptionCache: -1, SubscriptionTable: "Subscriptions of " + strings.ReplaceAll(name, "@", " at ")}
		transport := d.open(t, cfg)
		provision(t, transport, "orders")
		useQueue(t, d.countAt, transport, "orders")
		cfg.NServiceBusTables = true
		foreign := d.open(t, cfg)
		provision(t, foreign, "theirs")
		useQueue(t, d.countAt, foreign, "theirs")
		if t.Failed() {
			t.Fatalf("the schema is %q", name)
		}
	}
}

// TestMSSQL_SeveralSchemas: queue, error queue, subscriptions and subscriber are each in
// another schema of one database.
func TestMSSQL_SeveralSchemas(t *testing.T) {
	t.Parallel()
	places := make([]*mssqlDatabase, 4)
	for i := range places {
		places[i] = newMSSQL(t)
	}
	separated(t, places)
}

// at is the address of a table in a place.
func (d *mssqlDatabase) at(name string) string {
	return name + "@" + bracketed(d.schema) + "@" + bracketed(d.name)
}

// separated runs an endpoint whose queue, error queue, subscriptions and subscriber are
// in the four places, in every mode.
func separated(t *testing.T, places []*mssqlDatabase) {
	t.Helper()
	input, failed, subscriptions, subscriber := places[0], places[1], places[2], places[3]
	const table = "Subscriptions"
	for _, mode := range allModes {
		t.Run(mode.String(), func(t *testing.T) {
			queue, failures, bills := "orders "+mode.String(), "error "+mode.String(), "bills "+mode.String()
			transport := input.open(t, sqlserver.Config{SubscriptionTable: subscriptions.at(table), SubscriptionCache: -1})
			provision(t, transport, queue, failed.at(failures), subscriber.at(bills))
			other := subscriber.open(t, sqlserver.Config{SubscriptionTable: subscriptions.at(table), SubscriptionCache: -1})
			if err := other.Subscribe(t.Context(), bills, "orders.Placed "+mode.String()); err != nil {
				t.Fatal(err)
			}
			runs(t, queue, transport, core.Config{
				Transactions: mode, Provision: core.ProvisionNever,
				Recoverability: core.Recoverability{ErrorQueue: failed.at(failures), Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
			}, func(_ context.Context, m *core.Message, body []byte) error {
				if string(body) == "bad" {
					return errors.New("as the test wants it")
				}
				if err := m.Send(subscriber.at(bills), core.NewMessageType[[]byte]("bills.Write").Of([]byte("sent"))); err != nil {
					return err
				}
				return m.Publish(core.NewEvent[[]byte]("orders.Placed " + mode.String()).Of([]byte("published")))
			})
			send(t, transport, order("good", queue), order("bad", queue))
			r := openReceiver(t, other, bills, core.TransactionReceiveOnly)
			got := map[string]int{}
			for range 2 {
				d := receive(t, r)
				got[string(d.Incoming().Body)]++
				complete(t, d)
			}
			if got["sent"] != 1 || got["published"] != 1 {
				t.Errorf("the subscriber got %v, want one sent and one published", got)
			}
			bad := receive(t, openReceiver(t, transport, failed.at(failures), core.TransactionReceiveOnly))
			if in := bad.Incoming(); string(in.Body) != "bad" || in.Headers.Get(headers.FailedQ) != input.at(queue) {
				t.Errorf("in the error queue: %q, failed at %q, want \"bad\" and %q", in.Body, in.Headers.Get(headers.FailedQ), input.at(queue))
			}
			complete(t, bad)
			// A message of this mode to the other place, later.
			send(t, transport, delayed("later", subscriber.at(bills), 100*time.Millisecond))
			if id := receive(t, r).Incoming().ID; id != "later" {
				t.Errorf("received %s, want the delayed message", id)
			}
		})
	}
}

// TestMSSQL_SeveralDatabases: the same in two databases of one server, by turns.
func TestMSSQL_SeveralDatabases(t *testing.T) {
	t.Parallel()
	first, second := serverURL(t), secondDatabase(t)
	for _, c := range []struct {
		name   string
		second [4]bool // queue, error queue, subscriptions, subscriber
	}{
		{"error queue elsewhere", [4]bool{false, true, false, false}},
		{"subscriptions elsewhere", [4]bool{false, false, true, false}},
		{"subscriber elsewhere", [4]bool{false, false, false, true}},
		{"all but the queue elsewhere", [4]bool{false, true, true, true}},
		{"queue elsewhere", [4]bool{true, false, false, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			places := make([]*mssqlDatabase, 4)
			for i, elsewhere := range c.second {
				text := first
				if elsewhere {
					text = second
				}
				places[i] = newMSSQLIn(t, text, fmt.Sprintf("Schema %d-%d", os.Getpid(), mssqlSchemas.Add(1)))
			}
			separated(t, places)
		})
	}
}

// secondDatabase returns the URL of a second database on the server: the one that the
// environment names, or a new one.
func secondDatabase(t *testing.T) string {
	t.Helper()
	parsed, u := parsedURL(t, serverURL(t))
	name := os.Getenv(secondVariable)
	if name == "" {
		name = fmt.Sprintf("reprise second %d", time.Now().UnixNano())
		db := sql.OpenDB(mssql.NewConnectorConfig(parsed))
		if _, err := db.ExecContext(t.Context(), `create database `+bracketed(name)); err != nil {
			t.Fatalf("create a second database on the server: %v; let the login create databases (alter server role dbcreator add member ...), or name an empty one that it owns in %s", err, secondVariable)
		}
		t.Cleanup(func() {
			text := `alter database ` + bracketed(name) + ` set single_user with rollback immediate; drop database ` + bracketed(name)
			if _, err := db.ExecContext(context.Background(), text); err != nil {
				t.Logf("the database %q is left behind: %v", name, err)
			}
			_ = db.Close()
		})
	}
	options := u.Query()
	for option := range options {
		if strings.EqualFold(option, "database") {
			options.Del(option)
		}
	}
	options.Set("database", name)
	u.RawQuery = options.Encode()
	return u.String()
}
