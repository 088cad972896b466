package sqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// role makes a role without any right but to log in, and returns its name, quoted, and
// the URL with which it does.
func (db *testDatabase) role(t *testing.T) (quoted, rawURL string) {
	t.Helper()
	name := fmt.Sprintf("role %d of %s %s", roles.Add(1), db.name, db.schema)
	quoted = pgx.Identifier{name}.Sanitize()
	if _, err := server.Exec(t.Context(), db.name, "create role "+quoted+" login password '"+postgres.Password+"'"); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(db.url)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(name, postgres.Password)
	return quoted, u.String()
}

var roles atomic.Int64

// schemaOf returns how statements name the schema.
func schemaOf(db *testDatabase) string { return pgx.Identifier{db.schema}.Sanitize() }

// isDenied reports whether the server said that a right is missing.
func isDenied(err error) bool {
	var denied *pgconn.PgError
	return errors.As(err, &denied) && denied.Code == "42501"
}

// TestRights_OfEachCall: with these it works, and without any one of them it
// does not. docs/transports/sqlserver.md has the same list.
func TestRights_OfEachCall(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	db := newSchema(t)
	owner := db.open(t, sqlserver.Config{})
	provision(t, owner, "orders", "retried") // another receiver may take a message while Abandon counts it
	theirs := db.theirTable(t, "theirs")
	if err := owner.Subscribe(t.Context(), "orders", "topic"); err != nil {
		t.Fatal(err)
	}
	var topics atomic.Int64
	usage := "usage on schema " + schemaOf(db)
	orders, subscriptions, waiting := db.table("orders"), db.table("SubscriptionRouting"), db.table("reprise_delayed")
	sequence := "usage on sequence " + db.column(t, `select pg_get_serial_sequence($1, 'seq')`, theirs)[0]
	receiving := func(queue string, mode core.TransactionMode, settle func(ctx context.Context, d core.Delivery) error) func(ctx context.Context, transport *sqlserver.Transport) error {
		return func(ctx context.Context, transport *sqlserver.Transport) error {
			send(t, owner, letter("1", queue))
			r, err := transport.OpenReceiver(ctx, core.ReceiverConfig{Queue: queue, Mode: mode, MaxInFlight: 1})
			if err != nil {
				return err
			}
			defer func() { _ = r.Close(context.WithoutCancel(ctx)) }()
			var got [1]core.Delivery
			if _, err := r.Receive(ctx, got[:]); err != nil {
				return err
			}
			return settle(ctx, got[0])
		}
	}
	completed := func(ctx context.Context, d core.Delivery) error { return d.Complete(ctx) }
	abandoned := func(ctx context.Context, d core.Delivery) error { return d.Abandon(ctx, errors.New("no")) }
	none, receiveOnly, atomic := core.TransactionNone, core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive
	for name, c := range map[string]struct {
		theirs bool
		rights []string
		call   func(ctx context.Context, transport *sqlserver.Transport) error
	}{
		"Provision of existing tables": {false, []string{usage}, func(ctx context.Context, transport *sqlserver.Transport) error {
			return transport.Provision(ctx, core.Topology{InputQueue: "orders", Queues: []string{"orders", "theirs"}})
		}},
		"Send": {false, []string{usage, "insert on " + orders}, func(ctx context.Context, transport *sqlserver.Transport) error {
			return transport.Send(ctx, letter("1", "orders"))
		}},
		"Send later": {false, []string{usage, "insert on " + orders}, func(ctx context.Context, transport *sqlserver.Transport) error {
			return transport.Send(ctx, delayed("1", "orders", time.Hour), delayed("2", "orders", time.Hour))
		}},
		"Publish": {false, []string{usage, "select on " + subscriptions}, func(ctx context.Context, transport *sqlserver.Transport) error {
			return transport.Send(ctx, publication("1", "topic"))
		}},
		"Subscribe": {false, []string{usage, "select, insert, update on " + subscriptions}, func(ctx context.Context, transport *sqlserver.Transport) error {
			return transport.Subscribe(ctx, "orders", fmt.Sprint("topic ", topics.Add(1)))
		}},
		"Subscribe to a topic again": {false, []string{usage, "select on " + subscriptions}, func(ctx context.Context, transport *sqlserver.Transport) error {
			return transport.Subscribe(ctx, "orders", "topic")
		}},
		"Unsubscribe": {false, []string{usage, "select, delete on " + subscriptions}, func(ctx context.Context, transport *sqlserver.Transport) error {
			return transport.Unsubscribe(ctx, "orders", "another topic")
		}},
		"receive in None":                   {false, []string{usage, "select, update, delete on " + orders}, receiving("orders", none, completed)},
		"receive in ReceiveOnly":            {false, []string{usage, "select, update, delete on " + orders}, receiving("orders", receiveOnly, completed)},
		"retry in ReceiveOnly":              {false, []string{usage, "select, update on " + orders}, receiving("orders", receiveOnly, abandoned)},
		"receive in SendsAtomicWithReceive": {false, []string{usage, "select, update, delete on " + orders}, receiving("orders", atomic, completed)},
		"retry in SendsAtomicWithReceive":   {false, []string{usage, "select, update on " + db.table("retried")}, receiving("retried", atomic, abandoned)},
		"Browse": {false, []string{usage, "select on " + orders}, func(ctx context.Context, transport *sqlserver.Transport) error {
			_, err := transport.Browse(ctx, queues.Request{Queue: "orders", Limit: 1})
			return err
		}},
		"Depth": {false, []string{usage, "select on " + orders}, func(ctx context.Context, transport *sqlserver.Transport) error {
			_, err := transport.Depth(ctx, "orders")
			return err
		}},
		"Browse NServiceBus's": {false, []string{usage, "select on " + theirs, "select on " + waiting}, func(ctx context.Context, transport *sqlserver.Transport) error {
			_, err := transport.Browse(ctx, queues.Request{Queue: "theirs", Limit: 100})
			return err
		}},
		"Take": {false, []string{usage, "select, update, delete on " + orders}, func(ctx context.Context, transport *sqlserver.Transport) error {
			send(t, owner, letter("1", "orders"))
			page, err := owner.Browse(ctx, queues.Request{Queue: "orders", Limit: 1})
			if err == nil {
				_, err = transport.Take(ctx, "orders", []queues.Take{{Key: page.Messages[0].Key}})
			}
			return err
		}},
		"Send to NServiceBus": {false, []string{usage, "insert on " + theirs, sequence}, func(ctx context.Context, transport *sqlserver.Transport) error {
			return transport.Send(ctx, letter("1", "theirs"))
		}},
		"Send later to NServiceBus": {false, []string{usage, "insert on " + waiting}, func(ctx context.Context, transport *sqlserver.Transport) error {
			return transport.Send(ctx, delayed("1", "theirs", time.Hour))
		}},
		"receive from NServiceBus in None":    {true, []string{usage, "select, update, delete on " + theirs}, receiving("theirs", none, completed)},
		"receive from NServiceBus":            {true, []string{usage, "select, update, delete on " + theirs}, receiving("theirs", receiveOnly, completed)},
		"retry from NServiceBus":              {true, []string{usage, "select, update, delete on " + theirs}, receiving("theirs", receiveOnly, abandoned)},
		"receive from NServiceBus atomically": {true, []string{usage, "select, update, delete on " + theirs}, receiving("theirs", atomic, completed)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			role, rawURL := db.role(t)
			transport := db.open(t, sqlserver.Config{URL: rawURL, NServiceBusTables: c.theirs, SubscriptionCache: -1})
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var rights []string // one by one
			for _, right := range c.rights {
				verbs, object, _ := strings.Cut(right, " on ")
				for verb := range strings.SplitSeq(verbs, ", ") {
					rights = append(rights, verb+" on "+object)
				}
			}
			for _, right := range rights {
				db.grant(t, "grant "+right+" to "+role)
			}
			if err := c.call(ctx, transport); err != nil {
				t.Fatalf("with %q: %v", rights, err)
			}
			for _, right := range rights {
				db.grant(t, "revoke "+right+" from "+role)
				if err := c.call(ctx, transport); !isDenied(err) {
					t.Errorf("without %s: %v", right, err)
				}
				db.grant(t, "grant "+right+" to "+role)
			}
		})
	}
}

