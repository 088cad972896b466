package sqlserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// allModes are the transaction modes.
var allModes = []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive}

func TestNServiceBus_ReceiveFromTheirTables(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	for _, mode := range allModes {
		queue := "Sales." + mode.String()
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			table := db.theirTable(t, queue)
			db.exec(t, on(table, theirBodyText))
			first, second := "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
			db.exec(t, on(table, theirSend), first, nil, theirHeaders, []byte(`{"OrderId":"A-1"}`))
			db.exec(t, on(table, theirSend), second, 60_000, `{}`, nil)
			r := openReceiver(t, db.open(t, sqlserver.Config{NServiceBusTables: true}), queue, mode)

			d := receive(t, r)
			in := d.Incoming()
			if in.ID != theirMessageID || in.NativeID != first || in.DeliveryCount != 1 || in.Redelivered || in.Malformed != nil {
				t.Errorf("received %+v", in)
			}
			if string(in.Body) != `{"OrderId":"A-1"}` {
				t.Errorf("body %q", in.Body)
			}
			want := map[string]string{}
			if err := json.Unmarshal([]byte(theirHeaders), &want); err != nil {
				t.Fatal(err)
			}
			if got := in.Headers.Map(); !maps.Equal(got, want) {
				t.Errorf("headers %v, want %v", got, want)
			}
			complete(t, d)

			d = receive(t, r)
			if in := d.Incoming(); in.ID != second || in.Headers.Len() != 0 || len(in.Body) != 0 || in.Malformed != nil {
				t.Errorf("received %+v", in)
			}
			complete(t, d)
			if n := db.count(t, table); n != "0" {
				t.Errorf("%s rows are left", n)
			}
		})
	}
}

func TestNServiceBus_CountInMemory(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	for _, mode := range []core.TransactionMode{core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive} {
		queue := "Sales." + mode.String()
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			table := db.theirTable(t, queue)
			db.exec(t, on(table, theirSend), "11111111-1111-4111-8111-111111111111", nil, theirHeaders, nil)
			transport := db.open(t, sqlserver.Config{NServiceBusTables: true})
			if transport.Capabilities().NativeDeliveryCount {
				t.Error("NativeDeliveryCount is claimed, but such tables have no column for it")
			}
			r := openReceiver(t, transport, queue, mode)
			expect := func(count int, lastError string) core.Delivery {
				t.Helper()
				d := receive(t, r)
				if in := d.Incoming(); in.DeliveryCount != count || in.LastError != lastError {
					t.Errorf("delivery %d with the last error %q, want %d with %q", in.DeliveryCount, in.LastError, count, lastError)
				}
				return d
			}
			if err := expect(1, "").Abandon(t.Context(), errors.New("no stock")); err != nil {
				t.Fatal(err)
			}
			if err := expect(2, "no stock").Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := expect(2, "no stock").Abandon(t.Context(), errors.New("no money")); err != nil {
				t.Fatal(err)
			}
			// Another instance does not know of that, and starts to count anew.
			d := expect(3, "no money")
			if err := r.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := d.Complete(t.Context()); !errors.Is(err, core.ErrLockLost) {
				t.Errorf("Complete after Close = %v, want ErrLockLost", err)
			}
			other := openReceiver(t, db.open(t, sqlserver.Config{NServiceBusTables: true}), queue, mode)
			d = receive(t, other)
			if n := d.Incoming().DeliveryCount; n != 1 {
				t.Errorf("delivery %d at another instance, want 1", n)
			}
			if err := d.Abandon(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			complete(t, receive(t, other))
			if n := db.count(t, table); n != "0" {
				t.Errorf("%s rows are left", n)
			}
		})
	}
}

func TestNServiceBus_ExpiredMessagesAreDropped(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	for _, mode := range allModes {
		queue := "Sales." + mode.String()
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			table := db.theirTable(t, queue)
			for _, id := range []string{"11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"} {
				db.exec(t, on(table, theirSend), id, 0, theirHeaders, nil)
			}
			db.exec(t, on(table, theirSend), "33333333-3333-4333-8333-333333333333", 60_000, theirHeaders, nil)
			r := openReceiver(t, db.open(t, sqlserver.Config{NServiceBusTables: true}), queue, mode)
			d := receive(t, r)
			if id := d.Incoming().NativeID; id != "33333333-3333-4333-8333-333333333333" {
				t.Errorf("received %s", id)
			}
			complete(t, d)
			if n := db.count(t, table); n != "0" {
				t.Errorf("%s rows are left", n)
			}
		})
	}
}

func TestNServiceBus_UnreadableHeadersAreMalformed(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	table := db.theirTable(t, "orders")
	db.exec(t, on(table, theirSend), "11111111-1111-4111-8111-111111111111", nil, `<headers/>`, []byte("as it came"))
	db.exec(t, on(table, theirSend), "22222222-2222-4222-8222-222222222222", nil, theirHeaders, nil)
	r := openReceiver(t, db.open(t, sqlserver.Config{NServiceBusTables: true}), "orders", core.TransactionReceiveOnly)
	bad := receive(t, r)
	if in := bad.Incoming(); in.Malformed == nil || string(in.Body) != "as it came" {
		t.Errorf("received %+v", in)
	}
	good := receive(t, r)
	if in := good.Incoming(); in.Malformed != nil || in.ID != theirMessageID {
		t.Errorf("received %+v", in)
	}
	complete(t, bad)
	complete(t, good)
}

