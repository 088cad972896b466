package sqlserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/reprise-go/reprise/core"
	"github.com/reprise-go/reprise/transport"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/dialect"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/operation"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/postgres"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/settle"
	"github.com/reprise-go/reprise/transport/sqlserver/internal/sqlexec"
)

// This file is about leased messages whose handler and sends are atomic with the receive.
// If the handler does not ask for the transaction, there is none: the statement that
// removes the message, together with others, also adds the handler's messages. Otherwise
// the transaction begins when the handler first asks for it, and the statement that
// finally removes the message checks its lease once more. Until then the row is not
// locked: the lease is renewed as in other modes, and keeps other receivers from the
// message.

// work is the transaction of a leased message.
type work struct {
	mu sync.Mutex // held while tx is begun, or the message is settled; guards the fields below

	tx         sqlexec.Transaction // nil: the handler has none
	undone     error               // the error that undid the handler's work, which cannot be committed before a Reset; or nil
	savepoints transport.Savepoints
	expiry     *time.Timer // ends the transaction of a message that the engine does not settle
}

var _ interface {
	lender
	inTransaction
} = (*leaseDelivery)(nil)

// BindContext implements core.Delivery.
func (d *leaseDelivery) BindContext(ctx context.Context) context.Context {
	if !d.r.works {
		return ctx
	}
	return &boundContext{ctx, d}
}

// lend implements lender.
func (d *leaseDelivery) lend(ctx context.Context) (any, error) {
	d.work.mu.Lock()
	defer d.work.mu.Unlock()
	if err := d.usable(ctx); err != nil {
		return nil, err
	}
	if d.work.tx == nil {
		if err := d.beginWork(ctx); err != nil {
			return nil, fmt.Errorf("sqlserver: begin the transaction of message %s from %s: %w", d.in.NativeID, d.r.q.Table.Address, err)
		}
	}
	return d.work.tx.Lend(), nil
}

// beginWork begins the transaction, if the lease is valid. work.mu is held, as in all
// methods below.
func (d *leaseDelivery) beginWork(ctx context.Context) error {
	if d.work.undone != nil {
		return d.work.undone
	}
	if !d.r.t.limit.Reserve(ctx, d.r.closing) {
		return cmp.Or(ctx.Err(), core.ErrClosed)
	}
	op := d.r.operations.Begin(ctx)
	defer op.End()
	holds := false
	tx, err := d.r.t.db.Begin(op, sqlexec.Query(sqlexec.RowFound(&holds), d.r.q.Leased, d.seq, d.claims))
	if err == nil && !holds {
		tx.Rollback(op)
		err = core.ErrLockLost
	}
	if err != nil {
		d.r.t.limit.Free()
		if errors.Is(err, core.ErrLockLost) {
			d.become(lost)
			d.r.settled(d)
		}
		return err
	}
	core.TransactionBegun(ctx)
	d.work.tx = tx
	d.work.expiry = time.AfterFunc(time.Until(d.LockedUntil()), d.expire)
	return nil
}

// endWork rolls the transaction back, unless it has ended.
func (d *leaseDelivery) endWork(ctx context.Context) {
	d.work.tx.Rollback(ctx)
	d.work.tx = nil
	d.work.expiry.Stop()
	d.r.t.limit.Free()
}

// rollBackWork ends the transaction, if there is one.
func (d *leaseDelivery) rollBackWork(ctx context.Context) {
	if d.work.tx == nil {
		return
	}
	d.work.tx.Reclaim(ctx)
	d.endWork(ctx)
}

// undo undoes the handler's work and restores the state before the handler began.
func (d *leaseDelivery) undo(ctx context.Context) {
	if d.work.tx != nil {
		op := d.r.operations.BeginSettlement(ctx)
		defer op.End()
		d.rollBackWork(op)
	}
	d.work.undone = nil
	d.work.savepoints.Clear()
}

// expire ends a transaction whose lease has ended. The engine does not settle such a
// message.
func (d *leaseDelivery) expire() {
	d.work.mu.Lock()
	defer d.work.mu.Unlock()
	if d.work.tx == nil {
		return
	}
	if left := time.Until(d.LockedUntil()); left > 0 {
		d.work.expiry.Reset(left)
		return
	}
	d.giveUpWork(context.Background())
	d.r.settled(d)
}

// abandonWork ends the transaction of a lost message. A statement of a running handler is
// cancelled.
func (d *leaseDelivery) abandonWork() {
	d.work.mu.Lock()
	defer d.work.mu.Unlock()
	d.giveUpWork(context.Background())
}

// giveUp implements inTransaction.
func (d *leaseDelivery) giveUp(ctx context.Context) {
	d.work.mu.Lock()
	defer d.work.mu.Unlock()
	d.giveUpWork(ctx)
}

