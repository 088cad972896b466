package sqlserver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"testing"

	mssql "github.com/microsoft/go-mssqldb"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/microsoft"
)

// holdOne returns a message held in a transaction that a handler has, and has used.
func holdOne(t *testing.T, s *standIn, handler string) (core.Delivery, error) {
	t.Helper()
	s.says(textsOf(t, "orders").Take, reply{rows: [][]any{message(7)}})
	_, d := receive(t, openStandIn(t, s), core.ReceiverConfig{Mode: core.TransactionSendsAtomicWithReceive})
	held := d
	_, err := handlersTx(t, held).ExecContext(t.Context(), handler)
	wantSteps(t, s, begins, "take orders", "savepoint", handler)
	return held, err
}

const business = "update stock set left = left - 1"

var billed = []core.Outgoing{{ID: "1", Queue: "billing"}}

func TestMicrosoft_HandlerTransaction(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settle func(ctx context.Context, d core.Delivery) error
		want   []string
	}{
		"complete": {func(ctx context.Context, d core.Delivery) error { return d.CompleteWith(ctx, billed) },
			[]string{"intact", "second savepoint", "insert billing", commits}},
		"replace": {func(ctx context.Context, d core.Delivery) error { return d.ReplaceWith(ctx, billed) },
			[]string{"undo", "insert billing", commits}},
		"abandon": {func(ctx context.Context, d core.Delivery) error { return d.Abandon(ctx, errors.New("bad")) },
			[]string{"undo", "give back orders", commits}},
		"release": {func(ctx context.Context, d core.Delivery) error { return d.Release(ctx) }, []string{rollsBack}},
		"reset, then complete": {func(ctx context.Context, d core.Delivery) error {
			return errors.Join(d.Reset(ctx), d.Reset(ctx), d.Complete(ctx))
		}, []string{"undo", "undo", "intact", commits}},
	} {
		t.Run(name, func(t *testing.T) {
			s := startStandIn(t)
			d, err := holdOne(t, s, business)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.settle(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			wantSteps(t, s, c.want...)
			if err := d.Complete(t.Context()); !errors.Is(err, core.ErrSettled) {
				t.Errorf("a second settlement returned %v", err)
			}
		})
	}
}

// endedByDeadlock is a message whose handler was the victim of a deadlock. After that
// nothing may reach the server outside of a new transaction, because it would be
// committed at once.
func endedByDeadlock(t *testing.T, s *standIn) core.Delivery {
	t.Helper()
	victim := failsWith(1205, 13)
	victim.ends = true
	s.says(business, victim)
	d, err := holdOne(t, s, business)
	var server mssql.Error
	if !errors.As(err, &server) || server.Number != 1205 {
		t.Fatalf("the handler's statement returned %v", err)
	}
	return d
}

func TestMicrosoft_ServerEndsTheTransaction(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		settle func(ctx context.Context, d core.Delivery) error
		want   []string // once the row is taken again
		fails  bool
	}{
		"complete, then abandon": {func(ctx context.Context, d core.Delivery) error {
			return errors.Join(d.CompleteWith(ctx, billed), d.Abandon(ctx, errors.New("deadlock")))
		}, []string{"give back orders", commits}, true},
		"replace": {func(ctx context.Context, d core.Delivery) error { return d.ReplaceWith(ctx, billed) },
			[]string{"insert billing", commits}, false},
		"abandon": {func(ctx context.Context, d core.Delivery) error { return d.Abandon(ctx, errors.New("deadlock")) },
			[]string{"give back orders", commits}, false},
		"reset, then complete": {func(ctx context.Context, d core.Delivery) error {
			return errors.Join(d.Reset(ctx), d.CompleteWith(ctx, billed))
		}, []string{"insert billing", commits}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := startStandIn(t)
			d := endedByDeadlock(t, s)
			s.says(textsOf(t, "orders").Retake, reply{rows: [][]any{{7}}})
			if err := c.settle(t.Context(), d); (err != nil) != c.fails || errors.Is(err, core.ErrLockLost) {
				t.Errorf("the settlement returned %v", err)
			}
			wantSteps(t, s, append([]string{begins, "retake orders", "savepoint"}, c.want...)...)
		})
	}
}

