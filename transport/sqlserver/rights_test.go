package sqlserver_test

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// TestCheck_NamesMissingRights: each is named alone when it alone is missing,
// and what the error says to do about it is enough.
func TestCheck_NamesMissingRights(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg      sqlserver.Config
		topology core.Topology
		rights   func(db *testDatabase) []string
	}{
		"an input queue": {sqlserver.Config{}, core.Topology{InputQueue: "orders", Queues: []string{"orders"}}, func(db *testDatabase) []string {
			return []string{"usage on schema " + schemaOf(db), "select on " + db.table("orders"), "update on " + db.table("orders"), "delete on " + db.table("orders")}
		}},
		"an input queue and where it sends": {sqlserver.Config{}, core.Topology{InputQueue: "orders", Queues: []string{"orders", "error", "audit"}}, func(db *testDatabase) []string {
			return []string{"usage on schema " + schemaOf(db), "select on " + db.table("orders"), "update on " + db.table("orders"), "delete on " + db.table("orders"),
				"insert on " + db.table("error"), "insert on " + db.table("audit")}
		}},
		"an input queue that retries are sent to": {sqlserver.Config{}, core.Topology{InputQueue: "orders", Queues: []string{"orders"}, Transactions: core.TransactionReceiveOnly}, func(db *testDatabase) []string {
			return []string{"usage on schema " + schemaOf(db), "select on " + db.table("orders"), "update on " + db.table("orders"), "delete on " + db.table("orders"),
				"insert on " + db.table("orders")}
		}},
		"queues of NServiceBus": {sqlserver.Config{NServiceBusTables: true}, core.Topology{InputQueue: "theirs", Queues: []string{"theirs", "their error"}}, func(db *testDatabase) []string {
			return []string{"usage on schema " + schemaOf(db), "select on " + db.table("theirs"), "update on " + db.table("theirs"), "delete on " + db.table("theirs"),
				"insert on " + db.table("their error"), "usage on sequence " + db.table("their error_seq_seq")}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newSchema(t)
			provision(t, db.open(t, sqlserver.Config{}), "orders", "error", "audit")
			db.theirTable(t, "theirs")
			db.theirTable(t, "their error")
			role, rawURL := db.role(t)
			c.cfg.URL = rawURL
			transport := db.open(t, c.cfg)
			check := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				return transport.Check(ctx, c.topology)
			}
			rights := c.rights(db)
			for _, right := range rights {
				db.grant(t, "grant "+right+" to "+role)
			}
			if err := check(); err != nil {
				t.Fatalf("with %q: %v", rights, err)
			}
			for _, right := range rights {
				db.grant(t, "revoke "+right+" from "+role)
				err := check()
				if want := []string{"grant " + right + " to " + role}; !slices.Equal(grantsIn(err), want) {
					t.Errorf("without %s: %v, want it to say %q", right, err, want)
				}
				if strings.HasPrefix(right, "usage on schema") && !isDenied(err) { // the server's answer
					t.Errorf("without %s: %v", right, err)
				}
				db.grant(t, "grant "+right+" to "+role)
			}
			for _, right := range rights {
				db.grant(t, "revoke "+right+" from "+role)
			}
			for attempt := 1; ; attempt++ { // without the right to the schema, no table is looked at
				err := check()
				if err == nil {
					break
				}
				grants := grantsIn(err)
				if len(grants) == 0 || attempt == 3 {
					t.Fatalf("attempt %d: %v", attempt, err)
				}
				if n := strings.Count(err.Error(), "denied for schema"); n > 1 {
					t.Errorf("%q says %d times that the schema may not be used", err, n)
				}
				for _, grant := range grants {
					db.grant(t, grant)
				}
			}
		})
	}
}

// An endpoint that retries inserts into its own queue.
func TestRun_RightToInsertIntoTheInputQueue(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	for _, mode := range bothModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			cfg, role := db.rowsRole(t)
			e := newRowsEndpoint(t, db, cfg, mode)
			db.grant(t, "grant select, update, delete on "+db.table(e.queue)+" to "+role)
			db.grant(t, "grant insert on "+db.table(e.errorQueue)+" to "+role)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := e.Run(ctx)
			if want := []string{"grant insert on " + db.table(e.queue) + " to " + role}; !slices.Equal(grantsIn(err), want) {
				t.Errorf("Run = %v, want it to say %q", err, want)
			}
		})
	}
}

