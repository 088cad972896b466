package sqlserver_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// TestSession_EverySetting: what a server, a database, a role or a URL may set must
// not change what is sent, when it comes, or when it expires.
func TestSession_EverySetting(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, options := range [][]string{
		{"timezone", "Asia/Kathmandu", "datestyle", "German, DMY", "bytea_output", "escape", "search_path", "nowhere", "standard_conforming_strings", "off"},
		{"timezone", "America/St_Johns", "datestyle", "SQL, MDY", "intervalstyle", "sql_standard", "search_path", "", "default_transaction_isolation", "serializable"},
		{"timezone", "<-14>+14", "default_transaction_isolation", "repeatable read", "plan_cache_mode", "force_generic_plan"},
		{"default_query_exec_mode", "cache_statement", "statement_cache_capacity", "2"},
		{"default_query_exec_mode", "cache_describe", "timezone", "Asia/Tokyo", "datestyle", "SQL, DMY"},
		{"default_query_exec_mode", "describe_exec", "timezone", "Asia/Tokyo", "datestyle", "German"},
		{"default_query_exec_mode", "exec", "timezone", "Asia/Tokyo"},
		{"default_query_exec_mode", "simple_protocol", "timezone", "Australia/Lord_Howe"},
		{"client_encoding", "LATIN1"},
		{"options", "-c client_encoding=EUC_JP"},
	} {
		t.Run(fmt.Sprint(options), func(t *testing.T) {
			t.Parallel()
			db := newSchema(t)
			rawURL := withOptions(t, db.url, options...)
			converse(t, db, rawURL, sqlserver.Config{URL: rawURL})
		})
	}
}

// TestSession_UnreadableTextIsNoOutage: where pgx asks for results as text, it reads only the
// usual form of times and bytes. That must not look like an outage, which would go on
// for ever.
func TestSession_UnreadableTextIsNoOutage(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	for _, mode := range []string{"exec", "simple_protocol"} {
		for name, options := range map[string][]string{"datestyle": {"datestyle", "German"}, "bytea_output": {"bytea_output", "escape"}} {
			t.Run(mode+" "+name, func(t *testing.T) {
				t.Parallel()
				queue := mode + " " + name
				transport := db.open(t, sqlserver.Config{URL: withOptions(t, db.url, append(options, "default_query_exec_mode", mode)...)})
				provision(t, transport, queue)
				out := letter("1", queue)
				out.Body = []byte{0}
				send(t, transport, out)
				r := openReceiver(t, transport, queue, core.TransactionReceiveOnly)
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				var got [1]core.Delivery
				if _, err := r.Receive(ctx, got[:]); err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "DateStyle") {
					t.Errorf("Receive = %v, want an error that names the fix", err)
				}
			})
		}
	}
}

// TestSession_SettingsOfRolesAndDatabases are those that no URL shows.
func TestSession_SettingsOfRolesAndDatabases(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	db := newDatabase(t)
	role, rawURL := db.role(t)
	for _, text := range []string{
		`grant all on schema public to ` + role,
		`alter role ` + role + ` set timezone = 'Australia/Lord_Howe'`,
		`alter role ` + role + ` set search_path = ''`,
		`alter role ` + role + ` set client_encoding = 'LATIN1'`,
		`alter database ` + pgx.Identifier{db.name}.Sanitize() + ` set timezone = 'America/Sao_Paulo'`,
		`alter database ` + pgx.Identifier{db.name}.Sanitize() + ` set datestyle = 'SQL, DMY'`,
	} {
		if _, err := server.Exec(t.Context(), db.name, text); err != nil {
			t.Fatal(err)
		}
	}
	converse(t, db, rawURL, sqlserver.Config{URL: rawURL})
}

// TestSession_DatabaseSQL are those of a pool that the program has already.
func TestSession_DatabaseSQL(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			db := newSchema(t)
			rawURL := withOptions(t, db.url, "default_query_exec_mode", mode, "timezone", "Asia/Kathmandu")
			converse(t, db, rawURL, sqlserver.Config{DB: openDB(t, rawURL)})
		})
	}
}

// converse sends and receives everything that there is, through sessions of a URL.
func converse(t *testing.T, db *testDatabase, rawURL string, cfg sqlserver.Config) {
	t.Helper()
	cfg.SubscriptionCache = -1
	transport := db.open(t, cfg)
	provision(t, transport, "q")
	cfg.NServiceBusTables = true
	foreign := db.open(t, cfg)
	provision(t, foreign, "theirs")
	for _, mode := range allModes {
		converseWith(t, transport, "q", mode)
	}
	converseWith(t, foreign, "theirs", core.TransactionReceiveOnly)
	tx, err := poolOf(t, withOptions(t, rawURL, "client_encoding", "UTF8", "options", "")).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	send(t, &inTransaction{transport, tx}, delayed("1", "theirs", 100*time.Millisecond), letter("2", "q"))
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for queue, r := range map[string]core.Receiver{
		"2": openReceiver(t, transport, "q", core.TransactionNone),
		"1": openReceiver(t, foreign, "theirs", core.TransactionNone),
	} {
		if id := receive(t, r).Incoming().ID; id != queue {
			t.Errorf("received %s, want %s", id, queue)
		}
	}
	converseAsTool(t, transport, "q")
	converseAsTool(t, foreign, "theirs")
}

