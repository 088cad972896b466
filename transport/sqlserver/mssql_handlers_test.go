//go:build mssql

package sqlserver_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver"
)

// mssqlBusiness is an endpoint whose handler writes a row and sends a message for each
// that it gets, in the message's transaction.
type mssqlBusiness struct {
	t *testing.T
	d *mssqlDatabase
}

func newMSSQLBusiness(t *testing.T) *mssqlBusiness {
	t.Helper()
	d := newMSSQL(t)
	d.exec(t, `create table `+d.table("written")+` (id nvarchar(200) not null, attempt int not null)`)
	return &mssqlBusiness{t, d}
}

// work is what each handler does.
func (b *mssqlBusiness) work(ctx context.Context, m *core.Message, body []byte) error {
	if err := work(ctx, `insert into `+b.d.table("written")+` values (@p1, @p2)`, string(body), m.Attempt); err != nil {
		return err
	}
	return m.Send(outputQueue, core.NewMessageType[[]byte]("invoices.Send").Of(body))
}

// handles runs the endpoint with this handler until n messages are consumed.
func (b *mssqlBusiness) handles(n, concurrency int, recoverability core.Recoverability, handle func(ctx context.Context, m *core.Message, body []byte) error) {
	b.t.Helper()
	transport := b.d.open(b.t, sqlserver.Config{})
	provision(b.t, transport, inputQueue, outputQueue, errorQueue)
	for i := range n {
		send(b.t, transport, order(fmt.Sprint(i+1), inputQueue))
	}
	recoverability.ErrorQueue = errorQueue
	runs(b.t, inputQueue, transport, core.Config{
		Transactions: core.TransactionSendsAtomicWithReceive, Provision: core.ProvisionNever,
		Concurrency: concurrency, Recoverability: recoverability,
	}, handle)
	await(b.t, "all messages are consumed", func() bool { return b.d.count(b.t, inputQueue) == 0 })
}

// checkDone checks that each of n messages was handled once, by the attempt with this
// number, and sent one message.
func (b *mssqlBusiness) checkDone(n, attempt int) {
	b.t.Helper()
	ids := b.d.number(b.t, `select count(distinct id) from `+b.d.table("written"))
	rows, sent, failed := b.d.count(b.t, "written"), b.d.count(b.t, outputQueue), b.d.count(b.t, errorQueue)
	if ids != n || rows != n || sent != n || failed != 0 {
		b.t.Errorf("of %d messages %d were handled, with %d rows and %d messages sent, and %d are in the error queue", n, ids, rows, sent, failed)
	}
	if attempt == 0 {
		return
	}
	if others := b.d.number(b.t, `select count(*) from `+b.d.table("written")+` where attempt <> @p1`, attempt); others != 0 {
		b.t.Errorf("%d messages were not handled by attempt %d", others, attempt)
	}
}

// untilItWorks tries a message for as long as it takes.
var untilItWorks = core.Recoverability{
	Immediate: core.Immediate{NumberOfRetries: 1_000_000}, Delayed: core.Delayed{NumberOfRetries: core.Off}, MaxDeliveries: core.Off,
}

func TestMSSQL_HandlerMistreatsItsTransaction(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		first func(ctx context.Context, tx *sql.Tx) error // at the first attempt, after the work
		tries int                                         // until the handler succeeds
	}{
		{"an error that the transaction survives, and that it ignores", func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `select 1 / cast(@p1 as int)`, "0"); err == nil {
				return errors.New("it did not fail")
			}
			return nil
		}, 1},
		{"an error that ends the transaction, and that it ignores", func(ctx context.Context, tx *sql.Tx) error {
			_, _ = tx.ExecContext(ctx, `set xact_abort on; select 1 / cast(@p1 as int)`, "0")
			return nil
		}, 2},
		{"an error that dooms the transaction, and that it ignores", func(ctx context.Context, tx *sql.Tx) error {
			_, _ = tx.ExecContext(ctx, `set xact_abort on; begin try select 1 / cast(@p1 as int) end try begin catch select 1 end catch`, "0")
			return nil
		}, 2},
		{"a statement that rolls back", func(ctx context.Context, tx *sql.Tx) error {
			_, _ = tx.ExecContext(ctx, `rollback transaction`)
			return nil
		}, 2},
		{"a transaction that it leaves open", func(ctx context.Context, tx *sql.Tx) error {
			_, _ = tx.ExecContext(ctx, `begin transaction`)
			return nil
		}, 2},
		{"a commit and a rollback, which are refused", func(_ context.Context, tx *sql.Tx) error {
			return errors.Join(tx.Commit(), tx.Rollback())
		}, 2},
		{"a savepoint that it returns to", func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `save transaction mine; create table #t (i int); rollback transaction mine`)
			return err
		}, 1},
		{"rows that it leaves open", func(ctx context.Context, tx *sql.Tx) error {
			rows, err := tx.QueryContext(ctx, `select a.object_id from sys.all_columns as a cross join sys.all_columns as b`)
			if err == nil {
				rows.Next()
			}
			return err
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const messages = 3
			b := newMSSQLBusiness(t)
			b.handles(messages, 2, untilItWorks, func(ctx context.Context, m *core.Message, body []byte) error {
				err := b.work(ctx, m, body)
				if err != nil || m.Attempt > 1 {
					return err
				}
				tx, err := sqlserver.SQLTx(ctx)
				if err != nil {
					return err
				}
				return c.first(ctx, tx)
			})
			b.checkDone(messages, c.tries)
		})
	}
}