// TestRights_EndpointWithTheLeast goes through all that an endpoint does with a role
// that may do nothing else.
func TestRights_EndpointWithTheLeast(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	db := newSchema(t)
	for _, mode := range allModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			name, errorQueue, next, theirs := "in."+mode.String(), "error."+mode.String(), "next."+mode.String(), "theirs."+mode.String()
			owner := db.open(t, sqlserver.Config{})
			provision(t, owner, name, errorQueue, next)
			db.theirTable(t, theirs)
			role, rawURL := db.role(t)
			for _, right := range []string{
				"usage on schema " + schemaOf(db),
				"select, insert, update, delete on " + db.table(name),
				"insert on " + db.table(errorQueue),
				"insert on " + db.table(next),
				"insert on " + db.table(theirs),
				"usage on sequence " + db.column(t, `select pg_get_serial_sequence($1, 'seq')`, db.table(theirs))[0],
				"select, insert, update on " + db.table("SubscriptionRouting"),
				"select, insert, update, delete on " + db.table("reprise_delayed"),
			} {
				db.grant(t, "grant "+right+" to "+role)
			}
			cfg := core.Config{Transactions: mode, Logger: silent, Concurrency: 2, Provision: core.ProvisionAlways}
			cfg.Recoverability.ErrorQueue = errorQueue
			if mode == core.TransactionNone {
				cfg.Recoverability.Immediate.NumberOfRetries, cfg.Recoverability.Delayed.NumberOfRetries = core.Off, core.Off
			} else {
				cfg.Recoverability.Immediate.NumberOfRetries = 1
				cfg.Recoverability.Delayed = core.Delayed{NumberOfRetries: 1, TimeIncrease: 10 * time.Millisecond}
			}
			ep, err := core.New(name, db.open(t, sqlserver.Config{URL: rawURL, SubscriptionCache: -1}), cfg)
			if err != nil {
				t.Fatal(err)
			}
			topic := "Sales.OrderPlaced." + mode.String()
			core.HandleEvent(ep, core.NewEvent[placeOrder](topic), func(_ context.Context, m *core.Message, body placeOrder) error {
				return errors.Join(
					m.Send(next, shipType.Of(body)),
					m.Send(theirs, shipType.Of(body)),
					m.Send(theirs, remindPlaceOrderType.Of(body).With(core.SendOptions{Delay: 10 * time.Millisecond})),
				)
			})
			core.Handle(ep, failPlaceOrderType, func(context.Context, *core.Message, placeOrder) error { return errors.New("no") })
			run(t, ep)
			if err := errors.Join(
				ep.Publish(t.Context(), core.NewEvent[placeOrder](topic).Of(placeOrder{"A-1"})),
				ep.Send(t.Context(), name, failPlaceOrderType.Of(placeOrder{"A-2"})),
			); err != nil {
				t.Fatal(err)
			}
			for table, want := range map[string]string{next: "1", theirs: "2", errorQueue: "1", name: "0"} {
				await(t, want+" messages in "+table, func() bool { return db.count(t, db.table(table)) == want })
			}
			if h := ep.Health(); h.CriticalErrors > 0 || !h.Connected {
				t.Errorf("health %+v, last critical error %v", h, h.LastCritical)
			}
		})
	}
}