// giveUpWork makes the message lost, if it is not settled, and ends the transaction.
func (d *leaseDelivery) giveUpWork(ctx context.Context) {
	d.mu.Lock()
	if d.state == held {
		d.state = lost
	}
	d.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, operation.Grace)
	defer cancel()
	now, cut := context.WithCancel(ctx)
	cut()
	if d.work.tx != nil {
		d.work.tx.Reclaim(now)
		d.endWork(ctx)
	}
}

// CompleteWith implements core.Delivery.
func (d *leaseDelivery) CompleteWith(ctx context.Context, out []core.Outgoing) error {
	return d.completeWith(ctx, "complete", out)
}

// ReplaceWith implements core.Delivery.
func (d *leaseDelivery) ReplaceWith(ctx context.Context, out []core.Outgoing) error {
	return d.completeWith(ctx, "replace", out)
}

// completeWith is a settlement that sends: with the handler's work, or, for "replace",
// without.
func (d *leaseDelivery) completeWith(ctx context.Context, operation string, out []core.Outgoing) error {
	if !d.r.works {
		return d.failed(ctx, operation, transport.Unsupported("SendsAtomicWithReceive"))
	}
	m, err := d.r.t.plan(ctx, out)
	if err != nil {
		return d.failed(ctx, operation, err)
	}
	d.work.mu.Lock()
	defer d.work.mu.Unlock()
	if err := d.usable(ctx); err != nil {
		return d.failed(ctx, operation, err)
	}
	switch {
	case operation == "replace":
		d.undo(ctx)
	case d.work.undone != nil:
		return d.failed(ctx, operation, fmt.Errorf("the work of the handler in the transaction is undone: %w", d.work.undone))
	}
	if _, bytes := m.Size(); bytes > dialect.BytesAtOnce && d.work.tx == nil { // too much for one statement
		err = d.beginWork(ctx)
	}
	if err == nil {
		err = d.commit(ctx, m)
		if _, refused := errors.AsType[*refusedError](err); refused {
			if less, refusal := m.withoutRefusing(ctx, err, d.r.t.tryAlone(ctx)); refusal != nil {
				err = refusal
			} else if less != nil {
				m, err = less, d.commit(ctx, less)
			}
		}
	}
	if err != nil {
		m.forgetTables()
		if refused, ok := errors.AsType[*refusedError](err); ok && len(out) > 0 {
			err = transport.AllSent(out, core.SendRefused, refused.err)
		}
		return d.failed(ctx, operation, err)
	}
	m.wakeReceivers()
	m.report(ctx)
	return nil
}

// commit consumes the message, adds the messages of m and, if there is a transaction,
// commits the handler's work. If the server refuses m, the error is a refusedError.
func (d *leaseDelivery) commit(ctx context.Context, m *sendPlan) error {
	if d.work.tx != nil {
		return d.commitWork(ctx, m)
	}
	if err := d.begin(); err != nil {
		return err
	}
	o := settle.Request{Action: settle.Completion, Message: d}
	if len(m.batches) > 0 {
		o.Sends = m
	}
	err := d.r.settler.Do(ctx, o)
	switch {
	case err == nil:
	case errors.Is(err, core.ErrLockLost):
		d.become(lost)
	default:
		d.become(held)
		if ctx.Err() == nil && !d.r.t.server.Transient(err) {
			err = &refusedError{d.r.t.server.Explained(err)}
		}
	}
	return err
}

// commitWork commits the transaction. If the server refuses m, the handler's work
// remains.
func (d *leaseDelivery) commitWork(ctx context.Context, m *sendPlan) error {
	op := d.r.operations.BeginSettlement(ctx)
	defer op.End()
	tx := d.work.tx
	tx.Reclaim(op)
	if tx.Lost() {
		d.endWork(op)
		return d.workIsUndone(sqlexec.ErrEnded)
	}
	intact := d.r.t.dialect.Intact()
	var reached *sqlexec.Statement
	fence := sqlexec.Query(func(scan sqlexec.Scanner) error {
		var one int64
		return scan(&one)
	}, d.r.q.Fence, d.seq, d.claims)
	statements := []*sqlexec.Statement{intact, fence}
	if sends := m.statements(); len(sends) > 0 {
		reached = d.r.t.dialect.Savepoint(dialect.AfterHandler)
		statements = append([]*sqlexec.Statement{intact, reached, fence}, sends...)
	}
	err := tx.Commit(op, statements...)
	switch {
	case err == nil:
		d.become(settled)
		d.endWork(op)
		d.r.settled(d)
		return nil
	case tx.Lost():
		d.endWork(op)
		return d.learnOutcome(op, err)
	case intact.Done && !fence.Done && postgres.IsFence(err):
		d.rollBackWork(op)
		d.become(lost)
		d.r.settled(d)
		return core.ErrLockLost
	case fence.Done, sqlexec.IsAboutText(err):
		err = &refusedError{d.r.t.server.Explained(err)}
	}
	if reached != nil && reached.Done {
		err = errors.Join(err, tx.Run(op, d.r.t.dialect.RollbackTo(dialect.AfterHandler)))
	}
	return err
}