// TestMSSQL_DeadlockOfHandlersIsRetried: two handlers lock the same rows in opposite orders. The
// server ends one, and that one is tried again.
func TestMSSQL_DeadlockOfHandlersIsRetried(t *testing.T) {
	t.Parallel()
	b := newMSSQLBusiness(t)
	accounts := b.d.table("accounts")
	b.d.exec(t, `create table `+accounts+` (id int primary key, balance int not null); insert into `+accounts+` values (1, 0), (2, 0)`)
	var both sync.WaitGroup
	both.Add(2)
	var victims atomic.Int64
	b.handles(2, 2, untilItWorks, func(ctx context.Context, m *core.Message, body []byte) error {
		text := `update ` + accounts + ` set balance = balance + 1 where id = @p1`
		first, second := 1, 2
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
		return b.work(ctx, m, body)
	})
	b.checkDone(2, 0)
	if n := b.d.number(t, `select sum(balance) from `+accounts); n != 4 {
		t.Errorf("the accounts have %d, want 4", n)
	}
	if victims.Load() == 0 {
		t.Error("no handler was the victim of a deadlock")
	}
}

// TestMSSQL_FailedCommitGoesToTheErrorQueue after the retries, with nothing of
// the handler's work.
func TestMSSQL_FailedCommitGoesToTheErrorQueue(t *testing.T) {
	t.Parallel()
	b := newMSSQLBusiness(t)
	var attempts atomic.Int64
	b.handles(1, 1, core.Recoverability{Immediate: core.Immediate{NumberOfRetries: 2}, Delayed: core.Delayed{NumberOfRetries: core.Off}}, func(ctx context.Context, m *core.Message, body []byte) error {
		attempts.Add(1)
		if err := b.work(ctx, m, body); err != nil {
			return err
		}
		_ = work(ctx, `set xact_abort on; select 1 / cast(@p1 as int)`, "0")
		return nil
	})
	if failed, sent, written := b.d.count(t, errorQueue), b.d.count(t, outputQueue), b.d.count(t, "written"); failed != 1 || attempts.Load() != 3 || sent != 0 || written != 0 {
		t.Errorf("after %d attempts %d messages are in the error queue, %d rows written and %d messages sent; want 1 after 3, and nothing else", attempts.Load(), failed, written, sent)
	}
}

// TestMSSQL_HandlerKeepsItsTransaction cannot reach into the next message's.
func TestMSSQL_HandlerKeepsItsTransaction(t *testing.T) {
	t.Parallel()
	const messages = 3
	b := newMSSQLBusiness(t)
	var kept []*sql.Tx
	b.handles(messages, 1, untilItWorks, func(ctx context.Context, m *core.Message, body []byte) error {
		for _, tx := range kept {
			if _, err := tx.ExecContext(ctx, `insert into `+b.d.table("written")+` values ('kept', 0)`); err == nil {
				t.Error("the transaction of another message can be used")
			}
		}
		tx, err := sqlserver.SQLTx(ctx)
		if err != nil {
			return err
		}
		kept = append(kept, tx)
		return b.work(ctx, m, body)
	})
	b.checkDone(messages, 1)
}

// TestMSSQL_SendInTheCallersTransaction are there if it commits, and never otherwise.
func TestMSSQL_SendInTheCallersTransaction(t *testing.T) {
	t.Parallel()
	d := newMSSQL(t)
	transport := d.open(t, sqlserver.Config{})
	provision(t, transport, "orders")
	for _, commit := range []bool{false, true} {
		tx, err := d.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx := sqlserver.WithSQLTx(t.Context(), tx)
		if err := errors.Join(transport.Send(ctx, letter("1", "orders"), delayed("2", "orders", 1)), transport.Send(ctx, letter("3", "orders"))); err != nil {
			t.Fatal(err)
		}
		want := 0
		if commit {
			want = 3
			err = tx.Commit()
		} else {
			err = tx.Rollback()
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := d.count(t, "orders"); n != want {
			t.Errorf("committed %v: %d messages are there, want %d", commit, n, want)
		}
		wantSendError(t, transport.Send(ctx, letter("4", "orders")), core.SendRefused, 1)
	}
}