// A sender may write messages, and nothing else of a row.
func TestSend_ColumnRights(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	owner := db.open(t, sqlserver.Config{})
	provision(t, owner, "orders")
	if err := owner.Subscribe(t.Context(), "orders", "topic"); err != nil {
		t.Fatal(err)
	}
	cfg, role := db.rowsRole(t)
	db.grant(t, "grant insert (id, expires, headers, body, due) on "+db.table("orders")+" to "+role)
	db.grant(t, "grant select on "+db.table("SubscriptionRouting")+" to "+role)
	sender := db.open(t, cfg)
	expires := letter("4", "orders")
	expires.TimeToBeReceived = time.Hour
	expiresLater := delayed("5", "orders", time.Hour)
	expiresLater.TimeToBeReceived = 2 * time.Hour
	for _, out := range [][]core.Outgoing{
		{letter("1", "orders")}, {letter("1", "orders"), letter("2", "orders")}, {delayed("3", "orders", time.Hour)}, {delayed("3", "orders", time.Hour), letter("1", "orders")},
		{expires}, {expires, letter("1", "orders")}, {expiresLater}, {publication("6", "topic")},
	} {
		if err := sender.Send(t.Context(), out...); err != nil {
			t.Errorf("send %d messages: %v", len(out), err)
		}
	}
	pool := poolOf(t, cfg.URL)
	for _, column := range []string{"seq", "deliveries", "claims", "leased_until", "last_error"} {
		_, err := pool.Exec(t.Context(), `insert into `+db.table("orders")+` (headers, `+column+`) values ('{}', default)`)
		if !isDenied(err) {
			t.Errorf("insert with %s: %v", column, err)
		}
	}
}

// grantsIn returns the statements that an error names as its fix.
func grantsIn(err error) []string {
	if err == nil {
		return nil
	}
	return regexp.MustCompile(`(?m)grant .* on .* to .*$`).FindAllString(err.Error(), -1)
}

// TestCheck_AcceptsEveryRoleWithTheRights: rights come in many ways.
func TestCheck_AcceptsEveryRoleWithTheRights(t *testing.T) {
	t.Parallel()
	for name, grants := range map[string]func(db *testDatabase, role, group string) []string{
		"by columns": func(db *testDatabase, role, _ string) []string {
			return []string{
				"grant select (ctid, id, expires, headers, body, seq, due, deliveries, claims, leased_until, last_error) on " + db.table("orders") + " to " + role,
				"grant update (deliveries, claims, leased_until, last_error) on " + db.table("orders") + " to " + role,
				"grant delete on " + db.table("orders") + " to " + role,
				"grant insert (id, headers, body) on " + db.table("error") + " to " + role,
			}
		},
		"of a group": func(db *testDatabase, role, group string) []string {
			return []string{
				"grant select, update, delete on " + db.table("orders") + " to " + group,
				"grant insert on " + db.table("error") + " to " + group,
				"grant " + group + " to " + role,
			}
		},
		"of everybody": func(db *testDatabase, _, _ string) []string {
			return []string{
				"grant all on " + db.table("orders") + " to public",
				"grant all on " + db.table("error") + " to public",
			}
		},
		"of the owner": func(db *testDatabase, role, _ string) []string {
			return []string{
				"alter table " + db.table("orders") + " owner to " + role,
				"alter table " + db.table("error") + " owner to " + role,
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newSchema(t)
			owner := db.open(t, sqlserver.Config{})
			provision(t, owner, "orders", "error")
			send(t, owner, letter("1", "orders"))
			role, rawURL := db.role(t)
			group, _ := db.role(t)
			db.grant(t, "grant usage on schema "+schemaOf(db)+" to "+role)
			for _, grant := range grants(db, role, group) {
				granting.Lock()
				_, err := server.Exec(t.Context(), db.name, grant) // which may grant membership
				granting.Unlock()
				if err != nil {
					t.Fatal(err)
				}
			}
			transport := db.open(t, sqlserver.Config{URL: rawURL})
			if err := transport.Check(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders", "error"}}); err != nil {
				t.Error(err)
			}
			complete(t, receive(t, openReceiver(t, transport, "orders", core.TransactionReceiveOnly)))
			send(t, transport, letter("2", "error"))
		})
	}
}

