package sqlserver_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// legalNames are names of tables in PostgreSQL, though they are not recommended.
var legalNames = []string{
	"orders", "Orders", "ORDERS", "Sales.Orders", "Sales.Orders.Delayed", "a.b.c.", ".", "1", "1st-orders", "-", "_",
	"select", "table", "null", "public", "a b", " a ", "\t", "a\nb", "a\r\nb", "a\x01b", "\u00fcn\u00efc\u00f8d\u00e9", "\u8868", "\U0001F4EC", "\u202eorders", "e\u0301", "\u00e9",
	`a"b`, `a""b`, `a"`, `a'b`, `''`, `a\b`, `\`, `\\`, `a\"b`, `E'\''`, "a`b", `[a]`, `a]b`, `a@b`, `a@[dbo]@[db]`,
	`a;b`, `a--b`, `--`, `/*`, `*/ a /*`, `a" (id) values (1); drop table "victim"; --`, `a'; drop table victim; --`,
	`a"; drop table victim; commit; --`, `$1`, `a$1b`, `$$`, `$$; drop table victim; $$`, `%s`, `%[1]s`, `%`, `%!`, `{0}`, `@Id`, `:name`, `:'name'`, `?`, `??`, `&amp;`,
	strings.Repeat("n", 63), strings.Repeat("\u00e9", 31) + "n", strings.Repeat(`"`, 62) + "n", "n" + strings.Repeat(`"`, 62),
}

// asAddress is how a name can always be written; one that begins with a quote has to
// be.
func asAddress(schema, name string) string { return pgx.Identifier{schema, name}.Sanitize() }

// illegalNames are neither names nor addresses.
var illegalNames = []string{
	"", strings.Repeat("n", 64), strings.Repeat("\u00e9", 32), strings.Repeat("n", 10_000), "\x00", "a\x00b", "a\x00", "\xff", "a\xc3", "\xed\xa0\x80",
	`"`, `""`, `"half`, `"a"b`, `"a".`, `"a"."`, `"a".b`, `"a"."b`, `"a"."b"c`, `"a" . "b"`, `"a"."b"."c"`, `"a""."b"`,
	`""."a"`, `"a".""`, `"a"."` + strings.Repeat("n", 64) + `"`, `"` + strings.Repeat("n", 64) + `"."a"`, "\"a\".\"b\x00\"", "\"\xff\".\"b\"",
	`"a"."b"; drop table victim; --`, `"public"."a" (id) values (1); --`,
}

func TestNames_LegalAddresses(t *testing.T) {
	t.Parallel()
	transport := unreached(t, "My Schema")
	for _, name := range legalNames {
		written := name
		if strings.HasPrefix(name, `"`) {
			written = asAddress("My Schema", name)
		}
		address, err := transport.Address(written)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if want := asAddress("My Schema", name); address != want {
			t.Errorf("the address of %q is %s, want %s", name, address, want)
		}
		if second, err := transport.Address(address); err != nil || second != address {
			t.Errorf("the address of %s is %s, %v", address, second, err)
		}
		if schema, table := theirAddress(address); schema != "My Schema" || table != name {
			t.Errorf("NServiceBus reads %s as %q and %q", address, schema, table)
		}
	}
}

// TestNames_AddressesOfNServiceBus are read as they mean them.
func TestNames_AddressesOfNServiceBus(t *testing.T) {
	t.Parallel()
	transport := unreached(t, "")
	for name, want := range map[string]string{
		`"public"."Sales.Orders"`: `"public"."Sales.Orders"`,
		`"dbo"."Sales"`:           `"dbo"."Sales"`,
		`"s.1"."t.1"`:             `"s.1"."t.1"`,
		`"a""b"."c""."""`:         `"a""b"."c""."""`,
		`Sales.Orders`:            `"public"."Sales.Orders"`, // the name of an endpoint
		`error`:                   `"public"."error"`,
		`"error"`:                 `"public"."error"`,
		`"""quoted"`:              `"public"."""quoted"`,
	} {
		got, err := transport.Address(name)
		if err != nil || got != want {
			t.Errorf("the address of %s is %s, %v, want %s", name, got, err, want)
		}
	}
}

// unreached returns a transport for a server that is not there.
func unreached(t testing.TB, schema string) *sqlserver.Transport {
	t.Helper()
	transport, err := sqlserver.New(sqlserver.Config{URL: "postgres://nobody@127.0.0.1:1/none", Schema: schema})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, transport) })
	return transport
}

// TestNames_IllegalAreRefusedWithoutTheServer: the transport could not even reach one.
func TestNames_IllegalAreRefusedWithoutTheServer(t *testing.T) {
	t.Parallel()
	transport := unreached(t, "")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, name := range illegalNames {
		_, addressErr := transport.Address(name)
		_, openErr := transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: name, Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
		_, ddlErr := sqlserver.DDL(sqlserver.Config{URL: "postgres://"}, name)
		topology := core.Topology{InputQueue: name, Queues: []string{name}}
		for call, err := range map[string]error{
			"Address": addressErr, "OpenReceiver": openErr, "DDL": ddlErr,
			"Send":        transport.Send(ctx, letter("1", name)),
			"Provision":   transport.Provision(ctx, topology),
			"Check":       transport.Check(ctx, topology),
			"Subscribe":   transport.Subscribe(ctx, name, "topic"),
			"Unsubscribe": transport.Unsubscribe(ctx, name, "topic"),
		} {
			if err == nil || !strings.HasPrefix(err.Error(), "sqlserver: ") || strings.Contains(err.Error(), "connect") || !utf8.ValidString(err.Error()) {
				t.Errorf("%s of %.70q = %v", call, name, err)
			}
			if errors.Is(err, core.ErrQueueNotFound) {
				t.Errorf("%s of %.70q = %v: there can be no such queue", call, name, err)
			}
		}
		var refused *core.SendError
		if err := transport.Send(ctx, letter("1", "fine"), letter("2", name)); !errors.As(err, &refused) ||
			refused.Results[0].State != core.SendRefused || refused.Results[1].State != core.SendRefused {
			t.Errorf("Send to %.70q = %v, want both to be refused", name, err)
		}
	}
}

func TestNames_IllegalSchemasAreRefused(t *testing.T) {
	t.Parallel()
	for _, name := range []string{strings.Repeat("n", 64), "\x00", "a\x00b", "\xff"} {
		for _, cfg := range []sqlserver.Config{{Schema: name}, {SubscriptionTable: name}, {SubscriptionTable: `"public"."` + name + `"`}} {
			cfg.URL = "postgres://nobody@127.0.0.1:1/none"
			transport, err := sqlserver.New(cfg)
			if err == nil {
				t.Errorf("New(%v) succeeded", cfg)
				closed(t, transport)
			}
		}
	}
}

// TestNames_EveryStatementQuotes uses queues of all legal names in every way that
// there is, on tables of both makers, and finds that it was they that were used, and
// that nothing else happened.
func TestNames_EveryStatementQuotes(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	db := newSchema(t)
	victim := db.table("victim")
	db.exec(t, `create table `+victim+` as select 1 as id`)
	cfg := sqlserver.Config{Schema: db.schema, SubscriptionCache: -1}
	transport := db.open(t, cfg)
	cfg.NServiceBusTables = true
	foreign := db.open(t, cfg)
	var tables []string
	for _, name := range legalNames {
		theirs := "t" + name
		if len(theirs) > 63 {
			theirs = "t" + string([]rune(name)[1:])
		}
		tables = append(tables, name, theirs)
		if strings.HasPrefix(name, `"`) {
			name = db.table(name)
		}
		db.theirTable(t, theirs)
		provision(t, transport, name)
		useQueue(t, db.count, transport, name)
		useQueue(t, db.count, foreign, theirs)
		if t.Failed() {
			t.Fatalf("the name is %q", name)
		}
	}
	tables = append(tables, "victim", "SubscriptionRouting", "reprise_delayed")
	slices.Sort(tables)
	got := db.column(t, `select relname::text from pg_class where relnamespace = $1::text::regnamespace and relkind = 'r' order by relname collate "C"`,
		pgx.Identifier{db.schema}.Sanitize())
	if !slices.Equal(got, tables) {
		t.Errorf("there are the tables %q, want %q", got, tables)
	}
	if n := db.count(t, victim); n != "1" {
		t.Errorf("the victim has %s rows", n)
	}
}

// useQueue makes every statement that there is about a queue. count returns how many
// rows there are at an address.
func useQueue(t *testing.T, count func(t *testing.T, address string) string, transport *sqlserver.Transport, queue string) {
	t.Helper()
	ctx := t.Context()
	address, err := transport.Address(queue)
	if err != nil {
		t.Fatal(err)
	}
	if err := transport.Check(ctx, core.Topology{InputQueue: queue, Queues: []string{queue}}); err != nil {
		t.Fatal(err)
	}
	if err := transport.Subscribe(ctx, queue, queue); err != nil {
		t.Fatal(err)
	}
	expiring, both := letter("expiring", queue), delayed("both", queue, time.Millisecond)
	expiring.TimeToBeReceived, both.TimeToBeReceived = time.Hour, time.Hour
	send(t, transport, letter("one", queue))
	send(t, transport, expiring)
	send(t, transport, both)
	send(t, transport, letter("first", queue), letter("second", address))
	send(t, transport, letter("first of many", queue), expiring, both)
	send(t, transport, publication("published", queue))
	if err := transport.Unsubscribe(ctx, queue, queue); err != nil {
		t.Fatal(err)
	}
	send(t, transport, publication("published without subscribers", queue))
	for _, mode := range []core.TransactionMode{core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive, core.TransactionNone} {
		r := openReceiver(t, transport, queue, mode)
		if mode == core.TransactionNone {
			for range 5 {
				complete(t, receive(t, r))
			}
		} else {
			useDeliveries(t, r)
		}
		if err := r.Close(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if n := count(t, address); n != "0" {
		t.Errorf("%s rows are left in %s", n, address)
	}
}

// useDeliveries settles two messages in every way that there is.
func useDeliveries(t *testing.T, r core.Receiver) {
	t.Helper()
	ctx := t.Context()
	for _, settle := range []func(d core.Delivery) error{
		func(d core.Delivery) error { return d.Abandon(ctx, errors.New(`it's "quoted"`)) },
		func(d core.Delivery) error { return d.Release(ctx) },
		func(d core.Delivery) error { return d.Complete(ctx) },
		func(d core.Delivery) error {
			if err := d.Reset(ctx); !errors.Is(err, errors.ErrUnsupported) {
				bound := d.BindContext(context.WithoutCancel(ctx))
				_, noTx := sqlserver.Tx(bound)
				if _, noSQLTx := sqlserver.SQLTx(bound); noSQLTx == nil {
					noTx = nil
				}
				return errors.Join(err, noTx, d.Reset(ctx), d.CompleteWith(ctx, nil))
			}
			if !d.LockedUntil().IsZero() {
				return errors.Join(d.Renew(ctx), d.Complete(ctx))
			}
			return d.Complete(ctx)
		},
	} {
		if err := settle(receive(t, r)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNames_NotifyEveryQueue: nothing but the server wakes these receivers.
func TestNames_NotifyEveryQueue(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	db := newSchema(t)
	transport, sender := db.open(t, sqlserver.Config{}), db.open(t, sqlserver.Config{})
	transport.NeverPoll()
	var queues []string
	for _, name := range legalNames {
		queues = append(queues, db.table(name))
	}
	provision(t, transport, queues...)
	received := make(chan string)
	for _, queue := range queues {
		r := openReceiver(t, transport, queue, core.TransactionNone)
		go func() {
			var got [1]core.Delivery
			if _, err := r.Receive(t.Context(), got[:]); err == nil {
				received <- got[0].Incoming().ID
			}
		}()
		await(t, "a receiver waits", func() bool { return sqlserver.Waits(r) })
	}
	await(t, "the transport listens", transport.Listens)
	for _, queue := range queues {
		send(t, sender, letter(queue, queue))
		select {
		case id := <-received:
			if id != queue {
				t.Errorf("received %s, want %s", id, queue)
			}
		case <-time.After(patience):
			t.Fatalf("nobody was woken for %s", queue)
		}
	}
}

// TestNames_Schemas does the same where the schema has the name.
func TestNames_Schemas(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	db := newDatabase(t)
	db.exec(t, `create table victim as select 1 as id`)
	for _, name := range []string{
		"Sales", "sales.orders", " ", "1", `a"b`, `"`, `""`, `a'b`, `a\b`, `a"; drop table public.victim; --`, `%s`, "$1", "\u00fc",
		strings.Repeat("s", 63), strings.Repeat(`"`, 63),
	} {
		schema := pgx.Identifier{name}.Sanitize()
		db.exec(t, `create schema `+schema)
		cfg := sqlserver.Config{Schema: name, SubscriptionCache: -1, SubscriptionTable: "Subscriptions of " + name[:min(len(name), 40)]}
		transport := db.open(t, cfg)
		provision(t, transport, "orders")
		db.exec(t, on(schema+`."theirs"`, theirQueue))
		useQueue(t, db.count, transport, "orders")
		cfg.NServiceBusTables = true
		useQueue(t, db.count, db.open(t, cfg), "theirs")
		if t.Failed() {
			t.Fatalf("the schema is %q", name)
		}
		got := db.column(t, `select relname::text from pg_class where relnamespace = $1::text::regnamespace and relkind = 'r' order by relname collate "C"`, schema)
		if want := []string{cfg.SubscriptionTable, "orders", "reprise_delayed", "theirs"}; !slices.Equal(got, want) {
			t.Errorf("schema %q: there are the tables %q, want %q", name, got, want)
		}
	}
	if got := db.column(t, `select relname::text from pg_class where relnamespace = 'public'::regnamespace`); !slices.Equal(got, []string{"victim"}) {
		t.Errorf("in the schema public: %q", got)
	}
}

// FuzzAddress: every name has one address, which both worlds read as the name, or is
// refused.
func FuzzAddress(f *testing.F) {
	for _, name := range append(slices.Clone(legalNames), illegalNames...) {
		f.Add(name)
	}
	f.Add(`"a"."b"`)
	transport := unreached(f, "My.Schema")
	f.Fuzz(func(t *testing.T, name string) {
		address, err := transport.Address(name)
		legal := name != "" && len(name) <= 63 && utf8.ValidString(name) && !strings.Contains(name, "\x00")
		if err != nil {
			if legal && !strings.HasPrefix(name, `"`) {
				t.Fatalf("%q: %v", name, err)
			}
			return
		}
		schema, table := theirAddress(address)
		if asAddress(schema, table) != address || schema == "" {
			t.Fatalf("%q has the address %s, which NServiceBus reads as %q and %q", name, address, schema, table)
		}
		if second, err := transport.Address(address); err != nil || second != address {
			t.Fatalf("%q has the address %s, and that %s, %v", name, address, second, err)
		}
		if strings.HasPrefix(name, `"`) {
			if address != name && address != `"My.Schema".`+name {
				t.Fatalf("the address %s is read as %s", name, address)
			}
			return
		}
		if !legal || schema != "My.Schema" || table != name {
			t.Fatalf("%q has the address %s", name, address)
		}
	})
}
