package sqlserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/operation"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// transactionStrategy takes each message in a transaction: the row is deleted, and until the
// commit other receivers neither see that nor can lock the row. The transaction has its
// own connection until the message is settled.
type transactionStrategy struct{ *receiver }

func (transactionStrategy) open(context.Context) {}

func (r transactionStrategy) prepare(ctx context.Context) bool {
	return r.t.limit.Reserve(ctx, r.closing)
}

func (transactionStrategy) holds() bool { return true }

// ended returns false: a transaction lasts until it is settled or the receiver is closed.
func (transactionStrategy) ended(core.Delivery, time.Time) bool { return false }

func (transactionStrategy) giveBack(ctx context.Context, late []core.Delivery) { rollBack(ctx, late) }
func (transactionStrategy) close(ctx context.Context, left []core.Delivery)    { rollBack(ctx, left) }

func (r transactionStrategy) fetch(ctx *operation.Operation, dst []core.Delivery) (n int, more bool, err error) {
	if n, more, err = r.fetchOne(ctx, dst); n == 0 {
		r.t.limit.GiveBack()
	}
	return n, more, err
}

// fetchOne takes one message.
//
// The order of the statements matters: first the row, then the savepoint. If the outer
// transaction only locks a row, and the row is deleted after the savepoint, then two
// transactions lock it in the server's view, and that takes longer the more rows wait.
func (r transactionStrategy) fetchOne(ctx *operation.Operation, dst []core.Delivery) (n int, more bool, err error) {
	d, err := r.deleteOne(ctx)
	switch {
	case err != nil || d == nil:
		return 0, false, err
	case d.Expired:
		if err := d.tx.Commit(ctx); err != nil { // without the message
			d.tx.Rollback(ctx)
			return 0, false, err
		}
		return 0, true, nil
	}
	if to := r.forwarded(&d.in); to != nil {
		if held, err := d.passOn(ctx, to); err != nil || !held {
			return 0, err == nil, err
		}
	}
	dst[0] = d
	return 1, false, nil
}

func (r transactionStrategy) deleteOne(ctx context.Context) (*transactionDelivery, error) {
	d := &transactionDelivery{r: r.receiver}
	found := 0
	from := r.from()
	take := r.t.dialect.Take(r.q.QueueTexts, 1, from.Time)
	if r.t.nserviceBusTables {
		take = r.t.dialect.TakeForeign(r.q.QueueTexts, 1)
	}
	take.Row = func(scan sqlexec.Scanner) error {
		found = 1
		return scan(d.Columns()...)
	}
	start := time.Now()
	statements := []*sqlexec.Statement{take}
	if d.isAtomic() {
		statements = append(statements, r.t.dialect.Savepoint(dialect.BeforeHandler))
	}
	tx, err := r.t.db.Begin(ctx, statements...)
	if err != nil {
		return nil, err
	}
	r.advanceWatermark(from, found, 1, d.Due, time.Since(start))
	if found == 0 {
		tx.Rollback(ctx)
		return nil, nil
	}
	d.tx = tx
	if n, text := r.uncounted.Of(&d.Row); n > 0 {
		d.missed, d.Deliveries, d.LastError = n, d.Deliveries+n, text
	}
	d.in = r.incoming(&d.Row)
	d.in.Redelivered = d.in.Redelivered || r.t.returned.Has(d.ID)
	if r.count != nil && !d.isAtomic() {
		r.t.returned.Add(d.ID) // the server does not tell when it rolls back
	}
	return d, nil
}

// transactionDelivery is a message whose row is deleted in an open transaction. If the connection
// breaks, the row is available to all receivers again.
type transactionDelivery struct {
	transport.UnsupportedDelivery
	dialect.Row
	r      *receiver
	in     core.Incoming
	missed int  // deliveries that its table has not counted
	noted  bool // misses has one more of them: this delivery

	mu    sync.Mutex // held during a settlement; Close may come in between
	tx    sqlexec.Transaction
	state state
	used  bool // a handler has had the transaction

	savepoints transport.Savepoints // of the handler's work
}

var _ core.Delivery = (*transactionDelivery)(nil)

// String describes the delivery without the fields of its connection, which others use.
func (d *transactionDelivery) String() string {
	return fmt.Sprintf("delivery of %q from %s", d.in.ID, d.r.q.Table.Address)
}

