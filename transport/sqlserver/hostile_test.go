package sqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/core"
	testserver "github.com/reprise-go/reprise/internal/testserver/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// Other roles of a database may have nothing but the right to connect, and that to create
// objects in public, which every role has up to PostgreSQL 14.

// TestHostileRole_NamesAreNotResolvedInItsSchema: an endpoint with all that the transport does
// calls no function, operator, type or table of a role that may create them, even where the path
// has public before pg_catalog.
func TestHostileRole_NamesAreNotResolvedInItsSchema(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for name, path := range map[string]string{"the default path": "", "public before pg_catalog": "public, pg_catalog"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newHostileDatabase(t)
			db.asEvil(t, traps)
			pool, tr := db.traced(t, path)
			db.runAll(t, sqlserver.Config{Pool: pool})
			texts, errs := tr.collected()
			if n := db.trapsFound(t); n != "0" || len(errs) > 0 {
				t.Errorf("%s calls of its functions; errors %q", n, errs)
			}
			for _, want := range []string{"pg_locks", "pg_notify", "sent0", "lock_timeout", "reprise_delayed", "create table", "pg_xact_status", "last_error = s.error"} {
				if !strings.Contains(strings.Join(texts, "\n"), want) {
					t.Errorf("no statement with %s was run", want)
				}
			}
			for _, text := range texts {
				for _, part := range testserver.UnqualifiedNames(text) {
					t.Errorf("%s\n%s", part, text)
				}
			}
		})
	}
}

// runAll runs endpoints that do everything.
func (db *hostileDatabase) runAll(t *testing.T, cfg sqlserver.Config) {
	t.Helper()
	theirsConfig := cfg
	theirsConfig.NServiceBusTables = true
	theirs := db.open(t, theirsConfig)
	provision(t, theirs, "theirs")
	transport := db.open(t, cfg)
	transport.WaitToForward(time.Millisecond, time.Millisecond)
	transport.PollToForward(10 * time.Millisecond)
	topology := core.Topology{InputQueue: "orders", Queues: []string{"orders", "other", "error"}, Transactions: core.TransactionReceiveOnly}
	for range 2 {
		if err := errors.Join(transport.Provision(t.Context(), topology), transport.Check(t.Context(), topology)); err != nil {
			t.Fatal(err)
		}
	}
	expires := letter("1", "other")
	expires.TimeToBeReceived = time.Hour
	both := delayed("2", "other", time.Millisecond)
	both.TimeToBeReceived = time.Hour
	if err := transport.Subscribe(t.Context(), "other", "topic"); err != nil {
		t.Fatal(err)
	}
	for _, messages := range [][]core.Outgoing{
		{letter("3", "other")}, {letter("3", "other"), letter("4", "other")}, {expires}, {expires, expires}, {both}, {both, both}, {publication("5", "topic")},
		{letter("6", "theirs")}, {delayed("7", "theirs", time.Millisecond)}, {delayed("8", "theirs", time.Millisecond), delayed("9", "theirs", time.Millisecond)},
	} {
		send(t, transport, messages...)
	}
	if err := pgx.BeginFunc(t.Context(), cfg.Pool, func(tx pgx.Tx) error {
		return transport.Send(sqlserver.WithTx(t.Context(), tx), letter("10", "other"))
	}); err != nil {
		t.Fatal(err)
	}
	await(t, "the delayed messages are forwarded", func() bool { return db.count(t, `public."theirs"`) == "4" })
	for _, mode := range []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive} {
		db.handleAll(t, transport, mode)
		if mode == core.TransactionNone {
			continue // not on tables of NServiceBus
		}
		r := openReceiver(t, theirs, "theirs", mode)
		if err := receive(t, r).Abandon(t.Context(), errors.New("no")); err != nil {
			t.Error(err)
		}
		complete(t, receive(t, r))
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	_, purged := transport.Purge(t.Context(), "other")
	_, theirsPurged := theirs.Purge(t.Context(), "theirs")
	if err := errors.Join(transport.Unsubscribe(t.Context(), "other", "topic"), purged, theirsPurged); err != nil {
		t.Error(err)
	}
	ddl, err := sqlserver.DDL(sqlserver.Config{URL: "postgres://"}, "orders", "made by hand")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := cfg.Pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = conn.Conn().PgConn().Exec(t.Context(), ddl).ReadAll()
	conn.Release()
	if err != nil {
		t.Error(err)
	}
	if err := transport.Remove(t.Context(), []string{"other", "made by hand"}, []string{"topic"}); err != nil {
		t.Error(err)
	}
}