// workIsUndone records that the transaction has ended without a commit. The message is
// still leased.
func (d *leaseDelivery) workIsUndone(cause error) error {
	d.work.undone = cause
	d.work.savepoints.Clear()
	return fmt.Errorf("the work of the handler in the transaction is undone: %w", cause)
}

// learnOutcome finds out whether a commit was executed whose answer was lost. If so, the
// row is gone. The query waits for a transaction that is about to remove the row; one
// that removes it after the query still needs the lease, and leaves no message to a later
// settlement.
func (d *leaseDelivery) learnOutcome(ctx context.Context, cause error) error {
	o := transport.Outages{}
	for {
		began, lockedUntil, found := time.Now(), time.Now().Add(d.r.t.lease), false
		err := d.r.t.db.Exec(ctx, sqlexec.Query(sqlexec.RowFound(&found), d.r.q.Begin, append([]any{d.r.t.lease.Microseconds()}, d.r.listed([]*leaseDelivery{d})...)...))
		switch {
		case err == nil && found:
			d.lockedUntil.Store(&lockedUntil)
			return d.workIsUndone(cause)
		case err == nil && time.Now().Before(d.LockedUntil()): // no other receiver can have had it
			d.become(settled)
			d.r.settled(d)
			return nil
		case err == nil, !d.r.t.server.Transient(err), ctx.Err() != nil, !time.Now().Before(d.LockedUntil()):
			d.become(lost)
			d.r.settled(d)
			return fmt.Errorf("%w: %w", core.ErrLockLost, errors.Join(cause, err))
		}
		d.r.t.server.GaveUp(err)
		_ = transport.Sleep(ctx, d.r.closing, o.Failed(err, began), nil)
	}
}

// Reset implements core.Delivery.
func (d *leaseDelivery) Reset(ctx context.Context) error {
	if !d.r.works {
		return d.failed(ctx, "reset", transport.Unsupported("SendsAtomicWithReceive"))
	}
	d.work.mu.Lock()
	defer d.work.mu.Unlock()
	if err := d.usable(ctx); err != nil {
		return d.failed(ctx, "reset", err)
	}
	d.undo(ctx)
	return nil
}

// Savepoint implements core.Delivery.
func (d *leaseDelivery) Savepoint(ctx context.Context) (func(context.Context) error, error) {
	d.work.mu.Lock()
	defer d.work.mu.Unlock()
	n, name, err := d.addSavepoint(ctx)
	if err != nil {
		return nil, d.failed(ctx, "savepoint for", err)
	}
	return func(ctx context.Context) error {
		d.work.mu.Lock()
		defer d.work.mu.Unlock()
		if err := d.rollbackTo(ctx, n, name); err != nil {
			return d.failed(ctx, "rollback to a savepoint of", err)
		}
		return nil
	}, nil
}

// addSavepoint returns the number and the name of a new savepoint. Before the transaction
// begins there is no name: a rollback to such a savepoint rolls the transaction back.
func (d *leaseDelivery) addSavepoint(ctx context.Context) (n int, name string, err error) {
	if !d.r.works {
		return 0, "", transport.Unsupported("SendsAtomicWithReceive")
	}
	if err := cmp.Or(d.usable(ctx), d.work.undone); err != nil {
		return 0, "", err
	}
	n = d.work.savepoints.Add()
	tx := d.work.tx
	if tx == nil {
		return n, "", nil
	}
	op := d.r.operations.Begin(ctx)
	defer op.End()
	tx.BeginPart(op, n)
	if tx.Lost() {
		return 0, "", sqlexec.ErrEnded
	}
	name = dialect.InHandler + strconv.Itoa(n)
	return n, name, tx.Run(op, d.r.t.dialect.Savepoint(name))
}

// rollbackTo undoes the work since a savepoint. If that fails, the server does not allow
// a commit of the transaction.
func (d *leaseDelivery) rollbackTo(ctx context.Context, n int, name string) error {
	if err := d.usable(ctx); err != nil {
		return err
	}
	if err := d.work.savepoints.Check(n); err != nil {
		return err
	}
	op := d.r.operations.Begin(ctx)
	defer op.End()
	if tx := d.work.tx; name == "" {
		d.rollBackWork(op)
	} else {
		tx.EndParts(op, n)
		if tx.Lost() {
			return sqlexec.ErrEnded
		}
		if err := tx.Run(op, d.r.t.dialect.RollbackTo(name)); err != nil {
			return err
		}
	}
	d.work.savepoints.RolledBack(n)
	return nil
}