// inVain is what the server gets when a message is to be taken again that somebody
// else has.
var inVain = slices.Repeat([]string{begins, "retake orders", "savepoint", rollsBack}, retakes)

func TestMicrosoft_ServerEndsTheTransactionAndAnotherReceivesTheMessage(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]func(ctx context.Context, d core.Delivery) error{
		"complete": func(ctx context.Context, d core.Delivery) error { return d.CompleteWith(ctx, billed) },
		"replace":  func(ctx context.Context, d core.Delivery) error { return d.ReplaceWith(ctx, billed) },
		"abandon":  func(ctx context.Context, d core.Delivery) error { return d.Abandon(ctx, errors.New("bad")) },
		"reset":    func(ctx context.Context, d core.Delivery) error { return d.Reset(ctx) },
	} {
		t.Run(name, func(t *testing.T) {
			s := startStandIn(t)
			d := endedByDeadlock(t, s)
			if err := settle(t.Context(), d); !errors.Is(err, core.ErrLockLost) {
				t.Errorf("the settlement returned %v", err)
			}
			wantSteps(t, s, inVain...)
			if err := d.Complete(t.Context()); !errors.Is(err, core.ErrLockLost) {
				t.Errorf("another settlement returned %v", err)
			}
		})
	}
}

func TestMicrosoft_SettlementFails(t *testing.T) {
	t.Parallel()
	victim := failsWith(1205, 13)
	victim.ends = true
	complete := func(ctx context.Context, d core.Delivery) error { return d.CompleteWith(ctx, billed) }
	for name, c := range map[string]struct {
		text        string
		reply       reply
		ended       bool     // the transaction, and somebody else has the message
		want        []string // the statements that the server gets
		replacement []string // and of the replacement afterwards
	}{
		"because another transaction is under way": {(microsoft.Dialect{}).Intact().SQL, failsWith(microsoft.NumberEnded, 16), true,
			[]string{"intact", rollsBack}, nil},
		"because the handler left one open": {(microsoft.Dialect{}).Intact().SQL, failsWith(microsoft.NumberNested, 16), false,
			[]string{"intact"}, []string{"undo", "insert billing", commits}},
		"because a lock timed out": {insertOf(t, "billing"), failsWith(1222, 16), false,
			[]string{"intact", "second savepoint", "insert billing", "undo sends"}, []string{"undo", "insert billing", commits}},
		"because there is no such queue": {insertOf(t, "billing"), failsWith(208, 16), false,
			[]string{"intact", "second savepoint", "insert billing", "undo sends"}, []string{"undo", "insert billing", commits}},
		"as the victim of a deadlock": {insertOf(t, "billing"), victim, true,
			[]string{"intact", "second savepoint", "insert billing"}, nil},
		"because the connection breaks": {insertOf(t, "billing"), reply{severs: true}, true,
			[]string{"intact", "second savepoint", "insert billing"}, nil},
		"because it breaks at the commit": {commits, reply{severs: true}, true,
			[]string{"intact", "second savepoint", "insert billing", commits}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := startStandIn(t)
			d, err := holdOne(t, s, business)
			if err != nil {
				t.Fatal(err)
			}
			s.says(c.text, c.reply)
			err = complete(t.Context(), d)
			if err == nil || errors.Is(err, core.ErrLockLost) != c.ended {
				t.Errorf("CompleteWith returned %v", err)
			}
			if c.ended {
				c.want = append(c.want, inVain...)
			}
			wantSteps(t, s, c.want...)
			err = d.ReplaceWith(t.Context(), billed)
			if c.ended && !errors.Is(err, core.ErrLockLost) || !c.ended && err != nil {
				t.Errorf("ReplaceWith returned %v", err)
			}
			wantSteps(t, s, c.replacement...)
		})
	}
}