// handleAll runs an endpoint whose handlers send, fail, and release messages.
func (db *hostileDatabase) handleAll(t *testing.T, transport *sqlserver.Transport, mode core.TransactionMode) {
	t.Helper()
	db.exec(t, `truncate public."error"`)
	recoverability := twoRounds()
	recoverability.Delayed.TimeIncrease = time.Millisecond
	if mode == core.TransactionNone {
		recoverability = core.Recoverability{Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}}
	}
	ep, err := core.New("orders", transport, core.Config{Transactions: mode, Logger: silent, Recoverability: recoverability})
	if err != nil {
		t.Fatal(err)
	}
	handled := make(chan string, 100)
	core.Handle(ep, sendStringType, func(ctx context.Context, m *core.Message, body string) error {
		handled <- body
		if body == "in a transaction" && mode == core.TransactionSendsAtomicWithReceive {
			if _, err := sqlserver.Tx(ctx); err != nil {
				return err
			}
		}
		options := []core.SendOptions{{}, {Delay: time.Millisecond}, {TimeToBeReceived: time.Hour}, {Delay: time.Millisecond, TimeToBeReceived: time.Hour}}
		for _, o := range options {
			if err := m.Send("other", sentType.Of(body).With(o)); err != nil {
				return err
			}
		}
		return m.Send(`"public"."theirs"`, sentType.Of(body).With(core.SendOptions{Delay: time.Millisecond}))
	})
	core.Handle(ep, failType, func(context.Context, *core.Message, string) error { return errors.New("no") })
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- ep.Run(ctx) }()
	for _, m := range [][2]string{{"Send", "plainly"}, {"Send", "in a transaction"}, {"Fail", ""}} {
		if err := ep.Send(t.Context(), "orders", core.NewMessageType[string](m[0]).Of(m[1])); err != nil {
			t.Error(err)
		}
	}
	await(t, "two messages are handled", func() bool { return len(handled) >= 2 })
	if mode != core.TransactionNone {
		await(t, "one has failed", func() bool { return db.count(t, `public."error"`) == "1" })
		await(t, "the process has a number", func() bool { return transport.Number() != 0 })
	}
	await(t, "the queue is empty", func() bool { return db.count(t, `public."orders"`) == "0" })
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if h := ep.Health(); h.CriticalErrors > 0 {
		t.Errorf("critical error %v", h.LastCritical)
	}
}

// secret is a table that the endpoints' role reads, and the hostile one does not; a function that
// reads it for the hostile role.
func (db *hostileDatabase) stealingFunction(t *testing.T) (body string) {
	t.Helper()
	db.exec(t, `create table public.secret (text pg_catalog.text)`)
	db.exec(t, `insert into public.secret values ('top secret')`)
	db.exec(t, `grant select on public.secret to `+db.app)
	db.asEvil(t, `create table public.stolen (text pg_catalog.text)`, `grant insert on public.stolen to public`)
	return ` returns trigger language plpgsql as $$ begin
		insert into public.stolen select current_user || ': ' || text from public.secret;
		return null;
	end $$`
}

// stolen returns the lines that the hostile role has got.
func (db *hostileDatabase) stolen(t *testing.T) []string {
	t.Helper()
	return db.column(t, `select text from public.stolen`)
}

// insertByHand inserts a row that the trigger is for.
const insertByHand = `insert into public."orders" (headers, body) values ('{}', '')`

