package sqlserver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/coretest"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// topicFixture has a topic with two queues that can be reached, good and better, before and after
// others in any order of names. A role that may not send to denied publishes to it.
type topicFixture struct {
	*testDatabase
	role, roleURL string
}

const happened = "orders.Happened"

// badSubscribers are addresses of queues that cannot be reached, by the reason.
func (f *topicFixture) badSubscribers() map[string]string {
	return map[string]string{
		"a queue that does not exist":     f.table("gone"),
		"a schema that does not exist":    `"nowhere"."gone"`,
		"an unreadable address":           `"half`,
		"a queue without the right":       f.table("denied"),
		"a table that is no queue":        f.table("accounts"),
		"a table that refuses each row":   f.table("full"),
		"a view that cannot be added to":  f.table("summary"),
		"the table of subscriptions, too": f.table("SubscriptionRouting"),
	}
}

func newTopicFixture(t *testing.T, cfg sqlserver.Config) *topicFixture {
	t.Helper()
	db := newSchema(t)
	f := &topicFixture{testDatabase: db}
	provision(t, db.open(t, cfg), "input", "good", "better", "denied", "full")
	f.role, f.roleURL = db.role(t)
	for _, text := range []string{
		`alter table ` + db.table("full") + ` add check (octet_length(headers) < 0)`,
		`create table ` + db.table("accounts") + ` (id int)`,
		`create view ` + db.table("summary") + ` as select count(*) from ` + db.table("accounts"),
		`create table ` + db.table("work") + ` (key text)`,
		on(db.table("SubscriptionRouting"), theirSubscriptions),
	} {
		db.exec(t, text)
	}
	db.grant(t, "grant usage on schema "+schemaOf(db)+" to "+f.role)
	db.grant(t, "grant all on all tables in schema "+schemaOf(db)+" to "+f.role)
	db.grant(t, "grant all on all sequences in schema "+schemaOf(db)+" to "+f.role)
	db.grant(t, "revoke all on "+db.table("denied")+" from "+f.role)
	f.subscribe(t, db.table("good"))
	f.subscribe(t, db.table("better"))
	return f
}

// subscribe adds a subscription as any program can that may write to the table.
func (f *topicFixture) subscribe(t *testing.T, address string) {
	t.Helper()
	f.exec(t, on(f.table("SubscriptionRouting"), theirSubscribe), address, happened, address)
}

// unsubscribe ends a subscription as any program can that may write to the table.
func (f *topicFixture) unsubscribe(t *testing.T, address string) {
	t.Helper()
	f.exec(t, on(f.table("SubscriptionRouting"), theirUnsubscribe), address, happened)
}

// wantCounts compares the number of rows in tables.
func (f *topicFixture) wantCounts(t *testing.T, when string, want map[string]int) {
	t.Helper()
	for table, n := range want {
		if got := f.count(t, f.table(table)); got != fmt.Sprint(n) {
			t.Errorf("%s %s has %s rows, want %d", when, table, got, n)
		}
	}
}