// TestNServiceBus_ReadsSentMessages holds what this transport writes against the
// statement with which their endpoints read, on tables of both makers.
func TestNServiceBus_ReadsSentMessages(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	theirs, ours := db.theirTable(t, "theirs"), db.table("ours")
	provision(t, db.open(t, sqlserver.Config{}), "ours")
	for queue, table := range map[string]string{"theirs": theirs, "ours": ours} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			transport := db.open(t, sqlserver.Config{})
			headers := map[string]string{
				headers.MessageID: "1", headers.ContentType: "application/json", "empty": "",
				"any": "\x00\t\"\\/ \u00e4 \U0001F600", "\u00fc": "\ufffe",
			}
			message := func(ttl time.Duration, body []byte) core.Outgoing {
				return core.Outgoing{ID: "1", Queue: queue, Headers: core.HeadersFromMap(headers), Body: body, TimeToBeReceived: ttl}
			}
			send(t, transport, message(0, []byte("a\x00\xff")))                                // one
			send(t, transport, message(0, nil), message(0, []byte{}), message(0, []byte("d"))) // many
			send(t, transport, message(time.Microsecond, []byte("late")))                      // one that expires
			send(t, transport, message(time.Hour, []byte("f")), message(time.Nanosecond, nil)) // many of which one does
			tx, err := db.pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			send(t, &inTransaction{transport, tx}, message(0, []byte("h")))
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := db.column(t, on(table, theirPeek)); n[0] != "8" {
				t.Errorf("they see %s messages, want 8", n[0])
			}
			for i, want := range []struct {
				body    string
				expired int
			}{{"a\x00\xff", 0}, {"", 0}, {"", 0}, {"d", 0}, {"late", 1}, {"f", 0}, {"", 1}, {"h", 0}} {
				row, ok := db.receiveAsThey(t, table)
				if !ok {
					t.Fatalf("they receive only %d messages", i)
				}
				if string(row.body) != want.body || row.body == nil || row.expired != want.expired {
					t.Errorf("message %d: they read the body %q, expired %d; want %q, %d", i, row.body, row.expired, want.body, want.expired)
				}
				if !maps.Equal(row.headers, inColumn(t, headers)) {
					t.Errorf("message %d: they read the headers %q", i, row.headers)
				}
			}
			if row, ok := db.receiveAsThey(t, table); ok {
				t.Errorf("they receive one more: %+v", row)
			}
		})
	}
}

// inTransaction sends in a transaction of the test's.
type inTransaction struct {
	*sqlserver.Transport
	tx pgx.Tx
}

func (t *inTransaction) Send(ctx context.Context, msgs ...core.Outgoing) error {
	return t.Transport.Send(sqlserver.WithTx(ctx, t.tx), msgs...)
}

func TestNServiceBus_ExpiresIsUTC(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	table := db.theirTable(t, "orders")
	for _, zone := range []string{"UTC", "Asia/Tokyo", "America/St_Johns"} {
		transport := db.open(t, sqlserver.Config{URL: withOptions(t, db.url, "timezone", zone)})
		for _, msgs := range [][]core.Outgoing{make([]core.Outgoing, 1), make([]core.Outgoing, 2)} {
			for i := range msgs {
				msgs[i] = letter("1", "orders")
				msgs[i].TimeToBeReceived = time.Hour
			}
			send(t, transport, msgs...)
		}
	}
	off := db.column(t, `select expires::text from `+table+`
		where expires not between (now() at time zone 'UTC') + '59 minutes' and (now() at time zone 'UTC') + '61 minutes'`)
	if len(off) > 0 {
		t.Errorf("expires in an hour, and says %s", off)
	}
	if n := db.count(t, table); n != "9" {
		t.Errorf("%s messages, want 9", n)
	}
}