// TestHostileRole_FunctionOfTheTrigger: a function that another role has put where the trigger's
// would be is not attached to a table, and a trigger that has it is replaced.
func TestHostileRole_FunctionOfTheTrigger(t *testing.T) {
	t.Parallel()
	t.Run("it was there first", func(t *testing.T) {
		t.Parallel()
		db := newHostileDatabase(t)
		db.asEvil(t, `create function public.reprise_notify()`+db.stealingFunction(t))
		transport := db.asApp(t)
		provision(t, transport, "orders")
		db.exec(t, insertByHand) // as a superuser
		if lines := db.stolen(t); len(lines) > 0 {
			t.Errorf("it got %q", lines)
		}
		if n := db.column(t, `select count(*)::text from pg_trigger where tgname = 'reprise_notify'`); n[0] != "1" {
			t.Errorf("%s triggers, want one with another function", n)
		}
		if texts := transport.Warnings(); len(texts) > 0 {
			t.Errorf("it warns of %q", texts)
		}
		db.exec(t, `truncate public."orders"`)
		db.wokenBy(t, "orders", func() { db.exec(t, insertByHand) })
	})
	t.Run("an older version has attached it", func(t *testing.T) {
		t.Parallel()
		db := newHostileDatabase(t)
		db.asEvil(t, `create function public.reprise_notify()`+db.stealingFunction(t))
		provision(t, db.asApp(t), "orders")
		db.exec(t, `drop trigger reprise_notify on public."orders"`)
		db.exec(t, `create trigger reprise_notify after insert on public."orders" for each row execute function public.reprise_notify()`)
		db.exec(t, insertByHand)
		if lines := db.stolen(t); len(lines) != 1 {
			t.Fatalf("it got %q: this tests nothing", lines)
		}
		checked := db.asApp(t)
		if err := checked.Check(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders"}}); err != nil {
			t.Fatal(err)
		}
		if texts := checked.Warnings(); len(texts) != 1 || !strings.Contains(texts[0], "belongs to a role that could run code") {
			t.Errorf("Check warns of %q", texts)
		}
		provision(t, db.asApp(t), "orders")
		db.exec(t, insertByHand)
		if lines := db.stolen(t); len(lines) != 1 {
			t.Errorf("it got %q", lines)
		}
	})
	t.Run("both names are taken", func(t *testing.T) {
		t.Parallel()
		db := newHostileDatabase(t)
		second := "public.reprise_notify_" + db.column(t, `select $1::regrole::oid::text`, db.app)[0] + "()"
		function := db.stealingFunction(t)
		db.asEvil(t, `create function public.reprise_notify()`+function, `create function `+second+function)
		err := db.asApp(t).Provision(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders"}})
		if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(second, "public.")) || !strings.Contains(err.Error(), "belongs to the role") {
			t.Errorf("Provision: %v, want the function and its owner", err)
		}
		db.asEvil(t, `drop function `+second)
		provision(t, db.asApp(t), "orders")
	})
	t.Run("a superuser is no member of the role", func(t *testing.T) {
		t.Parallel()
		db := newHostileDatabase(t)
		db.asEvil(t, `create function public.reprise_notify()`+db.stealingFunction(t))
		provision(t, db.open(t, sqlserver.Config{}), "orders")
		db.exec(t, insertByHand)
		if lines := db.stolen(t); len(lines) > 0 {
			t.Errorf("it got %q", lines)
		}
	})
}

// TestHostileRole_OldFunctionGetsASearchPath: a function of an older version resolved its names
// in the path of the role that inserted a row.
func TestHostileRole_OldFunctionGetsASearchPath(t *testing.T) {
	t.Parallel()
	db := newHostileDatabase(t)
	provision(t, db.asApp(t), "orders")
	conn, err := pgx.Connect(t.Context(), db.appURL)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), `create or replace function public.reprise_notify() returns trigger language plpgsql as $f$ begin
		perform pg_catalog.pg_notify('reprise_' || substr(encode(sha256(convert_to(
			'"' || replace(tg_table_schema, '"', '""') || '"."' || replace(tg_table_name, '"', '""') || '"', 'UTF8')), 'hex'), 1, 24), '');
		return null;
	end $f$`); err != nil {
		t.Fatal(err)
	}
	db.asEvil(t, traps)
	if _, err := db.pool.Exec(t.Context(), insertByHand); err == nil || db.trapsFound(t) == "0" {
		t.Fatalf("the old function does not call the hostile role's (%v): this tests nothing", err)
	}
	before := db.trapsFound(t)
	provision(t, db.asApp(t), "orders")
	db.wokenBy(t, "orders", func() { db.exec(t, insertByHand) })
	if n := db.trapsFound(t); n != before {
		t.Errorf("%s calls of its functions, want %s", n, before)
	}
}