// waysToPublish publish an event of the topic once, with a row in the table work where there is a
// transaction for it.
var waysToPublish = map[string]struct {
	cfg     sqlserver.Config
	publish func(t *testing.T, f *topicFixture, transport *sqlserver.Transport, out ...core.Outgoing) error
	works   bool
}{
	"Send": {publish: func(t *testing.T, _ *topicFixture, transport *sqlserver.Transport, out ...core.Outgoing) error {
		return transport.Send(t.Context(), out...)
	}},
	"Send to tables of NServiceBus": {cfg: sqlserver.Config{NServiceBusTables: true}, publish: func(t *testing.T, _ *topicFixture, transport *sqlserver.Transport, out ...core.Outgoing) error {
		return transport.Send(t.Context(), out...)
	}},
	"Send in a transaction of pgx": {works: true, publish: func(t *testing.T, f *topicFixture, transport *sqlserver.Transport, out ...core.Outgoing) error {
		pool, err := pgxpool.New(t.Context(), f.roleURL)
		if err != nil {
			return err
		}
		defer pool.Close()
		tx, err := pool.Begin(t.Context())
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		if _, err := tx.Exec(t.Context(), `insert into `+f.table("work")+` values ('done')`); err != nil {
			return err
		}
		if err := transport.Send(sqlserver.WithTx(t.Context(), tx), out...); err != nil {
			return err
		}
		return tx.Commit(t.Context())
	}},
	"Send in a transaction of database/sql": {works: true, publish: func(t *testing.T, f *topicFixture, transport *sqlserver.Transport, out ...core.Outgoing) error {
		db, err := sql.Open("pgx", f.roleURL)
		if err != nil {
			return err
		}
		defer func() { _ = db.Close() }()
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(t.Context(), `insert into `+f.table("work")+` values ('done')`); err != nil {
			return err
		}
		if err := transport.Send(sqlserver.WithSQLTx(t.Context(), tx), out...); err != nil {
			return err
		}
		return tx.Commit()
	}},
	"CompleteWith":                              {publish: completeWithEvents(false)},
	"CompleteWith after work":                   {publish: completeWithEvents(true), works: true},
	"CompleteWith on tables of NServiceBus":     {cfg: sqlserver.Config{NServiceBusTables: true}, publish: completeWithEvents(false)},
	"CompleteWith on such tables, after work":   {cfg: sqlserver.Config{NServiceBusTables: true}, publish: completeWithEvents(true), works: true},
	"ReplaceWith, which undoes work":            {publish: replaceWithEvents},
	"ReplaceWith on such tables, which does so": {cfg: sqlserver.Config{NServiceBusTables: true}, publish: replaceWithEvents},
}

// completeWithEvents returns a way to publish with a settlement.
func completeWithEvents(works bool) func(t *testing.T, f *topicFixture, transport *sqlserver.Transport, out ...core.Outgoing) error {
	return func(t *testing.T, f *topicFixture, transport *sqlserver.Transport, out ...core.Outgoing) error {
		d := receivedInput(t, transport)
		if works {
			if err := work(d.BindContext(t.Context()), `insert into `+f.table("work")+` values ('done')`); err != nil {
				return err
			}
		}
		return d.CompleteWith(t.Context(), out)
	}
}

func replaceWithEvents(t *testing.T, f *topicFixture, transport *sqlserver.Transport, out ...core.Outgoing) error {
	d := receivedInput(t, transport)
	if err := work(d.BindContext(t.Context()), `insert into `+f.table("work")+` values ('undone')`); err != nil {
		return err
	}
	return d.ReplaceWith(t.Context(), out)
}

// receivedInput receives a message in the mode in which settlements send.
func receivedInput(t *testing.T, transport *sqlserver.Transport) core.Delivery {
	t.Helper()
	send(t, transport, letter("in", "input"))
	r := openReceiver(t, transport, "input", core.TransactionSendsAtomicWithReceive)
	t.Cleanup(func() { _ = r.Close(context.WithoutCancel(t.Context())) })
	return receive(t, r)
}

// TestPublish_UnreachableSubscriber: the others get the event once, with the commands of the
// same call and the work of its transaction.
func TestPublish_UnreachableSubscriber(t *testing.T) {
	t.Parallel()
	for name, way := range waysToPublish {
		for cache, ttl := range map[string]time.Duration{"cached": time.Hour, "uncached": -1} {
			t.Run(name+"/"+cache, func(t *testing.T) {
				t.Parallel()
				f := newTopicFixture(t, way.cfg)
				cfg := way.cfg
				cfg.URL, cfg.SubscriptionCache = f.roleURL, ttl
				n := 0
				publish := func(why string, transport *sqlserver.Transport) {
					t.Helper()
					if err := way.publish(t, f, transport, publication(fmt.Sprint("event ", n), happened), letter(fmt.Sprint("command ", n), "good")); err != nil {
						t.Errorf("%s: %v", why, err)
						return
					}
					n++
					want := map[string]int{"good": 2 * n, "better": n, "input": 0, "full": 0, "accounts": 0}
					if way.works {
						want["work"] = n
					}
					f.wantCounts(t, why, want)
				}
				good := f.open(t, cfg)
				publish("without a bad subscriber", good)
				closed(t, good)
				for why, address := range f.badSubscribers() {
					f.subscribe(t, address)
					transport := f.open(t, cfg)
					publish("with "+why, transport)
					publish("again with "+why, transport)
					f.unsubscribe(t, address)
					closed(t, transport) // the connections of the server are for all tests
				}
				for _, address := range f.badSubscribers() {
					f.subscribe(t, address)
				}
				publish("with all of them", f.open(t, cfg))
			})
		}
	}
}

