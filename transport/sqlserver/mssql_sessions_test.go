//go:build mssql

package sqlserver_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// TestMSSQL_EverySessionSetting: what a login, a URL or another user of the pool may
// set must not change what is sent, when it comes, or when it expires.
func TestMSSQL_EverySessionSetting(t *testing.T) {
	t.Parallel()
	for name, begins := range map[string]string{
		"as it comes":     ``,
		"German":          `set language German`,
		"British":         `set language British; set dateformat ydm; set datefirst 3`,
		"counts nothing":  `set nocount on; set xact_abort on`,
		"serializable":    `set transaction isolation level serializable`,
		"reads anything":  `set transaction isolation level read uncommitted`,
		"repeatable read": `set transaction isolation level repeatable read`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newMSSQL(t)
			cfg := sqlserver.Config{SubscriptionCache: -1}
			if begins != "" {
				cfg.DB = d.session(t, begins)
			}
			transport := d.open(t, cfg)
			provision(t, transport, "q")
			cfg.NServiceBusTables = true
			foreign := d.open(t, cfg)
			provision(t, foreign, "theirs")
			for _, mode := range allModes {
				converseWith(t, transport, "q", mode)
			}
			converseWith(t, foreign, "theirs", core.TransactionReceiveOnly)
		})
	}
}

// TestMSSQL_EveryURLSetting: the same through options of the client library.
func TestMSSQL_EveryURLSetting(t *testing.T) {
	t.Parallel()
	for name, options := range map[string][]string{
		"a time zone":   {"timezone", "Asia/Kathmandu"},
		"small packets": {"packet size", "512"},
		"a name":        {"app name", "it's \"so\" \u00e4"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newMSSQL(t)
			transport := d.open(t, sqlserver.Config{URL: withOptions(t, d.url, options...), SubscriptionCache: -1})
			provision(t, transport, "q")
			for _, mode := range allModes {
				converseWith(t, transport, "q", mode)
			}
		})
	}
}

// TestMSSQL_ExpiryIsKeptThroughARetry: in SendsAtomicWithReceive the row is another
// one afterwards, in ReceiveOnly the same.
func TestMSSQL_ExpiryIsKeptThroughARetry(t *testing.T) {
	t.Parallel()
	for _, mode := range []core.TransactionMode{core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			d := newMSSQL(t)
			transport := d.open(t, sqlserver.Config{DB: d.session(t, `set language German`)})
			provision(t, transport, "orders")
			out := letter("1", "orders")
			out.TimeToBeReceived = 45 * 24 * time.Hour // so that day and month would be taken for each other
			send(t, transport, out)
			row := func() string {
				return d.column(t, `select concat(Id, ' ', convert(varchar(30), Expires, 126), ' ', convert(varchar(40), Due, 126), ' ', Headers, ' ', convert(varchar(max), Body, 2)) from `+d.table("orders"))[0]
			}
			before := row()
			r := openReceiver(t, transport, "orders", mode)
			if err := receive(t, r).Abandon(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if after := row(); after != before {
				t.Errorf("the row was %s and is %s", before, after)
			}
		})
	}
}

// TestMSSQL_LockedRowBlocksNoOther: a message whose row another session has
// locked waits alone.
func TestMSSQL_LockedRowBlocksNoOther(t *testing.T) {
	t.Parallel()
	d := newMSSQL(t)
	transport := d.open(t, sqlserver.Config{Lease: time.Minute})
	provision(t, transport, "orders")
	const messages = 8
	for i := range messages {
		send(t, transport, letter(fmt.Sprint(i), "orders"))
	}
	r := openReceiver(t, transport, "orders", core.TransactionReceiveOnly)
	var all []core.Delivery
	for range messages {
		all = append(all, receive(t, r))
	}
	locked, others, kept := all[0], all[1:messages-1], all[messages-1]
	waiting, unlock := d.lockRow(t, "orders", locked)
	outcome := make(chan error, 1)
	go func() { outcome <- locked.Complete(t.Context()) }()
	await(t, "the settlement waits for the lock", waiting)
	if err := kept.Renew(t.Context()); err != nil {
		t.Errorf("a renewal returns %v", err)
	}
	settled := make(chan error, len(others))
	for _, other := range others {
		go func() { settled <- other.Complete(t.Context()) }()
	}
	for range others {
		if err := next(t, "a message is settled", settled); err != nil {
			t.Errorf("another message's settlement returns %v", err)
		}
	}
	select {
	case err := <-outcome:
		t.Errorf("the locked message's settlement returns %v before the lock is gone", err)
	default:
	}
	unlock()
	if err := next(t, "the message is settled", outcome); err != nil {
		t.Errorf("its settlement returns %v", err)
	}
	complete(t, kept)
}

// TestMSSQL_LockedRowIsSkipped: a message that another session has locked is not
// received, and those behind it are.
func TestMSSQL_LockedRowIsSkipped(t *testing.T) {
	t.Parallel()
	for _, mode := range allModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			d := newMSSQL(t)
			transport := d.open(t, sqlserver.Config{})
			provision(t, transport, "orders")
			send(t, transport, letter("1", "orders"))
			_, unlock := d.lock(t, `select count(*) from `+d.table("orders")+` with (xlock, rowlock, holdlock)`)
			r := openReceiver(t, transport, "orders", mode)
			send(t, transport, letter("2", "orders"))
			second := receive(t, r)
			if id := second.Incoming().ID; id != "2" {
				t.Errorf("received %s, which is locked", id)
			}
			unlock()
			first := receive(t, r)
			if id := first.Incoming().ID; id != "1" {
				t.Errorf("received %s, want the other one", id)
			}
			complete(t, first)
			complete(t, second)
		})
	}
}

// TestMSSQL_ExpiredMessagesBlockNoReceiver: a receiver that passes over a backlog of expired
// messages hears that the call has ended, and takes it for no outage.
func TestMSSQL_ExpiredMessagesBlockNoReceiver(t *testing.T) {
	t.Parallel()
	for _, mode := range allModes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			d := newMSSQL(t)
			transport := d.open(t, sqlserver.Config{})
			provision(t, transport, "orders")
			const expired = 20_000
			d.exec(t, `insert into `+d.table("orders")+` (Id, Recoverable, Headers, Expires)
select top (@p1) newid(), 1, N'{}', dateadd(hour, -1, getutcdate()) from sys.all_columns as a cross join sys.all_columns as b`, expired)
			told := &outageLog{}
			r, err := transport.OpenReceiver(t.Context(), core.ReceiverConfig{Queue: "orders", Mode: mode, MaxInFlight: 1, ConnectionChanged: told.ConnectionChanged})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = r.Close(context.Background()) })
			ctx, cancel := context.WithCancel(t.Context())
			received := make(chan error, 1)
			go func() {
				var none [1]core.Delivery
				_, err := r.Receive(ctx, none[:])
				received <- err
			}()
			left := func() int {
				return d.number(t, `select count(*) from `+d.table("orders")+` with (readpast)`)
			}
			await(t, "the first expired messages leave", func() bool { return left() < expired })
			cancel()
			if err := next(t, "Receive returns", received); !errors.Is(err, context.Canceled) {
				t.Errorf("Receive returns %v", err)
			}
			if all := told.all(); len(all) > 0 {
				t.Errorf("there was no outage, but %v was told", all)
			}
		})
	}
}
