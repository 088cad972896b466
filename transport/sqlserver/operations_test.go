package sqlserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// Statements of operators about queues and their messages.
var operationsOnMessages = operations{
	"oldest": func(t *testing.T, o *operator) {
		if row := o.one(t, "oldest"); row["oldest"] != nil {
			t.Errorf("in an empty queue: %v", row)
		}
		send(t, o.transport, invoice("1"), invoice("2"), delayed("3", "billing", time.Hour))
		o.exec(t, `update billing set due = due - interval '2 hours' where headers like '%"1"%'`)
		var oldest string
		if err := o.pool.QueryRow(t.Context(), `select date_trunc('minute', oldest)::text from (`+strings.TrimSuffix(strings.TrimSpace(o.block("oldest")), ";")+`) as q`).Scan(&oldest); err != nil {
			t.Fatal(err)
		}
		if oldest != "02:00:00" {
			t.Errorf("the oldest message is %s old, want two hours", oldest)
		}
	},

	"depth": func(t *testing.T, o *operator) {
		short := invoice("short")
		short.TimeToBeReceived = time.Millisecond
		send(t, o.transport, invoice("1"), invoice("2"), invoice("3"), short, delayed("4", "billing", time.Hour))
		receive(t, openReceiver(t, o.transport, "billing", core.TransactionReceiveOnly))
		await(t, "one message has expired", func() bool {
			row := o.one(t, "depth")
			return fmt.Sprint(row["expired"]) == "1"
		})
		o.wantRow(t, o.one(t, "depth"), map[string]string{"waiting": "3", "leased": "1", "delayed": "1", "most_deliveries": "1"})
	},

	"queues": func(t *testing.T, o *operator) {
		var names []string
		for _, row := range o.sql(t, "queues", "relid::regclass as queue", "relid::regclass::text as queue") {
			names = append(names, fmt.Sprint(row["queue"]))
		}
		slices.Sort(names)
		if want := []string{"billing", "error", "shop"}; !slices.Equal(names, want) {
			t.Errorf("the queues are %q, want %q", names, want)
		}
	},

	"leased, release": func(t *testing.T, o *operator) {
		send(t, o.transport, invoice("the first"))
		r := openReceiver(t, o.transport, "billing", core.TransactionReceiveOnly)
		d := receive(t, r)
		o.wantRow(t, o.one(t, "leased"), map[string]string{"message_id": "the first", "type": invoiceType, "deliveries": "1"})
		o.sql(t, "release", o.seq(t, "billing")...)
		redelivered := receive(t, r)
		if redelivered.Incoming().ID != "the first" || redelivered.Incoming().DeliveryCount != 2 {
			t.Errorf("the redelivered message is %+v", redelivered.Incoming())
		}
		if err := d.Complete(t.Context()); !errors.Is(err, core.ErrLockLost) {
			t.Errorf("who had the message completes it: %v, want %v", err, core.ErrLockLost)
		}
		complete(t, redelivered)
	},

	"transactions, terminate": func(t *testing.T, o *operator) {
		transport := open(t, sqlserver.Config{URL: withOptions(t, o.url, "application_name", "billing-1")})
		send(t, o.transport, invoice("1"))
		held := receive(t, openReceiver(t, transport, "billing", core.TransactionSendsAtomicWithReceive))
		if _, err := sqlserver.Tx(held.BindContext(t.Context())); err != nil {
			t.Fatal(err)
		}
		var row map[string]any
		await(t, "the transaction is to be seen", func() bool { // and perhaps one that forwards delayed messages
			rows := o.sql(t, "transactions")
			i := slices.IndexFunc(rows, func(row map[string]any) bool { return row["application_name"] == "billing-1" })
			if i >= 0 {
				row = rows[i]
			}
			return i >= 0
		})
		o.wantRow(t, row, map[string]string{"application_name": "billing-1", "state": "idle in transaction"})
		o.one(t, "terminate", "4711", fmt.Sprint(row["pid"]))
		if err := held.Complete(t.Context()); err == nil {
			t.Error("the handler's work is committed")
		}
		if err := held.Abandon(t.Context(), nil); err != nil {
			t.Error(err)
		}
		d := receive(t, openReceiver(t, o.transport, "billing", core.TransactionSendsAtomicWithReceive))
		if d.Incoming().ID != "1" || d.Incoming().DeliveryCount != 2 {
			t.Errorf("the redelivered message is %+v", d.Incoming())
		}
		complete(t, d)
	},

	"failed, failed-one, retry, forget": func(t *testing.T, o *operator) {
		var all strings.Builder
		for r := range rune(0x100) {
			all.WriteRune(r)
		}
		all.WriteString("\u2028\uFEFF\uFFFD\uFFFE\uFFFF\U0010FFFF")
		mended := make(chan struct{})
		handled := make(chan int, 4)
		o.billing(t, core.TransactionSendsAtomicWithReceive, func(_ context.Context, m *core.Message, _ WriteInvoice) error {
			select {
			case <-mended:
				if m.ID == "2" && (m.Headers.Get("text") != all.String() || m.Headers.Get("any "+all.String()) != all.String()) {
					t.Errorf("the headers are %q", m.Headers.Map())
				}
				handled <- m.Attempt
				return nil
			default:
				return fmt.Errorf("tax office: no answer %s\x00", m.ID) // one cause
			}
		})
		odd := invoice("2")
		odd.Headers.Set("any "+all.String(), all.String())
		odd.Headers.Set("text", all.String())
		odd.GroupKey, odd.Properties = all.String(), map[string]string{all.String(): all.String()}
		send(t, o.transport, invoice("1"), odd)
		await(t, "both are in the error queue", func() bool { return o.count(t, "error") == "2" })
		failed := o.one(t, "failed")
		o.wantRow(t, failed, map[string]string{
			"failed_in": `"public"."billing"`, "error": "tax office: no answer 1\uFFFD", "error_type": "*errors.errorString", "count": "2",
			"cause": o.column(t, `select min(headers::json ->> 'Reprise.Cause') from error`)[0],
		})
		headers := map[any]any{}
		for _, row := range o.sql(t, "failed-one", "seq = 42", "seq = (select min(seq) from error)") {
			headers[row["key"]] = row["value"]
		}
		if headers["NServiceBus.EnclosedMessageTypes"] != invoiceType || headers["body"] != `{"OrderID":42}` {
			t.Errorf("the failed message is %v", headers)
		}
		close(mended)
		o.sql(t, "retry") // of another cause
		o.wantCounts(t, map[string]string{"error": "2"})
		o.sql(t, "retry", "1:9f3c21ab77e0", fmt.Sprint(failed["cause"]))
		for range 2 {
			if attempt := next(t, "a message that was returned is handled", handled); attempt != 1 {
				t.Errorf("it is attempt %d, want 1", attempt)
			}
		}
		await(t, "the queue is empty", func() bool { return o.count(t, "billing") == "0" })
		o.wantCounts(t, map[string]string{"error": "0"})

		send(t, o.transport, letter("old", "error"), letter("new", "error"))
		o.exec(t, `update error set due = due - interval '91 days' where headers like '%"old"%'`)
		o.sql(t, "forget")
		o.wantCounts(t, map[string]string{"error": "1"})
	},

	"delayed, hasten, cancel": func(t *testing.T, o *operator) {
		retried := delayed("1", "billing", time.Hour)
		retried.Headers.Set(headers.Retries, "2")
		send(t, o.transport, retried)
		o.wantRow(t, o.one(t, "delayed"), map[string]string{"message_id": "1", "delayed_retries": "2"})
		r := openReceiver(t, o.transport, "billing", core.TransactionReceiveOnly)
		o.sql(t, "hasten", o.seq(t, "billing")...)
		complete(t, receive(t, r))
		send(t, o.transport, delayed("2", "billing", time.Hour))
		o.sql(t, "cancel", o.seq(t, "billing")...)
		o.wantCounts(t, map[string]string{"billing": "0"})
	},

	"waiting": func(t *testing.T, o *operator) {
		send(t, o.transport, invoice("1"), delayed("2", "billing", time.Hour), delayed("3", "billing", time.Hour))
		o.wantRow(t, o.one(t, "waiting"), map[string]string{"count": "2"})
	},

	"forwarding": func(t *testing.T, o *operator) {
		theirs := o.theirTable(t, "theirs")
		openReceiver(t, o.transport, "billing", core.TransactionReceiveOnly) // only then tries count
		send(t, o.transport, delayed("1", "theirs", time.Hour))
		o.exec(t, `drop table `+theirs)
		o.forwardNow(t, o.transport)
		await(t, "the message cannot be forwarded", func() bool {
			row := o.one(t, "forwarding")
			return fmt.Sprint(row["attempts"]) != "0"
		})
		row := o.one(t, "forwarding")
		o.wantRow(t, row, map[string]string{"destination": theirs})
		if text := fmt.Sprint(row["last_error"]); !strings.Contains(text, "does not exist") {
			t.Errorf("the last error is %q", text)
		}
	},

	"send": func(t *testing.T, o *operator) {
		o.sql(t, "send")
		ids := o.column(t, `select id::text from billing`)
		r := openReceiver(t, o.transport, "billing", core.TransactionReceiveOnly)
		d := receive(t, r)
		if len(ids) != 1 || d.Incoming().ID != ids[0] {
			t.Errorf("the message id is %q, want that of the row, %q", d.Incoming().ID, ids)
		}
		if err := errors.Join(d.Release(t.Context()), r.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
		got := make(chan int, 1)
		o.billing(t, core.TransactionReceiveOnly, func(_ context.Context, _ *core.Message, body WriteInvoice) error {
			got <- body.OrderID
			return nil
		})
		if order := next(t, "the message is handled", got); order != 42 {
			t.Errorf("the order is %d, want 42", order)
		}
	},

	"move": func(t *testing.T, o *operator) {
		deadly := invoice("deadly")
		deadly.Headers.Set("text", "\x00")
		send(t, o.transport, deadly)
		o.sql(t, "move", o.seq(t, "billing")...)
		o.wantCounts(t, map[string]string{"billing": "0", "error": "1"})
		row := o.one(t, "failed")
		o.wantRow(t, row, map[string]string{"failed_in": `"public"."billing"`, "cause": "<nil>", "error": "moved by hand"})
		o.sql(t, "retry", `"Reprise.Cause": "1:9f3c21ab77e0"`, `"NServiceBus.ExceptionInfo.Message": "moved by hand"`)
		d := receive(t, openReceiver(t, o.transport, "billing", core.TransactionReceiveOnly))
		if in := d.Incoming(); in.ID != "deadly" || !json.Valid(in.Body) || in.Headers.Get("text") != "\x00" {
			t.Errorf("the returned message is %+v", in)
		}
	},

	"purge": func(t *testing.T, o *operator) {
		leases, holds := openReceiver(t, o.transport, "billing", core.TransactionReceiveOnly), openReceiver(t, o.transport, "billing", core.TransactionSendsAtomicWithReceive)
		send(t, o.transport, invoice("1"), invoice("2"), invoice("3"), delayed("4", "billing", time.Hour))
		leased, held := receive(t, leases), receive(t, holds)
		o.sql(t, "purge")
		o.wantCounts(t, map[string]string{"billing": "2"})
		complete(t, leased)
		complete(t, held)
		o.wantCounts(t, map[string]string{"billing": "0"})
	},

	"subscriptions, unsubscribe, remove-subscriptions, remove": func(t *testing.T, o *operator) {
		transport := open(t, sqlserver.Config{URL: o.url, SubscriptionCache: -1})
		if err := transport.Subscribe(t.Context(), "billing", "orders.Placed", "orders.Paid"); err != nil {
			t.Fatal(err)
		}
		published := func(topic, want string) {
			t.Helper()
			if err := transport.Send(t.Context(), core.Outgoing{ID: "1", Topic: topic}); err != nil {
				t.Fatal(err)
			}
			o.wantCounts(t, map[string]string{"billing": want})
		}
		published("orders.Placed", "1")
		rows := o.sql(t, "subscriptions")
		if len(rows) != 2 {
			t.Fatalf("the subscriptions are %v", rows)
		}
		o.wantRow(t, rows[1], map[string]string{"topic": "orders.Placed", "endpoint": "billing", "queueaddress": `"public"."billing"`})
		o.sql(t, "unsubscribe")
		published("orders.Placed", "1")
		published("orders.Paid", "2")
		o.sql(t, "remove-subscriptions")
		published("orders.Paid", "2")
		o.sql(t, "remove")
		if err := transport.Send(t.Context(), core.Outgoing{ID: "1", Topic: "orders.Paid"}); err != nil {
			t.Errorf("to publish without subscribers: %v", err)
		}
		if err := transport.Send(t.Context(), invoice("1")); !errors.Is(err, core.ErrQueueNotFound) {
			t.Errorf("to send to a queue that was removed: %v, want %v", err, core.ErrQueueNotFound)
		}
	},
}
