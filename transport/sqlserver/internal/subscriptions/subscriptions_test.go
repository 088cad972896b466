package subscriptions_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/queues"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/server"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/subscriptions"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/testdatabase"
)

const topic = "orders.Placed"

// fixture is a table of subscriptions in a separate schema, which does not exist until the
// first subscription.
type fixture struct {
	*subscriptions.Table
	t      *testing.T
	schema *testdatabase.Schema
	queues *queues.Cache
	db     *observedDatabase
}

func newFixture(t *testing.T, ttl time.Duration) *fixture {
	t.Parallel()
	f := &fixture{t: t, schema: testdatabase.New(t)}
	var d postgres.Dialect
	in := dialect.Location{Schema: f.schema.Name}
	table, err := d.Table("Subscriptions", in)
	if err != nil {
		t.Fatal(err)
	}
	f.queues = queues.NewCache(d, in)
	f.db = &observedDatabase{Database: sqlexec.NewPgx(f.schema.Pool, 0)}
	f.Table = subscriptions.New(server.New(f.db, d, transport.NewLifecycle(), nil), f.queues, table, ttl)
	return f
}

// observedDatabase counts the calls of Exec, and calls a function after each.
type observedDatabase struct {
	sqlexec.Database
	execs int
	after func()
}

func (d *observedDatabase) Exec(ctx context.Context, statements ...*sqlexec.Statement) error {
	err := d.Database.Exec(ctx, statements...)
	d.execs++
	if d.after != nil {
		d.after()
	}
	return err
}

// subscribe adds a queue's subscription to the topic as the transport does.
func (f *fixture) subscribe(queue string) {
	f.t.Helper()
	q, err := f.queues.Get(queue)
	if err != nil {
		f.t.Fatal(err)
	}
	if err := f.Add(f.t.Context(), q.Table.Address, queue, []string{topic}); err != nil {
		f.t.Fatal(err)
	}
	f.Forget([]string{topic})
}

// subscribeElsewhere adds a queue's subscription as another process does.
func (f *fixture) subscribeElsewhere(address, endpoint string) {
	f.t.Helper()
	f.schema.Exec(f.t, `insert into `+f.schema.Table("Subscriptions")+` (queueaddress, endpoint, topic) values ($1, $2, $3)`, address, endpoint, topic)
}

// want compares the names of the queues subscribed to the topic.
func (f *fixture) want(ctx context.Context, when, want string) {
	f.t.Helper()
	if got := f.addresses(ctx); got != want {
		f.t.Errorf("%s the subscribers are %q, want %q", when, got, want)
	}
}

func (f *fixture) addresses(ctx context.Context) string {
	f.t.Helper()
	found, err := f.Of(ctx, topic)
	if err != nil {
		f.t.Fatal(err)
	}
	var names []string
	for _, q := range found.Queues {
		names = append(names, q.Table.Name)
	}
	return strings.Join(names, ",")
}

// begin starts a caller's transaction.
func (f *fixture) begin(level pgx.TxIsoLevel) (context.Context, pgx.Tx) {
	f.t.Helper()
	tx, err := f.schema.Pool.BeginTx(f.t.Context(), pgx.TxOptions{IsoLevel: level})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(f.t.Context())) })
	return server.WithTransaction(f.t.Context(), tx), tx
}

func TestOf_CachesUntilTheSubscriptionsChangeHere(t *testing.T) {
	f := newFixture(t, time.Hour)
	f.want(t.Context(), "without a table", "")
	f.subscribe("billing")
	f.want(t.Context(), "after the first subscription", "billing")
	f.subscribeElsewhere(`"`+f.schema.Name+`"."shipping"`, "shipping")
	f.want(t.Context(), "within the time of the cache", "billing")
	f.Forget([]string{topic})
	f.want(t.Context(), "after Forget", "billing,shipping")
	if err := f.Remove(t.Context(), "billing", []string{topic}); err != nil {
		t.Fatal(err)
	}
	f.Forget([]string{topic})
	f.want(t.Context(), "after the end of a subscription", "shipping")
}

func TestOf_WithoutCacheReadsEachTime(t *testing.T) {
	f := newFixture(t, 0)
	f.subscribe("billing")
	f.want(t.Context(), "at first", "billing")
	f.subscribeElsewhere(`"`+f.schema.Name+`"."shipping"`, "shipping")
	f.want(t.Context(), "then", "billing,shipping")
}

// Subscribe promises an effect at once for the publishers of its transport.
func TestOf_ReadBeforeAChangeIsNotCached(t *testing.T) {
	f := newFixture(t, time.Hour)
	f.subscribe("billing")
	f.db.after = func() { // the server has answered, and Of has not cached it yet
		f.db.after = nil
		f.subscribe("shipping")
	}
	f.want(t.Context(), "of a read before the change", "billing")
	f.want(t.Context(), "after the change", "billing,shipping")
}