// A subscriber that disappears while it is cached aborts nothing either.
func TestPublish_SubscriberDisappears(t *testing.T) {
	t.Parallel()
	for name, way := range waysToPublish {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newTopicFixture(t, way.cfg)
			cfg := way.cfg
			cfg.URL, cfg.SubscriptionCache = f.roleURL, time.Hour
			transport := f.open(t, cfg)
			for i := range 3 {
				if err := way.publish(t, f, transport, publication(fmt.Sprint(i), happened)); err != nil {
					t.Errorf("publish %d: %v", i, err)
				}
				if i == 0 {
					f.exec(t, `drop table `+f.table("better"))
				}
			}
			f.wantCounts(t, "at the end", map[string]int{"good": 3})
		})
	}
}

// Only the subscriber's own table is a reason to leave it out.
func TestPublish_OtherErrorsRefuseTheEvent(t *testing.T) {
	t.Parallel()
	for name, way := range waysToPublish {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newTopicFixture(t, way.cfg)
			f.subscribe(t, f.table("gone"))
			cfg := way.cfg
			cfg.URL, cfg.SubscriptionCache = f.roleURL, -1
			transport := f.open(t, cfg)
			err := way.publish(t, f, transport, publication("1", happened), letter("2", "no such queue"))
			if !errors.Is(err, core.ErrQueueNotFound) {
				t.Errorf("a command to a missing queue beside the event: %v", err)
			}
			required := publication("3", "orders.Missing")
			required.RequireSubscriber = true
			f.exec(t, on(f.table("SubscriptionRouting"), theirSubscribe), f.table("gone"), required.Topic, "gone")
			if err := way.publish(t, f, transport, required); !errors.Is(err, core.ErrNoSubscriber) {
				t.Errorf("an event that requires a subscriber, and has one that is gone: %v", err)
			}
			for _, address := range []string{"good", "better"} {
				f.exec(t, `alter table `+f.table(address)+` add check (body <> '4') not valid`)
			}
			f.unsubscribe(t, f.table("gone"))
			if err := way.publish(t, f, transport, publication("4", happened)); err == nil {
				t.Error("an event that no subscriber's table takes: nil")
			}
			f.wantCounts(t, "in the end", map[string]int{"good": 0, "better": 0})
		})
	}
}

// A queue that is created again, and subscribes, gets events again.
func TestPublish_SubscriberReturns(t *testing.T) {
	t.Parallel()
	f := newTopicFixture(t, sqlserver.Config{})
	transport := f.open(t, sqlserver.Config{SubscriptionCache: time.Hour})
	f.exec(t, `drop table `+f.table("better"))
	send(t, transport, publication("1", happened))
	provision(t, transport, "better")
	if err := transport.Subscribe(t.Context(), "better", happened); err != nil {
		t.Fatal(err)
	}
	send(t, transport, publication("2", happened))
	f.wantCounts(t, "at the end", map[string]int{"good": 2, "better": 1})
}