// converseAsTool looks at messages of an empty queue, and takes them.
func converseAsTool(t *testing.T, transport *sqlserver.Transport, queue string) {
	t.Helper()
	later := letter("2", queue)
	later.Delay, later.TimeToBeReceived = time.Hour, 2*time.Hour
	send(t, transport, letter("1", queue), later)
	all := browseAll(t, transport, queues.Request{Queue: queue, Limit: 1})
	wantStates(t, all, "1 ready", "2 delayed")
	if d := time.Until(all[1].DueAt); d < 50*time.Minute || d > time.Hour {
		t.Errorf("a message is due in %v, want an hour", d)
	}
	if d, err := transport.Depth(t.Context(), queue); err != nil || d.Ready != 1 || d.Delayed != 1 {
		t.Errorf("the depth is %+v, %v", d, err)
	}
	if list, err := transport.ListQueues(t.Context()); err != nil || len(list) != 2 {
		t.Errorf("the queues are %q, %v", list, err)
	}
	for range 2 {
		page, err := transport.Browse(t.Context(), queues.Request{Queue: queue, Limit: 2, Keys: keysOf(all)})
		if err != nil || len(page.Messages) != 2 || string(page.Messages[0].Body) != "1" {
			t.Errorf("the keys find %q, %v", statesOf(page.Messages), err)
		}
		if got := countStates(taking(t, transport, queue, takesOf(all, queue)...)); got != "2 done" {
			t.Errorf("the results are %s", got)
		}
		all = browseAll(t, transport, queues.Request{Queue: queue, Limit: 2})
		wantStates(t, all, "1 ready", "2 ready")
	}
}