// One queue must not get an event twice.
func TestOf_QueueOfTwoNamesIsOne(t *testing.T) {
	f := newFixture(t, time.Hour)
	f.subscribe("billing")
	f.subscribeElsewhere("billing", "another")
	f.want(t.Context(), "of two rows", "billing")
}

func TestOf_CallersTransaction(t *testing.T) {
	for level, cached := range map[pgx.TxIsoLevel]bool{pgx.ReadCommitted: true, pgx.RepeatableRead: false, pgx.Serializable: false} {
		t.Run(string(level), func(t *testing.T) {
			f := newFixture(t, time.Hour)
			first, tx := f.begin(level)
			f.want(first, "in a transaction without a table", "")
			if _, err := tx.Exec(t.Context(), "select 1"); err != nil {
				t.Errorf("the missing table has broken the transaction: %v", err)
			}
			f.subscribe("billing")
			ctx, _ := f.begin(level)
			if _, err := f.Of(ctx, "another"); err != nil { // from here on the transaction may read old rows
				t.Fatal(err)
			}
			f.subscribe("shipping")
			want := "billing"
			if cached {
				want = "billing,shipping"
			}
			f.want(ctx, "in the transaction", want)
			before := f.db.execs
			f.want(t.Context(), "outside it", "billing,shipping")
			if reads := f.db.execs - before; (reads == 0) != cached {
				t.Errorf("outside the transaction there were %d reads; cached should be %t", reads, cached)
			}
		})
	}
}

func TestOf_UnreadableAddressIsUnreachable(t *testing.T) {
	f := newFixture(t, time.Hour)
	f.subscribe("billing")
	f.subscribeElsewhere(`"half`, "another")
	for _, when := range []string{"read", "cached"} {
		f.want(t.Context(), when, "billing")
		f.wantUnreachable(when, `"half`)
	}
}

func TestExclude_UntilTheTopicIsReadAgain(t *testing.T) {
	f := newFixture(t, time.Hour)
	f.subscribe("billing")
	f.subscribe("shipping")
	f.want(t.Context(), "at first", "billing,shipping")
	q, err := f.queues.Get("billing")
	if err != nil {
		t.Fatal(err)
	}
	f.Exclude([]string{"another", topic}, []subscriptions.Unreachable{{Address: q.Table.Address, Err: errors.New("it is gone")}})
	f.want(t.Context(), "without the excluded queue", "shipping")
	f.wantUnreachable("without the excluded queue", q.Table.Address)
	f.subscribe("billing")
	f.want(t.Context(), "after it has subscribed again", "billing,shipping")
	f.wantUnreachable("after it has subscribed again")
}

// wantUnreachable compares the addresses of the subscribers that cannot be reached.
func (f *fixture) wantUnreachable(when string, want ...string) {
	f.t.Helper()
	found, err := f.Of(f.t.Context(), topic)
	if err != nil {
		f.t.Fatal(err)
	}
	var got []string
	for _, u := range found.Unreachable {
		got = append(got, u.Address)
		if u.Err == nil {
			f.t.Errorf("%s %s has no error", when, u.Address)
		}
	}
	if !slices.Equal(got, want) {
		f.t.Errorf("%s the unreachable subscribers are %q, want %q", when, got, want)
	}
}

// An endpoint starts while the server cannot be written to, if it has its subscriptions.
func TestAdd_WritesOnlyMissingEntries(t *testing.T) {
	f := newFixture(t, time.Hour)
	f.subscribe("billing")
	before := f.db.execs
	f.subscribe("billing")
	if n := f.db.execs - before; n != 1 {
		t.Errorf("an existing subscription took %d calls, want 1, which reads", n)
	}
	f.schema.Exec(t, `update `+f.schema.Table("Subscriptions")+` set queueaddress = 'old'`)
	f.subscribe("billing") // the endpoint has moved
	if got, want := f.schema.Text(t, `select queueaddress from `+f.schema.Table("Subscriptions")), `"`+f.schema.Name+`"."billing"`; got != want {
		t.Errorf("the address is %s, want %s", got, want)
	}
}

func TestRemove_WithoutTable(t *testing.T) {
	f := newFixture(t, time.Hour)
	if err := f.Remove(t.Context(), "billing", []string{topic}); err != nil {
		t.Error(err)
	}
}

func TestCheck_LengthsAndCharacters(t *testing.T) {
	f := newFixture(t, time.Hour)
	for text, ok := range map[string]bool{
		"":                       false,
		"a\x00b":                 false,
		"\xff":                   false,
		strings.Repeat("é", 200): true,
		strings.Repeat("é", 201): false,
	} {
		if err := f.CheckTopic(text); (err == nil) != ok {
			t.Errorf("CheckTopic(%.10q, of %d bytes) returned %v", text, len(text), err)
		}
	}
	for n, ok := range map[int]bool{200: true, 201: false} {
		if err := f.CheckAddress(strings.Repeat("é", n)); (err == nil) != ok {
			t.Errorf("CheckAddress of %d characters returned %v", n, err)
		}
	}
}