// TestNServiceBus_MessagesInATableOfReprise: what they write on a table that
// Provision made has everything that a receiver needs, at once.
func TestNServiceBus_MessagesInATableOfReprise(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	for _, mode := range allModes {
		queue := "Sales." + mode.String()
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			transport := db.open(t, sqlserver.Config{})
			provision(t, transport, queue)
			r := openReceiver(t, transport, queue, mode)
			receiveNothing(t, r, 100*time.Millisecond)
			table := db.table(queue)
			statements := map[string]func(id string){
				"send":      func(id string) { db.exec(t, on(table, theirSend), id, nil, theirHeaders, []byte("b")) },
				"send once": func(id string) { db.exec(t, on(table, theirSend), id, 60_000, theirHeaders, []byte("b")) },
				"move":      func(id string) { db.exec(t, on(table, theirMove), id, theirHeaders, []byte("b")) },
			}
			for _, name := range slices.Sorted(maps.Keys(statements)) {
				id := "33333333-3333-4333-8333-33333333333" + string(rune('0'+len(name)))
				before := time.Now()
				statements[name](id)
				d := receive(t, r) // no notification wakes the receiver, it polls
				in := d.Incoming()
				if in.ID != theirMessageID || in.NativeID != id || in.DeliveryCount != 1 || string(in.Body) != "b" {
					t.Errorf("%s: received %+v", name, in)
				}
				if in.EnqueuedAt.Before(before.Truncate(time.Microsecond)) || in.EnqueuedAt.After(time.Now()) {
					t.Errorf("%s: EnqueuedAt is %v, before %v, when it was not yet sent, or in the future", name, in.EnqueuedAt, before)
				}
				complete(t, d)
			}
			db.exec(t, on(table, theirSend), "44444444-4444-4444-8444-444444444444", 0, theirHeaders, nil)
			db.exec(t, on(table, theirSend), "55555555-5555-4555-8555-555555555555", nil, theirHeaders, nil)
			d := receive(t, r)
			if id := d.Incoming().NativeID; id != "55555555-5555-4555-8555-555555555555" {
				t.Errorf("received %s, which has expired", id)
			}
			complete(t, d)
		})
	}
}

func TestNServiceBus_ReceiveDependsOnTheMaker(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	db.theirTable(t, "theirs")
	plain, foreign := db.open(t, sqlserver.Config{}), db.open(t, sqlserver.Config{NServiceBusTables: true})
	provision(t, plain, "ours")
	for _, c := range []struct {
		transport *sqlserver.Transport
		queue     string
		want      string // in the error, or "" for none
	}{
		{plain, "ours", ""},
		{foreign, "theirs", ""},
		{plain, "theirs", "Config.NServiceBusTables"},
		{foreign, "ours", "without Config.NServiceBusTables"},
	} {
		_, err := c.transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: c.queue, Mode: core.TransactionReceiveOnly, MaxInFlight: 1})
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("OpenReceiver(%s) with %v = %v, want %q", c.queue, c.transport, err, c.want)
		}
		if err := c.transport.Check(t.Context(), core.Topology{InputQueue: c.queue, Queues: []string{c.queue}}); err != nil {
			t.Errorf("Check(%s) = %v: either may be sent to", c.queue, err)
		}
	}
}

// TestNServiceBus_TypesOfColumns: a table's types may differ from those that their
// newest version makes, as long as nothing goes wrong.
func TestNServiceBus_TypesOfColumns(t *testing.T) {
	t.Parallel()
	db := newSchema(t)
	transport := db.open(t, sqlserver.Config{NServiceBusTables: true})
	for i, c := range []struct {
		columns string
		wrong   [2]string // both types, where it cannot be used
	}{
		{columns: `id uuid primary key, expires timestamp, headers text not null, body bytea, seq bigserial unique`},
		{columns: `id uuid primary key, expires timestamp, headers text, body bytea, seq bigint generated by default as identity`},
		{columns: `seq serial, body bytea, headers text not null, expires timestamp, id uuid, correlationid varchar(255), replytoaddress varchar(255)`},
		{columns: `id uuid, expires timestamptz, headers text, body bytea, seq serial`, wrong: [2]string{"timestamp with time zone", "timestamp without time zone"}},
		{columns: `id uuid, expires timestamp, headers jsonb, body bytea, seq serial`, wrong: [2]string{"jsonb", "text"}},
		{columns: `id text, expires timestamp, headers text, body bytea, seq serial`, wrong: [2]string{"text", "uuid"}},
		{columns: `id uuid, expires timestamp, headers text, body text, seq serial`, wrong: [2]string{"text", "bytea"}},
		{columns: `id uuid, expires timestamp, headers text, body bytea, seq double precision`, wrong: [2]string{"double precision", "bigint"}},
	} {
		queue := "types-" + string(rune('a'+i))
		table := db.table(queue)
		db.exec(t, `create table `+table+` (`+c.columns+`)`)
		err := transport.Check(t.Context(), core.Topology{InputQueue: queue, Queues: []string{queue}})
		if c.wrong != [2]string{} {
			if err == nil || !strings.Contains(err.Error(), c.wrong[0]) || !strings.Contains(err.Error(), c.wrong[1]) || !strings.Contains(err.Error(), queue) {
				t.Errorf("Check of a table of (%s) = %v, want it to name %q", c.columns, err, c.wrong)
			}
			continue
		}
		if err != nil {
			t.Errorf("Check of a table of (%s) = %v", c.columns, err)
			continue
		}
		expires := letter("2", queue)
		expires.TimeToBeReceived = time.Hour
		send(t, transport, letter("1", queue), expires)
		for _, mode := range allModes {
			send(t, transport, letter("3", queue))
			r := openReceiver(t, transport, queue, mode)
			d := receive(t, r)
			if d.Incoming().DeliveryCount != 1 {
				t.Errorf("(%s), %v: received %+v", c.columns, mode, d.Incoming())
			}
			complete(t, d)
			if err := r.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := db.count(t, table); n != "2" {
			t.Errorf("(%s): %s rows are left, want 2", c.columns, n)
		}
	}
}