func converseWith(t *testing.T, transport *sqlserver.Transport, queue string, mode core.TransactionMode) {
	t.Helper()
	if err := transport.Subscribe(t.Context(), queue, "topic"); err != nil {
		t.Fatal(err)
	}
	var body []byte
	for i := range 256 {
		body = append(body, byte(i))
	}
	names := map[string]string{"a": "it's \\ \"b\" \u00e4 \u20ac $1 ? \x00", "empty": ""}
	message := func(id string) core.Outgoing {
		out := core.Outgoing{ID: id, Queue: queue, Headers: core.HeadersFromMap(names), Body: body}
		out.Headers.Set(headers.MessageID, id)
		return out
	}
	const delay = 100 * time.Millisecond
	delayed, delayedToo, expired, expiring, empty, published := message("late"), message("late too"), message("expired"), message("expiring"), message("empty"), message("published")
	delayed.Delay, delayedToo.Delay, delayedToo.TimeToBeReceived = delay, delay, time.Hour
	expired.TimeToBeReceived, expiring.TimeToBeReceived = time.Microsecond, time.Hour
	empty.Body = nil
	published.Queue, published.Topic = "", "topic"
	sent := time.Now()
	send(t, transport, delayed)
	send(t, transport, expired)
	send(t, transport, expiring)
	send(t, transport, message("plain"))
	send(t, transport, published)
	send(t, transport, empty, message("many"))
	send(t, transport, expired, delayedToo, message("more"))
	want := []string{"empty", "expiring", "late", "late too", "many", "more", "plain", "published"}

	r := openReceiver(t, transport, queue, mode)
	var got []string
	for len(got) < len(want) {
		d := receive(t, r)
		in := d.Incoming()
		received := time.Now()
		if retried := mode != core.TransactionNone && in.DeliveryCount == 1; retried {
			if err := d.Abandon(t.Context(), errors.New("it's \"b\" \\ \u00e4 \u20ac")); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if mode != core.TransactionNone && (in.DeliveryCount != 2 || in.LastError != "it's \"b\" \\ \u00e4 \u20ac") {
			t.Errorf("%s: delivery %d with the last error %q", in.ID, in.DeliveryCount, in.LastError)
		}
		got = append(got, in.ID)
		if all := in.Headers.Map(); in.Malformed != nil || all["a"] != names["a"] || len(all) != 3 || in.ID != "empty" && !bytes.Equal(in.Body, body) || in.ID == "empty" && len(in.Body) != 0 {
			t.Errorf("%s: %v, headers %q, body %q", in.ID, in.Malformed, all, in.Body)
		}
		earliest := sent
		if in.ID == "late" || in.ID == "late too" {
			earliest = sent.Add(delay)
		}
		if received.Before(earliest) {
			t.Errorf("%s came %v early", in.ID, earliest.Sub(received))
		}
		if at := in.EnqueuedAt; !at.IsZero() && (at.Before(earliest) || at.After(received)) {
			t.Errorf("%s: EnqueuedAt is %v, between %v and %v expected", in.ID, at, earliest, received)
		}
		complete(t, d)
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("received %q, want %q", got, want)
	}
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := transport.Unsubscribe(t.Context(), queue, "topic"); err != nil {
		t.Fatal(err)
	}
}

// TestSession_ExpiryIsKeptThroughARetry: in SendsAtomicWithReceive the row is another
// one afterwards.
func TestSession_ExpiryIsKeptThroughARetry(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	for _, style := range []string{"ISO", "German", "SQL, DMY", "SQL, MDY", "Postgres, DMY"} {
		transport := db.open(t, sqlserver.Config{URL: withOptions(t, db.url, "timezone", "America/St_Johns", "datestyle", style)})
		provision(t, transport, style)
		out := letter("1", style)
		out.TimeToBeReceived = 45 * 24 * time.Hour // so that day and month would be taken for each other
		send(t, transport, out)
		row := func() string {
			return db.column(t, `select concat_ws(' ', id, seq, expires, due, headers, body) from `+db.table(style))[0]
		}
		before := row()
		r := openReceiver(t, transport, style, core.TransactionSendsAtomicWithReceive)
		if err := receive(t, r).Abandon(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if after := row(); after != before {
			t.Errorf("%s: the row was %s and is %s", style, before, after)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// TestSession_TableIsRecreated is found by connections that have prepared statements
// about the one before.
func TestSession_TableIsRecreated(t *testing.T) {
	t.Parallel()
	for _, mode := range allModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			db := newSchema(t)
			transport := db.open(t, sqlserver.Config{URL: withOptions(t, db.url, "pool_max_conns", "12")})
			provision(t, transport, "q")
			ddl, err := sqlserver.DDL(sqlserver.Config{URL: "postgres://", Schema: db.schema}, "q")
			if err != nil {
				t.Fatal(err)
			}
			r := openReceiver(t, transport, "q", mode)
			use := func() {
				t.Helper()
				late := delayed("2", "q", time.Millisecond)
				late.TimeToBeReceived = time.Hour
				send(t, transport, letter("1", "q"))
				send(t, transport, letter("1", "q"), late)
				for range 3 {
					d := receive(t, r)
					if err := d.Abandon(t.Context(), nil); err != nil {
						t.Fatal(err)
					}
					if mode != core.TransactionNone {
						complete(t, receive(t, r))
					}
				}
			}
			use()
			repeat := func(how string) {
				t.Helper()
				conn, err := db.pool.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Release()
				if _, err := conn.Conn().PgConn().Exec(t.Context(), `begin; `+how+ddl+` commit;`).ReadAll(); err != nil {
					t.Fatal(err)
				}
			}
			repeat(`drop table ` + db.table("q") + `;`)
			use()
			repeat(`alter table ` + db.table("q") + ` rename to before;`)
			use()
			repeat(`alter table ` + db.table("q") + ` add more text;`)
			use()
		})
	}
}

// TestSession_TableIsRecreatedByNServiceBus: one statement may fail, after which the
// columns of the former table are forgotten.
func TestSession_TableIsRecreatedByNServiceBus(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{})
	sendLater := map[string]func(id string) error{
		"Send": func(id string) error { return transport.Send(t.Context(), delayed(id, "q", time.Millisecond)) },
		"CompleteWith": func(id string) error {
			provision(t, transport, "input")
			send(t, transport, letter("in", "input"))
			r := openReceiver(t, transport, "input", core.TransactionSendsAtomicWithReceive)
			err := receive(t, r).CompleteWith(t.Context(), []core.Outgoing{delayed(id, "q", time.Millisecond)})
			return errors.Join(err, r.Close(t.Context()))
		},
	}
	for name, send := range sendLater {
		provision(t, transport, "q")
		if err := send("1"); err != nil {
			t.Fatal(err)
		}
		db.exec(t, `drop table `+db.table("q"))
		theirs := db.theirTable(t, "q")
		if err := transport.Send(t.Context(), letter("2", "q"), letter("2", "q")); err != nil {
			t.Errorf("%s: at once: %v", name, err)
		}
		if err := send("3"); err != nil {
			t.Logf("%s: the first delayed message: %v", name, err)
			if err := send("3"); err != nil {
				t.Errorf("%s: the second delayed message: %v", name, err)
			}
		}
		for _, want := range []string{"2", "2", "3"} {
			if row := db.awaitAsThey(t, theirs); string(row.body) != want {
				t.Errorf("%s: they got %s, want %s", name, row.body, want)
			}
		}
		// And back.
		db.exec(t, `drop table `+theirs)
		provision(t, transport, "q")
		if err := send("4"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		r := openReceiver(t, transport, "q", core.TransactionNone)
		if id := receive(t, r).Incoming().ID; id != "4" {
			t.Errorf("%s: received %s", name, id)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		db.exec(t, `drop table `+db.table("q"))
	}
}