// TestCheck_IdentityColumnTakesNoRight: only the sequence of a serial column does.
func TestCheck_IdentityColumnTakesNoRight(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	provision(t, db.open(t, sqlserver.Config{}), "orders")
	db.exec(t, `create table `+db.table("theirs")+` (id uuid primary key, expires timestamp, headers text not null, body bytea,
		seq integer generated by default as identity unique)`)
	role, rawURL := db.role(t)
	for _, right := range []string{"usage on schema " + schemaOf(db), "select, update, delete on " + db.table("orders"), "insert on " + db.table("theirs")} {
		db.grant(t, "grant "+right+" to "+role)
	}
	transport := db.open(t, sqlserver.Config{URL: rawURL})
	if err := transport.Check(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders", "theirs"}}); err != nil {
		t.Error(err)
	}
	send(t, transport, letter("1", "theirs"))
}

func TestSubscribe_NamesMissingRights(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	provision(t, db.open(t, sqlserver.Config{}), "orders")
	role, rawURL := db.role(t)
	db.grant(t, "grant usage on schema "+schemaOf(db)+" to "+role)
	transport := db.open(t, sqlserver.Config{URL: rawURL})
	for _, c := range []struct {
		call func(ctx context.Context, queue string, topics ...string) error
		want string
	}{
		{transport.Subscribe, "grant select, insert, update on "},
		{transport.Unsubscribe, "grant delete on "}, // it has got the right to select
	} {
		err := c.call(t.Context(), "orders", "topic")
		want := []string{c.want + db.table("SubscriptionRouting") + " to " + role}
		if !isDenied(err) || !slices.Equal(grantsIn(err), want) {
			t.Fatalf("%v, want it to say %q", err, want)
		}
		db.grant(t, want[0])
		if err := c.call(t.Context(), "orders", "topic"); err != nil {
			t.Error(err)
		}
	}
}

// TestCheck_ServerErrorIsReportedOnce: it is not about any of the queues.
func TestCheck_ServerErrorIsReportedOnce(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	provision(t, db.open(t, sqlserver.Config{}), "orders")
	with := func(change func(u *url.URL)) string {
		u, err := url.Parse(db.url)
		if err != nil {
			t.Fatal(err)
		}
		change(u)
		return u.String()
	}
	for name, c := range map[string]struct{ url, want string }{
		"a wrong password": {with(func(u *url.URL) { u.User = url.UserPassword(u.User.Username(), "wrong") }), "password authentication failed"},
		"no such role":     {with(func(u *url.URL) { u.User = url.UserPassword("nobody", "wrong") }), "authentication failed"},
		"no such database": {with(func(u *url.URL) { u.Path = "/nowhere" }), `database "nowhere" does not exist`},
		"no server":        {with(func(u *url.URL) { u.Host = "127.0.0.1:1" }), "127.0.0.1:1"},
		"no such option":   {withOptions(t, db.url, "pool_max_con", "3"), `"pool_max_con"`},
		"no such value":    {withOptions(t, db.url, "statement_timeout", "soon"), `"statement_timeout": "soon"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for over, cfg := range map[string]sqlserver.Config{"pgx": {URL: c.url}, "database/sql": {DB: openDB(t, c.url)}} {
				err := db.open(t, cfg).Check(t.Context(), core.Topology{InputQueue: "orders", Queues: []string{"orders", "error", "audit"}})
				if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "wrong") {
					t.Fatalf("over %s: %v, want it to say %q, and not the password", over, err, c.want)
				}
				if n := strings.Count(err.Error(), "failed to connect"); n != 1 {
					t.Errorf("over %s: %q says %d times that it failed", over, err, n)
				}
				for _, queue := range []string{"orders", "error", "audit"} {
					if strings.Contains(err.Error(), fmt.Sprintf("%q", queue)) {
						t.Errorf("over %s: %q is not about the queue %s", over, err, queue)
					}
				}
			}
		})
	}
}

// TestOpenReceiver_WrongOptionIsAnErrorAtOnce: a receiver that is opened without a Check gets the error, too.
func TestOpenReceiver_WrongOptionIsAnErrorAtOnce(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	for option, value := range map[string]string{"pool_max_con": "3", "statement_timeout": "soon"} {
		rawURL := withOptions(t, db.url, option, value)
		for over, cfg := range map[string]sqlserver.Config{"pgx": {URL: rawURL}, "database/sql": {DB: openDB(t, rawURL)}} {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			_, err := db.open(t, cfg).OpenReceiver(ctx, core.ReceiverConfig{Queue: "orders", Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
			if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), option) {
				t.Errorf("over %s: OpenReceiver with %s=%s = %v", over, option, value, err)
			}
			cancel()
		}
	}
}
