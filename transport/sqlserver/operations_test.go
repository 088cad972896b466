package sqlserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// What docs/transports/sqlserver.md gives operators to run is run here: every block of
// SQL in it has a name in a comment before it, and is used by a test of that name.

// document returns the blocks of SQL by their names.
func document(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/transports/sqlserver.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string]string{}
	for _, found := range regexp.MustCompile("(?s)<!-- sql: ([a-z-]+) -->\n```sql\n(.*?)```\n").FindAllStringSubmatch(string(text), -1) {
		if _, again := blocks[found[1]]; again {
			t.Errorf("the document has two blocks named %q", found[1])
		}
		blocks[found[1]] = found[2]
	}
	if n := strings.Count(string(text), "```sql\n"); n != len(blocks) {
		t.Errorf("the document has %d blocks of SQL, but %d have a name", n, len(blocks))
	}
	return blocks
}

// operator has a database with the queues that the document speaks of.
type operator struct {
	*testDatabase
	transport *sqlserver.Transport
	block     func(name string) string
}

// sql runs a block, in which 42 stands for a message, and returns the rows by column.
func (o *operator) sql(t *testing.T, name string, replacements ...string) (rows []map[string]any) {
	t.Helper()
	text := strings.NewReplacer(replacements...).Replace(o.block(name))
	ctx, cancel := context.WithTimeout(t.Context(), patience) // a handler's transaction must not be waited for
	defer cancel()
	found, err := o.pool.Query(ctx, text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	rows, err = pgx.CollectRows(found, pgx.RowToMap)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return rows
}

// sqlAll is sql for a block of several statements.
func (o *operator) sqlAll(t *testing.T, name string, replacements ...string) {
	t.Helper()
	o.exec(t, strings.NewReplacer(replacements...).Replace(o.block(name)))
}

// one is sql for a block that returns one row.
func (o *operator) one(t *testing.T, name string, replacements ...string) map[string]any {
	t.Helper()
	rows := o.sql(t, name, replacements...)
	if len(rows) != 1 {
		t.Fatalf("%s: %d rows, want one: %v", name, len(rows), rows)
	}
	return rows[0]
}

func (o *operator) wantRow(t *testing.T, row map[string]any, want map[string]string) {
	t.Helper()
	for column, value := range want {
		if got := fmt.Sprint(row[column]); got != value {
			t.Errorf("%s is %q, want %q: %v", column, got, value, row)
		}
	}
}

// wantCounts compares numbers of messages, by table.
func (o *operator) wantCounts(t *testing.T, want map[string]string) {
	t.Helper()
	for table, n := range want {
		if got := o.count(t, table); got != n {
			t.Errorf("%s has %s rows, want %s", table, got, n)
		}
	}
}

// seq returns the number of the only message in a queue, which is put for 42.
func (o *operator) seq(t *testing.T, queue string) []string {
	t.Helper()
	seqs := o.column(t, `select seq::text from `+queue)
	if len(seqs) != 1 {
		t.Fatalf("there are %d messages in %s, want one", len(seqs), queue)
	}
	return []string{"seq = 42", "seq = " + seqs[0]}
}

const invoiceType = "billing.WriteInvoice"

// invoice is a message to billing as an endpoint sends it.
func invoice(id string) core.Outgoing {
	out := letter(id, "billing")
	out.Headers.Set(core.HeaderMessageTypes, invoiceType)
	out.Headers.Set(core.HeaderContentType, core.JSON.ContentType())
	out.Body = []byte(`{"OrderID":42}`)
	return out
}

// billing runs the endpoint until the end of the test.
func (o *operator) billing(t *testing.T, mode core.TransactionMode, handler func(context.Context, *core.Inbound[WriteInvoice]) error) {
	t.Helper()
	ep, err := core.New("billing", o.transport, core.Config{
		Transactions: mode, Logger: silent,
		Recoverability: core.Recoverability{Immediate: core.Immediate{Off: true}, Delayed: core.Delayed{Off: true}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := core.Handle(ep, invoiceType, handler); err != nil {
		t.Fatal(err)
	}
	run(t, ep)
}

var operations = map[string]func(t *testing.T, o *operator){
	"ddl": func(t *testing.T, o *operator) {
		ddl, err := sqlserver.DDL(sqlserver.Config{URL: "postgres://"}, "billing")
		if err != nil {
			t.Fatal(err)
		}
		if got := o.block("ddl"); got != ddl {
			t.Errorf("the document has\n%s\nbut DDL returns\n%s", got, ddl)
		}
		o.exec(t, `drop table billing`)
		o.sqlAll(t, "ddl")
		o.sqlAll(t, "ddl") // without harm
		if err := o.transport.Check(t.Context(), core.Topology{Queues: []string{"billing"}}); err != nil {
			t.Error(err)
		}
	},

	"vacuum": func(t *testing.T, o *operator) {
		tables := map[any]bool{}
		for _, row := range o.sql(t, "vacuum") {
			tables[row["relname"]] = true
		}
		for _, want := range []string{"billing", "error", "reprise_delayed"} {
			if !tables[want] {
				t.Errorf("%s is not among %v", want, tables)
			}
		}
	},

	"old-snapshots": func(t *testing.T, o *operator) {
		pool := poolOf(t, withOptions(t, o.url, "application_name", "long-report"))
		tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		if _, err := tx.Exec(t.Context(), `select count(*) from billing`); err != nil {
			t.Fatal(err)
		}
		rows := o.sql(t, "old-snapshots")
		if !slices.ContainsFunc(rows, func(row map[string]any) bool { return row["application_name"] == "long-report" }) {
			t.Errorf("the report is not among %v", rows)
		}
	},

	"grants": func(t *testing.T, o *operator) {
		role, url := o.role(t)
		o.sqlAll(t, "grants", " to app;", " to "+role+";")
		transport := open(t, sqlserver.Config{URL: url})
		for _, mode := range allModes {
			config := core.Config{Transactions: mode, Logger: silent}
			if mode != core.TransactionNone {
				config.Recoverability = core.Recoverability{
					Immediate: core.Immediate{Retries: 1},
					Delayed:   core.Delayed{Delays: []time.Duration{time.Millisecond}},
				}
			}
			ep, err := core.New("billing", transport, config)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(
				core.Handle(ep, invoiceType, func(_ context.Context, m *core.Inbound[WriteInvoice]) error {
					return errors.Join(m.Send("shop", "x", 1), m.Publish("written", 1))
				}),
				core.HandleEvent(ep, "placed", func(context.Context, *core.Inbound[int]) error { return errors.New("no paper") }),
			); err != nil {
				t.Fatal(err)
			}
			if err := o.transport.Subscribe(t.Context(), "shop", "written"); err != nil {
				t.Fatal(err)
			}
			run(t, ep)
			if err := errors.Join(
				ep.Send(t.Context(), "billing", invoiceType, WriteInvoice{42}),
				ep.Publish(t.Context(), "placed", 1),
			); err != nil {
				t.Fatal(err)
			}
			await(t, "all is handled in "+mode.String(), func() bool {
				return o.count(t, "shop") == "2" && o.count(t, "error") == "1" && o.count(t, "billing") == "0"
			})
			o.exec(t, `truncate shop, error`)
			if err := ep.Shutdown(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	},

	"oldest": func(t *testing.T, o *operator) {
		if row := o.one(t, "oldest"); row["oldest"] != nil {
			t.Errorf("in an empty queue: %v", row)
		}
		send(t, o.transport, invoice("1"), invoice("2"), delayed("3", "billing", time.Hour))
		o.exec(t, `update billing set due = due - interval '2 hours' where headers like '%"1"%'`)
		var oldest string
		if err := o.pool.QueryRow(t.Context(), `select date_trunc('minute', oldest)::text from (`+strings.TrimSuffix(strings.TrimSpace(o.block("oldest")), ";")+`) as q`).Scan(&oldest); err != nil {
			t.Fatal(err)
		}
		if oldest != "02:00:00" {
			t.Errorf("the oldest message is %s old, want two hours", oldest)
		}
	},

	"depth": func(t *testing.T, o *operator) {
		short := invoice("short")
		short.TimeToBeReceived = time.Millisecond
		send(t, o.transport, invoice("1"), invoice("2"), invoice("3"), short, delayed("4", "billing", time.Hour))
		receive(t, openReceiver(t, o.transport, "billing", core.TransactionReceiveOnly))
		await(t, "one message has expired", func() bool {
			row := o.one(t, "depth")
			return fmt.Sprint(row["expired"]) == "1"
		})
		o.wantRow(t, o.one(t, "depth"), map[string]string{"waiting": "3", "leased": "1", "delayed": "1", "most_deliveries": "1"})
	},

	"queues": func(t *testing.T, o *operator) {
		var names []string
		for _, row := range o.sql(t, "queues", "relid::regclass as queue", "relid::regclass::text as queue") {
			names = append(names, fmt.Sprint(row["queue"]))
		}
		slices.Sort(names)
		if want := []string{"billing", "error", "shop"}; !slices.Equal(names, want) {
			t.Errorf("the queues are %q, want %q", names, want)
		}
	},

	"leased, release": func(t *testing.T, o *operator) {
		send(t, o.transport, invoice("the first"))
		r := openReceiver(t, o.transport, "billing", core.TransactionReceiveOnly)
		d := receive(t, r)
		o.wantRow(t, o.one(t, "leased"), map[string]string{"message_id": "the first", "type": invoiceType, "deliveries": "1"})
		o.sql(t, "release", o.seq(t, "billing")...)
		again := receive(t, r)
		if again.Incoming().ID != "the first" || again.Incoming().DeliveryCount != 2 {
			t.Errorf("what came again is %+v", again.Incoming())
		}
		if err := d.Complete(t.Context()); !errors.Is(err, core.ErrLockLost) {
			t.Errorf("who had the message completes it: %v, want %v", err, core.ErrLockLost)
		}
		complete(t, again)
	},

	"transactions, terminate": func(t *testing.T, o *operator) {
		transport := open(t, sqlserver.Config{URL: withOptions(t, o.url, "application_name", "billing-1")})
		send(t, o.transport, invoice("1"))
		receive(t, openReceiver(t, transport, "billing", core.TransactionSendsAtomicWithReceive))
		var row map[string]any
		await(t, "the transaction is to be seen", func() bool { // and perhaps one that forwards delayed messages
			rows := o.sql(t, "transactions")
			i := slices.IndexFunc(rows, func(row map[string]any) bool { return row["last_statement"] == "savepoint reprise_handler" })
			if i >= 0 {
				row = rows[i]
			}
			return i >= 0
		})
		o.wantRow(t, row, map[string]string{"application_name": "billing-1", "state": "idle in transaction"})
		o.one(t, "terminate", "4711", fmt.Sprint(row["pid"]))
		d := receive(t, openReceiver(t, o.transport, "billing", core.TransactionSendsAtomicWithReceive))
		if d.Incoming().ID != "1" || d.Incoming().DeliveryCount != 1 {
			t.Errorf("what came again is %+v", d.Incoming())
		}
		complete(t, d)
	},

	"failed, failed-one, retry, forget": func(t *testing.T, o *operator) {
		mended := make(chan struct{})
		handled := make(chan int, 4)
		o.billing(t, core.TransactionSendsAtomicWithReceive, func(_ context.Context, m *core.Inbound[WriteInvoice]) error {
			select {
			case <-mended:
				handled <- m.Attempt
				return nil
			default:
				return fmt.Errorf("tax office: no answer")
			}
		})
		send(t, o.transport, invoice("1"), invoice("2"))
		await(t, "both are in the error queue", func() bool { return o.count(t, "error") == "2" })
		o.wantRow(t, o.one(t, "failed"), map[string]string{
			"failed_in": `"public"."billing"`, "type": invoiceType, "error": "tax office: no answer", "error_type": "*errors.errorString", "count": "2",
		})
		headers := map[any]any{}
		for _, row := range o.sql(t, "failed-one", "seq = 42", "seq = (select min(seq) from error)") {
			headers[row["key"]] = row["value"]
		}
		if headers["NServiceBus.EnclosedMessageTypes"] != invoiceType || headers["body"] != `{"OrderID":42}` {
			t.Errorf("the failed message is %v", headers)
		}
		close(mended)
		o.sql(t, "retry")
		for range 2 {
			select {
			case attempt := <-handled:
				if attempt != 1 {
					t.Errorf("it is attempt %d, want 1", attempt)
				}
			case <-time.After(patience):
				t.Fatal("a message that was returned is not handled")
			}
		}
		await(t, "the queue is empty", func() bool { return o.count(t, "billing") == "0" })
		o.wantCounts(t, map[string]string{"error": "0"})

		send(t, o.transport, letter("old", "error"), letter("new", "error"))
		o.exec(t, `update error set due = due - interval '91 days' where headers like '%"old"%'`)
		o.sql(t, "forget")
		o.wantCounts(t, map[string]string{"error": "1"})
	},

	"delayed, hasten, cancel": func(t *testing.T, o *operator) {
		retried := delayed("1", "billing", time.Hour)
		retried.Headers.Set(core.HeaderRetries, "2")
		send(t, o.transport, retried)
		o.wantRow(t, o.one(t, "delayed"), map[string]string{"message_id": "1", "delayed_retries": "2"})
		r := openReceiver(t, o.transport, "billing", core.TransactionReceiveOnly)
		o.sql(t, "hasten", o.seq(t, "billing")...)
		complete(t, receive(t, r))
		send(t, o.transport, delayed("2", "billing", time.Hour))
		o.sql(t, "cancel", o.seq(t, "billing")...)
		o.wantCounts(t, map[string]string{"billing": "0"})
	},

	"forwarding": func(t *testing.T, o *operator) {
		theirs := o.theirTable(t, "theirs")
		send(t, o.transport, delayed("1", "theirs", 100*time.Millisecond))
		o.exec(t, `drop table `+theirs)
		await(t, "the message cannot be forwarded", func() bool {
			row := o.one(t, "forwarding")
			return fmt.Sprint(row["attempts"]) == "1"
		})
		row := o.one(t, "forwarding")
		o.wantRow(t, row, map[string]string{"destination": theirs})
		if text := fmt.Sprint(row["last_error"]); !strings.Contains(text, "does not exist") {
			t.Errorf("the last error is %q", text)
		}
	},

	"send": func(t *testing.T, o *operator) {
		o.sql(t, "send")
		ids := o.column(t, `select id::text from billing`)
		r := openReceiver(t, o.transport, "billing", core.TransactionReceiveOnly)
		d := receive(t, r)
		if len(ids) != 1 || d.Incoming().ID != ids[0] {
			t.Errorf("the message id is %q, want that of the row, %q", d.Incoming().ID, ids)
		}
		if err := errors.Join(d.Release(t.Context()), r.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		got := make(chan int, 1)
		o.billing(t, core.TransactionReceiveOnly, func(_ context.Context, m *core.Inbound[WriteInvoice]) error {
			got <- m.Body.OrderID
			return nil
		})
		select {
		case order := <-got:
			if order != 42 {
				t.Errorf("the order is %d, want 42", order)
			}
		case <-time.After(patience):
			t.Fatal("the message is not handled")
		}
	},

	"move": func(t *testing.T, o *operator) {
		send(t, o.transport, invoice("deadly"))
		o.sql(t, "move", o.seq(t, "billing")...)
		o.wantCounts(t, map[string]string{"billing": "0", "error": "1"})
		row := o.one(t, "failed")
		o.wantRow(t, row, map[string]string{"failed_in": `"public"."billing"`, "type": invoiceType, "error": "moved by hand"})
		o.sql(t, "retry", "%no answer%", "%by hand%")
		d := receive(t, openReceiver(t, o.transport, "billing", core.TransactionReceiveOnly))
		if in := d.Incoming(); in.ID != "deadly" || !json.Valid(in.Body) {
			t.Errorf("what came back is %+v", in)
		}
	},

	"purge": func(t *testing.T, o *operator) {
		leases, holds := openReceiver(t, o.transport, "billing", core.TransactionReceiveOnly), openReceiver(t, o.transport, "billing", core.TransactionSendsAtomicWithReceive)
		send(t, o.transport, invoice("1"), invoice("2"), invoice("3"), delayed("4", "billing", time.Hour))
		leased, held := receive(t, leases), receive(t, holds)
		o.sql(t, "purge")
		o.wantCounts(t, map[string]string{"billing": "2"})
		complete(t, leased)
		complete(t, held)
		o.wantCounts(t, map[string]string{"billing": "0"})
	},

	"subscriptions, unsubscribe, remove-subscriptions, remove": func(t *testing.T, o *operator) {
		transport := open(t, sqlserver.Config{URL: o.url, SubscriptionCache: -1})
		if err := transport.Subscribe(t.Context(), "billing", "orders.Placed", "orders.Paid"); err != nil {
			t.Fatal(err)
		}
		published := func(topic, want string) {
			t.Helper()
			if err := transport.Send(t.Context(), core.Outgoing{Topic: topic}); err != nil {
				t.Fatal(err)
			}
			o.wantCounts(t, map[string]string{"billing": want})
		}
		published("orders.Placed", "1")
		rows := o.sql(t, "subscriptions")
		if len(rows) != 2 {
			t.Fatalf("the subscriptions are %v", rows)
		}
		o.wantRow(t, rows[1], map[string]string{"topic": "orders.Placed", "endpoint": "billing", "queueaddress": `"public"."billing"`})
		o.sql(t, "unsubscribe")
		published("orders.Placed", "1")
		published("orders.Paid", "2")
		o.sql(t, "remove-subscriptions")
		published("orders.Paid", "2")
		o.sql(t, "remove")
		if err := transport.Send(t.Context(), core.Outgoing{Topic: "orders.Paid"}); err != nil {
			t.Errorf("to publish to nobody: %v", err)
		}
		if err := transport.Send(t.Context(), invoice("1")); !errors.Is(err, core.ErrQueueNotFound) {
			t.Errorf("to send to a queue that was removed: %v, want %v", err, core.ErrQueueNotFound)
		}
	},
}

func TestOperations(t *testing.T) {
	t.Parallel()
	blocks := document(t)
	tested := map[string]bool{}
	for names, test := range operations {
		for name := range strings.SplitSeq(names, ", ") {
			tested[name] = true
		}
		t.Run(names, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			o := &operator{testDatabase: db, transport: db.open(t, sqlserver.Config{Lease: time.Minute}), block: func(name string) string {
				if blocks[name] == "" {
					t.Fatalf("the document has no block named %q", name)
				}
				return blocks[name]
			}}
			provision(t, o.transport, "billing", "error", "shop")
			test(t, o)
		})
	}
	for name := range blocks {
		if !tested[name] {
			t.Errorf("nothing tests the block %q", name)
		}
	}
}

// TestExamples runs the examples that need a database, and looks at what they leave in
// it.
func TestExamples(t *testing.T) {
	for name, example := range map[string]struct {
		run        func()
		left, want string
	}{
		"Example":   {Example, `select string_agg(order_id::text, ',') from invoices`, "42"},
		"New":       {ExampleNew, `select count(*)::text from pg_tables where schemaname = 'messaging'`, "0"},
		"WithTx":    {ExampleWithTx, `select (select string_agg(id::text, ',') from orders) || ' ' || convert_from(body, 'UTF8') from billing`, `42 {"OrderID":42}`},
		"WithSQLTx": {ExampleWithSQLTx, `select (select string_agg(id::text, ',') from orders) || ' ' || convert_from(body, 'UTF8') from billing`, `43 {"OrderID":43}`},
	} {
		t.Run(name, func(t *testing.T) {
			db := newDatabase(t)
			t.Setenv("DATABASE_URL", db.url)
			provision(t, db.open(t, sqlserver.Config{}), "billing")
			db.exec(t, `create table orders (id int); create table invoices (order_id int); create schema messaging`)
			example.run()
			if left := strings.Join(db.column(t, example.left), "\n"); left != example.want {
				t.Errorf("it left %q, want %q", left, example.want)
			}
		})
	}
}
