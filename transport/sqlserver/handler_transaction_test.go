package sqlserver_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/internal/testserver/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// What handlers do to the message's transaction, and what becomes of it. Each does so
// at its first attempts; the last one succeeds or goes to the error queue.

const fails = `select 1 / 0 where $1 <> ''`

func TestHandler_MistreatsItsTransaction(t *testing.T) {
	notInShortRuns(t)
	t.Parallel()
	for _, c := range []struct {
		name  string
		first func(ctx context.Context, e *business, tx pgx.Tx) error // at the first attempt, after the work
		tries int                                                     // until the handler succeeds
	}{
		{"a deadlock's victim", func(ctx context.Context, _ *business, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `do $$ begin raise exception using errcode = '40P01'; end $$`)
			return err
		}, 2},
		{"a serialization failure", func(ctx context.Context, _ *business, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `do $$ begin raise exception using errcode = '40001'; end $$`)
			return err
		}, 2},
		{"an error that it ignores", func(ctx context.Context, _ *business, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, fails, "x")
			return nil
		}, 2},
		{"a deferred constraint that is violated", func(ctx context.Context, _ *business, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, `insert into parts (whole) values (1)`)
			return err
		}, 2},
		{"a connection that it closes", func(ctx context.Context, _ *business, tx pgx.Tx) error {
			return tx.Conn().Close(ctx)
		}, 2},
		{"a statement that ends the transaction", func(ctx context.Context, e *business, tx pgx.Tx) error {
			for _, text := range []string{"commit", "rollback"} {
				if _, err := tx.Exec(ctx, text); err == nil {
					e.t.Errorf("%s is not refused", text)
				}
			}
			return errors.Join(tx.Commit(ctx), tx.Rollback(ctx)) // which are refused too
		}, 2},
		{"rows that it leaves open", func(ctx context.Context, _ *business, tx pgx.Tx) error {
			rows, err := tx.Query(ctx, `select generate_series(1, 100000)`)
			if err == nil {
				rows.Next()
			}
			return err
		}, 1},
		{"a nested transaction that fails", func(ctx context.Context, _ *business, tx pgx.Tx) error {
			nested, err := tx.Begin(ctx)
			if err != nil {
				return err
			}
			_, _ = nested.Exec(ctx, fails, "x")
			return nested.Rollback(ctx)
		}, 1},
		{"a nested transaction that it leaves open", func(ctx context.Context, _ *business, tx pgx.Tx) error {
			_, err := tx.Begin(ctx)
			return err
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const messages = 3
			e := newBusiness(t, brokerOn(t, server), core.TransactionSendsAtomicWithReceive)
			e.exec(`create table wholes (id integer primary key)`)
			e.exec(`create table parts (whole integer references wholes deferrable initially deferred)`)
			e.exec(`grant all on wholes, parts to ` + postgres.User)
			e.config.Concurrency = 2
			e.handle = func(ctx context.Context, m *core.Message, body []byte) error {
				err := e.work(ctx, m, body)
				if err != nil || m.Attempt > 1 {
					return err
				}
				tx, err := sqlserver.Tx(ctx)
				if err != nil {
					return err
				}
				return c.first(ctx, e, tx)
			}
			e.order(messages)
			e.run()
			e.awaitDone()
			e.checkDone(messages)
			if n := e.number(`select count(*) from written where delivery = $1`, c.tries); n != messages {
				t.Errorf("%d of %d messages were handled at attempt %d, want all", n, messages, c.tries)
			}
		})
	}
}

// Two handlers that lock the same rows in opposite orders: the server ends one, and
// that one is tried again.
func TestHandler_DeadlockIsRetried(t *testing.T) {
	t.Parallel()
	e := newBusiness(t, brokerOn(t, server), core.TransactionSendsAtomicWithReceive)
	e.exec(`create table accounts as select i::text as id, 0 as balance from generate_series(1, 2) as i`)
	e.exec(`grant all on accounts to ` + postgres.User)
	e.set("deadlock_timeout", "20ms")
	var both sync.WaitGroup
	both.Add(2)
	var victims atomic.Int64
	e.handle = func(ctx context.Context, m *core.Message, body []byte) error {
		const text = `update accounts set balance = balance + 1 where id = $1`
		first, second := "1", "2"
		if string(body) == "2" {
			first, second = second, first
		}
		if err := work(ctx, text, first); err != nil {
			return err
		}
		if m.Attempt == 1 {
			both.Done()
			both.Wait()
		}
		if err := work(ctx, text, second); err != nil {
			victims.Add(1)
			return err
		}
		return e.work(ctx, m, body)
	}
	e.order(2)
	e.run()
	e.awaitDone()
	e.checkDone(2)
	if n := e.number(`select sum(balance) from accounts`); n != 4 {
		t.Errorf("the accounts have %d, want 4", n)
	}
	if victims.Load() == 0 {
		t.Error("no handler was the victim of a deadlock")
	}
	e.checkNoOutage()
}

// What never can be committed is moved to the error queue after the retries, with
// nothing of the handler's work.
func TestHandler_FailedCommitGoesToTheErrorQueue(t *testing.T) {
	t.Parallel()
	e := newBusiness(t, brokerOn(t, server), core.TransactionSendsAtomicWithReceive)
	e.config.Recoverability.Immediate.NumberOfRetries = 2
	var attempts atomic.Int64
	e.handle = func(ctx context.Context, m *core.Message, body []byte) error {
		attempts.Add(1)
		if err := e.work(ctx, m, body); err != nil {
			return err
		}
		_ = work(ctx, fails, "x")
		return nil
	}
	e.order(1)
	e.run()
	e.awaitDone()
	failed, sent := e.number(`select count(*) from `+errorQueue), e.number(`select count(*) from `+outputQueue)
	if failed != 1 || attempts.Load() != 3 || e.written() != 0 || sent != 0 {
		t.Errorf("after %d attempts %d messages are in the error queue, %d rows written and %d messages sent; want 1 after 3, and nothing else",
			attempts.Load(), failed, e.written(), sent)
	}
}

// A handler that keeps its transaction cannot reach into the next message's.
func TestHandler_KeepsItsTransaction(t *testing.T) {
	t.Parallel()
	const messages = 3
	e := newBusiness(t, brokerOn(t, server), core.TransactionSendsAtomicWithReceive)
	e.config.Concurrency = 1
	var kept []pgx.Tx
	e.handle = func(ctx context.Context, m *core.Message, body []byte) error {
		for _, tx := range kept {
			if _, err := tx.Exec(ctx, `insert into written values ('kept', 0)`); !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("the transaction of another message returns %v, want ErrTxClosed", err)
			}
		}
		tx, err := sqlserver.Tx(ctx)
		if err != nil {
			return err
		}
		kept = append(kept, tx)
		return e.work(ctx, m, body)
	}
	e.order(messages)
	e.run()
	e.awaitDone()
	e.checkDone(messages)
}
