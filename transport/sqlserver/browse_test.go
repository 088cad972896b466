package sqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/queues"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// bothLayouts runs a test on a table of Reprise and on one of NServiceBus.
func bothLayouts(t *testing.T, test func(t *testing.T, db *testDatabase, transport *sqlserver.Transport)) {
	t.Helper()
	for name, foreign := range map[string]bool{"Reprise's": false, "NServiceBus's": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := newSchema(t)
			transport := db.open(t, sqlserver.Config{NServiceBusTables: foreign})
			if foreign {
				db.theirTable(t, "orders")
			}
			provision(t, transport, "orders")
			test(t, db, transport)
		})
	}
}

// browseAll returns all messages of a queue, and looks at one page at a time.
func browseAll(t *testing.T, browser queues.Browser, r queues.Request) (all []queues.Message) {
	t.Helper()
	for range 5_000 {
		page, err := browser.Browse(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if len(page.Messages) > r.Limit {
			t.Fatalf("a page has %d messages, want at most %d", len(page.Messages), r.Limit)
		}
		all = append(all, page.Messages...)
		if r.After = page.Next; r.After == "" {
			return all
		}
	}
	t.Fatal("the look does not end")
	return nil
}

// statesOf returns the messages as "id state".
func statesOf(all []queues.Message) (list []string) {
	for i := range all {
		list = append(list, all[i].ID+" "+all[i].State.String())
	}
	return list
}

func wantStates(t *testing.T, all []queues.Message, want ...string) {
	t.Helper()
	if got := statesOf(all); !slices.Equal(got, want) {
		t.Errorf("the queue has %q, want %q", got, want)
	}
}

func TestBrowse_ShowsEveryStateInPages(t *testing.T) {
	bothLayouts(t, func(t *testing.T, _ *testDatabase, transport *sqlserver.Transport) {
		send(t, transport, letter("1", "orders"), letter("2", "orders"))
		d := receive(t, openReceiver(t, transport, "orders", core.TransactionReceiveOnly))
		send(t, transport, delayed("3", "orders", time.Hour), delayed("4", "orders", time.Hour))
		for limit := 1; limit <= 5; limit++ {
			all := browseAll(t, transport, queues.Request{Queue: "orders", Limit: limit})
			wantStates(t, all, "1 locked", "2 ready", "3 delayed", "4 delayed")
			for i := range all {
				m := &all[i]
				if string(m.Body) != m.ID || m.BodyBytes != 1 {
					t.Errorf("message %s has the body %q of %d bytes", m.ID, m.Body, m.BodyBytes)
				}
				if isDelayed := m.State == queues.Delayed; isDelayed != (m.DueAt.After(time.Now().Add(50*time.Minute))) || !isDelayed && !m.DueAt.IsZero() {
					t.Errorf("message %s is due at %v", m.ID, m.DueAt)
				}
			}
			if all[0].NativeID != d.Incoming().NativeID {
				t.Errorf("the native id is %q, want %q", all[0].NativeID, d.Incoming().NativeID)
			}
		}
	})
}

func TestBrowse_PageIsBoundedInBytes(t *testing.T) {
	bothLayouts(t, func(t *testing.T, _ *testDatabase, transport *sqlserver.Transport) {
		const size, n = 1 << 20, 6
		for i := range n {
			out := letter(fmt.Sprint(i), "orders")
			out.Body = []byte(strings.Repeat("x", size))
			if i == n-1 {
				out.Delay = time.Hour
			}
			send(t, transport, out)
		}
		r := queues.Request{Queue: "orders", Limit: 100, MaxBytes: 2*size + size/2}
		var sizes []int
		for {
			page, err := transport.Browse(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			sizes = append(sizes, len(page.Messages))
			if r.After = page.Next; r.After == "" {
				break
			}
		}
		if want := []int{3, 3}; !slices.Equal(sizes, want) {
			t.Errorf("pages have %v messages, want %v", sizes, want)
		}
		r.After, r.WithoutBody = "", true
		for _, m := range browseAll(t, transport, r) {
			if m.Body != nil || m.BodyBytes != size {
				t.Errorf("without bodies a message has a body of %d bytes, and BodyBytes %d", len(m.Body), m.BodyBytes)
			}
		}
		page, err := transport.Browse(t.Context(), r)
		if err != nil || len(page.Messages) != n || page.Next != "" {
			t.Errorf("without bodies a page has %d messages and Next %q, %v; want all %d", len(page.Messages), page.Next, err, n)
		}
		keys := keysOf(page.Messages)
		r = queues.Request{Queue: "orders", Limit: 100, MaxBytes: size, Keys: keys}
		if _, err := transport.Browse(t.Context(), r); err == nil || !strings.Contains(err.Error(), "ask for fewer keys") {
			t.Errorf("too many bytes by key: %v", err)
		}
		r.Keys = []string{keys[0], keys[n-1]} // the last one is delayed
		if _, err := transport.Browse(t.Context(), r); err == nil || !strings.Contains(err.Error(), "ask for fewer keys") {
			t.Errorf("too many bytes by two keys: %v", err)
		}
		r.Keys = keys[:1]
		if page, err := transport.Browse(t.Context(), r); err != nil || len(page.Messages) != 1 {
			t.Errorf("a message that alone has more bytes: %d messages, %v", len(page.Messages), err)
		}
	})
}

func keysOf(all []queues.Message) (keys []string) {
	for i := range all {
		keys = append(keys, all[i].Key)
	}
	return keys
}

func TestBrowse_FindsKeys(t *testing.T) {
	bothLayouts(t, func(t *testing.T, db *testDatabase, transport *sqlserver.Transport) {
		send(t, transport, letter("1", "orders"), letter("2", "orders"), letter("3", "orders"), delayed("4", "orders", time.Hour))
		keys := keysOf(browseAll(t, transport, queues.Request{Queue: "orders", Limit: 100}))
		db.exec(t, `delete from `+db.table("orders")+` where headers like '%"2"%'`)
		page, err := transport.Browse(t.Context(), queues.Request{Queue: "orders", Limit: 6, Keys: []string{keys[3], "no key", keys[1], keys[0], keys[0], ""}})
		if err != nil || page.Next != "" {
			t.Fatalf("Next is %q, %v", page.Next, err)
		}
		wantStates(t, page.Messages, "1 ready", "4 delayed")
		// A row with the same seq is another copy.
		db.exec(t, `delete from `+db.table("orders"))
		seq, _, _ := strings.Cut(keys[0], ".")
		db.exec(t, `insert into `+db.table("orders")+` (id, headers, seq) values (gen_random_uuid(), '{}', $1::text::int)`, seq)
		page, err = transport.Browse(t.Context(), queues.Request{Queue: "orders", Limit: 1, Keys: keys[:1]})
		if err != nil || len(page.Messages) != 0 {
			t.Errorf("the key of a removed message finds %q, %v", statesOf(page.Messages), err)
		}
		if page, err = transport.Browse(t.Context(), queues.Request{Queue: "orders", Limit: 1, Keys: []string{}}); err != nil || len(page.Messages) != 0 {
			t.Errorf("no keys find %q, %v", statesOf(page.Messages), err)
		}
	})
}

func TestBrowse_RefusesOtherCursorsAndImpossibleRequests(t *testing.T) {
	bothLayouts(t, func(t *testing.T, _ *testDatabase, transport *sqlserver.Transport) {
		provision(t, transport, "others")
		for _, queue := range []string{"orders", "others"} {
			send(t, transport, letter("1", queue), letter("2", queue), letter("3", queue))
		}
		first, err := transport.Browse(t.Context(), queues.Request{Queue: "orders", Limit: 1})
		if err != nil || first.Next == "" {
			t.Fatalf("Next is %q, %v", first.Next, err)
		}
		for name, r := range map[string]queues.Request{
			"another queue's":    {Queue: "others", Limit: 1, After: first.Next},
			"a shortened cursor": {Queue: "orders", Limit: 1, After: first.Next[:len(first.Next)-1]},
			"a changed cursor":   {Queue: "orders", Limit: 1, After: strings.Replace(first.Next, "3", "2", 1) + "."},
			"a key":              {Queue: "orders", Limit: 1, After: first.Messages[0].Key},
			"text":               {Queue: "orders", Limit: 1, After: "x"},
			"dots":               {Queue: "orders", Limit: 1, After: "...."},
			"no limit":           {Queue: "orders"},
			"a negative limit":   {Queue: "orders", Limit: -1},
			"negative bytes":     {Queue: "orders", Limit: 1, MaxBytes: -1},
			"too many keys":      {Queue: "orders", Limit: 1, Keys: []string{"1", "2"}},
			"keys and a cursor":  {Queue: "orders", Limit: 1, Keys: []string{"1"}, After: first.Next},
		} {
			if page, err := transport.Browse(t.Context(), r); err == nil || errors.Is(err, core.ErrUnavailable) {
				t.Errorf("%s: %d messages, %v", name, len(page.Messages), err)
			}
		}
		if _, err := transport.Browse(t.Context(), queues.Request{Queue: "nowhere", Limit: 1}); !errors.Is(err, core.ErrQueueNotFound) {
			t.Errorf("a queue that does not exist: %v", err)
		}
	})
}

// TestBrowse_CursorOutlastsItsMessage: its message has left the queue, another transport continues, and
// new messages do not keep the look from ending.
func TestBrowse_CursorOutlastsItsMessage(t *testing.T) {
	bothLayouts(t, func(t *testing.T, db *testDatabase, transport *sqlserver.Transport) {
		send(t, transport, letter("1", "orders"), letter("2", "orders"), letter("3", "orders"), letter("4", "orders"))
		r := queues.Request{Queue: "orders", Limit: 2}
		page, err := transport.Browse(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		wantStates(t, page.Messages, "1 ready", "2 ready")
		db.exec(t, `delete from `+db.table("orders")+` where headers like '%"2"%' or headers like '%"3"%'`)
		send(t, transport, letter("5", "orders"), delayed("6", "orders", time.Hour))
		other := db.open(t, sqlserver.Config{NServiceBusTables: !transport.Capabilities().NativeDeliveryCount})
		r.After = page.Next
		page, err = other.Browse(t.Context(), r)
		if err != nil || page.Next != "" {
			t.Fatalf("Next is %q, %v", page.Next, err)
		}
		wantStates(t, page.Messages, "4 ready")
	})
}

// TestBrowse_ReturnedMessagesKeepTheirKeys: a message that was abandoned or released is the same copy.
func TestBrowse_ReturnedMessagesKeepTheirKeys(t *testing.T) {
	bothLayouts(t, func(t *testing.T, _ *testDatabase, transport *sqlserver.Transport) {
		send(t, transport, letter("1", "orders"), letter("2", "orders"))
		r := openReceiver(t, transport, "orders", core.TransactionReceiveOnly)
		before := keysOf(browseAll(t, transport, queues.Request{Queue: "orders", Limit: 10}))
		if err := errors.Join(receive(t, r).Abandon(t.Context(), errors.New("no")), r.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		all := browseAll(t, transport, queues.Request{Queue: "orders", Limit: 10})
		if after := keysOf(all); !slices.Equal(after, before) {
			t.Errorf("the keys are %q, and were %q", after, before)
		}
		wantStates(t, all, "1 ready", "2 ready")
		if counts := transport.Capabilities().NativeDeliveryCount; counts && (all[0].DeliveryCount != 1 || all[0].LastError != "no" || !all[0].Redelivered) || !counts && all[0].DeliveryCount != 0 {
			t.Errorf("the abandoned message is %+v", all[0].Incoming)
		}
		if all[1].DeliveryCount != 0 {
			t.Errorf("the other message has the delivery count %d", all[1].DeliveryCount)
		}
	})
}

// TestBrowse_WritesNothing: not a version of a row, and no lock.
func TestBrowse_WritesNothing(t *testing.T) {
	bothLayouts(t, func(t *testing.T, db *testDatabase, transport *sqlserver.Transport) {
		for i := range 20 {
			send(t, transport, letter(fmt.Sprint(i), "orders"), delayed(fmt.Sprint("later ", i), "orders", time.Hour))
		}
		receive(t, openReceiver(t, transport, "orders", core.TransactionReceiveOnly))
		rows := func() string {
			return strings.Join(db.column(t, `select xmin::text || ' ' || ctid::text from `+db.table("orders")+` order by ctid`), ", ")
		}
		before := rows()
		for range 3 {
			if all := browseAll(t, transport, queues.Request{Queue: "orders", Limit: 7}); len(all) != 40 {
				t.Errorf("the queue has %d messages, want 40", len(all))
			}
			if d, err := transport.Depth(t.Context(), "orders"); err != nil || d.Ready != 19 || d.Locked != 1 || d.Delayed != 20 {
				t.Errorf("the depth is %+v, %v", d, err)
			}
		}
		if after := rows(); after != before {
			t.Errorf("the rows are\n%s\nand were\n%s", after, before)
		}
		// A look in a transaction leaves no lock on a row, and needs no right to write.
		readOnly := db.open(t, sqlserver.Config{URL: withOptions(t, db.url, "default_transaction_read_only", "on"), NServiceBusTables: !transport.Capabilities().NativeDeliveryCount})
		if all := browseAll(t, readOnly, queues.Request{Queue: "orders", Limit: 100}); len(all) != 40 {
			t.Errorf("a read-only session sees %d messages, want 40", len(all))
		}
	})
}

// TestBrowse_NoUpdateIsCounted asks the server's statistics.
func TestBrowse_NoUpdateIsCounted(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	db := newDatabase(t)
	transport := db.open(t, sqlserver.Config{})
	provision(t, transport, "orders")
	db.exec(t, `insert into orders (headers, body) select '{"n": "' || i || '"}', '' from generate_series(1, 500) as i`)
	for range 9 {
		if all := browseAll(t, transport, queues.Request{Queue: "orders", Limit: 100}); len(all) != 500 {
			t.Fatalf("the queue has %d messages, want 500", len(all))
		}
	}
	const insertsCounted = `select n_tup_ins::text from pg_stat_user_tables where relname = 'orders'`
	await(t, "the server has counted the inserts", func() bool { return db.column(t, insertsCounted)[0] == "500" })
	if got := db.column(t, `select concat_ws(' ', n_tup_upd, n_tup_del, n_dead_tup) from pg_stat_user_tables where relname = 'orders'`)[0]; got != "0 0 0" {
		t.Errorf("updates, deletes and dead rows are %s, want none", got)
	}
}

// TestBrowse_IsAsTheNextDelivery compares looks with deliveries.
func TestBrowse_IsAsTheNextDelivery(t *testing.T) {
	bothLayouts(t, func(t *testing.T, db *testDatabase, transport *sqlserver.Transport) {
		full := letter("1", "orders")
		full.GroupKey, full.Properties, full.TimeToBeReceived = "group", map[string]string{"colour": "blue"}, time.Hour
		full.Headers.Set("text", "a\x00b")
		send(t, transport, full)
		db.exec(t, `insert into `+db.table("orders")+` (id, headers, body) values (gen_random_uuid(), '{"a": 1', 'as it came'), (gen_random_uuid(), '{"n": 1}', null)`)
		all := browseAll(t, transport, queues.Request{Queue: "orders", Limit: 2})
		if len(all) != 3 {
			t.Fatalf("the queue has %d messages, want 3", len(all))
		}
		r := openReceiver(t, transport, "orders", core.TransactionReceiveOnly)
		for i := range all {
			in, seen := *receive(t, r).Incoming(), all[i].Incoming
			if d := in.ExpiresAt.Sub(seen.ExpiresAt); d.Abs() > time.Minute || in.ExpiresAt.IsZero() != seen.ExpiresAt.IsZero() {
				t.Errorf("it expires at %v, and was seen to expire at %v", in.ExpiresAt, seen.ExpiresAt)
			}
			in.ExpiresAt = seen.ExpiresAt
			if seen.DeliveryCount != 0 {
				t.Errorf("the delivery count is %d before the first delivery", seen.DeliveryCount)
			}
			in.DeliveryCount = 0
			if !maps.Equal(in.Headers.Map(), seen.Headers.Map()) {
				t.Errorf("a look shows the headers %q, and the delivery has %q", seen.Headers.Map(), in.Headers.Map())
			}
			in.Headers, seen.Headers = core.Headers{}, core.Headers{}
			if got, want := fmt.Sprintf("%+v", seen), fmt.Sprintf("%+v", in); got != want {
				t.Errorf("a look shows\n%s\nand the delivery is\n%s", got, want)
			}
		}
	})
}

// TestBrowse_HostileRows: no value of a row makes a look fail, or hides the row.
func TestBrowse_HostileRows(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{})
	provision(t, transport, "orders")
	for name, row := range hostileRows {
		db.exec(t, `insert into `+db.table("orders")+` (headers, `+row.columns+`) values ($1, `+row.values+`)`, `{"NServiceBus.MessageId": "`+name+`"}`)
	}
	db.exec(t, `insert into `+db.table("orders")+` (headers, due) values ('{"NServiceBus.MessageId": "never due"}', 'infinity')`)
	seen := map[string]bool{}
	for _, m := range browseAll(t, transport, queues.Request{Queue: "orders", Limit: 1}) {
		if seen[m.ID] {
			t.Errorf("the row %q is shown twice", m.ID)
		}
		seen[m.ID] = true
		if want := map[bool]queues.State{true: queues.Delayed, false: queues.Ready}[m.ID == "never due"]; m.State != want {
			t.Errorf("the row %q is %v", m.ID, m.State)
		}
		if m.DeliveryCount < 0 {
			t.Errorf("the row %q has the delivery count %d", m.ID, m.DeliveryCount)
		}
		if page, err := transport.Browse(t.Context(), queues.Request{Queue: "orders", Limit: 1, Keys: []string{m.Key}}); err != nil || len(page.Messages) != 1 || page.Messages[0].ID != m.ID {
			t.Errorf("the key of the row %q finds %q, %v", m.ID, statesOf(page.Messages), err)
		}
	}
	if len(seen) != len(hostileRows)+1 {
		t.Errorf("%d rows are shown, want %d", len(seen), len(hostileRows)+1)
	}
	if _, err := transport.Depth(t.Context(), "orders"); err != nil {
		t.Error(err)
	}
}

// TestBrowse_WaitsForNoReceiver: a handler's transaction and a lock on the whole table for writes do not
// hold up a look.
func TestBrowse_WaitsForNoReceiver(t *testing.T) {
	bothLayouts(t, func(t *testing.T, db *testDatabase, transport *sqlserver.Transport) {
		send(t, transport, letter("1", "orders"), letter("2", "orders"))
		tx, err := db.pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
		for _, text := range []string{`delete from ` + db.table("orders") + ` where headers like '%"1"%'`, `lock table ` + db.table("orders") + ` in exclusive mode`} {
			if _, err := tx.Exec(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
		wantStates(t, browseAll(t, transport, queues.Request{Queue: "orders", Limit: 10}), "1 locked", "2 ready")
		if d, err := transport.Depth(t.Context(), "orders"); err != nil || d.Locked != 1 || d.Ready != 1 || d.Receivers != -1 || !d.Exact {
			t.Errorf("the depth is %+v, %v", d, err)
		}
		if err := tx.Rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		wantStates(t, browseAll(t, transport, queues.Request{Queue: "orders", Limit: 10}), "1 ready", "2 ready")
	})
}

func TestDepth_TellsTheOldest(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{})
	provision(t, transport, "orders")
	if d, err := transport.Depth(t.Context(), "orders"); err != nil || d != (queues.Depth{Receivers: -1, Exact: true}) {
		t.Errorf("the depth of an empty queue is %+v, %v", d, err)
	}
	send(t, transport, letter("1", "orders"), letter("2", "orders"), delayed("3", "orders", time.Hour))
	db.exec(t, `update `+db.table("orders")+` set due = due - interval '2 hours' where headers like '%"2"%'`)
	d, err := transport.Depth(t.Context(), "orders")
	if age := time.Since(d.Oldest); err != nil || age < 2*time.Hour || age > 3*time.Hour {
		t.Errorf("the oldest message was sent at %v, %v; want two hours ago", d.Oldest, err)
	}
	if _, err := transport.Depth(t.Context(), "nowhere"); !errors.Is(err, core.ErrQueueNotFound) {
		t.Errorf("a queue that does not exist: %v", err)
	}
}

// TestListQueues_ThatTheRoleMayRead, of both makers, and none of the other tables.
func TestListQueues_ThatTheRoleMayRead(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{})
	provision(t, transport, "orders", `with "quotes"`, "secret")
	db.theirTable(t, "theirs")
	db.exec(t, `create table `+db.table("application")+` (id uuid, headers text, body bytea)`)
	db.exec(t, `create table `+db.table("theirs.Delayed")+` (headers text, body bytea, due timestamp, destination varchar(250), seq serial)`)
	want := []string{db.table("orders"), db.table("secret"), db.table("theirs"), db.table(`with "quotes"`)}
	if got, err := transport.ListQueues(t.Context()); err != nil || !slices.Equal(got, want) {
		t.Errorf("the queues are %q, %v; want %q", got, err, want)
	}
	for _, address := range want {
		if _, err := transport.Browse(t.Context(), queues.Request{Queue: address, Limit: 1}); err != nil {
			t.Error(err)
		}
	}
	role, rawURL := db.role(t)
	looks := db.open(t, sqlserver.Config{URL: rawURL})
	for _, c := range []struct {
		grant string
		want  []string
	}{
		{"select on " + db.table("orders"), []string{}},
		{"usage on schema " + schemaOf(db), []string{db.table("orders")}},
	} {
		db.grant(t, "grant "+c.grant+" to "+role)
		if got, err := looks.ListQueues(t.Context()); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("after grant %s the queues are %q, %v; want %q", c.grant, got, err, c.want)
		}
	}
}

func TestBrowse_NamesTheMissingRight(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	provision(t, db.open(t, sqlserver.Config{}), "orders")
	role, rawURL := db.role(t)
	transport := db.open(t, sqlserver.Config{URL: rawURL})
	for _, right := range []string{"usage on schema " + schemaOf(db), "select on " + db.table("orders")} {
		_, browse := transport.Browse(t.Context(), queues.Request{Queue: "orders", Limit: 1})
		_, depth := transport.Depth(t.Context(), "orders")
		for _, err := range []error{browse, depth} {
			if !isDenied(err) || !strings.Contains(err.Error(), "grant "+right+" to "+role) && !strings.Contains(err.Error(), "grant select, "+right) {
				t.Errorf("without %s: %v", right, err)
			}
		}
		db.grant(t, "grant "+right+" to "+role)
	}
	if _, err := transport.Browse(t.Context(), queues.Request{Queue: "orders", Limit: 1}); err != nil {
		t.Error(err)
	}
}

// TestBrowse_ShowsRowsThatCannotBeReceived, and Take moves them if the server removes them.
func TestBrowse_ShowsRowsThatCannotBeReceived(t *testing.T) {
	bothLayouts(t, func(t *testing.T, db *testDatabase, transport *sqlserver.Transport) {
		provision(t, transport, "other")
		send(t, transport, letter("bad", "orders"), letter("1", "orders"))
		refuseBad(t, db, db.table("orders"))
		r := openReceiver(t, transport, "orders", core.TransactionReceiveOnly)
		complete(t, receive(t, r))
		all := browseAll(t, transport, queues.Request{Queue: "orders", Limit: 10})
		wantStates(t, all, "bad ready")
		if got := taking(t, transport, "orders", takesOf(all, "other")...)[0]; got.State != queues.TakeRefused || !strings.Contains(got.Err.Error(), "division by zero") {
			t.Errorf("a message that the server does not remove is %v, %v", got.State, got.Err)
		}
		db.exec(t, `drop trigger refuse on `+db.table("orders"))
		if got := countStates(taking(t, transport, "orders", takesOf(all, "other")...)); got != "1 done" {
			t.Errorf("afterwards the results are %s", got)
		}
	})
}

// TestBrowse_WithoutDelayedMessages: their table is missing, or was dropped.
func TestBrowse_WithoutDelayedMessages(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	db.theirTable(t, "orders")
	transport := db.open(t, sqlserver.Config{NServiceBusTables: true})
	send(t, transport, letter("1", "orders"))
	for _, create := range []bool{false, true, false} {
		if create {
			send(t, transport, delayed("2", "orders", time.Hour))
		} else {
			db.exec(t, `drop table if exists `+db.table("reprise_delayed"))
		}
		want := []string{"1 ready", "2 delayed"}
		if !create {
			want = want[:1]
		}
		all := browseAll(t, transport, queues.Request{Queue: "orders", Limit: 1})
		wantStates(t, all, want...)
		if d, err := transport.Depth(t.Context(), "orders"); err != nil || d.Ready+d.Delayed != len(want) {
			t.Errorf("the depth is %+v, %v; want %q", d, err, want)
		}
	}
}

// TestBrowse_OnAStandby: a look needs no server that can be written to.
func TestBrowse_OnAStandby(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	primary := postgres.StartFor(t, postgres.Config{})
	database := primary.NewDatabase(t)
	transport := open(t, sqlserver.Config{URL: primary.PasswordURL(database)})
	provision(t, transport, "orders")
	send(t, transport, letter("1", "orders"), letter("2", "orders"))
	receive(t, openReceiver(t, transport, "orders", core.TransactionReceiveOnly))
	send(t, transport, delayed("3", "orders", time.Hour))
	standby, err := primary.StartStandby()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	copied := open(t, sqlserver.Config{URL: standby.PasswordURL(database)})
	want := browseAll(t, transport, queues.Request{Queue: "orders", Limit: 2})
	await(t, "the standby has the messages", func() bool {
		page, err := copied.Browse(t.Context(), queues.Request{Queue: "orders", Limit: 3})
		return err == nil && len(page.Messages) == len(want)
	})
	got := browseAll(t, copied, queues.Request{Queue: "orders", Limit: 2})
	wantStates(t, got, statesOf(want)...)
	if !slices.Equal(keysOf(got), keysOf(want)) {
		t.Errorf("the keys are %q, and on the primary %q", keysOf(got), keysOf(want))
	}
	if d, err := copied.Depth(t.Context(), "orders"); err != nil || d.Ready+d.Locked != 2 || d.Delayed != 1 {
		t.Errorf("the depth is %+v, %v", d, err)
	}
	if results, err := copied.Take(t.Context(), "orders", takesOf(got, "orders")); !errors.Is(err, core.ErrUnavailable) {
		t.Errorf("Take on the standby: %s, %v", countStates(results), err)
	}
}