// GoString returns the same text as String.
func (d *transactionDelivery) GoString() string { return d.String() }

// Incoming implements core.Delivery.
func (d *transactionDelivery) Incoming() *core.Incoming { return &d.in }

// Complete implements core.Delivery.
func (d *transactionDelivery) Complete(ctx context.Context) error {
	err := d.settle(ctx, "complete", withWork, func(ctx context.Context) error {
		return d.commit(ctx)
	})
	d.forget(err)
	return err
}

// forget deletes the recorded failures of a message that is gone.
func (d *transactionDelivery) forget(err error) {
	if err != nil {
		return
	}
	d.r.t.returned.Forget(d.ID)
	if d.r.count != nil {
		d.r.count.Forget(d.ID)
	} else {
		d.r.uncounted.Set(&d.Row, 0)
	}
}

// Release implements core.Delivery.
func (d *transactionDelivery) Release(ctx context.Context) error {
	return d.settle(ctx, "release", withoutWork, func(ctx context.Context) error {
		d.r.t.returned.Add(d.ID) // before it can be received again
		return d.undo(ctx)
	})
}

// Abandon implements core.Delivery. If the table counts, the transaction that had deleted
// the row adds it again with a higher count; if that fails, see recount.
func (d *transactionDelivery) Abandon(ctx context.Context, cause error) error {
	return d.settle(ctx, "abandon", withoutWork, func(ctx context.Context) error {
		if d.r.count != nil {
			d.r.count.Failed(d.ID, cause)
			return d.undo(ctx)
		}
		d.LastError = dialect.Storable(transport.ErrorText(cause))
		err := d.commitUndone(ctx, d.giveBack())
		switch {
		case err == nil:
			d.available()
		case !d.tx.Lost():
			err = d.recount(ctx, err)
		}
		return err
	})
}

// undo restores the row. If the server does not confirm that, the connection is lost: the
// row may have been available for long, and another receiver may have the message.
func (d *transactionDelivery) undo(ctx context.Context) error {
	if err := d.tx.Undo(ctx); err != nil {
		return &rolledBackError{err}
	}
	d.available()
	return nil
}

// GiveBack is the statement that adds the row again, with one more delivery.
func (d *transactionDelivery) giveBack() *sqlexec.Statement {
	return sqlexec.Command(d.r.q.GiveBack, d.ID, d.Seq, string(d.Headers), d.Body, d.Due, dialect.StoredInt(d.Deliveries), d.NextClaim(), d.Expires, d.LastError)
}

// available tells receivers that the message is available again.
func (d *transactionDelivery) available() {
	d.r.lowerWatermark(d.Due)
	d.r.t.wakeReceivers(d.r.q)
}

// These say whether a settlement keeps the handler's work in the transaction.
const (
	withWork    = true
	withoutWork = false
)

// settle performs the one settlement. After an error the message is still held, unless
// the lock is lost.
func (d *transactionDelivery) settle(ctx context.Context, what string, work bool, do func(ctx context.Context) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := d.settleOnce(ctx, work, do)
	if err != nil {
		return d.failed(what, err)
	}
	return nil
}

func (d *transactionDelivery) failed(what string, err error) error {
	if errors.Is(err, core.ErrLockLost) && d.r.isClosed() {
		err = fmt.Errorf("%w: %w", err, core.ErrClosed)
	}
	return fmt.Errorf("sqlserver: %s message %s from %s: %w", what, d.ID, d.r.q.Table.Address, err)
}

// usable returns an error if the message can no longer be settled.
func (d *transactionDelivery) usable(ctx context.Context) error {
	return cmp.Or(d.state.ended(), ctx.Err())
}

func (d *transactionDelivery) settleOnce(ctx context.Context, work bool, do func(ctx context.Context) error) error {
	if err := d.usable(ctx); err != nil {
		return err
	}
	op := d.r.operations.Begin(ctx)
	defer op.End()
	d.tx.Reclaim(op)
	var err error
	for range 2 { // again with another connection, if this one breaks
		if d.tx.Lost() {
			undone := d.used
			if err := d.reacquire(op, cmp.Or(err, sqlexec.ErrEnded)); err != nil {
				return err
			}
			if work && undone {
				return fmt.Errorf("what the handler did in the transaction is undone: %w", cmp.Or(err, sqlexec.ErrEnded))
			}
		}
		err = do(op)
		if err == nil {
			d.state = settled
			d.end()
			return nil
		}
		if _, ok := errors.AsType[*rolledBackError](err); ok {
			return d.lose(op, err)
		}
		if !d.tx.Lost() {
			return err
		}
	}
	if lost := d.reacquire(op, err); lost != nil {
		return lost
	}
	return err
}

