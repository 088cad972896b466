package sqlserver_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// wokenBy opens a receiver that does not poll, and returns what wakes with it when insert has run.
func (db *testDatabase) wokenBy(t *testing.T, queue string, insert func()) {
	t.Helper()
	transport := db.open(t, sqlserver.Config{})
	transport.NeverPoll()
	r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: queue, Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
	if err != nil {
		t.Fatal(err)
	}
	received := awaits(t, r)
	await(t, "the transport listens", func() bool { return transport.Listens() && sqlserver.Waits(r) })
	insert()
	wakes(t, received)
}

// TestNotifyTrigger_WakesForOtherSenders: NServiceBus does not notify, and neither does somebody who
// inserts by hand.
func TestNotifyTrigger_WakesForOtherSenders(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	for _, queue := range []string{"orders", `or"d'ers $reprise$ \`, "Örder ✓"} {
		provision(t, db.open(t, sqlserver.Config{}), queue)
		for name, insert := range map[string]func(){
			"NServiceBus": func() { db.insert(t, db.table(queue), map[string]string{}, "") },
			"by hand": func() {
				db.exec(t, `insert into `+db.table(queue)+` (headers, body) values ('{}', '')`)
			},
			"many in a transaction": func() {
				if err := pgx.BeginFunc(t.Context(), db.pool, func(tx pgx.Tx) error {
					_, err := tx.Exec(t.Context(), `insert into `+db.table(queue)+` (headers, body) select '{}', '' from generate_series(1, 1)`)
					return err
				}); err != nil {
					t.Fatal(err)
				}
			},
		} {
			t.Run(queue+", "+name, func(t *testing.T) { db.wokenBy(t, queue, insert) }) // one after the other: they share the queue
		}
	}
}

// The channel follows the table.
func TestNotifyTrigger_RenamedTable(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	provision(t, db.open(t, sqlserver.Config{}), "old")
	db.exec(t, `alter table `+db.table("old")+` rename to "new"`)
	db.wokenBy(t, "new", func() { db.insert(t, db.table("new"), map[string]string{}, "") })
}

// withoutTrigger makes tables as older versions did.
func (db *testDatabase) withoutTrigger(t *testing.T, queues ...string) {
	t.Helper()
	provision(t, db.open(t, sqlserver.Config{}), queues...)
	for _, queue := range queues {
		db.exec(t, `drop trigger reprise_notify on `+db.table(queue))
	}
	db.exec(t, `drop function `+schemaOf(db)+`.reprise_notify()`)
}

// failingTrigger makes the trigger fail: every statement that fires it is refused.
func (db *testDatabase) failingTrigger(t *testing.T) {
	t.Helper()
	db.exec(t, `create or replace function `+schemaOf(db)+`.reprise_notify() returns trigger language plpgsql as $$ begin raise 'the trigger was carried out'; end $$`)
}

// TestNotifyTrigger_CostsOurSendersNothing: it is carried out for no message that this package
// sends, in any way.
func TestNotifyTrigger_CostsOurSendersNothing(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	owner := db.open(t, sqlserver.Config{})
	provision(t, owner, "orders", "other", "error", "audit")
	theirs := db.theirTable(t, "theirs")
	if err := owner.Subscribe(t.Context(), "other", "topic"); err != nil {
		t.Fatal(err)
	}
	db.failingTrigger(t)
	if _, err := db.pool.Exec(t.Context(), `insert into `+db.table("orders")+` (headers) values ('{}')`); err == nil || !strings.Contains(err.Error(), "was carried out") {
		t.Fatalf("the trigger is not carried out for others: %v", err)
	}

	overSQL := db.open(t, sqlserver.Config{DB: openDB(t, db.url)})
	expires := letter("5", "other")
	expires.TimeToBeReceived = time.Hour
	expiresLater := delayed("6", "other", time.Millisecond)
	expiresLater.TimeToBeReceived = time.Hour
	sends := [][]core.Outgoing{
		{letter("1", "other")}, {letter("1", "other"), letter("2", "other")}, {publication("3", "topic")},
		{delayed("4", "other", time.Millisecond)}, {delayed("4", "other", time.Millisecond), delayed("4", "other", time.Millisecond)},
		{expires}, {expires, expires}, {expiresLater}, {expiresLater, expiresLater},
	}
	for _, transport := range []*sqlserver.Transport{owner, overSQL} {
		for i, messages := range sends {
			if err := transport.Send(t.Context(), messages...); err != nil {
				t.Errorf("send %d: %v", i, err)
			}
		}
	}
	if err := pgx.BeginFunc(t.Context(), db.pool, func(tx pgx.Tx) error {
		return owner.Send(sqlserver.WithTx(t.Context(), tx), letter("7", "other"))
	}); err != nil {
		t.Error(err)
	}

	for _, mode := range bothModes {
		t.Run(mode.String(), func(t *testing.T) {
			recoverability := twoRounds()
			recoverability.Delayed.TimeIncrease = time.Millisecond
			ep, err := core.New("orders", owner, core.Config{Transactions: mode, AuditQueue: "audit", Logger: silent, Recoverability: recoverability})
			if err != nil {
				t.Fatal(err)
			}
			core.Handle(ep, sendStringType, func(ctx context.Context, m *core.Message, body string) error {
				if body == "in a transaction" && mode == core.TransactionSendsAtomicWithReceive {
					if _, err := sqlserver.Tx(ctx); err != nil {
						return err
					}
				}
				return errors.Join(
					m.Send("other", sentType.Of(body)), m.Forward("other"),
					m.Send("other", sentType.Of(body).With(core.SendOptions{Delay: time.Millisecond})),
					m.Send("other", sentType.Of(body).With(core.SendOptions{TimeToBeReceived: time.Hour})),
					m.Send(theirs, sentType.Of(body)),
				)
			})
			core.Handle(ep, failType, func(context.Context, *core.Message, string) error { return errors.New("no") })
			run(t, ep)
			for _, m := range [][2]string{{"Send", "plainly"}, {"Send", "in a transaction"}, {"Fail", ""}} {
				if err := ep.Send(t.Context(), "orders", core.NewMessageType[string](m[0]).Of(m[1])); err != nil {
					t.Error(err)
				}
			}
			for queue, want := range map[string]string{"error": "1", "audit": "2"} {
				await(t, want+" messages in "+queue, func() bool { return db.count(t, db.table(queue)) == want })
			}
			db.exec(t, `truncate `+db.table("error")+`, `+db.table("audit"))
			if h := ep.Health(); h.CriticalErrors > 0 {
				t.Errorf("critical error %v", h.LastCritical)
			}
		})
	}
}

// TestProvision_AddsTheTriggerToOlderTables, once, and to none of NServiceBus.
func TestProvision_AddsTheTriggerToOlderTables(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	db.withoutTrigger(t, "orders", "error")
	theirs := db.theirTable(t, "theirs")
	db.exec(t, `alter table `+db.table("error")+` owner to current_user`)
	transport := db.open(t, sqlserver.Config{})
	for range 2 {
		provision(t, transport, "orders", "error", "theirs")
		tables := db.column(t, `select c.relname::text from pg_trigger as g join pg_class as c on c.oid = g.tgrelid
			where g.tgname = 'reprise_notify' and c.relnamespace = $1::regnamespace order by 1`, schemaOf(db))
		if !slices.Equal(tables, []string{"error", "orders"}) {
			t.Errorf("these have the trigger: %q, and %s must not", tables, theirs)
		}
	}
	if texts := transport.Warnings(); len(texts) > 0 {
		t.Errorf("it warns: %q", texts)
	}
	db.wokenBy(t, "orders", func() { db.insert(t, db.table("orders"), map[string]string{}, "") })
}

// TestProvision_MayNotAddTheTrigger: the endpoint works as before, and is told what to do. The
// statements that it names are enough.
func TestProvision_MayNotAddTheTrigger(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	db.withoutTrigger(t, "orders", "error")
	cfg, role := db.rowsRole(t)
	db.grant(t, "grant select, insert, update, delete on "+db.table("orders")+", "+db.table("error")+" to "+role)
	topology := core.Topology{InputQueue: "orders", Queues: []string{"orders", "error"}, Transactions: core.TransactionReceiveOnly}
	transport := db.open(t, cfg)
	if err := errors.Join(transport.Provision(t.Context(), topology), transport.Check(t.Context(), topology)); err != nil {
		t.Fatal(err)
	}
	texts := transport.Warnings()
	if len(texts) != 2 || !strings.Contains(texts[0], db.table("orders")) || !strings.Contains(texts[1], db.table("error")) ||
		!strings.Contains(texts[0], "permission denied") || !strings.Contains(texts[0], "DDL") {
		t.Errorf("it warns of %q, want both tables, why it may not, and DDL", texts)
	}

	checked := db.open(t, cfg) // which does not provision
	if err := checked.Check(t.Context(), topology); err != nil {
		t.Fatal(err)
	}
	if texts := checked.Warnings(); len(texts) != 1 || !strings.Contains(texts[0], db.table("orders")) {
		t.Errorf("Check warns of %q, want the input queue alone", texts)
	}

	cfg.Schema = db.schema
	ddl, err := sqlserver.DDL(cfg, "orders", "error")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.Exec(t.Context(), db.name, ddl); err != nil {
		t.Fatal(err)
	}
	second := db.open(t, cfg)
	if err := errors.Join(second.Provision(t.Context(), topology), second.Check(t.Context(), topology)); err != nil {
		t.Fatal(err)
	}
	if texts := second.Warnings(); len(texts) > 0 {
		t.Errorf("it warns of %q", texts)
	}
}

// TestProvision_RightsToAddTheTrigger: with these it is added, and without any one of them it is not.
// docs/transports/sqlserver.md has the same list.
func TestProvision_RightsToAddTheTrigger(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	db.withoutTrigger(t, "orders")
	cfg, role := db.rowsRole(t)
	rights := []string{"trigger on " + db.table("orders"), "create on schema " + schemaOf(db)}
	provisionWith := func(without string) []string {
		t.Helper()
		for _, right := range rights {
			if right != without {
				db.grant(t, "grant "+right+" to "+role)
			}
		}
		transport := db.open(t, cfg)
		provision(t, transport, "orders")
		for _, right := range rights {
			db.grant(t, "revoke "+right+" from "+role)
		}
		return transport.Warnings()
	}
	for _, right := range rights {
		if texts := provisionWith(right); len(texts) != 1 || !strings.Contains(texts[0], "permission denied") {
			t.Errorf("without %s it warns of %q", right, texts)
		}
	}
	if texts := provisionWith(""); len(texts) > 0 {
		t.Errorf("with all rights it warns of %q", texts)
	}
	db.wokenBy(t, "orders", func() { db.insert(t, db.table("orders"), map[string]string{}, "") })
}

// TestProvision_TriggerDoesNotWaitForLongTransactions: while it waits for its lock on the table, senders
// would wait behind it.
func TestProvision_TriggerDoesNotWaitForLongTransactions(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	db.withoutTrigger(t, "orders")
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `insert into `+db.table("orders")+` (headers) values ('{}')`); err != nil {
		t.Fatal(err)
	}
	transport := db.open(t, sqlserver.Config{})
	provision(t, transport, "orders")
	texts := transport.Warnings()
	if len(texts) != 1 || !strings.Contains(texts[0], "lock timeout") {
		t.Errorf("it warns of %q, want the lock timeout", texts)
	}
	send(t, transport, letter("1", "orders"))
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	provision(t, transport, "orders")
	if n := db.column(t, `select count(*)::text from pg_trigger where tgrelid = to_regclass($1) and tgname = 'reprise_notify'`, db.table("orders")); n[0] != "1" {
		t.Error("it is not added when the table is free")
	}
}