// While the server refuses connections, no subscriber is taken for a bad one.
func TestPublish_RefusedConnectionIsNoBadSubscriber(t *testing.T) {
	t.Parallel()
	f := newTopicFixture(t, sqlserver.Config{})
	transport := f.open(t, sqlserver.Config{URL: f.roleURL, SubscriptionCache: time.Hour})
	send(t, transport, publication("1", happened))
	for _, text := range []string{
		`alter role ` + f.role + ` nologin`,
		`select pg_terminate_backend(pid) from pg_stat_activity where usename = '` + strings.Trim(f.role, `"`) + `'`,
	} {
		if _, err := server.Exec(t.Context(), f.name, text); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 { // the first may use a connection that has died
		if err := transport.Send(t.Context(), publication("2", happened)); err == nil {
			t.Error("Send returned nil without a connection")
		}
	}
}

// TestPublish_UnreachableSubscriberIsReported by a send-only endpoint, for each event, and logged
// once.
func TestPublish_UnreachableSubscriberIsReported(t *testing.T) {
	t.Parallel()
	f := newTopicFixture(t, sqlserver.Config{})
	for _, address := range f.badSubscribers() {
		f.subscribe(t, address)
	}
	transport := f.open(t, sqlserver.Config{URL: f.roleURL})
	var mu sync.Mutex
	reported := map[string]int{}
	var log logLines
	ep, err := core.New("publisher", transport, core.Config{SendOnly: true, Logger: slog.New(slog.NewTextHandler(&log, nil)), Observers: []core.Observer{{
		MessageUndeliverable: func(e core.Undeliverable) {
			mu.Lock()
			defer mu.Unlock()
			if e.Topic != happened || e.MessageID == "" || e.Err == nil {
				t.Errorf("the observer got %+v", e)
			}
			reported[e.Queue]++
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	const events = 3
	for i := range events {
		if err := ep.Publish(t.Context(), core.NewEvent[string](happened).Of(fmt.Sprint(i))); err != nil {
			t.Errorf("publish: %v", err)
		}
	}
	bad := f.badSubscribers()
	if got, want := ep.Health().UnreachableSubscribers, int64(events*len(bad)); got != want {
		t.Errorf("Health has %d, want %d", got, want)
	}
	for why, address := range bad {
		if n := reported[address]; n != events {
			t.Errorf("%s was reported %d times, want %d", why, n, events)
		}
		if n := log.count(fmt.Sprintf("queue=%q", address)); n != 1 {
			t.Errorf("%s has %d lines in the log, want 1", why, n)
		}
	}
	if len(reported) != len(bad) {
		t.Errorf("reported were %v, want those of %q", reported, bad)
	}
	f.wantCounts(t, "at the end", map[string]int{"good": events, "better": events})
}

// TestPublish_UnreachableSubscriberOfAHandlerIsReported: the handler runs once.
func TestPublish_UnreachableSubscriberOfAHandlerIsReported(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]sqlserver.Config{"leases": {}, "tables of NServiceBus": {NServiceBusTables: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newTopicFixture(t, cfg)
			f.subscribe(t, f.table("gone"))
			ep, err := core.New("input", f.open(t, cfg), core.Config{
				Transactions: core.TransactionSendsAtomicWithReceive, Provision: core.ProvisionNever,
				Recoverability: core.Recoverability{ErrorQueue: "full"}, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			place := core.NewMessageType[string]("orders.Place")
			core.Handle(ep, place, func(ctx context.Context, m *core.Message, body string) error {
				if err := work(ctx, `insert into `+f.table("work")+` values ($1)`, body); err != nil {
					return err
				}
				return m.Publish(core.NewEvent[string](happened).Of(body))
			})
			coretest.Run(t, ep)
			if err := ep.Send(t.Context(), "input", place.Of("1")); err != nil {
				t.Fatal(err)
			}
			await(t, "the lost copy is counted", func() bool { return ep.Health().UnreachableSubscribers == 1 })
			f.wantCounts(t, "at the end", map[string]int{"good": 1, "better": 1, "work": 1, "input": 0, "full": 0})
		})
	}
}
