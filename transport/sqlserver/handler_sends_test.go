package sqlserver_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/core/headers"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// TestHandler_SendsInItsOwnTransaction: messages that a handler sends in a transaction
// that it began are sent by its commit, also if the message's transaction fails.
func TestHandler_SendsInItsOwnTransaction(t *testing.T) {
	t.Parallel()
	for _, mode := range []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			e := newBusiness(t, brokerOn(t, server), mode)
			e.config.Recoverability.Immediate = core.Immediate{NumberOfRetries: core.Off}
			e.config.Concurrency = 1 // each handler takes two connections of the application's
			errAfterwards := errors.New("the handler fails after it has sent")
			e.handle = func(ctx context.Context, m *core.Message, body []byte) error {
				tx, err := e.app.Begin(ctx)
				if err != nil {
					return err
				}
				defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
				if _, err := tx.Exec(ctx, `insert into written values ($1, $2)`, string(body), m.Attempt); err != nil {
					return err
				}
				if err := m.SendNow(sqlserver.WithTx(ctx, tx), outputQueue, sendType.Of(body)); err != nil {
					return err
				}
				if n := e.number(`select count(*) from ` + outputQueue + ` where convert_from(body, 'UTF8') = '` + string(body) + `'`); n != 0 {
					t.Errorf("message %s is there before the transaction in which it was sent is committed", body)
				}
				commit := string(body) == "committed, and handled" || string(body) == "committed, and failed"
				if commit {
					if err := tx.Commit(ctx); err != nil {
						return err
					}
				}
				if string(body) == "committed, and failed" || string(body) == "rolled back, and failed" {
					return errAfterwards
				}
				return nil
			}
			e.run()
			sender := open(t, sqlserver.Config{URL: e.broker.server.PasswordURL(e.broker.database)})
			for _, body := range []string{"committed, and handled", "committed, and failed", "rolled back, and handled", "rolled back, and failed"} {
				m := letter(body, inputQueue)
				m.Headers.Set(headers.MessageTypes, "orders.Place")
				m.Headers.Set(headers.ContentType, "application/octet-stream")
				m.Body = []byte(body)
				send(t, sender, m)
			}
			e.awaitDone()
			await(t, "both failed messages are in the error queue", func() bool { return e.number(`select count(*) from `+errorQueue) == 2 })
			want := map[string]int{"committed, and handled": 1, "committed, and failed": 1}
			for name, got := range map[string]map[string]int{
				"written": e.keys(`select key from written`),
				"sent":    e.keys(`select convert_from(body, 'UTF8') from ` + outputQueue),
			} {
				if !maps.Equal(got, want) {
					t.Errorf("%s are %v, want those of the transactions that were committed: %v", name, got, want)
				}
			}
			e.checkNoOutage()
		})
	}
}

// TestHandler_ErrorQueueInAnotherSchema: failed messages arrive there, and an operator who works
// in that schema can send them back by the address in their header.
func TestHandler_ErrorQueueInAnotherSchema(t *testing.T) {
	t.Parallel()
	for _, mode := range []core.TransactionMode{core.TransactionNone, core.TransactionReceiveOnly, core.TransactionSendsAtomicWithReceive} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			here, there := newSchema(t), newSchema(t)
			transport, operator := here.open(t, sqlserver.Config{}), there.open(t, sqlserver.Config{})
			provision(t, there.open(t, sqlserver.Config{}), "failed")
			provision(t, transport, "orders", "failed") // another queue, of the same name
			bodies := make(chan string, 10)
			mended := false // read and written by one handler at a time
			ep, err := core.New("orders", transport, core.Config{
				Transactions: mode, Concurrency: 1, Provision: core.ProvisionNever, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
				Recoverability: core.Recoverability{ErrorQueue: there.table("failed"), Immediate: core.Immediate{NumberOfRetries: core.Off}, Delayed: core.Delayed{NumberOfRetries: core.Off}},
			})
			if err != nil {
				t.Fatal(err)
			}
			core.Handle(ep, placeType, func(_ context.Context, _ *core.Message, body []byte) error {
				bodies <- string(body)
				if !mended {
					mended = true
					return errors.New("it fails once")
				}
				return nil
			})
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- ep.Run(ctx) }()
			defer func() {
				stop()
				if err := next(t, "the endpoint ends", done); err != nil {
					t.Errorf("the endpoint ended with %v", err)
				}
			}()
			m := letter("1", "orders")
			m.Headers.Set(headers.MessageTypes, "orders.Place")
			m.Headers.Set(headers.ContentType, "application/octet-stream")
			send(t, transport, m)
			next(t, "the message is handled", bodies)

			failed := receive(t, openReceiver(t, operator, "failed", core.TransactionNone)).Incoming()
			if got, want := failed.Headers.Get(headers.FailedQ), here.table("orders"); got != want {
				t.Errorf("the header %s is %s, want the address of the input queue, %s", headers.FailedQ, got, want)
			}
			if n := here.count(t, here.table("failed")); n != "0" {
				t.Errorf("%s messages are in the queue of the same name in the endpoint's own schema, want none", n)
			}
			send(t, operator, core.Outgoing{ID: failed.ID, Queue: failed.Headers.Get(headers.FailedQ), Headers: failed.Headers, Body: failed.Body})
			if got := next(t, "the message that was sent back is handled", bodies); got != string(m.Body) {
				t.Errorf("the message that was sent back has the body %q, want %q", got, m.Body)
			}
			await(t, "the message is consumed", func() bool { return here.count(t, here.table("orders")) == "0" })
			if n := there.count(t, there.table("failed")); n != "0" {
				t.Errorf("%s messages are left in the error queue, want none", n)
			}
		})
	}
}

// TestPublish_CancelledLookupIsNotRemembered, neither as an error nor as a topic
// without subscribers.
func TestPublish_CancelledLookupIsNotRemembered(t *testing.T) {
	t.Parallel()
	db := newDatabase(t) // for awaitBlocked
	transport := db.open(t, sqlserver.Config{SubscriptionCache: time.Hour})
	elsewhere := db.open(t, sqlserver.Config{})
	provision(t, elsewhere, "orders")
	if err := elsewhere.Subscribe(t.Context(), "orders", "topic"); err != nil {
		t.Fatal(err)
	}
	tx, err := db.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `lock table `+pgx.Identifier{db.schema, "SubscriptionRouting"}.Sanitize()+` in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	published := make(chan error, 1)
	go func() { published <- transport.Send(ctx, publication("1", "topic")) }()
	awaitBlocked(t, db)
	cancel()
	wantSendError(t, next(t, "a Send whose context has ended returns", published), core.SendRefused, 1)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	send(t, transport, publication("2", "topic"))
	r := openReceiver(t, transport, "orders", core.TransactionNone)
	if got := receive(t, r).Incoming().ID; got != "2" {
		t.Errorf("message %s arrived, want 2", got)
	}
}
