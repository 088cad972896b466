package sqlserver_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// What an operator runs about the tables themselves: statements that create them,
// rights, and vacuum.
var operationsOnTables = operations{
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
		if err := o.transport.Check(t.Context(), core.Topology{InputQueue: "billing", Queues: []string{"billing"}}); err != nil {
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

	"take-over-rename, take-over-move": func(t *testing.T, o *operator) {
		o.exec(t, `drop table billing`)
		o.theirTable(t, "billing")
		o.insert(t, "billing", map[string]string{headers.MessageID: "1", headers.MessageTypes: invoiceType}, "a")
		o.exec(t, on("billing", theirSend), "22222222-2222-4222-8222-222222222222", 3_600_000, `{"`+headers.MessageID+`":"2"}`, []byte("b"))
		o.sql(t, "take-over-rename")
		second := o.open(t, sqlserver.Config{}) // the other one has seen the table of theirs
		provision(t, second, "billing")
		o.insert(t, "billing", map[string]string{headers.MessageID: "3"}, "c") // of a sender that has noticed nothing
		o.sql(t, "take-over-move")
		o.wantCounts(t, map[string]string{"billing": "3", "billing_old": "0"})
		if n := o.column(t, `select count(*)::text from billing where expires is not null`)[0]; n != "1" {
			t.Errorf("%s messages expire, want one", n)
		}
		r := openReceiver(t, second, "billing", core.TransactionSendsAtomicWithReceive)
		came := map[string]string{}
		for range 3 {
			d := receive(t, r)
			came[d.Incoming().ID] = string(d.Incoming().Body)
			complete(t, d)
		}
		if want := map[string]string{"1": "a", "2": "b", "3": "c"}; !maps.Equal(came, want) {
			t.Errorf("these are received: %q, want %q", came, want)
		}
	},

	"row-security": func(t *testing.T, o *operator) {
		role, rawURL := o.role(t)
		o.exec(t, `grant select, insert, update, delete on billing to `+role)
		o.sqlAll(t, "row-security", " to nservicebus", " to "+role)
		send(t, o.transport, invoice("leased"))
		receive(t, openReceiver(t, o.transport, "billing", core.TransactionReceiveOnly))
		send(t, o.transport, delayed("delayed", "billing", time.Hour), invoice("waits"))
		theirs := *o.testDatabase
		theirs.pool = poolOf(t, rawURL)
		theirs.insert(t, "billing", map[string]string{headers.MessageID: "theirs"}, "")
		for _, want := range []string{"waits", "theirs"} {
			row, ok := theirs.receiveAsThey(t, "billing")
			if !ok || row.headers[headers.MessageID] != want {
				t.Errorf("they receive %q, want %s", row.headers, want)
			}
		}
		if row, ok := theirs.receiveAsThey(t, "billing"); ok {
			t.Errorf("they receive %q, which is leased or delayed", row.headers)
		}
		o.wantCounts(t, map[string]string{"billing": "2"})
	},

	"grants": func(t *testing.T, o *operator) {
		role, url := o.role(t)
		o.sqlAll(t, "grants", " to app;", " to "+role+";")
		transport := open(t, sqlserver.Config{URL: url})
		for _, mode := range allModes {
			config := core.Config{Transactions: mode, Logger: silent}
			if mode != core.TransactionNone {
				config.Recoverability = core.Recoverability{
					Immediate: core.Immediate{NumberOfRetries: 1},
					Delayed:   core.Delayed{Delays: []time.Duration{time.Millisecond}},
				}
			}
			ep, err := core.New("billing", transport, config)
			if err != nil {
				t.Fatal(err)
			}
			core.Handle(ep, writeInvoice, func(_ context.Context, m *core.Message, _ WriteInvoice) error {
				return errors.Join(m.Send("shop", xType.Of(1)), m.Publish(writtenEvent.Of(1)))
			})
			core.HandleEvent(ep, placedEvent, func(context.Context, *core.Message, int) error { return errors.New("no paper") })
			if err := o.transport.Subscribe(t.Context(), "shop", "written"); err != nil {
				t.Fatal(err)
			}
			run(t, ep)
			if err := errors.Join(
				ep.Send(t.Context(), "billing", writeInvoice.Of(WriteInvoice{42})),
				ep.Publish(t.Context(), placedEvent.Of(1)),
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

	"grants-look": func(t *testing.T, o *operator) {
		role, url := o.role(t)
		o.sqlAll(t, "grants-look", " to viewer;", " to "+role+";")
		send(t, o.transport, letter("1", "error"))
		transport := open(t, sqlserver.Config{URL: url})
		all := browseAll(t, transport, queues.Request{Queue: "error", Limit: 1})
		wantStates(t, all, "1 ready")
		if d, err := transport.Depth(t.Context(), "billing"); err != nil || d.Ready != 0 {
			t.Errorf("the depth is %+v, %v", d, err)
		}
		if list, err := transport.ListQueues(t.Context()); err != nil || !slices.Equal(list, []string{`"public"."billing"`, `"public"."error"`}) {
			t.Errorf("the queues are %q, %v", list, err)
		}
		if _, err := transport.Take(t.Context(), "error", takesOf(all, "billing")); !isDenied(err) {
			t.Errorf("Take is not refused: %v", err)
		}
		if err := transport.Send(t.Context(), invoice("2")); !isDenied(err) {
			t.Errorf("Send is not refused: %v", err)
		}
	},
}
