package sqlserver_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

func TestProvision_IsIdempotent(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{})
	provision(t, transport, "orders", "error")
	// An operator is responsible for a table or queue that the operator made.
	orders := db.table("orders")
	for _, text := range []string{
		`alter table ` + orders + ` add region text not null default 'north'`,
		`alter table ` + orders + ` set (fillfactor = 90)`,
		`create index on ` + orders + ` (region)`,
		`comment on table ` + orders + ` is 'mine'`,
		`insert into ` + orders + ` (id, headers) values (gen_random_uuid(), '{}')`,
	} {
		db.exec(t, text)
	}
	before := db.catalogue(t)
	provision(t, transport, "orders", "error", "orders", db.table("error"))
	provision(t, db.open(t, sqlserver.Config{NServiceBusTables: true}), "orders", "error")
	if lines := differences(db.catalogue(t), before); len(lines) > 0 {
		t.Errorf("this has changed:\n%s", strings.Join(lines, "\n"))
	}
	if n := db.count(t, orders); n != "1" {
		t.Errorf("%s messages are left, want 1", n)
	}
}

// TestProvision_ManyAtOnce is what happens when a service with many instances is
// started for the first time.
func TestProvision_ManyAtOnce(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	const instances = 6
	for name, cfg := range map[string]sqlserver.Config{"of Reprise": {}, "of NServiceBus": {NServiceBusTables: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, alone := newSchema(t), newSchema(t)
			queues := []string{"orders", "error", "audit"}
			begin := make(chan struct{})
			var wg sync.WaitGroup
			for range instances {
				transport := db.open(t, cfg)
				wg.Go(func() {
					<-begin
					if err := transport.Provision(t.Context(), core.Topology{InputQueue: queues[0], Queues: queues}); err != nil {
						t.Error(err)
					}
				})
			}
			close(begin)
			wg.Wait()
			provision(t, alone.open(t, cfg), queues...)
			if lines := differences(db.catalogue(t), alone.catalogue(t)); len(lines) > 0 {
				t.Errorf("many at once make this differently:\n%s", strings.Join(lines, "\n"))
			}
		})
	}
}

// TestProvision_BesideNServiceBus: its endpoints create the same tables, and know
// nothing of how instances of Reprise take turns.
func TestProvision_BesideNServiceBus(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for table, create := range map[string]string{"SubscriptionRouting": theirSubscriptions, "error": theirQueue} {
		for outcome, end := range map[string]func(tx pgx.Tx, ctx context.Context) error{"commits": pgx.Tx.Commit, "rolls back": pgx.Tx.Rollback} {
			t.Run(table+", and "+outcome, func(t *testing.T) {
				t.Parallel()
				db := newSchema(t)
				transport := db.open(t, sqlserver.Config{})
				topology := core.Topology{InputQueue: "orders", Queues: []string{"orders", "error"}}
				tx, provisioned := db.provisionBehind(t, table, create, transport, topology)
				if err := end(tx, t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := <-provisioned; err != nil {
					t.Error(err)
				}
				if err := transport.Check(t.Context(), topology); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// TestProvision_TableAppearsAtTheSameTime: the same name, and no queue.
func TestProvision_TableAppearsAtTheSameTime(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{})
	tx, provisioned := db.provisionBehind(t, "orders", `create table %[1]s (id uuid)`, transport, core.Topology{InputQueue: "orders", Queues: []string{"orders"}})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-provisioned; err == nil || !strings.Contains(err.Error(), "no column headers") {
		t.Errorf("Provision = %v, want it to name the part that the table lacks", err)
	}
}

// provisionBehind creates a table in a transaction that is open, begins to provision, and
// returns when that waits for the transaction's end.
func (db *testDatabase) provisionBehind(t *testing.T, table, create string, transport *sqlserver.Transport, topology core.Topology) (pgx.Tx, <-chan error) {
	t.Helper()
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), on(db.table(table), create)); err != nil {
		t.Fatal(err)
	}
	provisioned := make(chan error, 1)
	go func() { provisioned <- transport.Provision(t.Context(), topology) }()
	await(t, "a statement waits for a lock", func() bool {
		return len(db.column(t, `select query from pg_stat_activity where wait_event_type = 'Lock' and position($1 in query) > 0`, db.table(table))) == 1
	})
	return tx, provisioned
}

func TestProvision_RefusesTablesThatAreNoQueues(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{})
	const columns = `id uuid not null default gen_random_uuid(), expires timestamp, headers text not null, body bytea,
		seq bigint generated by default as identity primary key, due timestamptz not null default now(),
		deliveries integer not null default 0, claims integer not null default 0, leased_until timestamptz, last_error text`
	for name, c := range map[string]struct {
		create string
		want   []string
	}{
		"another table":    {`create table %[1]s (id bigint primary key, name text)`, []string{"no column headers", "no column body"}},
		"a sequence":       {`create sequence %[1]s`, []string{"no column id", "no queue"}},
		"a view":           {`create view %[1]s as select 1 as id`, []string{"no column headers"}},
		"without body":     {`create table %[1]s (` + strings.Replace(columns, "body bytea,", "", 1) + `)`, []string{"no column body (bytea)"}},
		"seq of 4 bytes":   {`create table %[1]s (` + strings.Replace(columns, "seq bigint", "seq integer", 1) + `)`, []string{"seq", "integer", "bigint"}},
		"due without zone": {`create table %[1]s (` + strings.Replace(columns, "due timestamptz", "due timestamp", 1) + `)`, []string{"due", "timestamp without time zone", "timestamp with time zone"}},
		"short headers":    {`create table %[1]s (` + strings.Replace(columns, "headers text", "headers varchar(4000)", 1) + `)`, []string{"headers", "character varying(4000)", "text"}},
	} {
		db.exec(t, on(db.table(name), c.create))
		topology := core.Topology{InputQueue: "made before " + name, Queues: []string{"made before " + name, name}}
		for call, err := range map[string]error{
			"Provision": transport.Provision(t.Context(), topology),
			"Check":     transport.Check(t.Context(), core.Topology{InputQueue: name, Queues: []string{name}}),
		} {
			for _, want := range append(c.want, db.table(name)) {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%s of %s = %v, want it to name %q", call, name, err, want)
				}
			}
		}
	}
	if made := db.column(t, `select relname::text from pg_class where relnamespace = $1::text::regnamespace and relname like 'made before%'`, strings.TrimSuffix(db.table(""), `.""`)); len(made) > 0 {
		t.Errorf("a Provision that failed has made %q", made)
	}
}

func TestProvision_MissingSchema(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{Schema: "nowhere"})
	err := transport.Provision(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders"}})
	if err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("Provision = %v, want an error that names the schema", err)
	}
}