// lose ends a message that is no longer held. The row is available again.
func (d *transactionDelivery) lose(ctx context.Context, cause error) error {
	d.state = lost
	d.r.t.returned.Add(d.ID)
	d.tx.Rollback(ctx)
	d.end()
	d.available()
	return fmt.Errorf("%w: %w", core.ErrLockLost, cause)
}

// end removes the message from the receiver.
func (d *transactionDelivery) end() {
	d.r.settled(d)
	d.r.t.limit.GiveBack()
}

// giveUp implements inTransaction.
func (d *transactionDelivery) giveUp(ctx context.Context) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.state != held {
		return
	}
	d.state = lost
	d.r.t.returned.Add(d.ID)
	now, cancel := context.WithCancel(ctx)
	cancel()
	d.tx.Reclaim(now) // the handler may still be running
	d.tx.Rollback(ctx)
	d.r.t.limit.GiveBack()
	d.r.t.wakeReceivers(d.r.q)
}

// commit commits the handler's work together with these statements. If one of them fails,
// the transaction returns to the state after the handler.
func (d *transactionDelivery) commit(ctx context.Context, statements ...*sqlexec.Statement) error {
	if !d.used {
		return d.commitFrom(ctx, dialect.BeforeHandler, nil, statements)
	}
	if len(statements) == 0 {
		return d.tx.Commit(ctx, d.r.t.dialect.Intact())
	}
	mark := d.r.t.dialect.Savepoint(dialect.AfterHandler)
	return d.commitFrom(ctx, dialect.AfterHandler, mark, append([]*sqlexec.Statement{d.r.t.dialect.Intact(), mark}, statements...))
}

// commitUndone commits these statements without the handler's work.
func (d *transactionDelivery) commitUndone(ctx context.Context, statements ...*sqlexec.Statement) error {
	if !d.used {
		return d.commitFrom(ctx, dialect.BeforeHandler, nil, statements)
	}
	back := d.r.t.dialect.RollbackTo(dialect.BeforeHandler)
	if !d.tx.Aborted() {
		return d.commitFrom(ctx, dialect.BeforeHandler, back, append([]*sqlexec.Statement{back}, statements...))
	}
	// Until then the server prepares no other statement.
	if err := d.tx.Run(ctx, back); err != nil {
		d.abort(ctx)
		return err
	}
	return d.commitFrom(ctx, dialect.BeforeHandler, nil, statements)
}

// commitFrom commits with these statements. If one fails, the transaction returns to a
// savepoint, unless first, which has to succeed before, failed. Statements after first
// are not the handler's work: their error is a refusedError.
func (d *transactionDelivery) commitFrom(ctx context.Context, savepoint string, first *sqlexec.Statement, statements []*sqlexec.Statement) error {
	for _, s := range statements {
		s.Done = false // an earlier attempt may have executed more statements
	}
	err := d.tx.Commit(ctx, statements...)
	if err == nil || len(statements) == 0 {
		return err
	}
	ready := first == nil || first.Done
	switch {
	case d.tx.Lost():
		if !d.used && !d.r.t.server.Transient(err) { // at the commit
			err = &refusedError{d.r.t.server.Explained(err)}
		}
		return err
	case !ready && savepoint == dialect.BeforeHandler && !sqlexec.IsAboutText(err):
		d.abort(ctx)
		return err
	case ready && slices.ContainsFunc(statements, func(s *sqlexec.Statement) bool { return !s.Done }), sqlexec.IsAboutText(err):
		err = &refusedError{d.r.t.server.Explained(err)}
	}
	if ready && d.isAtomic() {
		err = errors.Join(err, d.tx.Run(ctx, d.r.t.dialect.RollbackTo(savepoint)))
	}
	return err
}

// refusedError is the error with which the server refused statements that were to be
// committed with the handler's work.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// isAtomic reports whether the handler and its sends take part in the transaction, which
// then has savepoints.
func (d *transactionDelivery) isAtomic() bool {
	return d.r.mode == core.TransactionSendsAtomicWithReceive
}