// handlersTx returns the transaction that a handler has.
func handlersTx(t *testing.T, d core.Delivery) *sql.Tx {
	t.Helper()
	tx, err := SQLTx(d.BindContext(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// TestMicrosoft_HandlerCannotEndTheTransaction: it could commit the receive without
// what it sends.
func TestMicrosoft_HandlerCannotEndTheTransaction(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(tx *sql.Tx) error{"commit": (*sql.Tx).Commit, "rollback": (*sql.Tx).Rollback} {
		t.Run(name, func(t *testing.T) {
			s := startStandIn(t)
			d, err := holdOne(t, s, business)
			if err != nil {
				t.Fatal(err)
			}
			if err := end(handlersTx(t, d)); err == nil {
				t.Error("there is no error")
			}
			if err := d.CompleteWith(t.Context(), billed); err != nil {
				t.Errorf("CompleteWith returned %v", err)
			}
			wantSteps(t, s, "intact", "second savepoint", "insert billing", commits)
		})
	}
}

func TestMicrosoft_HandlerReadsRows(t *testing.T) {
	t.Parallel()
	s := startStandIn(t)
	d, err := holdOne(t, s, business)
	if err != nil {
		t.Fatal(err)
	}
	const stock = "select name, left from stock"
	s.says(stock, reply{rows: [][]any{{"nuts", 1}, {"bolts", 2}}})
	rows, err := handlersTx(t, d).QueryContext(t.Context(), stock)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for rows.Next() {
		var name string
		var left int
		if err := rows.Scan(&name, &left); err != nil {
			t.Error(err)
		}
		got = append(got, fmt.Sprint(name, left))
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || !slices.Equal(got, []string{"nuts1", "bolts2"}) {
		t.Errorf("the rows are %q, %v", got, err)
	}

	victim := failsWith(1205, 13)
	s.says(stock, victim)
	var name string
	err = handlersTx(t, d).QueryRowContext(t.Context(), stock).Scan(&name)
	var server mssql.Error
	if !errors.As(err, &server) || server.Number != 1205 {
		t.Errorf("the error is %v", err)
	}
	if err := d.Complete(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestMicrosoft_HandlerLeavesRowsOpen: go-mssqldb itself would wait until they are
// read.
func TestMicrosoft_HandlerLeavesRowsOpen(t *testing.T) {
	t.Parallel()
	s := startStandIn(t)
	d, err := holdOne(t, s, business)
	if err != nil {
		t.Fatal(err)
	}
	const many = "select number from numbers"
	var numbers [][]any
	for i := range 1000 {
		numbers = append(numbers, []any{i})
	}
	s.says(many, reply{rows: numbers})
	tx := handlersTx(t, d)
	rows, err := tx.QueryContext(context.Background(), many)
	if err != nil || !rows.Next() {
		t.Fatalf("there are no rows: %v", err)
	}
	if err := d.Complete(t.Context()); err != nil {
		t.Error(err)
	}
	if rows.Next() || rows.Err() == nil {
		t.Errorf("the rows go on, with the error %v", rows.Err())
	}
	if _, err := tx.ExecContext(t.Context(), business); !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("a statement after the settlement returned %v", err)
	}
	wantSteps(t, s, many, "intact", commits)
}

func TestMicrosoft_CloseCancelsTheHandlersStatement(t *testing.T) {
	t.Parallel()
	s := startStandIn(t)
	s.says(textsOf(t, "orders").Take, reply{rows: [][]any{message(7)}})
	r, d := receive(t, openStandIn(t, s), core.ReceiverConfig{Mode: core.TransactionSendsAtomicWithReceive})
	tx := handlersTx(t, d)
	op := reply{never: make(chan struct{})}
	s.says(business, op)
	failed := make(chan error)
	go func() {
		_, err := tx.ExecContext(context.Background(), business)
		failed <- err
	}()
	<-op.never
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-failed; err == nil {
		t.Error("the statement succeeded")
	}
	if err := d.Complete(t.Context()); !errors.Is(err, core.ErrLockLost) {
		t.Errorf("Complete returned %v", err)
	}
}