// TestHostileRole_TableIsReported: a role that has created a queue's table first, and granted
// everything on it, can read all messages. It is named; it may as well be that of deployments.
func TestHostileRole_TableIsReported(t *testing.T) {
	t.Parallel()
	db := newHostileDatabase(t)
	ddl, err := sqlserver.DDL(sqlserver.Config{URL: "postgres://"}, "orders")
	if err != nil {
		t.Fatal(err)
	}
	db.asEvil(t, ddl, on(`public."theirs"`, theirQueue), `grant all on all tables in schema public to public`, `grant all on all sequences in schema public to public`)
	topology := core.Topology{InputQueue: "orders", Queues: []string{"orders", "theirs"}}
	reported := func(call func(transport *sqlserver.Transport) error) []string {
		t.Helper()
		transport := db.asApp(t)
		for range 2 {
			if err := call(transport); err != nil {
				t.Fatal(err)
			}
		}
		return transport.Warnings()
	}
	calls := map[string]func(transport *sqlserver.Transport) error{
		"Provision": func(transport *sqlserver.Transport) error { return transport.Provision(t.Context(), topology) },
		"Check":     func(transport *sqlserver.Transport) error { return transport.Check(t.Context(), topology) },
	}
	for name, call := range calls {
		texts := reported(call)
		if len(texts) != 4 {
			t.Errorf("%s warns of %q, want all four tables", name, texts)
		}
		for _, table := range []string{"orders", "theirs", "SubscriptionRouting", "reprise_delayed"} {
			want := fmt.Sprintf("the table %s belongs to the role %q", db.table(table), strings.Trim(db.evil, `"`))
			if !strings.Contains(strings.Join(texts, "\n"), want) {
				t.Errorf("%s warns of %q, want %s", name, texts, want)
			}
		}
	}
	for name, trusting := range map[string]string{
		"a member of the role": `grant ` + db.evil + ` to ` + db.app,
		"a superuser's table":  `alter role ` + db.evil + ` superuser`,
		"the database's owner": `alter database ` + pgx.Identifier{db.name}.Sanitize() + ` owner to ` + db.evil,
		"the schema's owner":   `alter schema public owner to ` + db.evil,
	} {
		db.exec(t, trusting)
		for call, f := range calls {
			if texts := reported(f); len(texts) > 0 {
				t.Errorf("%s, %s: it warns of %q", name, call, texts)
			}
		}
		db.exec(t, map[string]string{
			"a member of the role": `revoke ` + db.evil + ` from ` + db.app,
			"a superuser's table":  `alter role ` + db.evil + ` nosuperuser`,
			"the database's owner": `alter database ` + pgx.Identifier{db.name}.Sanitize() + ` owner to current_user`,
			"the schema's owner":   `alter schema public owner to current_user`,
		}[name])
	}
}

// TestHostileRole_LockDoesNotPreventProvision: advisory locks need no right. Several instances
// that cannot have theirs create the same tables at the same moment.
func TestHostileRole_LockDoesNotPreventProvision(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for name, overSQL := range map[string]bool{"pgx": false, "database/sql": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newHostileDatabase(t)
			provision(t, db.asApp(t), "older")
			db.exec(t, `drop trigger reprise_notify on public."older"`)
			conn, err := pgx.Connect(t.Context(), db.evilURL)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
			if _, err := conn.Exec(t.Context(), `select pg_advisory_lock(hashtext('reprise schema'))`); err != nil {
				t.Fatal(err)
			}
			topology := core.Topology{InputQueue: "orders", Queues: []string{"orders", "error", "older"}}
			const instances = 4
			errs := make(chan error)
			for range instances {
				cfg := sqlserver.Config{URL: db.appURL}
				if overSQL {
					cfg = sqlserver.Config{DB: openDB(t, db.appURL)}
				}
				transport := db.open(t, cfg)
				go func() { errs <- transport.Provision(t.Context(), topology) }()
			}
			for range instances {
				if err := <-errs; err != nil {
					t.Error(err)
				}
			}
			if n := db.column(t, `select count(*)::text from pg_trigger where tgname = 'reprise_notify'`); n[0] != "3" {
				t.Errorf("%s tables have the trigger, want 3", n)
			}
		})
	}
}

// TestHostileRole_NotificationsCostLittle: every role may notify. A flood costs a receiver of an
// empty queue a fetch now and then, however many there are.
func TestHostileRole_NotificationsCostLittle(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	db := newHostileDatabase(t)
	pool, tr := db.traced(t, "")
	transport := db.open(t, sqlserver.Config{Pool: pool})
	transport.NeverPoll()
	provision(t, transport, "orders", "last")
	flooded := awaits(t, openReceiver(t, transport, "orders", core.TransactionReceiveOnly))
	last := awaits(t, openReceiver(t, transport, "last", core.TransactionReceiveOnly))
	await(t, "the transport listens", transport.Listens)
	channel, err := transport.Channel("orders")
	if err != nil {
		t.Fatal(err)
	}
	before, began := tr.count(), time.Now()
	const transactions, notifications = 3000, 20
	var statements []string
	for i := range transactions { // different ones: a transaction sends equal ones once
		statements = append(statements, fmt.Sprintf(`select pg_notify('%s', '%d ' || n) from generate_series(1, %d) as n`, channel, i, notifications))
	}
	db.asEvil(t, statements...)
	db.exec(t, `insert into `+db.table("last")+` (headers, body) values ('{}', '')`) // its notification is behind all others
	wakes(t, last)
	took := time.Since(began)
	n := tr.count() - before
	if bound := int(took/sqlserver.WakeupGap) + 30; n > bound { // a few for the last message, and the process's own each second
		t.Errorf("%d statements in %v for %d notifications, want %d at most", n, took, transactions*notifications, bound)
	}
	db.exec(t, insertByHand)
	wakes(t, flooded)
}