// TestRights_MissingIsAnErrorAtOnce: waiting does not fix it.
func TestRights_MissingIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	provision(t, db.open(t, sqlserver.Config{}), "orders")
	role, rawURL := db.role(t)
	db.exec(t, "grant usage on schema "+schemaOf(db)+" to "+role)
	transport := db.open(t, sqlserver.Config{URL: rawURL})

	err := transport.Provision(t.Context(), core.Topology{InputQueue: "new", Queues: []string{"new"}})
	if !isDenied(err) || !strings.Contains(err.Error(), "DDL") || !strings.Contains(err.Error(), db.schema) {
		t.Errorf("Provision = %v, want it to name the schema and DDL", err)
	}
	var refused *core.SendError
	if err := transport.Send(t.Context(), letter("1", "orders")); !isDenied(err) || !errors.As(err, &refused) || refused.Results[0].State != core.SendRefused {
		t.Errorf("Send = %v, want it to be refused", err)
	}
	if err := transport.Subscribe(t.Context(), "orders", "topic"); !isDenied(err) {
		t.Errorf("Subscribe = %v", err)
	}
	for _, mode := range allModes {
		r := openReceiver(t, transport, "orders", mode)
		var got [1]core.Delivery
		if _, err := r.Receive(t.Context(), got[:]); !isDenied(err) || !strings.Contains(err.Error(), "orders") {
			t.Errorf("Receive in %v = %v", mode, err)
		}
	}
}

// TestRights_ReceiverNeedsNoneToForward: an endpoint that has nothing to do with NServiceBus
// needs no right to the table of messages delayed on their way there, and does not
// fill the server's log with that.
func TestRights_ReceiverNeedsNoneToForward(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	provision(t, db.open(t, sqlserver.Config{}), "orders")
	role, rawURL := db.role(t)
	db.exec(t, "grant usage on schema "+schemaOf(db)+" to "+role)
	db.exec(t, "grant select, insert, update, delete on "+db.table("orders")+" to "+role)
	cfg, err := pgxpool.ParseConfig(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	looks := &mentions{text: "reprise_delayed"}
	cfg.ConnConfig.Tracer = looks
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	transport := db.open(t, sqlserver.Config{Pool: pool})
	r := openReceiver(t, transport, "orders", core.TransactionReceiveOnly)
	await(t, "a look at the table", func() bool { return looks.n.Load() > 0 })
	send(t, transport, letter("1", "orders"))
	complete(t, receive(t, r))
	receiveNothing(t, r, 2*time.Second)
	if n := looks.n.Load(); n > 2 {
		t.Errorf("%d statements on a table without rights in two seconds", n)
	}
}

// mentions counts the statements that have a text in them.
type mentions struct {
	text string
	n    atomic.Int64
}

func (m *mentions) saw(sql string) {
	if strings.Contains(sql, m.text) {
		m.n.Add(1)
	}
}

func (m *mentions) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	m.saw(data.SQL)
	return ctx
}

func (*mentions) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (m *mentions) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	for _, q := range data.Batch.QueuedQueries {
		m.saw(q.SQL)
	}
	return ctx
}

func (*mentions) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (*mentions) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// granting is locked by each change of rights: the server refuses two changes of one
// object at a time.
var granting sync.Mutex

func (db *testDatabase) grant(t *testing.T, text string) {
	t.Helper()
	granting.Lock()
	defer granting.Unlock()
	db.exec(t, text)
}
