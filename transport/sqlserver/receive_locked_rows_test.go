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

// lockRow locks the row of a message, as somebody might who looks at it. It returns
// what ends that.
func lockRow(t *testing.T, db *testDatabase, queue string, d core.Delivery) (unlock func()) {
	t.Helper()
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	tag, err := tx.Exec(t.Context(), `select from `+db.table(queue)+` where id = $1::text::uuid for update`, d.Incoming().NativeID)
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("lock the row: %v, %v", tag, err)
	}
	return func() {
		t.Helper()
		if err := tx.Rollback(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitBlocked waits until a statement waits for a lock of another transaction's.
func awaitBlocked(t *testing.T, db *testDatabase) {
	t.Helper()
	await(t, "a statement waits for a lock", func() bool {
		return db.column(t, `select count(*)::text from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`)[0] != "0"
	})
}

// A message whose row another session has locked waits alone: the others are settled
// and renewed at the same time, also those of the same statement.
func TestReceive_LockedRowBlocksNoOther(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	db := newDatabase(t)
	transport := db.open(t, sqlserver.Config{Lease: time.Minute}) // a quarter of which one attempt may take
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
	unlock := lockRow(t, db, "orders", locked)

	outcome := make(chan error, 1)
	go func() { outcome <- locked.Complete(t.Context()) }()
	awaitBlocked(t, db)
	if err := kept.Renew(t.Context()); err != nil {
		t.Errorf("a renewal returns %v", err)
	}
	settled := make(chan error, len(others))
	for _, d := range others {
		go func() { settled <- d.Complete(t.Context()) }()
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

// A settlement in progress is carried out when its receiver is closed.
func TestClose_WaitsForASettlementInProgress(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	transport := db.open(t, sqlserver.Config{})
	provision(t, transport, "orders")
	send(t, transport, letter("1", "orders"))
	r := openReceiver(t, transport, "orders", core.TransactionReceiveOnly)
	d := receive(t, r)
	unlock := lockRow(t, db, "orders", d)
	outcome, closed := make(chan error, 1), make(chan error, 1)
	go func() { outcome <- d.Complete(t.Context()) }()
	awaitBlocked(t, db)
	go func() { closed <- r.Close(context.WithoutCancel(t.Context())) }()
	var none [1]core.Delivery
	if _, err := r.Receive(t.Context(), none[:]); !errors.Is(err, core.ErrClosed) {
		t.Fatalf("Receive returns %v", err)
	}
	unlock()
	if err := next(t, "the message is settled", outcome); err != nil {
		t.Errorf("the settlement returns %v", err)
	}
	if err := next(t, "the receiver is closed", closed); err != nil {
		t.Errorf("Close returns %v", err)
	}
	if left := db.count(t, db.table("orders")); left != "0" {
		t.Errorf("%s messages are left", left)
	}
}

// A receiver that passes over a backlog of expired messages learns that its caller no
// longer waits, which is no outage.
func TestReceive_ExpiredMessagesBlockNoReceiver(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, mode := range []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			transport := db.open(t, sqlserver.Config{})
			provision(t, transport, "orders")
			const expired = 20_000
			db.exec(t, `insert into `+db.table("orders")+` (id, headers, expires)
				select gen_random_uuid(), '{}', (now() - interval '1 hour') at time zone 'utc' from generate_series(1, $1::int)`, expired)
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
			await(t, "the first are passed over", func() bool { return db.count(t, db.table("orders")) != fmt.Sprint(expired) })
			cancel()
			if err := next(t, "Receive returns", received); !errors.Is(err, context.Canceled) {
				t.Errorf("Receive returns %v", err)
			}
			if left := db.count(t, db.table("orders")); left == "0" && mode == core.TransactionSendsAtomicWithReceive {
				t.Error("Receive did not return before it had passed over all expired messages")
			}
			if all := told.all(); len(all) > 0 {
				t.Errorf("there was no outage, but %v was told", all)
			}
		})
	}
}
